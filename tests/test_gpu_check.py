"""scripts/gpu_check: its runner, verdict and evidence, and its steps on a stand-in for a GPU."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from commands import SHORT_DELAYS, free_port, start_command
from fake_device import Fake, program_text

from commbench.plan.operations import find_operation
from commbench.runner.run_options import RUN_OPTIONS

RUN = ("-m", "commbench", "run")
ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "gpu_check"
ON_FAKE = ("--backend", "gloo", "--device", "fake")


@pytest.fixture
def gpu_check() -> Any:
    loader = SourceFileLoader("gpu_check", str(SCRIPT))
    spec = spec_from_loader("gpu_check", loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


class Checked(NamedTuple):
    """What the script left."""

    code: int
    out: str
    verdict: dict[str, Any]
    steps: dict[str, dict[str, Any]]
    tests: dict[str, str]
    """Of each test in the JUnit file, its outcome."""
    packed: list[str]


def read(folder: Path, code: int = 0, out: str = "") -> Checked:
    assert (folder / "verdict.json").exists(), out
    verdict = json.loads((folder / "verdict.json").read_text())
    suite = ElementTree.parse(folder / "junit.xml").getroot()
    tests = {
        case.get("name", "").rpartition("::")[2]: case[0].tag if len(case) else "passed"
        for case in suite
    }
    assert suite.get("tests") == str(len(suite))
    with tarfile.open(folder / "evidence.tar.gz") as archive:
        packed = archive.getnames()
    return Checked(code, out, verdict, {s["step"]: s for s in verdict["steps"]}, tests, packed)


DRIVER = f"""
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
m = module_from_spec(spec_from_loader("m", SourceFileLoader("m", {str(SCRIPT)!r})))
m.__spec__.loader.exec_module(m)
facts = '{{"devices": [["a stand-in", "GPU-0", 1]]}}'
m.FACTS = m.FACTS._replace(words=("-c", f"open('FOLDER/facts.json', 'w').write({{facts!r}})"))
m.CORE = (m.FACTS,)
def code(name, program, limit_s=30, *needs):
    return m.Step(name, "", limit_s, ("-c", program), needs)
def tests(name, text, limit_s, test_s):
    folder = FOLDER / name
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text("import pytest\\npytestmark = pytest.mark.gpu\\n" + text)
    step = m.tests(name, "", limit_s, "test", test_s=test_s)
    words = (*step.words[:-1], "-c", "pyproject.toml", str(folder))
    return step._replace(words=words, needs=("pytest",))
"""
"""The script with other steps: its first one finds a GPU."""


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start the script with the steps that a program puts into EXTRAS."""

    def started(program: str, *options: str) -> subprocess.Popen[str]:
        conftest = (ROOT / "tests" / "gpu" / "conftest.py").read_text()
        head = (
            f"from pathlib import Path\nFOLDER = Path({str(tmp_path)!r})\nCONFTEST = {conftest!r}"
        )
        return subprocess.Popen(
            [sys.executable, "-c", f"{head}\n{DRIVER}\n{program}\nsys.exit(m.main())",
             str(tmp_path / "out"), *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    return started


def ended(process: subprocess.Popen[str], folder: Path) -> tuple[Checked, str]:
    """What a check left that some step failed, and printed."""
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 1, out
    return read(folder / "out"), out


ORPHAN = "import subprocess; subprocess.Popen(['sleep', '{}'], start_new_session=True);"
"""Leaves a process in a session of its own, as torchrun leaves its ranks."""
HANGS = "print('before', flush=True); import time; time.sleep(60)"
SLEEPS = tuple(f"6{number}.{os.getpid()}" for number in range(3))


def sleeping() -> set[str]:
    """The SLEEPS of processes that are there."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        found |= {text for text in SLEEPS if words[:2] == [b"sleep", text.encode()]}
    return found


def test_each_step_passes_fails_or_is_not_run_and_all_is_in_the_evidence(
    check: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    program = f"""
m.EXTRAS = (
    code("works", {ORPHAN.format(SLEEPS[0])!r}),
    code("hangs", {ORPHAN.format(SLEEPS[1]) + HANGS!r}, 2),
    code("fails", "print('\\x1b why'); exit(4)"),
    code("killed", "import os; os.kill(os.getpid(), 9)"),
    code("lacks", "", 30, "no_such_package"),
    code("long", "", 999),
    code("after", ""),
)
"""
    found, out = ended(check(program), tmp_path)
    outcomes = {name: (step["outcome"], step["reason"]) for name, step in found.steps.items()}
    long = outcomes.pop("long")
    assert outcomes == {
        "environment": ("passed", ""), "works": ("passed", ""), "after": ("passed", ""),
        "hangs": ("failed", "did not end within 2 s"), "fails": ("failed", "exit code 4"),
        "killed": ("failed", "killed by SIGKILL"), "lacks": ("not run", "needs no_such_package"),
    }  # fmt: skip
    assert long[0] == "not run" and "time was up: it may take 999 s" in long[1]
    counts = "(3 passed, 3 failed, 2 not run)"
    assert found.verdict["verdict"] == f"failed: hangs, fails, killed {counts}"
    assert found.tests["hangs"] == "failure" and found.tests["long"] == "skipped"
    assert "   before" in out and "not run: lacks: needs no_such_package" in out
    assert {"verdict.json", "junit.xml", "hangs/log", "fails/log"} <= set(found.packed)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "evidence.tar.gz", "junit.xml", "verdict.json"
    ]  # fmt: skip
    assert not sleeping() & set(SLEEPS[:2])


def test_a_test_that_hangs_ends_at_its_limit_and_the_others_have_an_outcome(
    check: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    program = """
m.EXTRAS = (
    tests("one", '''
import time, warnings
def test_first(): warnings.warn("torch warns of something old", FutureWarning)
def test_hangs(): time.sleep(60)
def test_later(): pass
''', 30, 1),
    tests("held", '''
import signal, time
def test_done(): pass
def test_holds():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(60)
def test_lost(): pass
''', 7, 1),
    tests("none", '''
def test_skips(): pytest.skip("too little memory")
''', 30, 9),
)
"""
    found, out = ended(check(program), tmp_path)
    assert found.tests == {
        "environment": "passed", "test_first": "passed", "test_hangs": "failure",
        "test_later": "passed", "test_done": "passed", "test_holds": "failure",
        "test_lost": "skipped", "test_skips": "skipped",
    }, out  # fmt: skip
    reasons = {
        test["test"].rpartition("::")[2]: test["reason"]
        for step in found.steps.values()
        for test in step.get("tests", ())
    }
    assert reasons["test_hangs"] == "Failed: did not end within 1 s"
    assert reasons["test_holds"] == "did not end within 7 s"
    assert found.steps["none"]["outcome"] == "not run"
    assert "too little memory" in found.steps["none"]["reason"]
    assert found.verdict["failed"] == ["one", "held"]


def test_a_check_that_is_ended_leaves_its_evidence_and_no_process(
    check: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    hangs = ORPHAN.format(SLEEPS[2]) + HANGS
    process = check(f"m.CORE += (code('works', ''), code('hangs', {hangs!r}))\nm.EXTRAS = ()")
    deadline = time.monotonic() + 60
    while not sleeping() & {SLEEPS[2]}:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    found = read(tmp_path / "out")
    assert found.verdict["passed"] == ["environment", "works"]
    assert "no verdict: of the core did not run: hangs" in found.verdict["verdict"]
    assert found.verdict["exit_code"] == 7
    assert not sleeping() & {SLEEPS[2]}


def result(name: str, outcome: str, reason: str = "", *, core: bool = True) -> dict[str, Any]:
    return {"step": name, "outcome": outcome, "reason": reason, "core": core}


def test_the_verdict_is_over_what_ran(gpu_check: Any) -> None:
    one, two = {"devices": [["a"]]}, {"devices": [["a"], ["b"]]}
    passed, extra = result("a", "passed"), result("x", "not run", "time was up", core=False)
    judged = gpu_check.judge([passed, extra], one)
    assert judged["verdict"].startswith("the core passed: the GPU path works here")
    assert judged["exit_code"] == 0
    assert judged["not run"] == ["x"]
    left_out, lacks = (result("b", "not run", why) for why in (gpu_check.LEFT_OUT, "needs pytest"))
    for more, verdict, code in (
        ((left_out,), "what ran passed; a part of the core was left out", 0),
        ((left_out, lacks | {"step": "c"}), "no verdict: of the core did not run: c", 7),
        ((extra, result("d", "failed")), "failed: d", 1),
    ):
        judged = gpu_check.judge([passed, *more], one)
        assert judged["verdict"].startswith(verdict) and judged["exit_code"] == code
    shown = " ".join(gpu_check.judge([passed], one)["not_shown"])
    for what in ("several GPUs", "NVLS", "registered", "symmetric", "InfiniBand", "ROCm"):
        assert what in shown
    assert "NVLink" not in " ".join(gpu_check.judge([passed], two)["not_shown"])


@pytest.fixture
def on_fake(tmp_path: Path) -> Callable[..., Checked]:
    """Run the script as it is on a stand-in for one GPU, which every Python in it knows."""

    def run(*options: str, **fields: Any) -> Checked:
        fake = Fake(uuids=("GPU-0",) * 4, visible=1, **fields)
        site = tmp_path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(program_text(fake))
        ended = subprocess.run(
            [sys.executable, str(SCRIPT), str(tmp_path / "out"), *ON_FAKE, *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=os.environ | SHORT_DELAYS | {"PYTHONPATH": str(site)},
        )  # fmt: skip
        return read(tmp_path / "out", ended.returncode, ended.stdout)

    return run


def test_a_stand_in_is_checked_from_start_to_evidence(on_fake: Callable[..., Checked]) -> None:
    found = on_fake("--only", "timing,graph")
    assert found.steps["graph"]["outcome"] == "passed", found.out
    assert found.steps["timing"]["reason"] == "needs cuda"
    assert found.code == 7
    assert found.steps["sweep"]["reason"] == "left out by --only or --from"
    assert "graph/run/run.jsonl" in found.packed and "environment/facts.json" in found.packed
    assert found.verdict["machine"]["devices"][0][1] == "GPU-0"
    assert found.verdict["machine"]["torch"]
    assert found.out.splitlines()[-2] == f"verdict: {found.verdict['verdict']}"


@pytest.mark.full
def test_steps_pass_on_a_stand_in(on_fake: Callable[..., Checked]) -> None:
    steps = (
        "bit-flip", "sigkill", "graph", "graph-error", "graph-refused", "forms",
        "compressed", "numerics", "soak",
    )  # fmt: skip
    found = on_fake("--only", ",".join(steps))
    assert found.verdict["passed"] == ["environment", *steps], found.out
    assert found.code == 0
    assert found.tests["test_a_wrong_bit_is_found_in_every_dtype"] == "passed"


@pytest.mark.full
def test_a_device_that_is_wrong_fails(on_fake: Callable[..., Checked]) -> None:
    found = on_fake("--only", "graph", corrupts_after=12)
    assert (found.code, found.verdict["failed"]) == (1, ["graph"]), found.out
    assert found.steps["graph"]["reason"] == "exit code 5"


def test_steps_are_left_out_by_name(gpu_check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["environment", "a", "b", "c"]

    def chosen(*options: str) -> set[str]:
        monkeypatch.setattr(sys, "argv", ["gpu_check", *options])
        found: set[str] = gpu_check.read_options(names).steps
        return found

    assert chosen() == {*names}
    assert chosen("--only", "c,a") == {"environment", "a", "c"}
    assert chosen("--from", "b") == {"environment", "b", "c"}
    for options in (("--only", "a,d"), ("--from", "d")):
        with pytest.raises(SystemExit) as error:
            chosen(*options)
        assert error.value.code == 2


def test_the_core_fits_into_the_time(gpu_check: Any) -> None:
    steps = gpu_check.CORE + gpu_check.EXTRAS
    assert sum(step.limit_s for step in gpu_check.CORE) <= gpu_check.TOTAL_S <= 520
    assert all(step.test_s < step.limit_s < gpu_check.TOTAL_S / 4 for step in steps)
    assert len({step.name for step in steps}) == len(steps)


def test_every_gpu_test_belongs_to_a_step(gpu_check: Any) -> None:
    files = (ROOT / "tests" / "gpu").glob("test_*.py")
    names = {name for f in files for name in re.findall(r"^def (test_\w+)", f.read_text(), re.M)}
    steps = gpu_check.CORE + gpu_check.EXTRAS
    chosen = [step.words[step.words.index("-k") + 1] for step in steps if "-k" in step.words]
    words = [word.partition(" and ")[0] for which in chosen for word in which.split(" or ")]
    assert len(names) > 20
    assert [name for name in sorted(names) if not any(word in name for word in words)] == []
    ids = names | {"SIGKILL"}
    assert [word for word in words if not any(word in name for name in ids)] == []


def test_the_runs_of_all_steps_are_runs_that_commbench_knows(gpu_check: Any) -> None:
    steps = gpu_check.CORE + gpu_check.EXTRAS
    runs = [step.words[3:] for step in steps if step.words[:3] == RUN]
    assert len(runs) >= 3
    for words in runs:
        options = dict(pairwise(words))
        flags = [word for word in words if word.startswith("--")]
        known = {f for o in RUN_OPTIONS.values() for each in o.all_flags for f in each.split("/")}
        assert set(flags) <= known
        for name in options["--op"].split(","):
            assert find_operation(name)
        if options["--nproc-per-node"] == "2":  # ranks that share a GPU
            assert int(options["--iters"]) < 5


def test_commbench_and_a_plain_loop_are_compared_in_turn(tmp_path: Path) -> None:
    program = (SCRIPT.parent / "plain_events.py").read_text()
    options = ("--backend", "gloo", "--sizes", "64K", "--pairs", "2", "--tolerance")
    variables = {"MASTER_PORT": str(free_port())}
    ended = start_command(tmp_path, *options, "1e9", program=program, **variables).finish()
    assert ended.code == 0, ended.err
    (line,) = map(json.loads, ended.out.splitlines())
    assert (line["way"], line["size_bytes"]) == ("clock", 65536)
    assert 0 < line["lowest"] <= line["ratio"] <= line["highest"]
    assert min(line["commbench_us"], line["other_us"]) > 0
    ended = start_command(tmp_path, *options, "0", program=program, **variables).finish()
    assert ended.code == 1, ended.err


@pytest.mark.full
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)], capture_output=True, text=True
    )
    assert ended.returncode == 3
    assert "finds no torch with a GPU" in ended.stderr
