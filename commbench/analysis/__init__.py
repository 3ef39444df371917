"""Numbers from records: statistics, when to stop sampling, rows. Imports records and below."""
