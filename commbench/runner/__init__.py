"""Runs one measurement, from its options to its record. Reports to a RunListener and prints
nothing."""
