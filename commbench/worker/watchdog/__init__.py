"""The watchdog of a rank: heartbeats of all ranks, the analysis of a hang, and its end."""
