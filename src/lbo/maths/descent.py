"""Downhill in a box: BFGS whose steps stay inside, for the few hyper-parameters of one task.

x     (P,)    the point              low, high  (P,)  the box
g     (P,)    gradient               B          (P, P)  approximate Hessian (Broyden, Fletcher, Goldfarb, Shanno)
free  (P,)    coordinates that no edge of the box holds
d     (P,)    direction; steps along it bend where they meet an edge (Bertsekas' projected Newton)
s, y  (P,)    a step and the change of the gradient along it

SciPy's L-BFGS-B finds the same minima. Importing it takes as long as everything else between Optuna and the first
suggestion of a process, and each of its evaluations costs more than the evidence of a young task.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lbo.maths import Array

Objective = Callable[[Array], tuple[float, Array]]
ARMIJO = 1e-4  # a step must win this much of what the slope promises
SHORTEST = 2.0**-20  # of a step, before the search is given up


class Minimum(NamedTuple):
    """Where the descent ended, and how low."""

    x: Array
    value: float


def minimise(
    objective: Objective, x: Array, low: Array, high: Array, *, curvature: Array, steps: int, ftol: float
) -> Minimum:
    """From x to a local minimum in the box, until a step gains less than ftol times the value.

    curvature  (P,)  a guess at the second derivatives: a good one saves a third of the evaluations
    """
    x = np.clip(x, low, high)
    value, g = objective(x)
    B = np.diag(curvature)
    start, steepest = True, False
    for _ in range(steps):
        d = _direction(B, g, x, low, high)
        if start:
            d /= max(float(np.linalg.norm(d)), 1.0)  # a guess is not worth a leap
        taken = _step(objective, x, value, g, d, low, high)
        if taken is None and steepest:
            break
        start = steepest = taken is None
        if taken is None:  # B has gone astray
            B = np.eye(len(x))
            continue
        x_new, value_new, g_new = taken
        B = _updated(B, x_new - x, g_new - g)
        gain, scale = value - value_new, max(abs(value), abs(value_new), 1.0)
        x, value, g = x_new, value_new, g_new
        if gain <= ftol * scale:
            break
    return Minimum(x, value)


def _direction(B: Array, g: Array, x: Array, low: Array, high: Array) -> Array:
    """Towards the minimum of the quadratic g d + d B d / 2 among the coordinates that no edge holds."""
    free = ~(((x <= low) & (g > 0)) | ((x >= high) & (g < 0)))
    d = np.zeros_like(g)
    if free.any():
        d[free] = -np.linalg.solve(B[free][:, free], g[free])
    return d


def _step(
    objective: Objective, x: Array, value: float, g: Array, d: Array, low: Array, high: Array
) -> tuple[Array, float, Array] | None:
    """The first of ever shorter steps along d that goes down as it should; None if none does."""
    length = 1.0
    while length >= SHORTEST:
        x_new = np.clip(x + length * d, low, high)
        promised = float(g @ (x_new - x))
        if promised >= 0:  # the edges left nothing that goes down
            length *= 0.1
            continue
        value_new, g_new = objective(x_new)
        if value_new <= value + ARMIJO * promised:
            return x_new, value_new, g_new
        # The parabola through what is known has its minimum at this part of the step.
        part = -0.5 * promised / (value_new - value - promised)
        length *= min(max(part, 0.1), 0.5) if np.isfinite(part) else 0.1
    return None


def _updated(B: Array, s: Array, y: Array) -> Array:
    """B that sees the change of the gradient along the step; the same B where that bends the wrong way."""
    sy = float(s @ y)
    if sy <= 1e-10 * float(np.linalg.norm(s) * np.linalg.norm(y)):
        return B
    Bs = B @ s
    return np.asarray(B + np.outer(y, y) / sy - np.outer(Bs, Bs) / float(s @ Bs))
