"""Finds what on this host would disturb measurements with CPU ranks."""
