"""For scripts/bench: the peak resident memory of rank 0 in an in-place all_reduce of a size."""

import os
import resource
import sys

sys.argv, size = [sys.argv[0]], sys.argv[1]
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import commbench.worker.rank as rank_module  # noqa: E402
from commbench.cli.main import main  # noqa: E402

finish = rank_module.run_rank


def run_and_tell(tasks, rank_context, tell):
    finish(tasks, rank_context, tell)
    if rank_context.rank == 0:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"peak MiB {peak:.1f}", file=sys.stderr, flush=True)  # what a rank can still say


rank_module.run_rank = run_and_tell
sys.argv += ["run", "--sizes", size, "--iters", "2", "--no-plots"]
main()
