"""The commands that judge runs (compare, check, fleet, advise) or look something up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from commbench import api
from commbench.cli.commands import Show
from commbench.errors import UsageError
from commbench.output.console import print_result, print_status
from commbench.views.formats import ENDINGS, choose_format

if TYPE_CHECKING:
    from commbench.answers.compare.comparison import Comparison


def compare(
    show: Show, first: str, others: list[str], plot: Path | None, output: Path | None,
    fail_if_slower: bool, format: str | None, **given: Any,
) -> None:  # fmt: skip
    """Compare runs: one sentence for each range of sizes, then the rows that differ.

    A ratio is the time of B over the time of A, with its 95 % interval. Above 1, B is slower.

    \b
    commbench compare ring tree    # runs under results/, by label
    commbench compare results/old results/new --format markdown
    commbench compare old.csv new.csv --tolerance 10% --fail-if-slower
    commbench compare ring tree pat --plot algorithms.png
    """
    import gc

    from commbench.answers.compare.document import VIEW, Comparisons, find_slower
    from commbench.views.draw import is_drawn, names_file

    ending = output.suffix.lower() if output else ""
    is_page = ending in ENDINGS or (format and ending and not is_drawn(output, format))
    page = output if is_page else None
    if output and not page:
        names_file(output, ENDINGS)
    VIEW.require(choose_format(format, page))
    gc.disable()  # rows are tuples without cycles; looking for cycles takes a sixth of the time
    comparisons: list[Comparison] = []
    for other in others:
        baseline = comparisons[0].a if comparisons else first  # it is read once
        comparisons.append(api.compare(baseline, other, **given, notify=print_status))
    drawn: list[Path] = []
    picture = None if page else output
    if places := [*filter(None, (plot, picture))]:
        from commbench.answers.compare.plot import comparison_pictures, require_pictures
        from commbench.views.draw import write_pictures

        pictures = require_pictures(comparison_pictures(comparisons))
        for place in places:
            drawn += write_pictures(pictures, place)
    if not picture:
        show(Comparisons(comparisons), format_=format, output=page)
    for file in drawn:
        (print_result if picture else print_status)(file)
    if not fail_if_slower:
        return
    code, why = find_slower(comparisons)
    if code:
        print_status(why)
        raise typer.Exit(code)


def check(show: Show, run: str, **given: Any) -> None:
    """Check a run against limits or an earlier run.

    A row passes if its 95% interval is within the limit, by itself or with its range of sizes. It
    likely passes if its value is within the limit, and its interval spans at most a factor of 2. It
    fails if it is beyond the limit with 95% for all rows of its rule together, or with its range,
    or if it has no valid result. Else it is undecided.

    Exit code 0: of each rule a row passes, no fewer pass than likely pass, and nothing prevents a
    verdict. 1: a row fails, or the run is incomplete. 2: nothing can be checked, as where no rule
    matches a row. 7, no verdict: a row is undecided, or only one of the two runs has it, or too few
    rows of a rule pass.

    \b
    commbench check results/new --against results/old --max-slowdown 10%
    commbench check new --min-busbw all_reduce:1M-1G:3GB/s --max-time barrier:1ms
    commbench check new --expect run --tolerance 10%
    commbench check new --against old --rules limits.toml --junit report.xml
    """
    gate = api.check(run, **given, notify=print_status)
    show(gate)
    raise typer.Exit(gate.exit_code)


def fleet(show: Show, runs: list[str], output: Path | None, **given: Any) -> None:
    """Say which nodes are slower than their peers, from a run of each node.

    Exit code 0: all nodes pass. 1: a node is slow or wrong beyond doubt (drain). 7: none is, but
    nodes are undecided (again) or have no complete run (missing).

    \b
    commbench fleet results/tonight  # a folder with a run of each node
    commbench fleet tonight --nodes nodes.txt -o verdict
    commbench fleet --history        # the newest run of each node there
    commbench fleet n1=a.csv n2=b.csv n3=c.csv n4=d.csv
    """
    found = api.fleet(*runs, output=output, **given, notify=print_status)
    show(found)
    raise typer.Exit(found.exit_code)


def advise(
    show: Show, runs: list[str], output: Path | None, format: str | None, **given: Any
) -> None:
    """Say which bucket size, form of call or setting is faster, by how much, and from which size.

    Several runs on the same ranks are read together, such as runs of two algorithms of NCCL.

    \b
    commbench advise mine --params 350M --backward 120ms
    commbench advise ring tree                 # runs of two settings
    commbench advise mine --params 7B -o buckets.png
    """
    from commbench.views.draw import is_drawn

    picture = output if is_drawn(output, format) else None
    found = api.advise(*runs, output=picture, **given, notify=print_status)
    if picture:
        print_result(picture)
    else:
        show(found, format_=format, output=output)


def ops(show: Show, calls: bool) -> None:
    """Print the operations: the torch call, what it does, its size and its bus bandwidth.

    \b
    commbench ops
    commbench ops --calls
    """
    from commbench.plan.operations import OPERATIONS
    from commbench.plan.own_calls import installed_calls

    show(installed_calls() if calls else OPERATIONS)


def links(show: Show, name: str | None, published: bool) -> None:
    """Print the speed of links in one direction, with sources. --peak takes their names.

    \b
    commbench links
    commbench links h100
    commbench links --published
    """
    from commbench.answers.show.lists import find_links

    show(find_links(name, published))


def expect(
    show: Show, run: str | None, published: list[str], save_curve: Path | None, gpu: list[str],
    **given: Any,
) -> None:  # fmt: skip
    """Say what bandwidth to expect of hardware: what others measured, and what is possible. With a
    RUN, say whether each of its rows takes as long as on sound machines.

    The exit code is 0 whatever the answer: `commbench check RUN --expect run` is the gate.

    \b
    commbench expect mine
    commbench expect --gpu h100
    commbench expect --gpu h100 --nodes 2 --nic 8x400G --busbw 430GB/s
    commbench expect --gpu b200 --nodes 4 --nic efa --op all_reduce --size 8G
    """
    if run is None:
        ranks = given.pop("ranks")
        if published or save_curve or ranks:
            raise UsageError(
                "--published, --save-curve and --ranks need a run", "commbench expect RUN"
            )
        show(api.expect(" and ".join(gpu) or None, **given))
        return
    own = {name: given.pop(name) for name in ("tolerance", "op", "ranks")}
    if named := next(
        (name for name, value in {"gpu": gpu, **given}.items() if value not in (None, [], 1)), None
    ):
        from commbench.plan.links import find_gpu

        option = f"--{named.replace('_', '-')}"
        hint = f"write --gpu {run}" if find_gpu(run) else f"leave out {option} or RUN"
        raise UsageError(f"{option} is for expecting without a run", hint)
    own |= {"published": published, "save_curve": save_curve, "notify": print_status}
    show(api.expect_run(run, **own))


def env(show: Show) -> None:
    """Print what this machine offers: torch, backends, devices, host, environment variables.

    \b
    commbench env
    commbench env -o machine.json
    """
    show(api.environment())


def doctor(show: Show, **given: Any) -> None:
    """Find out what disturbs measurements with CPU ranks on this host, and what would help.

    \b
    commbench doctor
    commbench doctor --seconds 240 --rounds 12 --nproc-per-node 4
    commbench doctor -o doctor.json     # everything, for a ticket
    """
    report = api.doctor(**given, notify=print_status)
    show(report)
    if report.trouble:
        raise report.trouble
