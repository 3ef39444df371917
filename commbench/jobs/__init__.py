"""Job scripts that start a run on several nodes: for Slurm and for Kubernetes."""
