"""The run directory: the journal and its schema, environment facts. Imports plan and below."""
