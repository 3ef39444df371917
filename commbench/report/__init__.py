"""Numbers to people: tables, plots, results.csv, progress. Imports analysis and below."""
