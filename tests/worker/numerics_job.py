"""A job of gloo ranks that makes calls of the data of --numerics and writes their tensors;
test_numerics.py computes the errors from them.

Arguments: a folder, the number of ranks, the kind of data, and forms or specifications of calls.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from commbench.runner.run_options import parse_options
from commbench.worker.buffers import Arena
from commbench.worker.call_forms import make_call
from commbench.worker.communicator import Communicator
from commbench.worker.device import Device
from commbench.worker.numerics import Source, fill

folder, ranks, data = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rank = int(os.environ["RANK"])
forms = [name for name in sys.argv[4:] if ".py" not in name]
calls = [name for name in sys.argv[4:] if ".py" in name]
torch.set_num_threads(1)
store = dist.FileStore(str(folder / "store"), ranks)
dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
comm = Communicator(rank, ranks, Device(), dist.group.WORLD)
given = {"sizes": "400000", "form": forms or None, "calls": calls or None, "data": data,
         "numerics": True}  # fmt: skip
cases = parse_options(given).plan("gloo", "cpu", ranks).cases()
arena = Arena(comm, cases)
for case in cases:
    buffers = arena.of_groups(case)[0]
    fill(buffers.send, Source(data, case.dtype, 0, 0), rank)
    np.save(folder / f"sent-{rank}.npy", buffers.send.numpy())
    make_call(buffers)()
    np.save(folder / f"{case.call or case.form}-{rank}.npy", buffers.receive.numpy())
dist.barrier()
dist.destroy_process_group()
