"""Cost models fitted to measured times, and what they say about machines that were not measured.

Imports analysis, importers, results and spec.
"""
