"""The target that is chosen on synthetic hosts, with and without requests."""

from __future__ import annotations

import pytest

from commbench.errors import UnavailableError, UsageError
from commbench.launch.devices import Capabilities, Target, choose_target, find_common_device


def host(gpus: int, *backends: str, kind: str = "cuda") -> Capabilities:
    return Capabilities(backends=backends, devices={"cpu": 1} | ({kind: gpus} if gpus else {}))


LAPTOP = host(0, "gloo")
WORKSTATION = host(1, "gloo", "nccl")
BOX = host(8, "gloo", "nccl", "mpi")


@pytest.mark.parametrize(
    ("offer", "backend", "device", "ranks", "place"),
    [
        (LAPTOP, None, None, None, ("gloo", "cpu", 2, "there is no GPU")),
        (WORKSTATION, None, None, None,
         ("gloo", "cpu", 2, "there is only one GPU: --device cuda measures on it")),
        (BOX, None, None, None, ("nccl", "cuda", 8, "there are 8 GPUs")),
        (host(8, "gloo", "xccl", kind="xpu"), None, None, None,
         ("xccl", "xpu", 8, "there are 8 GPUs")),
        (WORKSTATION, "nccl", None, None, ("nccl", "cuda", 1, "nccl runs on cuda")),
        (WORKSTATION, "gloo", None, None, ("gloo", "cpu", 2, "gloo runs on cpu")),
        (WORKSTATION, None, "cuda", None, ("nccl", "cuda", 1, "as requested")),
        (BOX, "nccl", None, None, ("nccl", "cuda", 8, "nccl runs on cuda")),
        (BOX, "gloo", None, None, ("gloo", "cpu", 2, "gloo runs on cpu")),
        (BOX, "gloo", "cuda", None, ("gloo", "cuda", 8, "as requested")),
        (BOX, None, "cpu", None, ("gloo", "cpu", 2, "as requested")),
        (BOX, "mpi", None, None, ("mpi", "cpu", 2, "mpi runs on cpu")),
        (BOX, None, None, 4, ("nccl", "cuda", 4, "there are 8 GPUs")),
        (LAPTOP, None, None, 7, ("gloo", "cpu", 7, "there is no GPU")),
        (host(0, "gloo", "mine"), "mine", None, None, ("mine", "cpu", 2, "mine runs on cpu")),
    ],
)  # fmt: skip
def test_what_was_requested_is_kept_and_the_rest_follows(
    offer: Capabilities,
    backend: str | None,
    device: str | None,
    ranks: int | None,
    place: tuple[str, str, int, str],
) -> None:
    found = choose_target(offer, backend, device, ranks)
    assert (found.backend, found.device, found.ranks_per_node, found.why) == place
    assert not found.gpu_shared


def test_more_ranks_than_gpus_share_them() -> None:
    assert choose_target(WORKSTATION, None, "cuda", 2) == Target(
        backend="nccl", device="cuda", ranks_per_node=2, why="as requested", gpu_shared=True
    )
    assert choose_target(BOX, None, None, 9).gpu_shared
    assert not choose_target(BOX, None, None, 8).gpu_shared
    assert not choose_target(BOX, None, "cpu", 16).gpu_shared


@pytest.mark.parametrize(
    ("seen", "on_host", "ranks", "device"),
    [
        (1, 8, 8, "cuda"),  # srun --gpus-per-task=1 shows each rank its own
        (1, 1, 1, "cuda"),  # one rank per node
        (1, 1, 8, "cuda"),  # the same, where /sys shows no other: a container
        (1, 8, 16, "cuda"),  # the ranks find out that they share them
        (1, 1, 2, "cuda"),
        (2, 8, 8, "cuda"),
        (0, 8, 8, "cpu"),
    ],
)
def test_ranks_of_another_launcher_may_each_see_only_their_own_gpu(
    seen: int, on_host: int, ranks: int, device: str
) -> None:
    devices = {"cpu": 1} | ({"cuda": seen} if seen else {})
    offer = Capabilities(backends=("gloo", "nccl"), devices=devices, host_gpus=on_host)
    target = choose_target(offer, None, None, ranks, is_external=True)
    assert (target.device, target.gpu_shared) == (device, False)


@pytest.mark.parametrize(
    ("is_external", "on_host", "why"),
    [
        (False, 0, "there is no GPU"),
        (False, 2, "torch sees no GPU, though the host has 2: see `commbench env`"),
        (True, 8, "this rank sees no GPU, though the host has 8: see `commbench env`"),
    ],
)
def test_the_cpu_of_a_host_with_gpus_is_never_taken_without_a_word(
    is_external: bool, on_host: int, why: str
) -> None:
    offer = Capabilities(backends=("gloo",), devices={"cpu": 1}, host_gpus=on_host)
    target = choose_target(offer, None, None, 8, is_external=is_external)
    assert (target.device, target.why) == ("cpu", why)


def test_nodes_of_one_gpu_each_measure_their_gpus() -> None:
    assert choose_target(WORKSTATION, None, None, None, nodes=2).device == "cuda"


@pytest.mark.parametrize(
    ("offer", "backend", "device", "message", "hint"),
    [
        (LAPTOP, "nccl", None, "this torch has no backend 'nccl'", "it has: gloo"),
        (LAPTOP, "glo", None, "this torch has no backend 'glo'", "it has: gloo"),
        (host(0), "gloo", None, "this torch has no backend 'gloo'", "it has: none"),
        (
            host(0), None, None,
            "this torch has no backend for cpu", "it has: none; --device cpu measures with gloo",
        ),
        (LAPTOP, None, "cuda", "there is no device 'cuda' here", "there are: cpu"),
        (BOX, None, "tpu", "there is no device 'tpu' here", "there are: cpu, cuda"),
        (
            host(0, "gloo", "nccl"), "nccl", None,
            "backend nccl needs a cuda device, and there is none here",
            "use --backend gloo, which runs on the CPU",
        ),
    ],
)  # fmt: skip
def test_what_the_host_does_not_offer_is_refused_with_what_it_does(
    offer: Capabilities, backend: str | None, device: str | None, message: str, hint: str
) -> None:
    with pytest.raises(UnavailableError) as refused:
        choose_target(offer, backend, device, None)
    assert (refused.value.message, refused.value.hint) == (message, hint)


@pytest.mark.parametrize(
    ("backends", "device"),
    [
        (("gloo", "nccl"), "cuda"),
        (("gloo", "mpi"), None),  # both are on the CPU by default
        (("nccl2", "nccl"), None),
        (("nccl2", "gloo"), "cuda"),
        (("gloo", "elsewhere"), None),  # refused later, for it is not here
        (("nccl",), None),
    ],
)
def test_backends_are_compared_on_a_device_that_all_of_them_serve(
    backends: tuple[str, ...], device: str | None
) -> None:
    offer = Capabilities(
        backends=("gloo", "nccl", "mpi", "nccl2"), devices={"cpu": 1, "cuda": 8},
        registered={"nccl2": ("cuda",)},
    )  # fmt: skip
    assert find_common_device(offer, backends) == device


def test_backends_without_a_common_device_are_not_compared() -> None:
    offer = Capabilities(backends=("nccl", "mpi"), devices={"cpu": 1, "cuda": 8})
    with pytest.raises(UsageError) as refused:
        find_common_device(offer, ("nccl", "mpi"))
    assert refused.value.message == "the backends nccl, mpi serve no device in common"
    assert refused.value.hint == "nccl serves cuda; mpi serves cpu"


def test_a_backend_that_was_registered_is_measured_on_the_device_that_it_names() -> None:
    offer = Capabilities(
        backends=("gloo", "nccl2"), devices={"cpu": 1, "cuda": 8}, registered={"nccl2": ("cuda",)}
    )
    target = choose_target(offer, "nccl2", None, None)
    assert (target.device, target.ranks_per_node) == ("cuda", 8)
