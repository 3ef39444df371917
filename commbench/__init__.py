"""commbench measures the collectives of torch.distributed.

Nothing is imported here: `commbench --help` must start at once.
"""

__version__ = "0.1.0"
