"""What every command refuses: two lines and an exit code, and nothing is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import planted
import pytest
from commands import run_commbench
from synthetic import plan, steady, synthetic_run
from synthetic_workload import TWO_RANKS

from commbench.answers.cost.machine import write_machine
from commbench.results.files import write_workload

FROZEN = Path(__file__).parents[1] / "data" / "journal-schema-1.jsonl"
JOB = "job slurm --nodes 2 --nproc-per-node 2"
PREDICT = "model predict machine.json"
RUNNING = "leave out --"
# By exit code and the words that lines begin with: what follows, the beginning of the error, and,
# behind a `~`, words of the hint.
REFUSED = {
    (2, "run"): """
        --sizes 1K -b 8: --sizes and -b both choose the sizes ~ leave out one of them
        --op reduce --root 2: --root 2 is not a rank of 2 ~ ranks: 0 to 1
        --iters many: --iters 'many' is not a whole number ~ write a whole number, for example 20
        --launches 1000000: --launches is 1000000 ~ it must be at most 1000
        all_reduce: too many arguments: all_reduce ~ write --op all_reduce; `commbench run --help`
        1K 2K: too many arguments: 1K 2K ~ and commas between several: --sizes 1K,1M
        --sizes 1K --sizes 1Q: --sizes '1Q' has an unknown unit ~ units are K, M, G, T
        --mesh dp=2 --mesh dp=4: --mesh 'dp=2,dp=4' names dp twice
        --sizes 1G-1K:x2: --sizes: the range '1G-1K:x2' is reversed ~ write 1K-1G:x2
        -b 64M: -b 64M is more than -e 32M ~ write for example -b 8 -e 128M
        -o results/x: --reduce-op: unknown reduce op 'results/x' ~ a folder is --output
        --precision 5: --precision '5' is not a percentage ~ write 5% or 0.05
        --budget -1: --budget is -1 ~ it must be above 0
        --timeout 0.5: --timeout is 0.5 ~ it must be at least 1
        --sizes 0: --sizes: size '0' is out of range ~ sizes go from 1 byte to 1024T
        --iters 5 --precision 1%: --precision has no effect with --iters ~ leave out one of them
        --db x.sqlite: --db has no effect without --history ~ add --history
        --sizes 3 --dry-run: nothing is left to measure: less than one float32 ~ larger size
        --root 1: --root has no effect with --op all_reduce ~ it is for broadcast, reduce, gather
        --nnodes 2: 2 nodes need the address of node 0 ~ on each node: --master-addr HOST
        --label a/b: --label 'a/b' cannot be part of a folder's name ~ use up to 64 letters
        -c 2: -c cannot be 2 ~ -c 1 checks results, -c 0 does not
        --dtype int32 --reduce-op avg: nothing is left to measure: avg is not defined for int32
        --iter 3: there is no option --iter ~ did you mean --iters? `commbench run --help` lists
        --form coalesced: --form coalesced takes several tensors
        --via gather+broadcast --tensors 2: --via gather+broadcast takes one tensor
        --tensors 0: --tensors is 0 ~ it must be at least 1
        --split fsdp: --split 'fsdp' is neither a number nor a split
        --via reduce: --via: unknown form 'reduce'
        --workload step.json --op barrier: --op has no effect with --workload ~ leave it out
        --workload step.json --nproc-per-node 1: two-ranks has 2 ranks, and not 1 ~ --fit shrink
        --workload step.json --fit grow: --fit: unknown fit 'grow' ~ known: refuse, shrink
        --op reduce,,barrier: --op has an empty item ~ --op all_reduce,all_gather
        --op replay: |needs a workload
        --op exchange --p2p-call send: |both ranks of a pair wait in send ~ write --p2p-call isend
        --op ring_exchange --p2p-call send: |waits in send until the next one calls recv
        --db= --sizes 1K: --db is empty ~ leave out --db
        --db --history --sizes 1K: --db has no value: --history is an option ~ leave out --db
        --master-addr node1 --sizes 1K: --master-addr has no effect on one node ~ add --nnodes
    """,
    (2, ""): """
        run --resume a --no-check: --no-check contradicts a ~ leave out --no-check to continue it
        pairs --resume a: a is no run of pairs ~ continue it with `commbench run --resume a`
        soak --resume a: a is no soak ~ continue it with `commbench run --resume a`
        replay --resume a: a is no replay ~ continue it with `commbench run --resume a`
        --sizes 1K: there is no option --sizes ~ as in `commbench run --sizes …`
        --siezs 1K: there is no option --siezs ~ `commbench --help` lists the options
    """,
    (3, "run"): """
        --launch graph: nothing is left to measure: a CPU has no CUDA graphs ~ measure on GPUs
        --backend nccl --device cpu: |nccl
        --backend smoke-signals: |smoke-signals
        --backend ucc: |'ucc' ~ it has: gloo; for ucc install a torch
        --group-size 1: nothing is left to measure: a group of one rank has no other
        --dtype int16: nothing is left to measure: gloo does not support int16 ~ try another
        --reduce-op premul_sum: nothing is left to measure: gloo has no premul_sum
    """,
    (6, ""): """
        export ring -o absent/x.csv: there is no folder absent ~ make it first, or choose another
        plot ring -o absent/x.png: there is no folder absent ~ make it first, or choose another
        report ring -o /proc/x.html: no file can be made in /proc ~ choose another folder
        report ring -o absent/x.html: there is no folder absent ~ make it first, or choose another
        show nowhere: there is no file, folder or run 'nowhere' ~ or a label under results/
        explain results/none: there is no file, folder or run 'results/none'
        compare ring rign: there is no file, folder or run 'rign' ~ did you mean ring?
        sweep --resume nowhere: there is no sweep 'nowhere'
        model fit absent: there is no file, folder or run 'absent'
        model fit bad.csv: bad.csv has no column ranks_per_node
        model fit a -o a: a is a folder
        run --sizes 1K --output absent/a/b: there is no folder absent/a ~ make it first
        pairs --output /absent/a: there is no folder /absent ~ make it first
        init --output /absent/a/b: there is no folder /absent/a ~ make it first
        init --ranks 2,3 --output /absent/a: there is no folder /absent ~ make it first
        sweep --env A=1,2 --force --sizes 1K --output /absent/a: there is no folder /absent ~ make
        replay step.json --output /absent/a: there is no folder /absent ~ make it first
        import mpi/inf.json -o /absent/a: there is no folder /absent ~ make it first
        fleet ring tree -o /absent/x.json: there is no folder /absent ~ make it first
        plot ring -o absent/x/y: there is no folder absent/x ~ make it first
    """,
    (2, "compare"): """
        : A is missing ~ write for example: commbench compare ring tree; `commbench compare --help`
        ring ring: ring and ring are the same run: results/20261121-060000-ring ~ name two different
        ring results/20261121-060000-ring/results.csv: ring and ring are the same run
        ring tree --plot x.gif: x.gif ends in .gif, which does not say how to draw it ~ .svg or .pdf
        ring tree -o x.xyz: x.xyz ends in .xyz, which does not say how to write it ~ .json, .png
        ring tree --tolerance 5: --tolerance '5' is not a percentage ~ write 5% or 0.05
        ring tree --format table: --format: unknown format 'table' ~ known: text, markdown, html,
        ring small: ring and small have no row in common ~ measure both with the same --sizes
        ring old-ring: ring (results/20261121-060000-ring) and ring (old-ring) have no row in common
        ring old-ring: |ring (old-ring) is incomplete ~ continue it with `commbench run --resume old
        ring tree --format json -o x.csv: --format json contradicts the ending of --output x.csv
        ring tree --format markdown -o x.html: --format markdown contradicts the ending of --output
        ring tree --format json -o x.png: --format json contradicts the ending of --output x.png
        ring tree --output=: --output is empty
    """,
    (2, "check a"): """
        --max-slowdown 5%:all_reduce: --max-slowdown '5%:all_reduce' is not a limit ~ [OPERATION:][
        --max-slowdown 1.25: --max-slowdown '1.25' is not a percentage ~ 1.25 times is +25%
        --max-time 9999999999s: --max-time: time '9999999999s' is more than a month
        --rules limits.toml: limits.toml, rule 2: max_slowdown needs a baseline ~ --against BASE
        --max-time 80us:all_reduce: --max-time '80us:all_reduce' is not a limit ~ [OPERATION:]
        --min-busbw 3GB/s:1M-1G: --min-busbw '3GB/s:1M-1G' is not a limit ~ [OPERATION:][SIZES:]
        --max-slowdown 10%: --max-slowdown needs a baseline ~ --against BASE
        --max-slowdown= --against b: --max-slowdown is empty ~ give a value
        --expect h900: --expect 'h900' is no known accelerator ~ hint: `commbench expect --help`
        --max-time 1s --undecided maybe: unknown --undecided 'maybe' ~ known: pass, fail
        --against ./a: a and a are the same run: a ~ name two different runs
        --max-time 1s --op broadcast: --op says what a file of another tool does not ~ leave --op
        --against b --ranks 9: |not; a and b are runs of commbench ~ leave --ranks out
    """,
    (2, "explain"): """
        all_reduce --ranks 0 --size 1M: --ranks is 0 ~ it must be at least 1
        barrier --ranks 2: barrier cannot be explained without --time ~ add for example --time 4.2ms
        barrier --ranks 2 --time 3us --size 8: --size 8 has no meaning for barrier ~ leave out --siz
        all_reduce --ranks 8 --size 1G --time 4ms --op all_reduce: --op all_reduce has no meaning
        all_redcue --ranks 8: 'all_redcue' is neither an operation nor a run ~ did you mean all_redu
        frozen --ranks 2: --ranks 2 describes a call of an operation, but all_reduce-barrier is a
        frozen --op gather: all_reduce-barrier has no gather ~ it has all_reduce, barrier
        frozen --op all_reduce,barrier: --op: unknown operation ~ only one name is taken here
        frozen --size 2K: all_reduce-barrier has no row of 2 KiB ~ it has 1K,4K
    """,
    (2, "job"): """
        : missing command ~ write one of these: slurm, kubernetes
        pbs: unknown command 'pbs' ~ write one of these: slurm, kubernetes
        slurm --nodes 0 --nproc-per-node 2: --nodes is 0 ~ it must be at least 1
        slurm --nproc-per-node 2: --nodes is missing ~ job slurm --nodes 4 --nproc-per-node 8 --
        kubernetes --nodes 2 --nproc-per-node 2: --image is missing ~ --claim results -- --backend
    """,
    (2, JOB): f"""
        -- --op all_redcue: --op: unknown operation 'all_redcue' ~ did you mean all_reduce? `
        -- --op gather --root 4: --root 4 is not a rank of 4 ~ ranks: 0 to 3
        -- --nnodes 2: --nnodes cannot be used after the -- of a job ~ {RUNNING}
        -- --launches 3: --launches cannot be used after the -- of a job ~ {RUNNING}
        -- --siezs 1K: there is no option --siezs ~ did you mean --sizes? `commbench run --help`
        --op all_reduce: there is no option --op ~ options of `commbench run` go after two dashes
        --nodes 0: --nodes is given several times ~ give it once
        --zone eu: there is no option --zone ~ `commbench job slurm --help` lists the options
        -- --zone eu: there is no option --zone ~ `commbench run --help` lists the options
        -- ring: too many arguments: ring ~ lists the options
    """,
    (3, JOB): "-- --backend gloo --dtype int16: nothing is left to measure: gloo does not support",
    (2, "doctor"): """
        --rounds 0: --rounds is 0 ~ it must be at least 1
        --nproc-per-node 1: --nproc-per-node is 1 ~ it must be at least 2
        --seconds -1: --seconds is -1 ~ it must be above 0
        --json: there is no option --json ~ `commbench doctor --help` lists the options
    """,
    (2, "history"): """
        show --op all_gather: results/history.sqlite has no row of operation all_gather ~ sizes
        show --size 3M: results/history.sqlite has no row of size 3M ~ operations: all_reduce; sizes
        show --op allreduce: --op: unknown operation 'allreduce'
        show --size 1Q: --size '1Q' has an unknown unit
        list --db=: --db is empty ~ leave out --db
        show --node node9: results/history.sqlite has no row of node node9 ~ its nodes: node1
        show --tolerance 300%: --tolerance '300%' is not below 100 %
        add untimed: |is incomplete ~ complete it first
        add mpi/inf.json: mpi/inf.json is incomplete: it has faults: result ~ a history takes whole
        forget: forget needs the runs, or a --node ~ `commbench history list` names them
        forget 1 --node n: forget takes no runs beside --node ~ leave out one of both
        export --op all: --op: unknown operation 'all'
    """,
    (6, "history"): """
        forget 99: |has no run '99'
        show --db none.sqlite: there is no history none.sqlite
        show --db results: cannot use the history results: Is a directory
        add nothing: there is no file, folder or run 'nothing'
    """,
    (2, "workload"): """
        show trace.json --format xml: --format: unknown format 'xml'
        import trace.json: --output is missing
        show: TRACE is missing
    """,
    (6, "workload"): """
        show absent.json: cannot read absent.json
        show .: |is not a trace
        show a: a/run.jsonl is a run, not a trace or a workload ~ commbench show a/run.jsonl
        import a/run.jsonl -o x: a/run.jsonl is a run, not a trace or a workload
    """,
    (6, "replay"): """
        a: a is a run, not a trace or a workload ~ commbench show a
        mpi/inf.json: mpi/inf.json is not a workload ~ commbench workload import TRACES
        results: cannot read results: Is a directory ~ commbench workload import results
    """,
    (2, "workload fsdp --model gpt-2-xl --mesh"): """
        dp=8: --mesh dp=8: dp is not a dimension here ~ write --mesh dp_shard=8
        tp=8: --mesh tp=8: tp is not a dimension here ~ megatron takes tp, cp, dp, pp and ep
        dp_shard=100000000: |a size that is too large: '100000000' ~ at most 1,048,576 ranks
    """,
    (2, "soak"): "--for never: --for 'never' is not a time ~ write 90s, 30m or 1h",
    (2, "init"): "-o x: there is no option -o ~ did you mean --output?",
    (
        2,
        "fleet results",
    ): "--nodes absent.txt: --nodes 'absent.txt' is no name of a node",
    (2, "smoke"): "--timeout 0.001: --timeout is 0.001 ~ it must be at least 1",
    (2, "pairs"): "--quick --pairs 0-1: --quick and --pairs both choose pairs ~ leave out one of",
    (2, "show"): """
        ring --op all_gather: ring has no all_gather ~ it has
        a/results.csv --dtype int8: |does not; a/results.csv is a run of commbench
    """,
    (2, "report"): "a b --max-time 1s: a check is of one run",
    (
        2,
        "export a",
    ): "--format json -o x.csv: --format json contradicts the ending of --output x.csv",
    (2, "advise a"): """
        --params many: --params 'many' is no number of parameters
        --params 350: --params '350' is too small a number of parameters ~ did you mean 350M?
        --params 1M --model-bytes 4M: --params and --model-bytes say the same
        --params 1M --backward 20: |time '20' has no unit
        --topk 2 --hidden 8: there is no option --topk ~ `commbench advise --help` lists the options
        --tolerance 2: --tolerance '2' is not a percentage
        --tolerance 200%: --tolerance '200%' is not below 100 %
        --format table: --format: unknown format 'table'
        --params 1M -o buckets: --output buckets has no ending ~ .json, .png, .svg, .pdf, or give
    """,
    (2, "expect"): """
        : no hardware is given
        --gpu h10: --gpu 'h10' is no known accelerator ~ did you mean h100?
        --gpu unheard-of --nodes 2 --nic 8x400G: --gpu 'unheard-of' is no known accelerator
        --gpu h100,a100: --gpu names several accelerators: h100 and a100
        --gpu h100-nvl --gpu a100: --gpu names several accelerators: h100-nvl and a100
    """,
    (2, "expect --gpu h100"): """
        --gpus-per-node 0: --gpus-per-node is 0
        --busbw abc: --busbw 'abc' is not a bandwidth
        --busbw -3GB/s: --busbw '-3GB/s' is not a bandwidth
        --algbw inf: --algbw 'inf' is not a bandwidth
        --busbw 0GB/s: --busbw '0GB/s' is not above 0
        --busbw 800GB/s/node: --busbw '800GB/s/node' is the speed of a node
        --link -3GB/s: --link '-3GB/s' is not a bandwidth
        --nodes 0: --nodes is 0
        --gpus-per-node 1: one rank communicates with nobody
        --op barrier: barrier has no bandwidth
        --op all_to_all_v: all_to_all_v has no bandwidth
        --busbw 480: --busbw '480' has no unit
        --busbw nvlink4: --busbw 'nvlink4' is not a bandwidth
        --busbw 480GB/s --algbw 3GB/s: --busbw and --algbw say the same thing
        --time 4ms: --time needs the size of the message
        --nic 8x400: --nic '8x400' has no unit ~ write 8x400G
        --nic 8x400Q: --nic: rate '400Q' has an unclear unit 'Q'
        --nic 8x: --nic: rate '8x' has an unclear unit 'x'
        --algorithm rong: unknown --algorithm 'rong'
        --tolerance 20: --tolerance '20' is not a percentage
        --format xml: --format: unknown format 'xml'
        --size 0: --size '0' is out of range
    """,
    (2, "model fit a"): """
        --leave-out nodes=2: --leave-out 'nodes=2' says neither ranks nor sizes
        --leave-out ranks=7: --leave-out: no measurement has ranks from 7 to 7
        --leave-out ranks=2: --leave-out leaves nothing to fit
        --ranks-per-node 0: --ranks-per-node is 0 ~ it must be at least 1
        mpi: the runs have different backends: gloo, mpi
    """,
    (3, "model fit"): "untimed: untimed: there is no time to fit",
    (2, PREDICT): """
        : --ranks is missing
        --ranks x: --ranks 'x' are no numbers of ranks
        --ranks 0: --ranks '0' are no numbers of ranks
        --ranks 8-: --ranks '8-' are no numbers of ranks
        --ranks 1: one rank needs no communication
        --ranks 99999999: --ranks is 99999999 ~ it must be at most 16777216
        --ranks 64 --ranks-per-node 0: --ranks-per-node is 0
        --ranks 64,100: 100 ranks do not fill hosts of 8 ranks
        --ranks 64 --sizes 1KB: --sizes '1KB' could mean
        --ranks 64 --op all_redcue: --op: unknown operation 'all_redcue'
        --ranks 64 --format xml: --format: unknown format 'xml'
    """,
    (3, PREDICT): """
        --ranks 64 --op all_gather: planted has no model of all_gather
        --ranks 64 --variant int8: all_reduce across hosts has no model named 'int8'
    """,
    (2, "sweep"): """
        --env A=1,2 --label ../../x: --label '../../x' cannot be part of a folder's name
        --env NCCL_ALGO=RING,TREE --sizes 1K: gloo does not read NCCL_ALGO: the settings would not
        --env NCCL_AGLO=RING,TREE --sizes 1K: --env NCCL_AGLO: nothing in torch or its backends is
        --vary cpu-mode=quiet,loud: --vary: unknown cpu mode 'loud'
        --vary cpu-mode=loud: --vary: unknown cpu mode 'loud' ~ known: quiet, plain
        --sizes 1K: there is only one setting: nothing to compare
        --sizes 1K --env A=1 --force: there is only one setting: nothing to compare
        --vary backend=gloo,gloo: there is only one setting: nothing to compare
        --vary overlap=none,matmul:9: --overlap matmul:9 has no shape MxNxK
        --vary timing=isolated,both --sizes 1K: --vary timing=both makes several cases
        --vary colour=red: unknown option to vary 'colour' ~ nproc-per-node, cpu-mode, python; --env
        --vary tming=isolated: unknown option to vary 'tming' ~ did you mean --vary timing?
        --vary label=a,b: --vary label: this option cannot be varied ~ these can: dtype, placement
        --resume nowhere --iters 5: --resume continues with the settings that the folder describes
        --resume nowhere --op all_reduce --no-plots: --resume continues with the ~ --no-plots
    """,
    (2, "sweep --vary cpu-mode=quiet,plain"): """
        --sizse 1K: there is no option --sizse ~ `commbench sweep --help` lists the options
        --output x --label y --launches 2: --launches cannot be used in a sweep
        --nonsense: there is no option --nonsense
        --rounds 0: --rounds is 0
        --export pdf: --export: unknown export 'pdf'
    """,
    (3, "sweep"): """
        --vary cpu-mode=quiet,plain --sizes 1K --export nccl-tuner: --export nccl-tuner needs the ba
        --vary backend=gloo,nothing: this torch has no backend 'nothing' ~ it has: gloo
    """,
}
LINES = [
    (code, f"{begin} {line.partition(': ')[0].strip(': ')}", line.partition(": ")[2])
    for (code, begin), lines in REFUSED.items()
    for line in (each.strip() for each in lines.strip().splitlines())
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs, a machine and a workload."""
    made = tmp_path_factory.mktemp("refused")
    for place, label, more in (
        ("results/20261121-060000-ring", "ring", {}),
        ("results/20261121-060100-tree", "tree", {}),
        ("results/20261121-060200-small", "small", {"sizes": (8,)}),
        ("a", "a", {}),
        ("b", "b", {}),
        ("mpi", "mpi", {"backend": "mpi"}),
    ):
        synthetic_run(made / place, label, lambda _: steady(1e-4), plan(**more))
    synthetic_run(made / "untimed", "untimed", lambda _: None)
    assert run_commbench(made, "history", "add", "results").code == 0
    shutil.copy(FROZEN.parent / "foreign" / "nccl-tests-1.json", made / "mpi" / "inf.json")
    header, *_ = (made / "results/20261121-060000-ring/run.jsonl").read_text().splitlines(True)
    (made / "old-ring").mkdir()
    (made / "old-ring" / "run.jsonl").write_text(header)
    (made / "limits.toml").write_text("[[rule]]\nmax_time = '1s'\n[[rule]]\nmax_slowdown = '10%'\n")
    (made / "frozen").mkdir()
    shutil.copy(FROZEN, made / "frozen" / "run.jsonl")
    (made / "bad.csv").write_text("operation,world_size,size_bytes,time_us\n")
    write_machine(planted.machine(), made / "machine.json")
    write_workload(made / "step.json", TWO_RANKS)
    return made


@pytest.mark.parametrize(("code", "line", "told"), LINES, ids=[line for _, line, _ in LINES])
def test_a_bad_request_is_two_lines_and_an_exit_code(
    folder: Path, code: int, line: str, told: str
) -> None:
    before = set(folder.rglob("*"))
    ended = run_commbench(folder, *line.split())
    assert (ended.code, ended.out) == (code, ""), ended.err
    *said, error, hint = ended.err.splitlines()
    message, _, advice = told.partition(" ~ ")
    begin, _, within = message.rpartition("|")
    assert error.startswith(f"error: {begin or ('' if '|' in message else within)}"), ended.err
    assert within in error
    assert hint.startswith("hint: ") and advice in hint
    assert not said or line.startswith(
        ("compare ring old", "model fit", "run --workload", "run --reduce-op")
    ), said
    assert set(folder.rglob("*")) == before
