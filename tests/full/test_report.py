"""Reports in a real browser: they are drawn at every width and on paper, and ask for nothing."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, open_browser
from synthetic import noisy, plan, synthetic_run
from synthetic_sweep import synthetic_sweep

import commbench

pytestmark = pytest.mark.full
REFERENCE = Path(__file__).parents[2] / "results" / "reference"
HOSTILE = '"><script>alert(1)</script><img src="http://127.0.0.1:9/x" onerror="alert(2)">'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of each kind."""
    folder = tmp_path_factory.mktemp("reports")
    asked = plan(operations=("all_reduce", "all_gather"), sizes=tuple(4**n for n in range(5, 14)))
    runs = [
        synthetic_run(
            folder / name, name, lambda case, n=n: noisy((1 + n) * 1e-5 + case.size_bytes / 2e9, n),
            asked, environment={"variables": {"NCCL_ALGO": name}},
        )
        for n, name in enumerate(("ring", "tree", "collnet", HOSTILE))
    ]  # fmt: skip
    found = {
        "run": commbench.report(REFERENCE),
        "two": commbench.report(*runs[:2]),
        "four": commbench.report(*runs),
        "check": commbench.report(commbench.check(runs[1], against=runs[0], max_slowdown="10%")),
        "hostile": commbench.report(runs[3]),
    }
    synthetic_sweep(
        folder / "sweep", vary=["cpu-mode=quiet,plain,batch", "timing=isolated,pipelined"]
    )
    found["sweep"] = commbench.report(folder / "sweep")
    for name, text in found.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in found}


KINDS = ("run", "two", "four", "check", "sweep", "hostile")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [360, 800, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_a_report_fits_its_window_can_be_read_and_asks_for_nothing(
    browser: Browser, reports: dict[str, Path], kind: str, width: int, dark: bool
) -> None:
    page = browser.open(reports[kind], width, dark)
    # A picture of colours is in the page itself.
    asked = [url for url in page.requests if not url.startswith("data:")]
    assert asked == [reports[kind].as_uri()]
    assert page.messages == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.scripts.length") == 0
    assert page.screenshot().startswith(b"\x89PNG")
    worst = page.evaluate(LEAST_CONTRAST)
    assert worst["ratio"] >= 4.5, worst


@pytest.mark.parametrize("kind", KINDS)
def test_every_drawing_has_a_size_and_a_name_for_screen_readers(
    browser: Browser, reports: dict[str, Path], kind: str
) -> None:
    page = browser.open(reports[kind], 800)
    drawings = page.evaluate(
        "[...document.querySelectorAll('svg')].filter(s => getComputedStyle(s).display != 'none')"
        ".map(s => s.getBoundingClientRect().height)"
    )
    assert all(height > 100 for height in drawings)
    images = [node for node in page.accessibility() if node["role"] in ("image", "img")]
    assert len(images) == len(drawings)
    assert all(node["name"] and node["description"] for node in images)


@pytest.mark.parametrize("kind", KINDS)
def test_paper_shows_what_is_folded_away_on_screens(
    browser: Browser, reports: dict[str, Path], kind: str
) -> None:
    page = browser.open(reports[kind], 800, dark=True)
    assert page.print_pdf().startswith(b"%PDF")
    page.use_media("print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    hidden = page.evaluate(
        "[...document.querySelectorAll('details > :not(summary)')]"
        ".filter(e => e.getBoundingClientRect().height === 0).length"
    )
    assert hidden == 0


def test_the_link_saves_the_journal(
    browser: Browser, reports: dict[str, Path], tmp_path: Path
) -> None:
    page = browser.open(reports["run"], 800)
    saved = page.click_download("a[download]", tmp_path)
    assert saved.name == "reference-run.jsonl.gz"
    assert gzip.decompress(saved.read_bytes()) == (REFERENCE / "run.jsonl").read_bytes()


LEAST_CONTRAST = """
(() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = colour.map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const found = parse(getComputedStyle(e).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  let worst = {ratio: 21, text: ""};
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || element.closest("svg")) continue;
    const a = light(parse(getComputedStyle(element).color).slice(0, 3)), b = light(ground(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst.ratio) worst = {ratio, text: texts.currentNode.data.slice(0, 60)};
  }
  return worst;
})()
"""
"""The text of the page with the least contrast, by WCAG 2's formula for relative luminance."""
