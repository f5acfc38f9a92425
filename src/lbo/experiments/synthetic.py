"""Made functions with a known minimum: strangers, two families in turn, and memories that mislead.

A family is a smooth random function of the square and its relatives. Functions are sums of Gaussian bumps, so that
their minimum can be found exactly: downhill from a fine grid.

    f(x) = - sum_k w_k exp(-|x - c_k|^2 / (2 ell_k^2))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution
from scipy.ndimage import minimum_filter
from scipy.optimize import minimize

from lbo.experiments.problems import NO_SEED, Function
from lbo.seeds import Seed

Array = NDArray[np.float64]

SQUARE = {"x1": FloatDistribution(0.0, 1.0), "x2": FloatDistribution(0.0, 1.0)}
BUMPS = 8
RELATED = 0.05  # how far relatives of one family are apart
NOISE, MUCH_NOISE = 0.1, 0.3  # deviations of the observations in units of the function's
LENGTH = 5  # tasks of a sequence
CELLS = 100  # of the grid; the narrowest bump is 10 of them wide


@dataclass(frozen=True, eq=False)
class Bumps:
    """A sum of Gaussian bumps on the square: centres (K, 2), widths (K,), weights (K,)."""

    c: Array
    ell: Array
    w: Array

    def __call__(self, X: Array) -> Array:
        """Values (n,) at points (n, 2)."""
        square = ((X[:, None] - self.c) ** 2).sum(axis=2)
        return np.asarray(-np.exp(-0.5 * square / self.ell**2) @ self.w)

    def gradient(self, x: Array) -> Array:
        """Derivatives (2,) at a point (2,)."""
        away = (x - self.c) / self.ell[:, None] ** 2
        height = self.w * np.exp(-0.5 * ((x - self.c) ** 2).sum(axis=1) / self.ell**2)
        return np.asarray(height @ away)

    @cached_property
    def minimum(self) -> float:
        """The least value: downhill from every grid point that no neighbour undercuts."""
        return min(self._polished(start) for start in self._local_minima())

    @cached_property
    def std(self) -> float:
        """Deviation over the square."""
        return float(self._values.std())

    def _polished(self, start: Array) -> float:
        found = minimize(lambda x: float(self(x[None])[0]), start, jac=self.gradient, bounds=[(0, 1), (0, 1)],
                         method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10})  # fmt: skip
        return min(float(found.fun), float(self(start[None])[0]))

    def _local_minima(self) -> Array:
        f = self._values
        lowest = minimum_filter(f, size=3, mode="nearest")
        return np.argwhere(f <= lowest) / CELLS

    @cached_property
    def _values(self) -> Array:
        """On a grid of the square, edges included."""
        axis = np.linspace(0, 1, CELLS + 1)
        grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
        return self(grid.reshape(-1, 2)).reshape(CELLS + 1, CELLS + 1)


def draw(rng: np.random.Generator) -> Bumps:
    """A random function."""
    return Bumps(rng.random((BUMPS, 2)), rng.uniform(0.1, 0.4, BUMPS), rng.normal(0.3, 1.0, BUMPS))


def relative(f: Bumps, rng: np.random.Generator, distance: float = RELATED) -> Bumps:
    """A function of the same family."""
    return replace(
        f,
        c=f.c + distance * rng.standard_normal(f.c.shape),
        ell=f.ell * np.exp(distance * rng.standard_normal(f.ell.shape)),
        w=f.w + distance * rng.standard_normal(f.w.shape),
    )


def flipped(f: Bumps) -> Bumps:
    """The worst is the best."""
    return replace(f, w=-f.w)


def mirrored(f: Bumps) -> Bumps:
    """Turned about the centre: the best is in the opposite corner."""
    return replace(f, c=1.0 - f.c)


def problem(name: str, f: Bumps, noise: float = 0.0, seed: Seed = NO_SEED) -> Function:
    """A function as a problem; noise in units of its deviation."""
    return Function(name, f, SQUARE, f.minimum, f.std, noise * f.std, seed)


@dataclass(frozen=True, eq=False)
class Shuffled:
    """What a function says where labels were shuffled: values of the function at unrelated points."""

    f: Bumps
    key: Seed

    def __call__(self, X: Array) -> Array:
        return np.array([self.f((self.key / repr(x.tolist())).rng().random((1, 2)))[0] for x in X])


def strangers(seed: Seed) -> list[Function]:
    """Functions that have nothing to do with each other."""
    return [problem(f"strangers/{t}", draw((seed / t).rng())) for t in range(LENGTH)]


def family(seed: Seed) -> list[Function]:
    """Relatives."""
    return [problem(f"family/{t}", f) for t, f in enumerate(_relatives(seed / "A", LENGTH))]


def alternating(seed: Seed) -> list[Function]:
    """A B A B A B: two families in turn; those of A are the same as in `family`."""
    A, B = (_relatives(seed / name, LENGTH) for name in "AB")
    return [problem(f"alternating/{'AB'[t % 2]}{t // 2}", (A, B)[t % 2][t // 2]) for t in range(2 * 3)]


def sign_flipped(seed: Seed) -> list[Function]:
    """The past is the negative of the task's relatives."""
    return _misled("sign-flipped", seed, lambda name, f, key: problem(name, flipped(f)))


def moved_optimum(seed: Seed) -> list[Function]:
    """The past is the task's relatives turned about the centre."""
    return _misled("moved-optimum", seed, lambda name, f, key: problem(name, mirrored(f)))


def shuffled_labels(seed: Seed) -> list[Function]:
    """The past had its labels shuffled."""
    return _misled("shuffled-labels", seed, _shuffled)


def _shuffled(name: str, f: Bumps, key: Seed) -> Function:
    return Function(name, Shuffled(f, key), SQUARE, f.minimum, f.std)


def other_noise(seed: Seed) -> list[Function]:
    """The past was observed with much noise, the task is not."""
    return _misled("other-noise", seed, lambda name, f, key: problem(name, f, MUCH_NOISE, key))


def _misled(name: str, seed: Seed, past: Callable[[str, Bumps, Seed], Function]) -> list[Function]:
    """Three tasks that mislead, and the one that counts."""
    *before, last = _relatives(seed / "A", 4)
    misleading = [past(f"{name}/{t}", f, seed / "past" / t) for t, f in enumerate(before)]
    return [*misleading, problem(f"{name}/{len(before)}", last)]


def noisy(seed: Seed) -> list[Function]:
    """Relatives, all observed with noise."""
    fs = _relatives(seed / "A", LENGTH)
    return [problem(f"noisy/{t}", f, NOISE, seed / "noise" / t) for t, f in enumerate(fs)]


def first(seed: Seed) -> list[Function]:
    """One task, nothing before it."""
    return [problem("first/0", draw(seed.rng()))]


def _relatives(seed: Seed, length: int) -> list[Bumps]:
    standard = draw((seed / "standard").rng())
    return [relative(standard, (seed / t).rng()) for t in range(length)]


SEQUENCES: dict[str, Callable[[Seed], list[Any]]] = {
    "strangers": strangers,
    "family": family,
    "alternating": alternating,
    "sign-flipped": sign_flipped,
    "moved-optimum": moved_optimum,
    "shuffled-labels": shuffled_labels,
    "other-noise": other_noise,
    "noisy": noisy,
    "first": first,
}
MISLEADING = ("sign-flipped", "moved-optimum", "shuffled-labels", "other-noise")
