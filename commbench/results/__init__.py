"""The run folder: the journal, its schema, and the files in it."""
