"""Groups of ranks: the dimensions of a mesh, lists of ranks, and rules by rank.

A mesh numbers its ranks in mixed radix, as DeviceMesh of torch does: the last dimension varies
fastest. A group of a dimension consists of the ranks that differ in that dimension only. Orders and
names of Megatron-LM (RankGenerator), torchtitan (its ParallelDims) and ScaleTorch are PRESETS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from math import lcm, prod
from operator import and_, floordiv, mod, or_
from typing import NamedTuple

from commbench.errors import UsageError, closest
from commbench.stats import collect
from commbench.validation import brief

WORLD = "world"
"""In --over: all ranks as one group, as without a mesh."""
TOGETHER, ALONE, BOTH = "together", "alone", "both"
CONCURRENCY_CHOICES = (TOGETHER, ALONE, BOTH)
REST = -1
"""The size of a dimension that takes all remaining ranks."""
MOST_DIMENSIONS = 16
LONGEST_NAME = 40
"""Characters of the name of groups that are given as a list; a longer list is named by a digest."""
_LARGEST_DIMENSION = 1 << 20
GROUPS_HINT = 'write for example --groups "0-3;4-7", or --groups "MOD 4"'
MESH_HINT = "write for example --mesh dp=2,tp=4, the outermost dimension first"


class GroupSet(NamedTuple):
    """The groups of one dimension; ranks ascend in each group."""

    name: str
    """Empty for the world."""
    groups: tuple[tuple[int, ...], ...]


class Preset(NamedTuple):
    """How a training framework numbers its ranks."""

    orders: tuple[str, ...]
    """Orders of dimensions, the fastest first. The first has all ranks in the sizes that are given;
    in another one, the dimension `rest` takes those ranks that its other dimensions leave."""
    rest: str = ""
    defaults: Mapping[str, str] = {}
    """Dimensions that have the size of another one where none is given."""
    combined: Mapping[str, str] = {}
    """Names of combined dimensions."""


PRESETS: dict[str, Preset] = {
    "megatron": Preset(("tp-cp-dp-pp", "etp-ep-edp-pp"), rest="edp", defaults={"etp": "tp"}),
    "torchtitan": Preset(
        ("tp-cp-dp_shard-dp_replicate-pp", "ep-efsdp-dp_replicate-pp"), rest="efsdp",
        combined={
            "fsdp": "dp_shard+cp", "batch": "dp_replicate+dp_shard",
            "loss": "dp_replicate+dp_shard+cp",
        },
    ),
    "scaletorch": Preset(("tp-cp-pp-dp",)),
}  # fmt: skip
_EXPERT = ("ep", "etp")
"""Dimensions of a preset's second order. They do not multiply the number of ranks."""


class Layout(NamedTuple):
    """What the options say about groups; every field has the value of a run without groups."""

    mesh: str = ""
    mesh_order: str = ""
    over: tuple[str, ...] = ()
    groups: str = ""
    group_size: int | None = None
    group_stride: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there are no groups, so that all ranks are measured as one."""
        return not (self.mesh or self.groups or self.group_size)

    def needed_ranks(self) -> int | None:
        """How many ranks it has; None where it fits several numbers."""
        if self.mesh:
            sizes = _parse_layout(self).dense
            return None if REST in sizes.values() else prod(sizes.values())
        if self.groups and find_rule(self.groups) is None:
            return max(map(max, _parse_groups(self.groups))) + 1
        return None

    def possible_ranks(self) -> int:
        """A number of ranks that it fits."""
        if needed := self.needed_ranks():
            return needed
        if self.mesh:
            mesh = _parse_layout(self)
            experts = prod(size for name, size in mesh.given.items() if name in _EXPERT)
            return 2 * -prod(mesh.dense.values()) * max(1, experts)
        return max(2, (self.group_size or 1) * (self.group_stride or 1))

    def require_consistent(self) -> None:
        """Raise UsageError where options about groups exclude or lack one another."""
        flags = {"--mesh": self.mesh, "--groups": self.groups, "--group-size": self.group_size}
        given = [flag for flag, value in flags.items() if value]
        if len(given) > 1:
            raise UsageError(f"{given[0]} and {given[1]} both choose groups", "give one of them")
        for flag, value in (("--over", self.over), ("--mesh-order", self.mesh_order)):
            if value and not self.mesh:
                raise UsageError(f"{flag} has no effect without --mesh", MESH_HINT)
        if self.group_stride and not self.group_size:
            hint = "give --group-size too"
            raise UsageError("--group-stride has no effect without --group-size", hint)


@lru_cache(maxsize=64)
def group_sets(layout: Layout, ranks: int) -> tuple[GroupSet, ...]:
    """The groups that are measured, by dimension. Raises UsageError for groups that cannot be."""
    layout.require_consistent()
    if layout.is_empty:
        return (GroupSet("", (tuple(range(ranks)),)),)
    if layout.mesh:
        return _mesh_sets(_parse_layout(layout), ranks)
    if layout.group_size:
        return (_strided(layout.group_size, layout.group_stride or 1, ranks),)
    if rule := find_rule(layout.groups):
        name, colour = rule
        ordered = sorted(range(ranks), key=lambda rank: (colour(rank), rank))
        return (GroupSet(name, tuple(tuple(own) for _, own in groupby(ordered, colour))),)
    groups = _parse_groups(layout.groups)
    highest = max(map(max, groups))
    if highest >= ranks:
        hint = f"ranks go from 0 to {ranks - 1}"
        raise UsageError(f"--groups has rank {highest}, and there are {ranks} ranks", hint)
    return (GroupSet(_list_name(groups), groups),)


def group_choices(sets: Sequence[GroupSet], concurrency: str) -> tuple[tuple[str, str, str], ...]:
    """For each case of groups the name of their dimension, `together` or `alone`, and the ranks of
    the one that is alone. The world has empty texts. A single group is alone in any event."""
    found: list[tuple[str, str, str]] = []
    for name, groups in sets:
        is_measured = any(len(group) > 1 for group in groups)
        if not name:
            found.append(("", "", ""))
        elif concurrency != ALONE or not is_measured:
            found.append((name, TOGETHER, ""))
        is_alone = concurrency == ALONE or (concurrency == BOTH and len(groups) > 1)
        if name and is_measured and is_alone:
            found += [(name, ALONE, format_group(group)) for group in groups]
    return tuple(dict.fromkeys(found))


def index_groups(sets: Iterable[GroupSet]) -> dict[tuple[str, str], tuple[tuple[int, ...], ...]]:
    """The groups that call at once, by the name of their dimension and the ranks of the one that is
    alone (empty: all of them). Of several groups those of one rank are left out."""
    found = {}
    for name, groups in sets:
        found[name, ""] = tuple(group for group in groups if len(group) > 1) or groups
        if name:
            found |= {(name, format_group(group)): (group,) for group in groups}
    return found


@lru_cache(maxsize=64)
def common_blocks(layout: Layout, ranks: int) -> dict[str, int]:
    """By dimension, the least number that each of its groups divides: a size of so many elements
    has whole blocks in each group."""
    return {name: lcm(*map(len, groups)) for name, groups in group_sets(layout, ranks)}


def format_group(ranks: Sequence[int]) -> str:
    """The ranks of a group as --groups takes them: `0-3`, `0,4`, `0-12:4`, `0,1,5`."""
    if len(ranks) > 2:
        steps = {after - before for before, after in pairwise(ranks)}
        if len(steps) == 1:
            step = steps.pop()
            return f"{ranks[0]}-{ranks[-1]}" + (f":{step}" if step > 1 else "")
    return ",".join(map(str, ranks))


def parse_mesh(text: str) -> dict[str, int]:
    """The size of each dimension, in the order given."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        found = re.fullmatch(r"\s*([A-Za-z]\w*)\s*=\s*(\d+|-1)\s*", part)
        if not found:
            raise UsageError(f"--mesh {text!r} has no size in {part.strip()!r}", MESH_HINT)
        if len(found[2].lstrip("0")) > 7 or int(found[2]) > _LARGEST_DIMENSION:
            what = f"--mesh gives {found[1]} a size that is too large: {brief(found[2])}"
            raise UsageError(what, f"a dimension has at most {_LARGEST_DIMENSION:,} ranks")
        name, size = found[1].lower(), int(found[2])
        if name in sizes or name == WORLD:
            why = "twice" if name in sizes else "as a dimension"
            raise UsageError(f"--mesh {text!r} names {name} {why}", MESH_HINT)
        if size == 0:
            raise UsageError(f"--mesh gives {name} the size 0", "a dimension has at least one rank")
        sizes[name] = size
    if len(sizes) > MOST_DIMENSIONS:
        raise UsageError(f"--mesh has {len(sizes)} dimensions", f"give at most {MOST_DIMENSIONS}")
    if list(sizes.values()).count(REST) > 1:
        raise UsageError(f"--mesh {text!r} has two sizes of -1", "only one can take the rest")
    return sizes


class _Mesh(NamedTuple):
    """A mesh, and the order of its dimensions, taken apart."""

    layout: Layout
    given: dict[str, int]
    """The size of each dimension, in the order given."""
    preset: Preset
    dense: dict[str, int]
    """The dimensions that all ranks are numbered by, the outermost first, with their sizes."""
    others: tuple[tuple[str, ...], ...]
    """The dimensions of other numberings, the outermost first."""


@lru_cache(maxsize=64)
def _parse_layout(layout: Layout) -> _Mesh:
    given, order = parse_mesh(layout.mesh), layout.mesh_order.lower()
    preset = PRESETS.get(order, Preset((order,) if order else ()))
    orders = [tuple(reversed(text.split("-"))) for text in preset.orders] or [tuple(given)]
    known = {name for names in orders for name in names}
    for name in given:
        if name == preset.rest:
            raise UsageError(
                f"--mesh gives {name} a size, and --mesh-order {order} computes it from the others",
                f"leave out {name}={given[name]}; --over {name} measures its groups",
            )
        if name not in known:
            close = "" if order in PRESETS or "-" in order else closest(order, list(PRESETS))
            own = f"its dimensions, the fastest first: {'-'.join(reversed(orders[0]))}"
            hint = f"did you mean {close}?" if close else own
            raise UsageError(f"--mesh-order {layout.mesh_order} has no dimension {name}", hint)
    if len(set(orders[0])) < len(orders[0]):
        raise UsageError(f"--mesh-order {order} names a dimension twice", "name each once")
    dense = {name: given.get(name, 1) for name in orders[0]}
    return _Mesh(layout, given, preset, dense, tuple(orders[1:]))


def _mesh_sets(mesh: _Mesh, ranks: int) -> tuple[GroupSet, ...]:
    given, preset, text = mesh.given, mesh.preset, mesh.layout.mesh
    dense = _fill_rest(mesh.dense, ranks, text)
    if prod(dense.values()) != ranks:
        why = f"--mesh {text} has {prod(dense.values())} ranks, and there are {ranks}"
        hint = "leave out --nproc-per-node, or write -1 for one size: it takes the rest"
        raise UsageError(why, hint)
    views = [dense]
    for names in mesh.others if any(name in given for name in _EXPERT) else ():
        usual = {name: dense.get(preset.defaults.get(name, ""), 1) for name in names}
        sizes = {name: given.get(name, dense.get(name, usual[name])) for name in names}
        views.append(_fill_rest(sizes | {preset.rest: REST}, ranks, text))
    known = {name: size for view in views for name, size in view.items()}
    chosen = mesh.layout.over or tuple(name for name in given if known.get(name, 1) > 1)
    return tuple(_mesh_set(n.strip().lower(), views, preset, ranks) for n in chosen or given)


def _fill_rest(sizes: dict[str, int], ranks: int, text: str) -> dict[str, int]:
    """The sizes with that of the dimension that takes the rest."""
    others = prod(size for size in sizes.values() if size != REST)
    if REST in sizes.values() and (ranks % others or ranks < others):
        hint = f"the other dimensions hold {others}; start a multiple of that: --nproc-per-node"
        raise UsageError(f"--mesh {text} does not divide {ranks} ranks", hint)
    return {name: ranks // others if size == REST else size for name, size in sizes.items()}


def _mesh_set(name: str, views: Sequence[dict[str, int]], preset: Preset, ranks: int) -> GroupSet:
    """The groups of a dimension, or of several that `+` (or Megatron's `-`) combines."""
    if name == WORLD:
        return GroupSet("", (tuple(range(ranks)),))
    parts = preset.combined.get(name, name).replace("-", "+").split("+")
    view = next((view for view in views if set(parts) <= view.keys()), None)
    if len(set(parts)) < len(parts):
        raise UsageError(f"--over {name} names a dimension twice", "name each once")
    if view is None:
        known = list(dict.fromkeys(d for view in views for d in view)) + list(preset.combined)
        wrong = next((part for part in parts if part not in known), name)
        hint = f"its dimensions: {', '.join(known)}, {WORLD}; join several with +"
        raise UsageError(f"--over {name}: the mesh has no dimension {wrong}", hint)
    ordered = [dimension for dimension in view if dimension in parts]
    shown = name if name in preset.combined else "+".join(ordered)
    return GroupSet(shown, _groups_along(view, ordered))


def _groups_along(sizes: dict[str, int], along: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The groups of ranks that differ only in the dimensions `along`; the last dimension of `sizes`
    varies fastest."""
    strides, stride = {}, 1
    for name in reversed(sizes):
        strides[name] = stride
        stride *= sizes[name]
    fixed = [name for name in sizes if name not in along]
    groups = collect(
        (tuple(rank // strides[name] % sizes[name] for name in fixed), rank)
        for rank in range(stride)
    )
    return tuple(map(tuple, groups.values()))


def _strided(size: int, stride: int, ranks: int) -> GroupSet:
    """Groups of `size` ranks, each `stride` after the last."""
    block = size * stride
    if ranks % block:
        why = f"groups of {size} ranks with stride {stride} do not divide {ranks} ranks"
        raise UsageError(why, f"start a multiple of {block} ranks")
    name = f"size {size}" + (f" stride {stride}" if stride > 1 else "")
    return GroupSet(name, every_group(size, stride, ranks))


def every_group(size: int, stride: int, ranks: int) -> tuple[tuple[int, ...], ...]:
    """The groups of `size` ranks, `stride` apart, of so many ranks, which they divide."""
    block = size * stride
    return tuple(
        tuple(range(first + place, first + place + block, stride))
        for first in range(0, ranks, block)
        for place in range(stride)
    )


def _parse_groups(text: str) -> tuple[tuple[int, ...], ...]:
    """Groups from a list: ranks, ranges and ranges with a step, with commas; `;` between groups."""
    groups: dict[tuple[int, ...], None] = {}
    for part in text.split(";"):
        ranks: list[int] = []
        for item in part.split(","):
            found = re.fullmatch(r"\s*(\d{1,7})(?:\s*-\s*(\d{1,7})(?::(\d{1,7}))?)?\s*", item)
            if not found or found[3] == "0":
                raise UsageError(f"--groups: {item.strip()!r} is not a rank or range", GROUPS_HINT)
            first, last = int(found[1]), int(found[2] or found[1])
            if last < first:
                raise UsageError(f"--groups: {item.strip()} goes backwards", GROUPS_HINT)
            ranks += range(first, last + 1, int(found[3] or 1))
        group = tuple(sorted(ranks))
        if len(set(group)) < len(group) or group in groups:
            trouble = "is there twice" if group in groups else "has a rank twice"
            hint = "name each once; groups may overlap"
            raise UsageError(f"--groups: {part.strip()} {trouble}", hint)
        groups[group] = None
    return tuple(groups)


def _list_name(groups: Sequence[Sequence[int]]) -> str:
    """The name of groups that are given as a list: the list, or its digest where it is long."""
    from hashlib import sha256

    text = ";".join(map(format_group, groups))
    if len(text) <= LONGEST_NAME:
        return text
    return f"{len(groups)} groups {sha256(text.encode()).hexdigest()[:8]}"


_RULES = {"AND": ("&", and_), "OR": ("|", or_), "MOD": ("%", mod), "DIV": ("/", floordiv)}


def find_rule(text: str) -> tuple[str, Callable[[int], int]] | None:
    """The name of a rule of nccl-tests, and what makes the colour of a rank by it; None where the
    text is a list of ranks."""
    value = text.strip().upper().removeprefix("NCCL_TESTS_SPLIT=").strip("\"' ")
    value = re.sub(r"^(?:NCCL_TESTS_SPLIT_MASK=|MASK\s+)(?:0X)?(?=[0-9A-F]+$)", "AND 0X", value)
    found = re.fullmatch(r"(AND|OR|MOD|DIV|[&|%/])\s*(0X[0-9A-F]+|0B[01]+|\d+)", value)
    if not found:
        return None
    rule = next((name for name, (sign, _) in _RULES.items() if sign == found[1]), found[1])
    digits = found[2]
    is_octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"  # as strtoul reads it
    try:
        number = int(digits, 8 if is_octal else 0)
    except ValueError:
        raise UsageError(f"--groups {text!r}: {digits} is no octal number", GROUPS_HINT) from None
    if not number and rule in ("MOD", "DIV"):
        raise UsageError(f"--groups {text!r} divides by 0", GROUPS_HINT)
    shown = f"0x{number:x}" if rule in ("AND", "OR") else str(number)
    return f"{rule} {shown}", lambda rank: _RULES[rule][1](rank, number)
