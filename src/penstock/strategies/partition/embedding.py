"""The network of `graph-network`: two embeddings of a graph, a softmax, their gradients, Adam.

The network is small and its form is fixed, so its gradients are written out by hand; the tests hold
them to differences. All is in single precision: the matrices have a row for each task and a column
for each group, and going over them is what takes the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from penstock.strategies.partition.bundles import Bundles

#: Matrices and vectors in single precision.
Single = npt.NDArray[np.float32]

#: What is smaller is nothing: a norm or a degree by which it is divided.
TINY = np.float32(1e-30)


@dataclass(frozen=True, eq=False)
class Rates:
    """`E`, the rates between bundles, as a product of two thin matrices and what was measured.

    Parameters
    ----------
    left, right : sparse array
        Their product, and `pairs` added to it, is `E`; `right` is wide, `left` is tall.
    pairs : sparse array
        Measured rates, less what stays inside each bundle.
    degree : array
        Row sums of `E`.
    """

    left: sp.csr_array
    right: sp.csr_array
    pairs: sp.csr_array
    degree: Single

    @classmethod
    def of(cls, bundles: Bundles) -> Rates:
        """Take the rates of `bundles`."""
        thin = sp.hstack([bundles.sent, bundles.got]), sp.hstack([bundles.got, bundles.sent]).T
        left, right, pairs = (
            sp.csr_array(part).astype(np.float32)
            for part in (*thin, bundles.pairs - sp.diags_array(bundles.loop))
        )
        return cls(left, right, pairs, bundles.degree.astype(np.float32))

    def spread(self, values: Single) -> Single:
        """`E` times a matrix with a row for each bundle; no pair of bundles is looked at."""
        through: Single = self.left @ (self.right @ values)
        through += self.pairs @ values
        return through


@dataclass(frozen=True, eq=False)
class Pass:
    """What one pass through the network leaves for its gradients.

    Parameters
    ----------
    edge, task : sequence of pair of array
        Of each layer: what its weights were multiplied with, and what came out of it.
    norms : sequence of array
        Of each layer of the second embedding: length of each row before it was normalised.
    joined : array
        Both embeddings side by side.
    chances : array
        Probability of each group (columns) for each bundle (rows).
    """

    edge: Sequence[tuple[Single, Single]]
    task: Sequence[tuple[Single, Single]]
    norms: Sequence[Single]
    joined: Single
    chances: Single


@dataclass(frozen=True, eq=False)
class Network:
    """Two embeddings side by side and a softmax on top (Ms Alg. 2).

    Parameters
    ----------
    rates : Rates
    edge, task : array
        Features of each bundle, as they enter the first layer: passed on to neighbours already,
        because they never change.
    root, unit : array and float
        What normalises the rates of the first embedding.
    parameters : sequence of array
        Weights of the layers of the first embedding, of the second, of the last layer, and its
        bias. `Adam` changes them in place.
    layers : int
        Layers of each embedding.
    """

    rates: Rates
    edge: Single
    task: Single
    root: Single
    unit: np.float32
    parameters: Sequence[Single]
    layers: int

    @classmethod
    def of(
        cls,
        rates: Rates,
        edge: Single,
        task: Single,
        groups: int,
        layers: int,
        hidden: int,
        rng: np.random.Generator,
    ) -> Network:
        """Make a network with random weights for features of every bundle."""
        # Rates in units of the mean degree, so that a task counts as much as its neighbours.
        unit = max(np.float32(rates.degree.mean()), TINY)
        root = ((rates.degree / unit + 1.0) ** np.float32(-0.5))[:, None]

        def matrix(rows: int, columns: int, gain: float = 2.0) -> Single:
            values = rng.standard_normal((rows, columns), dtype=np.float32)
            return np.asarray(values * np.float32((gain / rows) ** 0.5), dtype=np.float32)

        widths = [hidden] * (layers - 1)
        parameters = [matrix(width, hidden) for width in (edge.shape[1], *widths)]
        parameters += [matrix(2 * width, hidden) for width in (task.shape[1], *widths)]
        # Sure of itself from the start: where all groups are equally likely, nothing pulls.
        parameters += [matrix(2 * hidden, groups, gain=18.0), np.zeros(groups, dtype=np.float32)]
        made = cls(rates, edge, task, root, unit, parameters, layers)
        return cls(rates, made._mix(edge), made._gather(task), root, unit, parameters, layers)

    def _mix(self, values: Single) -> Single:
        """One step of the convolution: neighbours and oneself, by normalised rates; symmetric."""
        near = values * self.root
        through = self.rates.spread(near)
        through /= self.unit
        through += near
        through *= self.root
        return through

    def _gather(self, values: Single) -> Single:
        """Put the mean of the neighbours, by rates, beside the values (GraphSAGE)."""
        return np.concatenate([values, self.rates.spread(values) / self._degree], axis=1)

    @property
    def _degree(self) -> Single:
        return np.maximum(self.rates.degree, TINY)[:, None]

    def forward(self) -> Pass:
        """Find the probabilities of the groups by the weights as they are."""
        edge: list[tuple[Single, Single]] = []
        into = self.edge
        for layer in range(self.layers):
            out = np.maximum(into @ self.parameters[layer], 0)
            edge.append((into, out))
            if layer + 1 < self.layers:
                into = self._mix(out)
        task: list[tuple[Single, Single]] = []
        norms: list[Single] = []
        into = self.task
        for layer in range(self.layers):
            out = np.maximum(into @ self.parameters[self.layers + layer], 0)
            norm = np.sqrt(np.einsum("ij,ij->i", out, out))[:, None]
            norms.append(np.maximum(norm, np.float32(1e-12)))
            out *= np.float32(out.shape[1] ** 0.5) / norms[-1]
            task.append((into, out))
            if layer + 1 < self.layers:
                into = self._gather(out)
        joined = np.concatenate([edge[-1][1], task[-1][1]], axis=1)
        chances = joined @ self.parameters[-2]
        chances += self.parameters[-1]
        chances -= chances.max(axis=1, keepdims=True)
        np.exp(chances, out=chances)
        chances /= chances.sum(axis=1, keepdims=True)
        return Pass(edge, task, norms, joined, chances)

    def backward(self, passed: Pass, pull: Single) -> list[Single]:
        """Gradients of the parameters, from that of the probabilities; changes `pull`."""
        pull -= np.einsum("ij,ij->i", pull, passed.chances)[:, None]
        pull *= passed.chances
        last = [passed.joined.T @ pull, pull.sum(axis=0)]
        joined = pull @ self.parameters[-2].T
        width = passed.edge[-1][1].shape[1]
        edge = self._back_edge(passed, joined[:, :width])
        return [*edge, *self._back_task(passed, joined[:, width:]), *last]

    def _back_edge(self, passed: Pass, pull: Single) -> list[Single]:
        found: list[Single] = []
        for layer in reversed(range(self.layers)):
            into, out = passed.edge[layer]
            pull = pull * (out > 0)
            found.append(into.T @ pull)
            if layer:
                pull = self._mix(pull @ self.parameters[layer].T)
        return found[::-1]

    def _back_task(self, passed: Pass, pull: Single) -> list[Single]:
        found: list[Single] = []
        for layer in reversed(range(self.layers)):
            into, out = passed.task[layer]
            # Only what is across a row changes its direction; its length was normalised away.
            width = np.float32(out.shape[1])
            along = np.einsum("ij,ij->i", pull, out)[:, None] / width
            pull = (pull - out * along) * (width ** np.float32(0.5) / passed.norms[layer])
            pull *= out > 0
            found.append(into.T @ pull)
            if layer:
                into_pull = pull @ self.parameters[self.layers + layer].T
                half = into_pull.shape[1] // 2
                pull = into_pull[:, :half] + self.rates.spread(into_pull[:, half:] / self._degree)
        return found[::-1]


class Adam:
    """Descend by running means of the gradient and of its square (D. Kingma, J. Ba: Adam, 2015)."""

    def __init__(self, rate: float, parameters: Sequence[Single]) -> None:
        self._rate = rate
        self._parameters = parameters
        self._mean = [np.zeros_like(values) for values in parameters]
        self._square = [np.zeros_like(values) for values in parameters]
        self._steps = 0

    def step(self, gradients: Sequence[Single]) -> None:
        """Change the parameters in place by one step against `gradients`."""
        self._steps += 1
        slow, slower = 1 - 0.9**self._steps, 1 - 0.999**self._steps
        length, spread = np.float32(self._rate / slow), np.float32(slower**-0.5)
        for values, gradient, mean, square in zip(
            self._parameters, gradients, self._mean, self._square, strict=True
        ):
            mean += np.float32(0.1) * (gradient - mean)
            square += np.float32(0.001) * (gradient * gradient - square)
            values -= length * mean / (np.sqrt(square) * spread + np.float32(1e-8))
