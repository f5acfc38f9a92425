"""Expected Improvement and where it is largest in a mixed, conditional, possibly finite space.

mean, var  (S, n)  of the gain over the best so far, under each of S Gaussians at n points
log_w      (S,) or (S, n)  their log weights
U          (n, P)  configurations in unit coordinates, snapped
taken      (t, P)  configurations evaluated, running or failed: repeated only when nothing else is left
Local moves need no derivatives, so integers, choices and conditions are treated like everything else.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lbo.maths import improvement
from lbo.space import Array, Space

POOL = 512  # uniform points tried first
CHAINS = 8  # of which this many are climbed from
MOVES = 24  # neighbours tried per chain and round
SCALES = np.geomspace(0.2, 5e-4, 12)  # length of the moves, round by round
HALVED = 4  # rounds, after which the lower half of the chains is given up
GRID = 4096  # a finite space of at most this many configurations is searched completely
CHUNK = 256  # configurations looked at together
ENUMERABLE = 2**17  # one of at most this many is listed when chance finds nothing that is not taken


class Surrogate(Protocol):
    """What the acquisition needs of a model's posterior."""

    def gain(self, X: Array) -> tuple[Array, Array, Array]: ...


def log_ei(mean: Array, var: Array) -> Array:
    """log E max(gain, 0) for a gain ~ N(mean, var), accurate however far below zero its mean is."""
    std = np.sqrt(np.maximum(var, 1e-40))  # so that z^2 stays finite where a model is certain
    return np.asarray(np.log(std) + improvement.log_h(mean / std))


def log_acquisition(surrogate: Surrogate, X: Array) -> Array:
    """log of EI averaged over the mixture."""
    log_w, mean, var = surrogate.gain(X)
    log_terms = log_w.reshape(len(mean), -1) + log_ei(mean, var)
    with np.errstate(invalid="ignore"):  # what is NaN stays NaN
        return np.asarray(np.logaddexp.reduce(log_terms, axis=0))


def maximise(surrogate: Surrogate, space: Space, starts: Array, taken: Array, rng: np.random.Generator) -> Array:
    """The configuration (P,) of largest EI that is not taken.

    starts  (s, P)  configurations worth climbing from besides uniform ones: the best so far, past winners
    """
    if space.size <= GRID:
        return choose(surrogate, space, space.grid(), taken)
    U, score = _search(surrogate, space, starts, rng)
    keys = set(_keys(taken))
    i = _first_free(U, np.argsort(-score, kind="stable"), keys)
    if i is not None:
        return np.asarray(U[i])
    left = _left(space, keys)
    if not len(left):
        return np.asarray(U[score.argmax()])
    return choose(surrogate, space, rng.permutation(left)[:GRID], taken)


def choose(surrogate: Surrogate, space: Space, candidates: Array, taken: Array) -> Array:
    """The candidate (P,) of largest EI that is not taken."""
    score = _score(surrogate, space, candidates)
    i = _first_free(candidates, np.argsort(-score, kind="stable"), set(_keys(taken)))
    return np.asarray(candidates[score.argmax() if i is None else i])


def first_free(space: Space, pool: Array, taken: Array) -> Array:
    """The first configuration (P,) of a pool that is not taken, or any that is left in a finite space."""
    keys = set(_keys(taken))
    i = _first_free(pool, np.arange(len(pool)), keys)
    if i is not None:
        return np.asarray(pool[i])
    left = _left(space, keys)
    return np.asarray(left[0] if len(left) else pool[0])


def is_taken(point: Array, taken: Array) -> bool:
    """Whether a configuration (P,) is among those taken."""
    return _keys(point[None])[0] in set(_keys(taken))


def _search(surrogate: Surrogate, space: Space, starts: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """A uniform pool, the starts and all that was met on the climb from the best, and their scores."""
    U = np.vstack([space.sample(rng, POOL), _neighbours(space, starts, 0.05, 8, rng), space.snap(starts)])
    score = _score(surrogate, space, U)
    visited, scores = [U], [score]
    chosen = _spread(space, U, score)
    chains, heights = U[chosen], score[chosen]
    for i, scale in enumerate(SCALES):
        if i and i % HALVED == 0:
            higher = np.argsort(-heights, kind="stable")[: (len(chains) + 1) // 2]
            chains, heights = chains[higher], heights[higher]
        each, moves = np.arange(len(chains)), round(MOVES * np.sqrt(CHAINS / len(chains)))
        moved = _neighbours(space, chains, float(scale), moves, rng)
        moved_score = _score(surrogate, space, moved)
        visited.append(moved)
        scores.append(moved_score)
        by_chain = moved_score.reshape(moves, len(chains))
        highest = by_chain.argmax(axis=0)
        rises = by_chain[highest, each] > heights
        chains = np.where(rises[:, None], moved.reshape(moves, *chains.shape)[highest, each], chains)
        heights = np.maximum(heights, by_chain[highest, each])
    return np.vstack(visited), np.concatenate(scores)


def _score(surrogate: Surrogate, space: Space, U: Array) -> Array:
    # Some at a time: matrices that do not fit a cache cost more in fresh pages than in arithmetic.
    parts = np.split(U, range(CHUNK, len(U), CHUNK))
    score = np.concatenate([log_acquisition(surrogate, space.encode(part)) for part in parts])
    return np.where(np.isnan(score), -np.inf, score)


def _spread(space: Space, U: Array, score: Array) -> NDArray[np.intp]:
    """The highest points, but for the first half of the chains no two within 0.1 of each other."""
    order = np.argsort(-score, kind="stable")[: 16 * CHAINS]
    X = space.encode(U[order])
    apart: list[int] = []
    for i, x in enumerate(X):
        if (np.linalg.norm(X[apart] - x, axis=1) > 0.1).all():
            apart.append(i)
        if len(apart) == CHAINS // 2:
            break
    rest = [i for i in range(len(X)) if i not in apart]
    return np.asarray(order[(apart + rest)[:CHAINS]])


def _neighbours(space: Space, U: Array, scale: float, moves: int, rng: np.random.Generator) -> Array:
    """(moves * n, P) each row of U moved `moves` times: some coordinates a little, a categorical anywhere."""
    filled = np.where(np.isnan(U), rng.random(U.shape), U)  # a move may wake a parameter that was inactive
    tiled = np.tile(filled, (moves, 1))
    n, P = tiled.shape
    changes = rng.random((n, P)) < rng.choice([1 / P, 0.5, 1.0], size=(n, 1))
    changes[np.arange(n), rng.integers(P, size=n)] = True
    cells = np.array([axis.cells for axis in space.axes])
    step = scale * rng.standard_normal((n, P))
    # An integer moves at least to its neighbour, whatever the scale.
    least = np.where(cells > 1, 1.01 / np.maximum(cells, 1), 0.0)
    moved = tiled + np.copysign(np.maximum(np.abs(step), least), step)
    categorical = np.array([bool(axis.choices) for axis in space.axes])
    jumps = rng.random((n, P)) < max(scale, 0.1)
    moved = np.where(categorical, np.where(jumps, rng.random((n, P)), tiled), moved)
    return space.snap(np.where(changes, moved, tiled).clip(0.0, 1.0))


def _keys(U: Array) -> list[bytes]:
    """One per row, the same for the same configuration: NaN (inactive) is a value, rounding noise is cut."""
    return [row.tobytes() for row in np.round(np.where(np.isnan(U), -1.0, U), 9)]


def _first_free(U: Array, order: NDArray[np.intp], taken: set[bytes]) -> int | None:
    for some in np.split(order, range(CHUNK, len(order), CHUNK)):
        for i, key in zip(some, _keys(U[some]), strict=True):
            if key not in taken:
                return int(i)
    return None


def _left(space: Space, taken: set[bytes]) -> Array:
    """The configurations that nobody has taken; none of a space too large to list."""
    if space.size > ENUMERABLE:
        return np.empty((0, len(space.axes)))
    U = space.grid()
    return U[[key not in taken for key in _keys(U)]]
