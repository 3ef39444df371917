"""Simulates `commbench pairs`: what it costs, and how often it names what was made slow.

    python scripts/simulate_pairs.py                      a table of hits and times
    python scripts/simulate_pairs.py --ranks 64 --trials 200 --noise 0.1

The rounds, the choice of the rounds of a quick search, and the decision are those of the package.
Only the values are made here: log-normal, and slower by `--ratio` where a pair uses the slow part.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy

from commbench.answers.pairs.matrix import BANDWIDTH, Pair, RankMatrix
from commbench.answers.pairs.slow_parts import (
    BOTH,
    HOST,
    LINK,
    OUT,
    RANK,
    Finding,
    choose_rounds,
    find_slow,
    find_suspects,
)
from commbench.api.measuring import PAIRS_DEFAULTS, QUICK_ITERATIONS
from commbench.output.text import table
from commbench.plan.pairs import FEW_RANKS, HALVES, count_rounds, find_peer
from commbench.worker.sampling import LOOK_ITERATIONS, SAMPLED_ROUNDS, most_rounds

CASES = 3
"""Cases of a round: latency, and the bandwidth of each direction."""
WITHIN, ACROSS = 400e9, 50e9
"""Bandwidths in bytes/s, of no influence on what is found."""


class Slow(NamedTuple):
    """What is slow: the first rank or host, or the link between the first two ranks of different
    hosts."""

    name: str
    kind: str
    direction: str


SLOW = (
    Slow("rank", RANK, BOTH),
    Slow("host", HOST, BOTH),
    Slow("host, sending", HOST, OUT),
    Slow("link", LINK, BOTH),
    Slow("link, one way", LINK, OUT),
)


class Cluster:
    """Ranks on hosts, of which one part may be slow."""

    def __init__(self, ranks: int, per_host: int, slow: Slow | None, seed: str) -> None:
        self.ranks, self.per_host, self.slow = ranks, per_host, slow
        self._random = random.Random(seed)
        self._numbers = numpy.random.default_rng(self._random.getrandbits(64))
        self.hosts = tuple(f"node{rank // per_host}" for rank in range(ranks))
        self.rank = self._random.randrange(ranks)
        others = [0] if ranks == per_host else range(ranks // per_host)
        host = self._random.choice([h for h in others if h != self.rank // per_host] or [0])
        self.other = (host * per_host + self._random.randrange(per_host)) % ranks

    def measure(self, pairs: Any, noise: float, ratio: float) -> dict[Pair, float]:
        """The bandwidths of ordered pairs, an array of two rows."""
        senders, receivers = pairs
        is_within = senders // self.per_host == receivers // self.per_host
        values = numpy.where(is_within, WITHIN, ACROSS)
        values = values * numpy.exp(self._numbers.normal(0, noise, len(values)))
        values[self._is_slow(senders, receivers, is_within)] *= ratio
        return dict(zip(map(tuple, pairs.T.tolist()), values.tolist(), strict=True))

    def _is_slow(self, senders: Any, receivers: Any, is_within: Any) -> Any:
        if self.slow is None:
            return numpy.zeros(len(senders), bool)
        if self.slow.kind == LINK:
            found = (senders == self.rank) & (receivers == self.other)
            back = (senders == self.other) & (receivers == self.rank)
        elif self.slow.kind == HOST:
            host = self.rank // self.per_host
            found = (senders // self.per_host == host) & ~is_within
            back = (receivers // self.per_host == host) & ~is_within
        else:
            found, back = senders == self.rank, receivers == self.rank
        return found | back if self.slow.direction == BOTH else found

    def is_named_by(self, findings: Iterable[Finding]) -> bool:
        """Whether the findings are the slow part, and nothing else."""
        names = [(f.kind, f.direction, {*f.ranks}, {*f.to_ranks}) for f in findings]
        if self.slow is None:
            return not names
        kind, ranks, to = self.slow.kind, {self.rank}, set()
        if kind == HOST:
            first = self.rank - self.rank % self.per_host
            ranks = set(range(first, first + self.per_host))
        if kind == LINK:
            to = {self.other}
        if kind == RANK and self.per_host == 1:
            kind = HOST
        wanted = [(kind, self.slow.direction, ranks, to)]
        turned = [(kind, self.slow.direction, to, ranks)]
        return names == wanted or (self.slow.direction == BOTH and names == turned)


def pairs_of(names: Iterable[str], ranks: int) -> Any:
    """The ordered pairs of rounds as an array of two rows."""
    found = [
        (rank, peer.rank)
        for name in names
        for rank in range(ranks)
        if (peer := find_peer(name, rank, ranks))
    ]
    return numpy.array(found, dtype=numpy.int64).T


def quick(cluster: Cluster, noise: float, ratio: float, seed: int) -> tuple[Finding, ...]:
    """What a quick search finds."""
    ranks = cluster.ranks
    rounds = [f"round:{number}" for number in range(count_rounds(ranks))]
    looks = rounds
    if ranks > FEW_RANKS:
        looks = [HALVES, *random.Random(seed).sample(rounds, SAMPLED_ROUNDS)]
    values = cluster.measure(pairs_of(looks, ranks), noise * _more(LOOK_ITERATIONS), ratio)
    matrix = RankMatrix(BANDWIDTH, values, cluster.hosts)
    suspects = find_suspects(matrix)
    if not suspects:
        return find_slow(matrix).findings
    peers = {
        name: {s: p.rank for s in suspects if (p := find_peer(name, s, ranks))} for name in rounds
    }
    chosen = choose_rounds(suspects, peers, most_rounds(ranks), seed)
    again = cluster.measure(pairs_of(chosen, ranks), noise * _more(QUICK_ITERATIONS), ratio)
    return find_slow(matrix._replace(values=values | again)).findings


def _more(iterations: int) -> float:
    """The noise of a value of so many iterations over that of a measurement of all pairs."""
    return float((PAIRS_DEFAULTS["iters"] / iterations) ** 0.5)


def full(cluster: Cluster, noise: float, ratio: float) -> tuple[Finding, ...]:
    """What a search of all pairs finds."""
    names = (f"round:{number}" for number in range(count_rounds(cluster.ranks)))
    values = cluster.measure(pairs_of(names, cluster.ranks), noise, ratio)
    return find_slow(RankMatrix(BANDWIDTH, values, cluster.hosts)).findings


def seconds(rounds: int, iterations: int, options: argparse.Namespace) -> float:
    """The time of so many rounds."""
    calls = iterations + PAIRS_DEFAULTS["warmup"]
    return float(rounds * CASES * (options.case_s + calls * options.message_s))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16, 64, 256, 1024, 4096, 16384])
    parser.add_argument("--per-host", type=int, default=8, help="ranks of a host; 1 up to 16 ranks")
    parser.add_argument("--ratio", type=float, default=0.5, help="speed of what is slow")
    parser.add_argument(
        "--noise", type=float, default=0.03, help="of a value in full, a share of it"
    )
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--most-full", type=int, default=256, help="ranks with all pairs simulated")
    parser.add_argument(
        "--case-s", type=float, default=0.02, help="time of a case without its calls"
    )
    parser.add_argument(
        "--message-s", type=float, default=3.4e-3, help="of a call: 4 MiB, 10 Gbit/s"
    )
    return parser.parse_args()


def main() -> None:
    options = parse()
    rows = []
    for ranks in options.ranks:
        per_host = 1 if ranks <= FEW_RANKS else options.per_host
        looks = count_rounds(ranks) if ranks <= FEW_RANKS else 1 + SAMPLED_ROUNDS
        cost = seconds(count_rounds(ranks), PAIRS_DEFAULTS["iters"], options)
        quick_cost = seconds(looks, LOOK_ITERATIONS, options)
        quick_cost += seconds(most_rounds(ranks), QUICK_ITERATIONS, options)
        for is_quick in (False, True):
            if not is_quick and ranks > options.most_full:
                cells = [""] * (len(SLOW) + 1)
            else:
                cells = [
                    f"{count_named(ranks, per_host, slow, is_quick, options)}"
                    for slow in (None, *SLOW)
                ]
            rounds = f"{looks}+{most_rounds(ranks)}" if is_quick else f"{count_rounds(ranks)}"
            kind, cost_s = ("quick", quick_cost) if is_quick else ("all", cost)
            rows.append([str(ranks), kind, rounds, f"{cost_s:.1f}", *cells])
    headings = ["ranks", "pairs", "rounds", "time s", "nothing", *(slow.name for slow in SLOW)]
    lines = table([heading.replace(" ", "\n") for heading in headings], rows)
    print("\n".join(lines))
    print(
        f"  Right answers of {options.trials}: what was slow at {options.ratio:g} of the speed, and"
    )
    print(f"  nothing else. Noise {100 * options.noise:g} %.")


def count_named(
    ranks: int, per_host: int, slow: Slow | None, is_quick: bool, options: argparse.Namespace
) -> int:
    """In how many trials the answer is right."""
    right = 0
    for trial in range(options.trials):
        cluster = Cluster(ranks, per_host, slow, f"{ranks} {slow} {trial}")
        if is_quick:
            findings = quick(cluster, options.noise, options.ratio, trial)
        else:
            findings = full(cluster, options.noise, options.ratio)
        right += cluster.is_named_by(findings)
    return right


if __name__ == "__main__":
    main()
