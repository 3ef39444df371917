"""Publishes heartbeats of ranks, finds ranks that hang or are lost, and ends the others."""
