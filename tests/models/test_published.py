"""Tables of published figures: read, or refused with the column or line that is wrong."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest
from published_curves import FOLDER

from commbench.errors import CommbenchError, RecordsError
from commbench.models.cost_models import ACROSS, WITHIN
from commbench.models.published import is_published, read_published

HEAD = "operation,world_size,ranks_per_node,size_bytes,time_us"


def table(folder: Path, *lines: str) -> Path:
    file = folder / "figures.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_time_is_given_or_follows_from_the_bus_bandwidth(tmp_path: Path) -> None:
    file = table(
        tmp_path, "# a source", "", HEAD + ",busbw_GBps,note", "all_reduce,16,8,1048576,100,,a",
        "all_reduce,16,8,1048576,,19.66080,b", "all_reduce,8, 8 ,8,5.5,,", "barrier,16,8,0,12,,",
    )  # fmt: skip
    assert is_published(file)
    first, second, third, fourth = read_published(file)
    assert first.point[:4] == (16, 8, 1 << 20, pytest.approx(100e-6))
    # 2 (n-1)/n S / busbw
    assert second.point.time_s == pytest.approx(2 * 15 / 16 * (1 << 20) / 19.6608e9)
    assert (first.kind, third.kind) == (ACROSS, WITHIN)
    assert (third.operation, fourth.operation, fourth.point.size_bytes) == (
        "all_reduce", "barrier", 0,
    )  # fmt: skip


def test_the_interval_of_a_time_is_its_uncertainty(tmp_path: Path) -> None:
    head = HEAD + ",time_low_us,time_high_us"
    given = (
        "all_reduce,4,4,8,100,80,200",
        "all_reduce,4,4,8,100,,",
        "all_reduce,4,4,8,100,100,100",
    )
    found = [each.point.uncertainty for each in read_published(table(tmp_path, head, *given))]
    assert found == [pytest.approx(log(2) / 1.96, rel=1e-4), 0.0, 0.0]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["operation,world_size,size_bytes,time_us"], "has no column ranks_per_node"),
        (["operation,world_size,ranks_per_node,size_bytes"], "has no column time_us or busbw_GBps"),
        ([HEAD + ",time_us", "all_reduce,2,1,8,1,1"], "two columns of one name"),
        ([HEAD], "has no figures"),
        (["#"], "is empty"),
        ([HEAD, "all_reduce,2,1,8"], "line 2: it has 4 fields, the first line 5"),
        (["# x", HEAD, "", "all_redcue,2,1,8,1"], "line 4: unknown operation 'all_redcue'"),
        ([HEAD, "all_reduce,1,1,8,1"], "line 2: world_size is '1', not a whole number from 2"),
        ([HEAD, "all_reduce,2,0,8,1"], "ranks_per_node is '0'"),
        ([HEAD, "all_reduce,2,1,1K,1"], "size_bytes is '1K'"),
        ([HEAD, "all_reduce,2,1,0,1"], "size_bytes is '0'"),
        ([HEAD, "all_reduce,2,1,8,0"], "time_us is '0', not a number above 0"),
        ([HEAD, "all_reduce,2,1,8,nan"], "time_us is 'nan'"),
        ([HEAD, "all_reduce,2,1,8,"], "all_reduce has no time"),
        (
            [HEAD + ",time_low_us,time_high_us", "all_reduce,2,1,8,5,6,7"],
            "line 2: the time 5 us is not in its interval 6 to 7 us",
        ),
        ([HEAD + ",busbw_GBps", "barrier,2,1,0,,5"], "barrier has no time"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(tmp_path: Path, lines: list[str], why: str) -> None:
    with pytest.raises(RecordsError) as refused:
        read_published(table(tmp_path, *lines))
    assert why in refused.value.message
    assert refused.value.hint


def test_other_files_are_no_tables(tmp_path: Path) -> None:
    assert not is_published(tmp_path)
    assert not is_published(table(tmp_path, "operation,size_bytes,status,dtype,world_size,time_us"))
    assert not is_published(table(tmp_path, "nThread 1 nGpus 1"))
    (tmp_path / "figures.csv").write_bytes(b"\xff" * 100)
    with pytest.raises(CommbenchError):
        read_published(tmp_path / "figures.csv")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.csv")), ids=lambda file: file.stem)
def test_the_curves_of_the_tests_name_their_source(file: Path) -> None:
    assert file.read_text().startswith("# ")
    assert len(read_published(file)) >= 9
