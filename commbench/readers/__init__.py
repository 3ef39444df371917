"""Other tools' result files as runs, one importer per format. Start at `registry.import_run`.

Imports results, spec and host, and the layers below.
"""
