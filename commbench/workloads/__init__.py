"""What a training step communicates: workloads of traces, and of a model and its layout."""
