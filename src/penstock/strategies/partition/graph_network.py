"""Ms-Stream's partitioner: a graph neural network trained on the very graph that it splits.

In the manner of GAP (A. Nazi et al.: GAP, generalizable approximate graph partitioning framework,
2019): two embeddings of every task, a softmax over the groups, and a loss that is the expected
normalised cut plus what the groups are out of balance (Ms eq. 30-35). The network itself, with its
gradients, is in `embedding.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.common.parameters import Checked, param
from penstock.model import InstanceGraph
from penstock.strategies.partition import register
from penstock.strategies.partition.bundles import Bundles, bundle
from penstock.strategies.partition.embedding import Adam, Network, Rates, Single
from penstock.strategies.partition.likeliest import likeliest

#: Random features of each task, and how much of them is its class's and how much its own.
NOISE = 16
CLASS_NOISE, OWN_NOISE = 1.0, 1.0

#: A loss must fall by more than this part of itself to count as an improvement.
NOTICEABLE = 1e-4


@register
@dataclass(frozen=True)
class GraphNetwork(Checked):
    """Learn the groups of this graph by descending on their expected cut and imbalance.

    A graph convolution network embeds what a task exchanges with its neighbours, GraphSAGE what it
    is (its load), a fully connected layer turns both into the probability `Y` of every group
    (Alg. 2). The answer is the likeliest group of each, repaired. Seeded by the generator it is
    given.
    """

    name: ClassVar[str] = "graph-network"
    summary: ClassVar[str] = "graph neural network trained on the graph itself"
    origin: ClassVar[str] = "Ms-Stream, eq. 30-35 and Alg. 2, after GAP"

    hidden: int = param(64, "Width of the embeddings.", least=1, most=4096)
    layers: int = param(2, "Layers of each embedding.", least=1, most=8)
    rate: float = param(0.003, "Learning rate of Adam.", least=1e-6, most=1)
    epochs: int = param(300, "Epochs at the most.", least=1, unit="epochs")
    patience: int = param(
        40, "Epochs without an improvement after which it stops.", least=1, unit="epochs"
    )
    balance: float = param(
        1.0,
        "Weight of the two imbalances, relative to the size of a group, against the cut.",
        least=0,
    )
    vertices: int = param(
        1500,
        "Above this many tasks, interchangeable ones are tied into bundles for the training.",
        least=1,
    )

    def partition(
        self,
        graph: InstanceGraph,
        weights: FloatArray,
        shares: FloatArray,
        rng: np.random.Generator,
    ) -> IntArray:
        """Give every instance a group; see `Partitioner.partition`."""
        weights = weights if weights.sum() > 0 else np.ones(len(graph))
        if len(shares) == 1:
            return np.zeros(len(graph), dtype=np.int64)
        bundles = bundle(graph, max(self.vertices, 2 * len(shares)))
        load = group_sums(bundles.of, weights, len(bundles))
        chances = self._train(bundles, load, shares / shares.sum(), rng)
        return likeliest(graph, chances[bundles.of], weights, shares / shares.sum())

    def _train(
        self, bundles: Bundles, load: FloatArray, shares: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """Return `Y`, the probability of each group for each bundle."""
        rates = Rates.of(bundles)
        edge, task = features(bundles, load, rng)
        network = Network.of(rates, edge, task, len(shares), self.layers, self.hidden, rng)
        optimiser = Adam(self.rate, network.parameters)
        loss = Loss(rates, bundles, load, shares, self.balance)
        lowest, since = np.inf, 0
        best: Single | None = None
        for _ in range(self.epochs):
            passed = network.forward()
            terms, pull = loss.of(passed.chances)
            value = loss.total(*terms)
            since += 1
            if value < lowest - NOTICEABLE * abs(lowest) or best is None:
                lowest, since, best = value, 0, passed.chances
            if since >= self.patience:
                break
            optimiser.step(network.backward(passed, pull))
        return np.asarray(best, dtype=np.float64)


class Loss:
    """The loss of eq. 30, and which way it pulls each probability.

    Cut (eq. 31): what leaves each group over its volume `Gamma` (eq. 32), summed up. A group of
    isolated tasks has no volume, and no cut. Counts (eq. 33) and loads (eq. 34): squared difference
    from each group's share. Loads are in units of the mean load, so that the two terms have one
    scale; the print of eq. 34 leaves the square out in its first line. Eq. 33-34 count in tasks,
    the cut in parts of a volume: the weight of the former brings both to one scale.
    """

    def __init__(
        self,
        rates: Rates,
        bundles: Bundles,
        load: FloatArray,
        shares: FloatArray,
        balance: float = 1.0,
    ) -> None:
        count = float(bundles.size.sum())
        self._rates = rates
        self._size = bundles.size.astype(np.float32)
        self._load = (load * count / load.sum()).astype(np.float32)
        self._asked = (count * shares).astype(np.float32)
        self._weight = balance * (len(shares) / count) ** 2

    def total(self, cut: float, counts: float, loads: float) -> float:
        """Sum up the terms, imbalances by their weight."""
        return cut + self._weight * (counts + loads)

    def of(self, chances: Single) -> tuple[tuple[float, float, float], Single]:
        """Return cut, counts and loads of `Y`, and the gradient of their total."""
        near, degree = self._rates.spread(chances), self._rates.degree
        volume = degree @ chances
        inside = np.einsum("ij,ij->j", chances, near)
        used = volume > 0
        part = np.divide(1.0, volume, where=used, out=np.zeros_like(volume))
        cut = float((used - inside * part).sum())
        held, carried = self._size @ chances - self._asked, self._load @ chances - self._asked
        # E is symmetric, so the gradient of what is inside is twice what is near.
        pull = near
        pull *= -2.0 * part
        vectors = np.stack([degree, self._size, self._load], axis=1)
        twice = np.float32(2.0 * self._weight)
        pull += vectors @ np.stack([inside * part * part, twice * held, twice * carried])
        return (cut, float(held @ held), float(carried @ carried)), pull


def features(bundles: Bundles, load: FloatArray, rng: np.random.Generator) -> tuple[Single, Single]:
    """Describe each bundle: by what it exchanges, and by what it is.

    Noise comes with both. Some is a class's own, and passes on to its neighbours, so that parts of
    the graph can be told apart; some is a bundle's own, without which twins could not part.
    """
    columns = (
        (bundles.degree, bundles.loop, np.asarray(bundles.sent.sum(axis=1)).ravel()),
        (load, bundles.size),
    )
    classes = int(bundles.class_of.max()) + 1
    shared = rng.standard_normal((classes, NOISE))[bundles.class_of]
    described: list[Single] = []
    for group in columns:
        table = np.stack([values / max(float(values.mean()), 1e-12) for values in group], axis=1)
        noise = CLASS_NOISE * shared + OWN_NOISE * rng.standard_normal((len(bundles), NOISE))
        described.append(np.concatenate([np.log1p(table), noise], axis=1).astype(np.float32))
    return described[0], described[1]
