"""Starts ranks, and detects the devices and backends of this host."""
