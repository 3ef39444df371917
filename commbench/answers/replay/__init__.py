"""The replay of a workload: each operation of a step, and the step in its variants."""
