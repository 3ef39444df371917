"""Views of one run: tables, notes, plots, export formats."""
