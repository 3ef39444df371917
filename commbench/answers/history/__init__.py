"""Runs over time: what became slower or faster, when, and what changed then."""
