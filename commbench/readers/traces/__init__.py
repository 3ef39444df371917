"""Traces of training jobs: the collective calls of each rank, as torch and NCCL record them."""
