"""Numbers from records: statistics, rows, columns, diagnostics."""
