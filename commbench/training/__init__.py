"""What a training step communicates: workloads generated from a model and a layout."""
