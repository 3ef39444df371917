"""What `commbench show`, `plot`, `export`, `list`, `ops` and `init` print of runs and plans."""
