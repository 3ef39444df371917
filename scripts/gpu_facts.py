"""For scripts/gpu_check: `gpu_facts.py DEVICE FILE` writes the facts of this machine."""

import ctypes
import json
import re
import sys
from pathlib import Path

from commbench.host.environment import gather_facts
from commbench.worker.device import DEVICES

facts, kind = gather_facts(), DEVICES[sys.argv[1]]
devices = [kind.open(index) for index in range(kind.number())]
facts["devices"] = [[each.name, each.uuid, each.free_bytes()] for each in devices]
facts["nccl_loaded"] = {}
"""The version of each NCCL in this process: torch.cuda.nccl.version() is that of its headers."""
for path in set(re.findall(r"/\S*/lib[nr]ccl\.so\S*", Path("/proc/self/maps").read_text())):
    version = ctypes.c_int()
    ctypes.CDLL(path).ncclGetVersion(ctypes.byref(version))
    facts["nccl_loaded"][path] = version.value
Path(sys.argv[2]).write_text(json.dumps(facts))
print(json.dumps(facts, indent=1))
