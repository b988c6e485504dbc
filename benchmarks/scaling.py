"""A step on many ranks on paper, beside measured points: ``python benchmarks/scaling.py`` prints the tables of
docs/scaling.md."""

import math
from typing import NamedTuple


class Network(NamedTuple):
    """What connects ranks."""

    name: str
    alpha: float
    """Seconds until the first byte of a message arrives."""
    beta: float
    """Seconds for each byte after that."""


NETWORKS = [
    Network("processes of one machine", 5e-6, 1 / 10e9),
    Network("Ethernet, 25 Gbit/s", 20e-6, 1 / 3.1e9),
    Network("InfiniBand, 200 Gbit/s", 2e-6, 1 / 25e9),
]
RANKS = [2, 8, 64, 512, 4096]
STEPS = [("wide network, 1.9 million parameters", 13e-3, 7.45e6), ("ResNet-50, 25.6 million", 300e-3, 102.2e6)]
"""Name, seconds of a step of one rank with its batch, bytes of its gradients."""


def direct(network, ranks, size):
    """Each rank sends one part to each other rank, twice: as `minigraph.parallel` does, with its one order of sums."""
    return 2 * (ranks - 1) * network.alpha + 2 * (ranks - 1) / ranks * size * network.beta


def tree(network, ranks, size):
    """Halves to a partner, then back: Rabenseifner's algorithm, for powers of two."""
    return 2 * math.log2(ranks) * network.alpha + 2 * (ranks - 1) / ranks * size * network.beta


def overlapped(time, share, behind, latency):
    """Seconds that an exchange adds if its first `share` overlaps the last `behind` seconds of the backward pass."""
    return time - min(share * time, behind) + latency


def main():
    for name, step, size in STEPS:
        print(f"\n{name}: share of {step * 1e3:.0f} ms that is arithmetic\n")
        print("| ranks | " + " | ".join(f"{each.name}, direct or ring | tree" for each in NETWORKS) + " |")
        print("|---|" + "---|" * 2 * len(NETWORKS))
        for ranks in RANKS:
            times = [sums(each, ranks, size) for each in NETWORKS for sums in (direct, tree)]
            print(f"| {ranks:,} | " + " | ".join(f"{step / (step + time):.0%}" for time in times) + " |")
    print("\nwide network, two ranks: exchange in ms, and if 57% of it overlap with 2.6 ms of the backward pass")
    for network in NETWORKS:
        time = direct(network, 2, STEPS[0][2])
        print(f"{network.name}: {time * 1e3:.2f}, {overlapped(time, 0.57, 2.6e-3, 2 * network.alpha) * 1e3:.2f}")


if __name__ == "__main__":
    main()
