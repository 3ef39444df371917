"""One tiny all_reduce, for scripts/bench: what starting ranks costs under torchrun."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
