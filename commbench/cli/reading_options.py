"""The options of the commands that read runs, judge and predict, or look something up."""

from __future__ import annotations

from pathlib import Path

from commbench.answers.show.formats import FORMAT_HELP, PEAK_HELP
from commbench.cli.commands import (
    AS_DOCUMENT,
    FOREIGN,
    JUNIT,
    NEW_FILE,
    OUTPUT,
    Command,
    argument,
    switch,
)
from commbench.plan.dimensions import DEFAULT_TIMING, TIMING_HELP
from commbench.runner.option import Option

RULE, VERDICT = "Rules", "Verdict"
RUN = argument("RUN", "Run folder, run.jsonl, results.csv, or label.")
RUNS = argument("RUN...", "Run folders, run.jsonl, labels, or other tools' files.", list[str])
FILE_HINTS = {
    "ranks": Option("N", "Number of ranks, if the file does not say it.", FOREIGN, int),
    "op": Option("OP", "Operation, if the file does not say it.", FOREIGN, str),
    "dtype": Option("DTYPE", "Element type, if the file does not say it.", FOREIGN, str),
}
"""What describes another tool's file."""
ROWS = {
    "op": Option("OP", "Only this operation; or that of another tool's file.", type=str),
    "size": Option("SIZES", "Only these sizes: 1M, or 1M,4M.", type=str),
    **{name: FILE_HINTS[name] for name in ("ranks", "dtype")},
}
"""Which rows of a run; and what else describes another tool's file."""
LIMITS = {
    "against": Option("BASELINE", "An earlier run; `history`: its usual level.", RULE),
    "max_slowdown": Option(
        "[ROWS:]PERCENT", "How much slower a row may be. ROWS: OP:SIZES, dtype=TYPE, call=NAME, "
        "step=NAME.  [default: 10% with --against]", RULE,
    ),
    "min_busbw": Option(
        "[ROWS:]GB/s", "Least bus bandwidth: all_reduce:1M-1G:3.0GB/s.", RULE
    ),
    "max_time": Option(
        "[ROWS:]TIME", "Longest time: all_reduce:-64K:80us; of an own call, call=NAME:5ms; "
        "of the step of a replay, step=NAME:120ms or step=NAME:variant=HOW:120ms.", RULE,
    ),
    "expect": Option(
        "run|published|GPU[:NICS][:K nodes]", "Compare with what the hardware of the run, or this "
        "one, allows: h100:8x400G; or with published curves of sound machines.", RULE,
    ),
}  # fmt: skip
VERDICTS = {
    "rules": Option(
        "FILE.toml", "Read rules from a file: [[rule]], then min_busbw = '3GB/s'.", RULE, Path
    ),
    "undecided": Option(
        "pass|fail|no-verdict", "What rows that are undecided, or likely pass, do. fail: they "
        "fail, and each row has to pass by itself; pass: they pass, unless the whole interval is "
        "beyond the limit; no-verdict: the check has no verdict.  [default: no verdict where a row "
        "is undecided, but likely passed does not matter]",
        VERDICT,
    ),
    "allow_unmatched": switch(
        "Ignore rows that only one of the two runs has, and rules that match no row.", VERDICT
    ),
    "allow_unchecked": switch("Let rows pass that nobody checked.", VERDICT),
}  # fmt: skip
FORCE = switch("Compare runs although ranks, nodes, device or CPU mode differ.")
HARDWARE, GIVEN, CURVES = "Hardware", "Is this plausible?", "Published curves"
STEP = "The training step"
SHOW = {
    "run": argument(
        "[RUN]", "Run folder, its run.jsonl, label, another tool's file, or folder of a sweep.  "
        "[default: the newest run]", default=None,
    ),
    "format": Option(
        "HOW", f"{FORMAT_HELP}  [default: by the ending of FILE, else text]", type=str
    ),
    "output": AS_DOCUMENT["output"],
    "peak": Option("SPEED", f"{PEAK_HELP}  [default: that of the run]", type=str),
    "warnings": switch(
        "Print only warnings, all of them, and explain them and the columns; of a sweep as "
        "--verbose."
    ),
    "verbose": switch("Print every row and column, every group, and explain warnings."),
    "groups": switch("Print the time of each group of ranks instead: alone, together."),
    **ROWS,
}  # fmt: skip
PLOT = {
    "runs": RUNS._replace(
        metavar="[RUN]...", default=(), help=f"{RUNS.help}  [default: the newest run]"
    ),
    "output": Option(
        "DIR|FILE", "Folder for busbw.png and time.png, or one new file: .png, .svg, .pdf.  "
        "[default: the folder of the first run]",
    ),
    "peak": Option("SPEED", "Mark a speed: 450GB/s, or a link.  [default: that of the runs]"),
    **FILE_HINTS,
}  # fmt: skip
EXPLAIN = {
    "what": argument("OP|RUN", "An operation, or a run: folder, label, or another tool's file."),
    "ranks": Option("N", "With OP: number of ranks."),
    "size": Option(
        "SIZE", "Size, as printed by run and nccl-tests: 1M, 1G.  [default: of a RUN, that of "
        "the highest busbw of each kind of call]",
    ),
    "time": Option("T", "With OP: time of one call: 120us, 4.2ms."),
    "dtype": Option("DTYPE", "With OP: element type.  [default: float32]", flags="--dtype -d"),
    "timing": Option("HOW", f"With OP. {TIMING_HELP}.  [default: {DEFAULT_TIMING}]"),
    "nodes": Option("K", "With OP: number of nodes.  [default: 1]"),
    "op": Option("OP", "With RUN: only the rows of this operation."),
    "peak": Option("SPEED", "Compare busbw with a speed: 450GB/s, 400GB/s/node, or a link."),
    "model": Option("MACHINE", "Compare with predictions of a file of `commbench model fit`."),
}  # fmt: skip
OPS = {
    "calls": switch("List the calls that packages have installed for --call; this imports them."),
}
EXPORT = {
    "run": RUN,
    "format": Option(
        "FORMAT", "csv, json, markdown, nccl-tests, parquet, openmetrics, curves, nccl-perf, "
        "autoparallel or inductor.  [default: by the ending of FILE: .csv, .json, .md, .parquet, "
        ".prom; else csv]", type=str,
    ),
    "output": NEW_FILE,
}  # fmt: skip
IMPORT = {
    "file": argument("FILE", "Output of a tool such as nccl-tests, OSU, IMB or PARAM.", Path),
    **FILE_HINTS,
    "system": Option("NAME", "Of a file of curves, those of this system.", FOREIGN),
    "nccl_version": Option("V", "Of a file of curves, those of this version of NCCL.", FOREIGN),
    "label": Option("NAME", "Name of the run.  [default: the name of the file]"),
    "output": Option(
        "DIR",
        "Folder of the run, new or empty. The folder above it must exist, but A of A/B is "
        "made.  [default: results/TIME-LABEL]",
    ),
}
REPORT = {
    "runs": argument(
        "[RUN]...", "Run folders, labels, other tools' files; or one sweep.  [default: the newest "
        "run]", list[str], (),
    ),
    "output": NEW_FILE._replace(
        help="New file, or commbench's HTML to replace.  [default: print the text]", group=OUTPUT,
    ),
    "format": Option(
        "FORMAT", "html, markdown or text.  [default: by the ending of FILE, else markdown for a "
        "terminal, and html otherwise]", OUTPUT, str,
    ),
    **LIMITS,
    **VERDICTS,
    "tolerance": Option(
        "PERCENT", "Of several runs: differences up to this count as the same.  [default: 5%] "
        "With --expect: as that of `commbench check`.", VERDICT,
    ),
    "force": FORCE._replace(group=VERDICT),
    **FILE_HINTS,
}  # fmt: skip
COMPARE = {
    "first": argument("A", "The run that others are compared with: a label, folder or file."),
    "others": argument("B...", "The runs that are compared with A.", list[str]),
    "tolerance": Option("PART", "Differences up to this count as the same."),
    "force": FORCE,
    "format": Option(
        "FORMAT", "text, markdown, html, json or csv.  [default: by the ending of FILE, else text]",
        type=str,
    ),
    "verbose": switch("Print all rows, more columns, and all warnings."),
    "plot": Option("FILE", "Draw one picture into a new file: .png, .svg, .pdf.", type=Path),
    "output": Option(
        "FILE|DIR", "New file: .txt, .md, .html or .json. Or a picture of each operation in this "
        "folder, or one: .png, .svg, .pdf.  [default: print the text]", type=Path,
    ),
    "fail_if_slower": switch(
        "Exit with 1 if any row or range of sizes is slower; with 7 if one is undecided, and takes "
        "longer than the tolerance allows or is too noisy."
    ),
    **ROWS,
}  # fmt: skip
DB = Option("FILE", "The history.  [default: results/history.sqlite]", type=Path)
PUBLISHED = Option(
    "FILE", "Your own curves: a CSV of curves, or a run. Repeat it for several.", type=list[str]
)
CHECK = {
    "run": RUN,
    **LIMITS,
    "tolerance": Option(
        "PERCENT", "With --expect: how far below the lowest figure of others a row may be.  "
        "[default: 20%; with published, how much longer than it: 40% below 1M, 20% below 16M, "
        "10% from there]", RULE, flags="--tolerance --expect-tolerance",
    ),
    "published": PUBLISHED._replace(group=RULE),
    "node": Option("NAME", "Of --against history: the node.  [default: the hosts of RUN]", RULE),
    "db": DB._replace(group=RULE),
    **VERDICTS,
    "force": FORCE._replace(group=VERDICT),
    "junit": JUNIT,
    "json": Option("FILE.json", "Write the verdict and all rows to a new file.", OUTPUT, Path),
    "verbose": switch("Print every row, not only 8 that fail or are undecided.", OUTPUT),
    **AS_DOCUMENT,
    "format": COMPARE["format"]._replace(group=OUTPUT),
    **FILE_HINTS,
}  # fmt: skip
FLEET = {
    "runs": argument(
        "[RUN]...", "A run of each node: run folders, labels, results.csv, other tools' files, "
        "NAME=PATH, or folders of runs. With none, --history takes the newest of each node.",
        list[str], (),
    ),
    "history": switch("Say since when a slow node is slow, by the history.", VERDICT),
    "db": DB._replace(group=VERDICT),
    "nodes": Option(
        "FILE|LIST", "The nodes that there should be: node1,node2, or a file with a name in each "
        "line.", VERDICT, str, separator=",",
    ),
    "false_alarms": Option("PERCENT", "Probability that a sound fleet has one to drain.", VERDICT),
    "tolerance": Option("PERCENT", "A node that is slower by at most this passes.", VERDICT),
    "output": Option(
        "DIR", "New folder for pass.txt, drain.txt, again.txt, missing.txt, junit.xml, fleet.json, "
        "a page and a picture.", OUTPUT, Path,
    ),
    "format": Option("FORMAT", "text, markdown, html or json.  [default: text]", OUTPUT, str),
    "verbose": switch("Print all nodes.", OUTPUT),
    **FILE_HINTS,
}  # fmt: skip
ADVISE = {
    "runs": RUNS._replace(help="Runs and sweeps: labels, folders or journals."),
    "params": Option("NUMBER", "Parameters of the model: 350M, 7B, 7e9.", STEP),
    "model_bytes": Option("SIZE", "Bytes of all gradients, instead of --params.", STEP),
    "backward": Option(
        "TIME", "The backward pass alone: 300ms.  [default: as long as the communication]", STEP
    ),
    "tensors": Option(
        "N", "Gradients of equal size.  [default: as many as fill each bucket]", STEP
    ),
    "bucket_cap": Option("SIZE", "The bucket size in use.  [default: 25M, the first 1M]", STEP),
    "tolerance": Option("PART", "Gains up to this count as none.", OUTPUT),
    "format": AS_DOCUMENT["format"],
    "output": AS_DOCUMENT["output"]._replace(
        help="New file: .txt, .md, .html or .json; or a picture of the times over the bucket size: "
        ".png, .svg, .pdf.  [default: print the text]",
    ),
    "verbose": switch("Print all bucket sizes, and what advice about single calls lacks.", OUTPUT),
    **FILE_HINTS,
}  # fmt: skip
MODEL_FIT = {
    "runs": argument("RUN...", "Runs, other tools' files, or CSV of published figures.", list[str]),
    "output": Option(
        "FILE.json", "New machine file. The residuals are drawn into FILE.png.  [default: print "
        "only]",
    ),
    "leave_out": Option(
        "ranks=N|sizes=SIZES", "Fit without these ranks or sizes, and say how well they are "
        "predicted: ranks=512-, sizes=1M-64M. Repeat it for several.",
    ),
    "name": Option("NAME", "Name of the machine.  [default: that of FILE]"),
    "ranks_per_node": Option("N", "Ranks on each host, if the file does not say it.", FOREIGN),
    "ranks": Option("N", "Fit only groups of so many ranks; or the ranks of a file without them."),
    "op": Option("OP", "Fit only this operation; or that of a file without one."),
    "dtype": Option("DTYPE", "Fit only this element type; or that of a file without one."),
    "format": Option("FORMAT", "text, markdown, html or json.", type=str, default="text"),
}  # fmt: skip
_MACHINE = argument("MACHINE", "A file of `commbench model fit`, or published:h100.")
MODEL_SHOW = {"machine": _MACHINE}
MODEL_PREDICT = {
    "machine": _MACHINE,
    "ranks": Option(
        "N", "Numbers of ranks: 512, or 8,64,512, or 8-512 (doubles).", type=str, default=...,
        separator=",",
    ),
    "ranks_per_node": Option("N", "Ranks on each host.  [default: as measured; on one host, all]"),
    "op": Option("OP", "Operations.  [default: all of the machine]", type=str, separator=","),
    "sizes": Option("SIZES", "Sizes, as for run: 1M-1G, 8,1K.", separator=","),
    "variant": Option("WORDS", "Which of several models of an operation, such as bfloat16."),
    "format": Option(
        "FORMAT", "text, markdown, html, json, csv, autoparallel, inductor or nccl-tuner.  "
        "[default: by the ending of FILE, else text]", type=str,
    ),
    "output": Option(
        "FILE", "New file: .txt, .md, .html or .json; a picture if it ends in .png, .svg or .pdf.  "
        "[default: print the text]", type=Path,
    ),
}  # fmt: skip
LINKS = {
    "name": argument("[NAME]", "A link or an accelerator, such as ib-ndr or h100.", default=None),
    "published": switch("Print bus bandwidths that others published."),
}
EXPECT = {
    "run": argument("[RUN]", "A run, to compare its rows with published curves.", default=None),
    "published": PUBLISHED._replace(group=CURVES),
    "save_curve": Option("FILE.csv", "Write RUN's times as curves into a new file.", CURVES),
    "ranks": FILE_HINTS["ranks"],
    "gpu": Option(
        "GPU", "Accelerator, or the name of a device: gb300, gb200, b300, b200, gh200, h200-nvl, "
        "h200, h100-pcie, h100-nvl, h100, h800, a100-pcie, a100, v100-pcie, v100, p100-pcie, p100, "
        "l40s, rtx5090, rtx-pro-6000, mi250x, mi300x, mi325x, mi350x, mi355x.", HARDWARE, list[str],
    ),
    "nodes": Option("K", "Number of nodes.", HARDWARE),
    "gpus_per_node": Option("N", "Ranks on each node.  [default: 8; 4 for GB200, GB300]", HARDWARE),
    "nic": Option("NICS", "Network of a node: 8x400G (Gbit/s), 8xib-ndr, efa, 400GB/s.", HARDWARE),
    "link": Option("SPEED", "Links of an accelerator, one way: 450GB/s, or a name.", HARDWARE),
    "op": Option("OP", "Operation.  [default: all_reduce]"),
    "size": Option("SIZE", "Size, as printed by run and nccl-tests: 8G.  [default: any large one]"),
    "algorithm": Option("NAME", "Only figures of this algorithm: ring, tree, nvls, nvlstree."),
    "nccl": Option("VERSION", "Version of NCCL; leaves out figures of newer features."),
    "busbw": Option("SPEED", "Bus bandwidth: 430GB/s.", GIVEN),
    "algbw": Option("SPEED", "Algorithm bandwidth: 250GB/s.", GIVEN),
    "time": Option("T", "Time of one call, with --size: 4.2ms.", GIVEN),
    "tolerance": Option("PERCENT", "How far below figures of others is plausible.  [default: 20%]"),
}  # fmt: skip
DOCTOR = {
    "seconds": Option("S", "About how long the whole check takes."),
    "rounds": Option("N", "How often each cpu mode is tried."),
    "nproc_per_node": Option("N", "Ranks of each launch."),
    "verbose": switch("Print every size of each mode, and all facts of the host."),
}
NODE = Option("NAME", "Only this node or cluster.")
CHOSEN = {
    "op": Option("OP", "Only this operation."),
    "size": Option("SIZES", "Only these sizes: 1M, or 1M,4M.", separator=","),
    "node": NODE,
    "db": DB,
}
HISTORY_ADD = {
    "runs": RUNS._replace(help="Run folders, labels, files; or a folder of runs."),
    "node": Option("NAME", "The node or the cluster.  [default: the hosts of the run]"),
    "db": DB,
}
HISTORY_SHOW = {
    **CHOSEN,
    "tolerance": Option("PART", "Changes up to this are no steps."),
    **AS_DOCUMENT,
    "output": MODEL_PREDICT["output"]._replace(group=OUTPUT),
    "verbose": switch("Print all rows, also those without a level yet.", OUTPUT),
}
HISTORY_ACCEPT = {"run": argument("RUN", "Number or label of a run."), "db": DB}
HISTORY_FORGET = {
    "runs": argument("[RUN]...", "Numbers or labels of runs.", list[str], ()),
    "node": Option("NAME", "All runs of this node or cluster."),
    "db": DB,
}
_API, _TREND = "commbench.api.history", "answers.history.document"
_FIT, _PREDICTED = "answers.cost.fit_document", "answers.cost.predict_document"
COMMANDS = {
    "list": Command("reading", {}, view="answers.show.lists:RUNS"),
    "show": Command("reading", SHOW),
    "plot": Command("reading", PLOT, ("plot",)),
    "report": Command("reading", REPORT, ("check",)),
    "explain": Command("reading", EXPLAIN, ("explain",), "answers.explain.explanation"),
    "export": Command("reading", EXPORT, ("export",)),
    "import": Command("reading", IMPORT, ("import_results",)),
    "compare": Command("judging", COMPARE, ("compare",), "answers.compare.document"),
    "check": Command("judging", CHECK, ("check",), "answers.check.document"),
    "fleet": Command("judging", FLEET, ("fleet",), "answers.fleet.document"),
    "history add": Command("subcommands", HISTORY_ADD, (f"{_API}.add",)),
    "history list": Command(
        "subcommands", {"node": NODE, "db": DB}, (f"{_API}.list_",), f"{_TREND}:RUNS",
    ),
    "history show": Command("subcommands", HISTORY_SHOW, (f"{_API}.show",), _TREND),
    "history export": Command("subcommands", {**CHOSEN, "output": NEW_FILE}, (f"{_API}.export",)),
    "history accept": Command("subcommands", HISTORY_ACCEPT, (f"{_API}.accept",)),
    "history forget": Command("subcommands", HISTORY_FORGET, (f"{_API}.forget",)),
    "advise": Command("judging", ADVISE, ("advise",), "answers.advise.document"),
    "model fit": Command("subcommands", MODEL_FIT, ("fit_model",), _FIT),
    "model show": Command("subcommands", MODEL_SHOW, view=_FIT),
    "model predict": Command("subcommands", MODEL_PREDICT, ("predict",), _PREDICTED),
    "ops": Command("judging", OPS, view="answers.show.lists:CALLS"),
    "links": Command("judging", LINKS, view="answers.show.lists:LINKS"),
    "expect": Command("judging", EXPECT, ("expect", "expect_run"), "answers.expect.document"),
    "env": Command("judging", {}, view="answers.show.lists:ENVIRONMENT"),
    "doctor": Command("judging", DOCTOR, ("doctor",), "answers.doctor.document"),
}  # fmt: skip
"""By the words that call them."""
