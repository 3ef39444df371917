"""Models as lists of tensors, against their published numbers of parameters."""

from __future__ import annotations

import pytest

from commbench.errors import UsageError
from commbench.training.models import (
    PRESETS,
    ROOT,
    find_model,
    find_transformer,
    make_transformer,
    resnet_50,
)


@pytest.mark.parametrize(
    ("name", "whole", "block"),
    [
        ("llama-3-8b", 8_030_261_248, 218_112_000),
        ("llama-3-70b", 70_553_706_496, 855_654_400),
        ("llama-3-405b", 405_853_388_800, 3_187_703_808),
        ("mixtral-8x7b", 46_702_792_704, 1_451_270_144),
        ("gpt-3-175b", 174_604_259_328, 1_812_099_072),
        ("gpt-2-xl", 1_557_611_200, 30_740_800),
    ],
)
def test_a_preset_has_the_published_number_of_parameters(name: str, whole: int, block: int) -> None:
    model = find_model(name)
    assert model.elements == whole
    assert sum(tensor.elements for tensor in model.unit("layers.0")) == block
    units = [model.unit(unit) for unit in (ROOT, *model.blocks)]
    assert sum(t.elements for unit in units for t in unit) == whole


def test_resnet_50_has_the_tensors_of_torchvision() -> None:
    model = resnet_50()
    assert (len(model.parameters), model.elements) == (161, 25_557_032)
    assert sum(t.elements for t in model.buffers if t.dtype == "float32") == 53_120
    assert sum(t.elements for t in model.buffers if t.dtype == "int64") == 53


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_names_its_source(name: str) -> None:
    assert len(find_model(name).source) > 20


def test_a_dtype_is_that_of_every_parameter() -> None:
    assert {t.dtype for t in find_model("llama-3-8b", "bfloat16").parameters} == {"bfloat16"}


def test_a_number_of_parameters_decides_on_the_embedding() -> None:
    model = make_transformer(parameters=7e9, layers=32, hidden=4096).model()
    assert model.elements == pytest.approx(7e9, rel=1e-5)
    assert len(model.blocks) == 32


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"layers": 4}, "without --hidden"),
        ({"hidden": 4}, "without --layers"),
        ({"layers": 2, "hidden": 100, "heads": 3}, "cannot be shared by 3 heads"),
        ({"layers": 2, "hidden": 96, "heads": 6, "kv_heads": 4}, "cannot share 4 key heads"),
        ({"layers": 32, "hidden": 4096, "parameters": 1e9}, "more than 1e\\+09 parameters"),
        ({"layers": 2, "hidden": 64, "experts": 4, "top_k": 5}, "5 of 4 experts"),
        ({"layers": 10**6, "hidden": 2**20}, "too large"),
    ],
)
def test_numbers_that_make_no_model_are_refused(numbers: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_transformer(**numbers)  # type: ignore[arg-type]


def test_an_unknown_model_is_refused_and_resnet_is_no_transformer() -> None:
    with pytest.raises(UsageError, match="llama-3-9b"):
        find_model("llama-3-9b")
    with pytest.raises(UsageError, match="no transformer"):
        find_transformer("resnet-50")
