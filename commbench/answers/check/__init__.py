"""Limits that a run must keep: rules, and whether rows break them."""
