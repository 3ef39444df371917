"""Which nodes of a fleet are slower than their peers."""
