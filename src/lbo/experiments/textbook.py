"""Functions from the textbooks of optimisation, in four to eight dimensions, and relatives of them.

A relative has its optimum elsewhere and is stretched about it, so its least value and where it lies are known exactly.

U        (n, D)  points of the unit cube          optimum  (D,)  where a formula is least
shift    (D,)    of a relative's optimum          stretch  (D,)  of its coordinates about the optimum
f(U) = formula(optimum + (U - optimum - shift) stretch)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution

from lbo.experiments.problems import Function
from lbo.seeds import Seed

Array = NDArray[np.float64]

LENGTH = 5  # tasks of a sequence
INSIDE = 0.05  # how far from the cube's faces every optimum stays
SAMPLED = 2**14  # points that tell a function's deviation


@dataclass(frozen=True, eq=False)
class Formula:
    """A function, of the unit cube and beyond, whose optimum is known."""

    at: Callable[[Array], Array]  # (n, D) -> (n,)
    optimum: Array

    @cached_property
    def least(self) -> float:
        return float(self.at(self.optimum[None])[0])


@dataclass(frozen=True, eq=False)
class Relative:
    """See the module's first lines."""

    formula: Formula
    shift: Array
    stretch: Array

    def __call__(self, U: Array) -> Array:
        centre = self.formula.optimum
        return self.formula.at(centre + (U - centre - self.shift) * self.stretch)

    @cached_property
    def std(self) -> float:
        """Deviation over the cube."""
        return float(self((Seed(0) / "textbook").rng().random((SAMPLED, len(self.shift)))).std())


def relative(formula: Formula, distance: float, rng: np.random.Generator) -> Relative:
    """A function whose optimum is about `distance` away in every coordinate."""
    D = len(formula.optimum)
    optimum = formula.optimum + distance * rng.standard_normal(D)
    shift = optimum.clip(INSIDE, 1 - INSIDE) - formula.optimum
    return Relative(formula, shift, np.exp(distance * rng.standard_normal(D)))


def problem(name: str, f: Relative) -> Function:
    space = {f"x{j + 1}": FloatDistribution(0.0, 1.0) for j in range(len(f.shift))}
    return Function(name, f, space, f.formula.least, f.std)


def sequence(name: str, distance: float, seed: Seed, length: int = LENGTH) -> list[Function]:
    """Relatives of one formula."""
    relatives = [relative(FORMULAS[name], distance, (seed / t).rng()) for t in range(length)]
    return [problem(f"{name}-{distance:g}/{t}", f) for t, f in enumerate(relatives)]


# The formulas, each on its usual domain unless it says otherwise

HARTMANN_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
HARTMANN_WIDTHS = np.array([
    [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
    [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
    [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
    [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
])  # fmt: skip
HARTMANN_CENTRES = 1e-4 * np.array([
    [1312, 1696, 5569, 124, 8283, 5886],
    [2329, 4135, 8307, 3736, 1004, 9991],
    [2348, 1451, 3522, 2883, 3047, 6650],
    [4047, 8828, 8732, 5743, 1091, 381],
])  # fmt: skip
HARTMANN_OPTIMUM = np.array([0.201689511, 0.150010692, 0.476873974, 0.275332430, 0.311651617, 0.657300534])


def _hartmann(U: Array) -> Array:
    """Four bumps in six dimensions, on a plain."""
    square = (HARTMANN_WIDTHS * (U[:, None] - HARTMANN_CENTRES) ** 2).sum(axis=2)
    return np.asarray(-np.exp(-square) @ HARTMANN_WEIGHTS)


def _levy(U: Array) -> Array:
    """Waves in a bowl."""
    w = 1 + (20 * U - 10 - 1) / 4
    inner = ((w[:, :-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:, :-1] + 1) ** 2)).sum(axis=1)
    return np.asarray(
        np.sin(np.pi * w[:, 0]) ** 2 + inner + (w[:, -1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[:, -1]) ** 2)
    )


def _rosenbrock(U: Array) -> Array:
    """A bent valley; the logarithm of its usual height."""
    x = 4 * U - 2
    return np.asarray(np.log1p((100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(axis=1)))


def _ackley(U: Array) -> Array:
    """A funnel with ripples; ten units wide instead of sixty-six, most of which are flat."""
    x = 10 * (U - 0.35)
    funnel, ripples = np.exp(-0.2 * np.sqrt((x**2).mean(axis=1))), np.exp(np.cos(2 * np.pi * x).mean(axis=1))
    return np.asarray(20 + np.e - 20 * funnel - ripples)


def _ellipsoid(U: Array) -> Array:
    """A cone whose eight coordinates matter from much to little."""
    return np.asarray(np.sqrt((U - 0.4) ** 2 @ np.geomspace(1.0, 0.05, 8)))


FORMULAS = {
    "hartmann": Formula(_hartmann, HARTMANN_OPTIMUM),
    "levy": Formula(_levy, np.full(4, 0.55)),
    "rosenbrock": Formula(_rosenbrock, np.full(4, 0.75)),
    "ackley": Formula(_ackley, np.full(5, 0.35)),
    "ellipsoid": Formula(_ellipsoid, np.full(8, 0.4)),
}
NEAR, FAR = 0.05, 0.3  # relatives, and functions that share little but their kind
