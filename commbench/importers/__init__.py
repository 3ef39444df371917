"""Readers of other tools' result files, one per format, into one neutral form (`foreign`).

Imports records.environment and what lies below records: plan, operations, dtypes, reductions,
units, errors. Start at `read.read_foreign`.
"""
