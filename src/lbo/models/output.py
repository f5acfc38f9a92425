"""What a task's values are turned into before a model sees them, chosen by the task's own trials and recorded.

z = (y - centre) / width                    plain
z = log(1 + (y - centre) / width)           warped, on the bad side of the centre only

A model that collapsed (AUC 0.5) or diverged lies so far off that on a plain scale all good configurations look alike.
Warped, everything beyond the median is drawn in, and the good half keeps its true scale, which the last digits need.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lbo.maths import Array

CROWD = 0.1  # trials nearer than this, per square root of a column of the encoded space, say the same
COMPARED = 400  # trials that the others are compared with; beyond that, an even choice of them stands for all


class Output(NamedTuple):
    """An increasing map from minimised values y to z."""

    centre: float
    width: float
    warped: bool

    def to_z(self, y: Array) -> Array:
        """z; failures (NaN) get the worst value seen, and at least 1."""
        z = self._linear(y)
        if self.warped:
            z = np.where(z > 0, np.log1p(np.maximum(z, 0.0)), z)
        failed = np.isnan(z)
        return np.where(failed, max(float(z[~failed].max(initial=-np.inf)), 1.0), z)

    def to_user(self, z: Array) -> Array:
        """y, the inverse."""
        linear = np.where(z > 0, np.expm1(np.clip(z, 0.0, 500.0)), z) if self.warped else z
        return np.asarray(2 * (self.centre / 2 + self.width / 2 * linear))  # halved as in `_linear`

    def log_jacobian(self, y: Array) -> float:
        """sum log dz/dy over the values: what makes evidences of z comparable between two maps."""
        z = self._linear(y[~np.isnan(y)])
        return float(-len(z) * np.log(self.width) - (np.log1p(np.maximum(z, 0.0)).sum() if self.warped else 0.0))

    def _linear(self, y: Array) -> Array:
        # Halved before the difference is taken: half of 1e308 minus half of -1e308 is finite.
        return np.asarray((y / 2 - self.centre / 2) / (self.width / 2))


def plain(y: Array, fallback: float) -> Output:
    """Mean 0, deviation 1; `fallback` is the width where values do not tell (one trial, or all the same)."""
    return _fitted(y, fallback, None)


def warped(y: Array, fallback: float, weights: Array | None = None) -> Output:
    """The median at 0 and the best value at -1; `weights` (N,) are what each value counts in the median."""
    return _fitted(y, fallback, np.ones(len(y)) if weights is None else weights)


def sparsity(X: Array) -> Array:
    """(N,) how far each trial speaks for the space: the inverse of the trials' density about it.

    Trials crowd where values are good. Their own median soon is one of the best, and a warp about it would show little
    but the logarithm of the regret, which no process with a smooth covariance can follow into its minimum.
    """
    stride = -(-len(X) // COMPARED) or 1
    some = np.arange(0, len(X), stride)
    d2 = (X**2).sum(axis=1)[:, None] + (X[some] ** 2).sum(axis=1) - 2 * X @ X[some].T
    near = np.exp(-0.5 * d2 / (CROWD**2 * max(X.shape[1], 1)))
    near[some, np.arange(len(some))] = 0.0
    return np.asarray(1.0 / (1.0 + stride * near.sum(axis=1)))


def weighted_median(v: Array, weights: Array) -> float:
    """The value with half of the weight on either side; between two that share it, their mean."""
    order = np.argsort(v, kind="stable")
    below = np.cumsum(weights[order]) / weights.sum()
    lower, upper = (int(np.searchsorted(below, half)) for half in (0.5 - 1e-9, 0.5 + 1e-9))
    return float(0.5 * (v[order[lower]] + v[order[min(upper, len(v) - 1)]]))


def _fitted(y: Array, fallback: float, weights: Array | None) -> Output:
    told, warped = ~np.isnan(y), weights is not None
    ok = y[told]
    if not len(ok):
        return Output(0.0, fallback, warped)
    unit = float(np.abs(ok).max()) or 1.0  # so that squares of 1e300 do not overflow, nor those of 1e-300 vanish
    v = ok / unit
    centre = float(v.mean()) if weights is None else weighted_median(v, weights[told])
    width = centre - float(v.min()) if warped else float(v.std())
    if width < 1e-12 * max(1.0, abs(centre)):
        width = float(v.std()) or 0.0
    if width < 1e-12 * max(1.0, abs(centre)):
        return Output(centre * unit, max(fallback, 1e-12 * unit), warped)  # below that, rounding is all there is
    return Output(centre * unit, width * unit, warped)
