"""Numbers from records: statistics, rows, columns, diagnostics. Imports importers and below."""
