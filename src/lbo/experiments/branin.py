"""Branin functions with perturbed parameters: the paper's synthetic sequences (section 3.1).

    f(x) = a (x2 - b x1^2 + c x1 - r)^2 + s (1 - t) cos(x1) + s          x1 in [-5, 10], x2 in [0, 15]

The paper prints s (1 - r) cos(x1); with that, t would not occur. Points are given in the unit cube, (n, 2).
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from functools import cached_property

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution
from scipy.optimize import minimize

from lbo.experiments import Minimum

Array = NDArray[np.float64]

SIGMAS = (0.01, 0.05, 0.1, 0.5, 1.0)
LOW = np.array([-5.0, 0.0])
WIDTH = np.array([15.0, 15.0])
# Fine enough to see every valley: the narrowest, that of the cosine, is 2 pi / 15 of the cube wide, or 84
# cells.
CELLS = 200


@dataclass(frozen=True)
class Branin:
    """One Branin function, the standard one unless told otherwise."""

    a: float = 1.0
    b: float = 5.1 / (4 * math.pi**2)
    c: float = 5 / math.pi
    r: float = 6.0
    s: float = 10.0
    t: float = 1 / (8 * math.pi)

    def __call__(self, X: Array) -> Array:
        """Values (n,) at points (n, 2) of the unit cube."""
        x1, x2 = (LOW + WIDTH * np.asarray(X, dtype=float)).T
        valley = x2 - self.b * x1**2 + self.c * x1 - self.r
        return np.asarray(self.a * valley**2 + self.s * (1 - self.t) * np.cos(x1) + self.s)

    def gradient(self, X: Array) -> Array:
        """Derivatives (n, 2) with respect to the unit cube's coordinates."""
        x1, x2 = (LOW + WIDTH * np.asarray(X, dtype=float)).T
        valley = x2 - self.b * x1**2 + self.c * x1 - self.r
        by_x1 = 2 * self.a * valley * (self.c - 2 * self.b * x1) - self.s * (1 - self.t) * np.sin(x1)
        return np.asarray(np.column_stack([by_x1, 2 * self.a * valley]) * WIDTH)

    @cached_property
    def minimum(self) -> Minimum:
        """The smallest value and its point of the unit cube."""
        polished = [self._polish(start) for start in self._local_minima()]
        best = min(polished, key=lambda point: float(self(point[None])[0]))
        return Minimum(float(self(best[None])[0]), best)

    @cached_property
    def std(self) -> float:
        """Standard deviation of f under a uniform point, the unit of regret."""
        return float(self._grid_values.std())

    @property
    def distributions(self) -> dict[str, FloatDistribution]:
        return {"x1": FloatDistribution(-5.0, 10.0), "x2": FloatDistribution(0.0, 15.0)}

    def objective(self, trial: optuna.trial.BaseTrial) -> float:
        """f at what an Optuna trial suggests."""
        x = [trial.suggest_float(name, d.low, d.high) for name, d in self.distributions.items()]
        return float(self(((np.array(x) - LOW) / WIDTH)[None])[0])

    @cached_property
    def _grid_values(self) -> Array:
        """Values on a grid of the cube, edges included: a strongly perturbed f has its minimum there."""
        axis = np.linspace(0, 1, CELLS + 1)
        U = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
        return np.asarray(self(U.reshape(-1, 2)).reshape(len(axis), len(axis)))

    def _local_minima(self) -> Array:
        """Grid points (k, 2) that no neighbour undercuts; the global minimum is downhill from one of them."""
        f = self._grid_values
        around = np.pad(f, 1, constant_values=np.inf)
        n = len(f)
        shifts = [(i, j) for i in (0, 1, 2) for j in (0, 1, 2) if (i, j) != (1, 1)]
        lowest = np.min([around[i : i + n, j : j + n] for i, j in shifts], axis=0)
        return np.argwhere(f <= lowest) / CELLS

    def _polish(self, start: Array) -> Array:
        """The local minimum next to a point; never worse than the point."""
        found = minimize(
            lambda x: float(self(x[None])[0]), start, jac=lambda x: self.gradient(x[None])[0],
            bounds=[(0, 1), (0, 1)], method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9},
        )  # fmt: skip
        return np.asarray(found.x) if found.fun <= self(start[None])[0] else start


def sequence(sigma: float, rng: np.random.Generator, length: int = 5) -> list[Branin]:
    """Functions whose six parameters each differ from the standard ones by N(0, sigma^2), as in the paper."""
    standard = np.array(astuple(Branin()))
    return [Branin(*(standard + sigma * rng.standard_normal(6)).tolist()) for _ in range(length)]
