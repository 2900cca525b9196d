"""Ms-Stream's partitioner: a graph neural network trained on the very graph that it splits.

In the manner of GAP (A. Nazi et al.: GAP, generalizable approximate graph partitioning framework,
2019): two embeddings of every task, a softmax over the groups, and a loss that is the expected
normalised cut plus what the groups are out of balance (Ms eq. 30-35).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.common.parameters import Checked, param
from penstock.model import InstanceGraph, Refused
from penstock.strategies.partition import register
from penstock.strategies.partition.bundles import Bundles, bundle
from penstock.strategies.partition.likeliest import likeliest

MISSING = "graph_network needs PyTorch; install it with: pip install 'penstock[gnn]'"

#: Random features of each task, and how much of them is its class's and how much its own.
NOISE = 16
CLASS_NOISE, OWN_NOISE = 1.0, 1.0

#: A loss must fall by more than this part of itself to count as an improvement.
NOTICEABLE = 1e-4

FragmentPlacement = Callable[[Any], Any]


@register
@dataclass(frozen=True)
class GraphNetwork(Checked):
    """Learn the groups of this graph by descending on their expected cut and imbalance.

    A graph convolution network embeds what a task exchanges with its neighbours, GraphSAGE what it
    is (its load), a fully connected layer turns both into the probability `Y` of every group
    (Alg. 2). The answer is the likeliest group of each, repaired. Seeded by the generator it is
    given; PyTorch's own generators are left alone.
    """

    name: ClassVar[str] = "graph-network"
    summary: ClassVar[str] = "graph neural network trained on the graph itself; needs PyTorch"
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
        """Give every instance a group; see `Partitioner.partition`.

        Raises
        ------
        Refused
            When PyTorch is not installed.
        """
        torch = import_torch()
        seed = int(rng.integers(2**31 - 1))
        weights = weights if weights.sum() > 0 else np.ones(len(graph))
        if len(shares) == 1:
            return np.zeros(len(graph), dtype=np.int64)
        bundles = bundle(graph, max(self.vertices, 2 * len(shares)))
        load = group_sums(bundles.of, weights, len(bundles))
        with _one_thread(torch):
            chances = self._train(torch, bundles, load, shares / shares.sum(), seed)
        return likeliest(graph, chances[bundles.of], weights, shares / shares.sum())

    def _train(
        self, torch: Any, bundles: Bundles, load: FloatArray, shares: FloatArray, seed: int
    ) -> FloatArray:
        """Return `Y`, the probability of each group for each bundle."""
        made = torch.Generator().manual_seed(seed)
        spread = spreader(torch, bundles)
        edge, task = features(torch, bundles, load, made)
        network = _Network(torch, self.layers, self.hidden, edge, task, len(shares), made)
        optimiser = torch.optim.Adam(network.parameters, lr=self.rate)
        terms = losses(torch, spread, bundles, load, shares)
        # Eq. 33-34 count in tasks, the cut in parts of a volume: one scale for both.
        relative = self.balance * (len(shares) / float(bundles.size.sum())) ** 2
        lowest, since = np.inf, 0
        best = None
        for _ in range(self.epochs):
            optimiser.zero_grad()
            chances = network.forward(spread)
            cut, counts, loads = terms(chances)
            loss = cut + relative * (counts + loads)
            value = float(loss.detach())
            since += 1
            if value < lowest - NOTICEABLE * abs(lowest) or best is None:
                lowest, since, best = value, 0, chances.detach()
            if since >= self.patience:
                break
            loss.backward()
            optimiser.step()
        return np.asarray(best, dtype=np.float64)


def import_torch() -> Any:
    """Import PyTorch, or say how to get it."""
    try:
        return importlib.import_module("torch")
    except ImportError as missing:
        raise Refused(MISSING) from missing


def spreader(torch: Any, bundles: Bundles) -> FragmentPlacement:
    """Make `E` times a matrix as a step that gradients pass through; `E` is symmetric."""

    class Through(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, values: Any) -> Any:
            return _times(values)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return _times(gradient)

    def _times(values: Any) -> Any:
        return torch.from_numpy(bundles.spread(values.detach().numpy()).astype(np.float32))

    through: FragmentPlacement = Through.apply
    return through


def losses(
    torch: Any, spread: FragmentPlacement, bundles: Bundles, load: FloatArray, shares: FloatArray
) -> Callable[[Any], tuple[Any, Any, Any]]:
    """Make the function from `Y` to the three terms of the loss (eq. 30).

    Cut (eq. 31): what leaves each group over its volume `Gamma` (eq. 32), summed up. A group of
    isolated tasks has no volume, and no cut. Counts (eq. 33) and loads (eq. 34): squared difference
    from each group's share. Loads are in units of the mean load, so that the two terms have one
    scale; the print of eq. 34 leaves the square out in its first line.
    """
    degree = torch.tensor(bundles.degree, dtype=torch.float32)
    size = torch.tensor(bundles.size, dtype=torch.float32)
    share = torch.tensor(shares, dtype=torch.float32)
    count = float(bundles.size.sum())
    weight = torch.tensor(load * count / load.sum(), dtype=torch.float32)

    def terms(chances: Any) -> tuple[Any, Any, Any]:
        volume = degree @ chances
        inside = (chances * spread(chances)).sum(dim=0)
        used = volume > 0
        cut = torch.where(used, 1.0 - inside / torch.where(used, volume, 1.0), 0.0).sum()
        counts = ((size @ chances - count * share) ** 2).sum()
        loads = ((weight @ chances - count * share) ** 2).sum()
        return cut, counts, loads

    return terms


def features(torch: Any, bundles: Bundles, load: FloatArray, made: Any) -> tuple[Any, Any]:
    """Describe each bundle: by what it exchanges, and by what it is.

    Noise comes with both. Some is a class's own, and passes on to its neighbours, so that parts of
    the graph can be told apart; some is a bundle's own, without which twins could not part.
    """
    columns = (
        (bundles.degree, bundles.loop, np.asarray(bundles.sent.sum(axis=1)).ravel()),
        (load, bundles.size),
    )
    classes = int(bundles.class_of.max()) + 1
    shared = torch.randn(classes, NOISE, generator=made)[torch.from_numpy(bundles.class_of)]
    described: list[Any] = []
    for group in columns:
        table = np.stack([values / max(float(values.mean()), 1e-12) for values in group], axis=1)
        noise = CLASS_NOISE * shared + OWN_NOISE * torch.randn(len(bundles), NOISE, generator=made)
        described.append(torch.cat([torch.tensor(np.log1p(table)).float(), noise], dim=1))
    return described[0], described[1]


class _Network:
    """Two embeddings side by side and a softmax on top (Alg. 2)."""

    def __init__(
        self, torch: Any, layers: int, hidden: int, edge: Any, task: Any, groups: int, made: Any
    ) -> None:
        self.torch = torch
        self.edge, self.task = edge, task
        self.parameters: list[Any] = []

        def matrix(rows: int, columns: int, gain: float = 2.0) -> Any:
            values = torch.randn(rows, columns, generator=made) * (gain / rows) ** 0.5
            self.parameters.append(values.requires_grad_())
            return values

        widths = [hidden] * (layers - 1)
        self.convolve = [matrix(w, hidden) for w in [edge.shape[1], *widths]]
        self.sample = [matrix(2 * w, hidden) for w in [task.shape[1], *widths]]
        # Sure of itself from the start: where all groups are equally likely, nothing pulls.
        self.last = matrix(2 * hidden, groups, gain=18.0)
        self.bias = torch.zeros(groups, requires_grad=True)
        self.parameters.append(self.bias)
        self.scale: Any = None

    def forward(self, spread: FragmentPlacement) -> Any:
        """Probability of each group (columns) for each bundle (rows)."""
        torch = self.torch
        if self.scale is None:
            ones = torch.ones(len(self.edge), 1)
            degree = spread(ones)
            # Rates in units of the mean degree, so that a task counts as much as its neighbours.
            unit = degree.mean().clamp(min=1e-30)
            self.scale = ((degree / unit + 1.0) ** -0.5, unit, degree.clamp(min=1e-30))
        root, unit, degree = self.scale
        exchanged = self.edge
        for weights in self.convolve:
            near = exchanged * root
            exchanged = torch.relu((root * (spread(near) / unit + near)) @ weights)
        own = self.task
        for weights in self.sample:
            own = torch.relu(torch.cat([own, spread(own) / degree], dim=1) @ weights)
            own = torch.nn.functional.normalize(own, dim=1) * own.shape[1] ** 0.5
        joined = torch.cat([exchanged, own], dim=1)
        return torch.softmax(joined @ self.last + self.bias, dim=1)


@contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    """Sum up in one order on any machine: with several threads the last bits may differ."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
