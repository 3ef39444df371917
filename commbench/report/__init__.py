"""Views of one run: tables, notes, plots, export formats. Imports analysis and below."""
