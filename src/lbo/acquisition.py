"""Expected Improvement and where it is largest in a mixed, conditional, possibly finite space.

mean, var  (S, n)  a mixture of S Gaussians at n points       log_w  (S,)  their log weights
best       ()      the value to improve on; smaller is better
Local moves need no derivatives, so integers, choices and conditions are treated like everything else.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, logsumexp

from lbo.space import Array, Space

POOL = 1024  # uniform points tried first
CHAINS = 8  # of which this many are climbed from
MOVES = 24  # neighbours tried per chain and round
SCALES = np.geomspace(0.2, 5e-4, 12)  # length of the moves, round by round
GRID = 4096  # a finite space of at most this many configurations is searched completely

_LOG_2PI = np.log(2 * np.pi)


class Surrogate(Protocol):
    """What the acquisition needs of a model's posterior."""

    @property
    def best(self) -> float: ...
    def mixture(self, X: Array) -> tuple[Array, Array, Array]: ...


def log_ei(mean: Array, var: Array, best: float) -> Array:
    """log E max(best - f, 0) for f ~ N(mean, var), accurate however far mean is above best."""
    std = np.sqrt(np.maximum(var, 1e-300))
    z = (best - mean) / std
    return np.asarray(np.log(std) + _log_h(z))


def _log_h(z: Array) -> Array:
    """log(phi(z) + z Phi(z)), after Ament et al. 2023 (Unexpected Improvements to Expected Improvement)."""
    near, far = np.maximum(z, -1.0), np.minimum(z, -1.0)
    phi = np.exp(-0.5 * near**2 - 0.5 * _LOG_2PI)
    value_near = np.log(phi + near * np.exp(log_ndtr(near)))
    # h(z) = phi(z) (1 - |z| sqrt(pi/2) erfcx(|z|/sqrt 2)); the bracket tends to 1/z^2 and loses all digits far out.
    lost = np.abs(far) * np.sqrt(np.pi / 2) * erfcx(-far / np.sqrt(2))
    bracket = np.where(far > -1e4, np.maximum(1 - lost, 1e-300), 1.0)
    log_bracket = np.where(far > -1e4, np.log(bracket), -2 * np.log(-far))
    value_far = -0.5 * far**2 - 0.5 * _LOG_2PI + log_bracket
    return np.asarray(np.where(z > -1.0, value_near, value_far))


def log_acquisition(surrogate: Surrogate, X: Array) -> Array:
    """log of EI averaged over the mixture."""
    log_w, mean, var = surrogate.mixture(X)
    return np.asarray(logsumexp(log_w[:, None] + log_ei(mean, var, surrogate.best), axis=0))


def maximise(
    surrogate: Surrogate, space: Space, starts: Array, taken: Array, rng: np.random.Generator
) -> Array:
    """The snapped configuration (P,) of largest EI that is not among `taken`.

    starts  (s, P)  configurations worth climbing from besides uniform ones: the best so far, past winners
    taken   (t, P)  configurations evaluated, running or failed already; repeated only when nothing else is left
    """
    taken_rows = set(_keys(space.snap(taken))) if len(taken) else set()
    if space.size <= GRID:
        U = space.grid()
        return _best_free(U, _score(surrogate, space, U), taken_rows)
    U = np.vstack([space.sample(rng, POOL), _neighbours(space, starts, 0.05, 8, rng), space.snap(starts)])
    score = _score(surrogate, space, U)
    chosen = _spread(space, U, score)
    chains, heights = U[chosen], score[chosen]
    for scale in SCALES:
        moved = _neighbours(space, chains, float(scale), MOVES, rng)
        moved_score = _score(surrogate, space, moved)
        U, score = np.vstack([U, moved]), np.append(score, moved_score)
        by_chain = moved_score.reshape(MOVES, len(chains))
        winner = by_chain.argmax(axis=0)
        rise = by_chain.max(axis=0) > heights
        chains = np.where(rise[:, None], moved.reshape(MOVES, *chains.shape)[winner, np.arange(len(chains))], chains)
        heights = np.maximum(heights, by_chain.max(axis=0))
    return _best_free(U, score, taken_rows)


def choose(surrogate: Surrogate, space: Space, candidates: Array, taken: Array) -> Array:
    """The candidate (snapped rows) of largest EI that is not among `taken`."""
    taken_rows = set(_keys(space.snap(taken))) if len(taken) else set()
    return _best_free(candidates, _score(surrogate, space, candidates), taken_rows)


def is_taken(space: Space, point: Array, taken: Array) -> bool:
    """Whether a snapped configuration is among those taken."""
    return len(taken) > 0 and _keys(point[None])[0] in _keys(space.snap(taken))


def _score(surrogate: Surrogate, space: Space, U: Array) -> Array:
    score = log_acquisition(surrogate, space.encode(U))
    return np.where(np.isnan(score), -np.inf, score)


def _spread(space: Space, U: Array, score: Array) -> NDArray[np.intp]:
    """The highest points, but for the first half of the chains no two within 0.1 of each other."""
    order = np.argsort(-score, kind="stable")
    X = space.encode(U[order[: 16 * CHAINS]])
    apart: list[int] = []
    for i, x in enumerate(X):
        if all(np.linalg.norm(x - X[j]) > 0.1 for j in apart):
            apart.append(i)
        if len(apart) == CHAINS // 2:
            break
    rest = [i for i in range(len(X)) if i not in set(apart)]
    return np.asarray(order[(apart + rest)[:CHAINS]])


def _neighbours(space: Space, U: Array, scale: float, moves: int, rng: np.random.Generator) -> Array:
    """(moves * n, P) each row of U moved `moves` times: some coordinates a little, a categorical anywhere."""
    if not len(U):
        return np.empty((0, len(space.axes)))
    filled = np.where(np.isnan(U), rng.random(U.shape), U)  # a move may wake a parameter that was inactive
    tiled = np.tile(filled, (moves, 1))
    n, P = tiled.shape
    changes = rng.random((n, P)) < rng.choice([1 / P, 0.5, 1.0], size=(n, 1))
    changes[np.arange(n), rng.integers(P, size=n)] = True
    step = scale * rng.standard_normal((n, P))
    # An integer moves at least to its neighbour, whatever the scale.
    cells = np.array([axis.cells for axis in space.axes])
    step = np.where(cells > 1, np.sign(step) * np.maximum(np.abs(step), 1.01 / np.maximum(cells, 1)), step)
    categorical = np.array([bool(axis.choices) for axis in space.axes])
    jumps = changes & categorical & (rng.random((n, P)) < max(scale, 0.1))
    moved = np.where(changes & ~categorical, tiled + step, tiled)
    moved = np.where(jumps, rng.random((n, P)), moved)
    return space.snap(np.clip(moved, 0.0, 1.0))


def _keys(U: Array) -> list[bytes]:
    """One hashable key per snapped row; NaN (inactive) is made one bit pattern, rounding noise is cut off."""
    return [row.tobytes() for row in np.round(np.where(np.isnan(U), -1.0, U), 9)]


def _best_free(U: Array, score: Array, taken: set[bytes]) -> Array:
    order = np.argsort(-score, kind="stable")
    keys = _keys(U)
    free = (i for i in order if keys[i] not in taken)
    return np.asarray(U[next(free, order[0])])
