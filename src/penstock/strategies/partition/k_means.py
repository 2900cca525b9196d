"""k-means: Lloyd's iterations from k-means++ seeds."""

from __future__ import annotations

import numpy as np
from scipy.cluster.vq import vq

from penstock.common.arrays import FloatArray


def k_means(rows: FloatArray, k: int, iterations: int, rng: np.random.Generator) -> FloatArray:
    """Lloyd's iterations from k-means++ seeds; an emptied cluster takes the farthest row."""
    centroids = _seeds(rows, k, rng)
    label = np.full(len(rows), -1)
    for _ in range(iterations):
        nearest, distance = vq(rows, centroids)
        for empty in np.flatnonzero(np.bincount(nearest, minlength=k) == 0).tolist():
            farthest = int(np.argmax(distance))
            nearest[farthest], distance[farthest] = empty, -1.0
        if (nearest == label).all():
            break
        label = nearest
        held = np.maximum(np.bincount(label, minlength=k), 1)
        order = np.argsort(label, kind="stable")
        starts = np.searchsorted(label[order], np.arange(k))
        sums = np.add.reduceat(rows[order], np.minimum(starts, len(rows) - 1), axis=0)
        centroids = np.where((np.bincount(label, minlength=k) > 0)[:, None], sums, 0.0)
        centroids = centroids / held[:, None]
    return centroids


def _seeds(rows: FloatArray, k: int, rng: np.random.Generator) -> FloatArray:
    """k-means++: each seed drawn by its squared distance to the seeds before it."""
    chosen = [int(rng.integers(len(rows)))]
    nearest = ((rows - rows[chosen[0]]) ** 2).sum(axis=1)
    for _ in range(k - 1):
        total = float(nearest.sum())
        at = rng.random() * total
        drawn = int(np.searchsorted(np.cumsum(nearest), at)) if total > 0 else -1
        chosen.append(drawn if 0 <= drawn < len(rows) else int(rng.integers(len(rows))))
        nearest = np.minimum(nearest, ((rows - rows[chosen[-1]]) ** 2).sum(axis=1))
    return rows[chosen]
