"""What the default model remembers: the latest task's function, and the mean function of each family of tasks.

function 0       what the latest task looked like
function m > 0   what the tasks of family m have in common, learned task by task
counts   (M,)    how many tasks leaned on each function most
members  (M,)    how many tasks found their home in each family, every later task making that FADING of what it was
log_ell  (D,)    sum of the log length scales that past tasks had on their own     scaled  (D,)  of how many tasks

Of every task, its family's mean learns what its trials say of it (a task is rho g + r, so it says the less the less it
resembles the family), or, where no family explains it clearly better than none, it founds one. When the places are
taken, the family of the fewest members makes room, those of long ago counting less. A stream whose tasks drift leans on
function 0, one whose tasks scatter about a common shape leans on a family, and evidence tells which.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lbo.maths import Array, gaussian, linalg
from lbo.models import latent
from lbo.models.base import Lesson, Task
from lbo.models.component import (
    KAPPA,
    Component,
    Hypothesis,
    condition,
    leaning,
    most_telling,
    predict,
    prior_cov,
    prior_mean,
)
from lbo.models.latent import Latent, Prepared
from lbo.seeds import Seed
from lbo.space import Space, frame_map

if TYPE_CHECKING:
    from lbo.memory import Memory
    from lbo.models.lifelong import LifelongPosterior
FLAT = 1e6  # the length scale along a parameter that a function does not know
GROUND = 1024  # points over which a task's function is normalised
FAILURES_KEPT = 64
# Without it, families of long ago would hold their places for ever and new ones drive each other out; ten strangers in
# a row must not drive out a family of many.
FADING = 0.9
HYPER = ("logit_rho2", "log_noise", "warped")


class Scales(NamedTuple):
    """log length scales of past tasks, parameter by parameter."""

    log_ell: Array  # (P,) their sum
    tasks: Array  # (P,) over so many


class Past(NamedTuple):
    """Memory in a task's columns."""

    functions: tuple[Prepared, ...] = ()
    counts: Array = np.zeros(0)
    members: Array = np.zeros(0)
    tasks: int = 0
    width: float = 1.0  # of past tasks' values, typically, in the user's units
    theta: Mapping[str, float] = MappingProxyType({})  # averages of past tasks' hyper-parameters
    scales: Scales = Scales(np.zeros(0), np.zeros(0))
    failed: Array = np.zeros((0, 0))


_recalled: tuple[Memory, Space, Past] | None = None  # every ask of a task wants the same


def recall(space: Space, memory: Memory | None) -> Past:
    """A memory as a task in this space sees it."""
    global _recalled
    if memory is None:
        return Past(scales=unscaled(space), failed=np.zeros((0, len(space.columns))))
    known = _recalled  # another thread may put its own there meanwhile
    if known is None or known[0] is not memory or known[1] != space:
        known = _recalled = memory, space, _recall(space, memory)
    return known[2]


def _recall(space: Space, memory: Memory) -> Past:
    a = memory.arrays
    A, b = frame_map(space, memory.space)  # X in the task's columns = X in the memory's columns @ A + b
    functions = [
        latent.prepare(_moved(Latent(Z[:J], u[:J], R[:J, :J], ell, float(v)), memory.space, space))
        for Z, u, R, ell, v, J in zip(a["Z"], a["u"], a["R"], a["ell"], a["v"], a["J"].astype(int), strict=True)
    ]
    theta = {name: float(np.mean([record.hyper[name] for record in memory.records])) for name in HYPER}
    width = float(np.exp(np.mean([record.hyper["log_width"] for record in memory.records])))
    failed, scales = a["failed"] @ A + b, _scales(space, memory, np.abs(A))
    return Past(tuple(functions), a["counts"], a["members"], len(memory.records), width, theta, scales, failed)


def unscaled(space: Space) -> Scales:
    """Of no tasks."""
    return Scales(np.zeros(len(space.axes)), np.zeros(len(space.axes)))


def _scales(space: Space, memory: Memory, stretch: Array) -> Scales:
    """A memory's scales in this space, whose columns are so many times as long; of new parameters there are none."""
    if "log_ell" not in memory.arrays:  # memories of before have none
        return unscaled(space)
    # Every column comes from one column or from none.
    source, longer = stretch.argmax(axis=0), stretch.max(axis=0)
    tasks = np.where(longer > 0, memory.arrays["scaled"][source], 0.0)
    log_ell = tasks * np.log(np.where(longer > 0, longer, 1.0)) + np.where(
        tasks > 0, memory.arrays["log_ell"][source], 0.0
    )
    scales = unscaled(space)
    for column, axis in enumerate(space.column_axis):
        if tasks[column] > scales.tasks[axis]:  # a choice's columns have one scale, but new choices have none
            scales.log_ell[axis], scales.tasks[axis] = log_ell[column], tasks[column]
    return scales


def _moved(g: Latent, here: Space, there: Space) -> Latent:
    """A function in another space's columns: the same at the same configurations."""
    A, b = frame_map(there, here)
    Z, stretch = g.Z @ A + b, np.abs(A)
    known = stretch.max(axis=0, initial=0.0) > 0
    ell = np.where(known, g.ell @ stretch if len(g.ell) else FLAT, FLAT)
    if A.any(axis=1).all():
        return Latent(Z, g.u, g.R, ell, g.v)
    # A column is gone, and points that only it told apart contradict each other now. Of those that still differ, the
    # function says what it says of configurations that lack the column.
    Z = Z[latent.telling(Z, ell, np.zeros(0, dtype=int), len(Z))]
    back, offset = frame_map(here, there)
    lacking, known_there = Z @ back + offset, latent.prepare(g)
    return latent.keep(Z, latent.mean(known_there, lacking), latent.cov(known_there, lacking, lacking), ell, g.v)


def expected(past: Past, X: Array) -> Array:
    """What a task that has not begun may look like: the families' means, by how many tasks leaned on each."""
    weights = past.counts[1:] + 0.5
    return np.asarray((weights / weights.sum()) @ np.array([latent.mean(g, X) for g in past.functions[1:]]))


def remember(
    places: int,
    points: int,
    task: Task,
    past: Past,
    posterior: LifelongPosterior,
    home: Hypothesis,
    seed: Seed,
) -> Lesson:
    """Fold a finished task in."""
    c, z = posterior.components[0], posterior.z
    f, var = predict(c, task.space.encode(task.space.sample((seed / "ground").rng(), GROUND)))
    offset, spread = float(f.mean()), max(float(np.sqrt(f.var() + var.mean())), 1e-9)
    own = _own_function(c, z, offset, spread, points)

    functions = [own, *(g.latent for g in past.functions[1:])]
    counts, members = (past.counts, FADING * past.members) if past.tasks else (np.zeros(1), np.zeros(1))
    replaced = None
    if home.m is not None:
        member = condition(most_telling(task), z, past.functions[home.m], home)
        functions[home.m] = _family_mean(member, z, offset, spread, points)
        place = home.m
    elif len(functions) < places:
        functions.append(own)
        counts, members = np.append(counts, 0.0), np.append(members, 0.0)
        place = len(functions) - 1
    else:
        place = replaced = 1 + int(members[1:].argmin())
        functions[place] = own
        counts, members = (np.where(np.arange(len(functions)) == place, 0.0, x) for x in (counts, members))

    members = members + (np.arange(len(members)) == place)
    gates = np.zeros(places)
    gates[place] = 1.0
    for m, share in leaning(posterior.components, posterior.log_w).items():
        if m not in (place, replaced):
            gates[m] = share
    leader = posterior.finalists[0]
    if leader.m is not None and leader.m != replaced and leader.sign > 0:
        counts = counts + (np.arange(len(counts)) == leader.m)
    P = len(leader.theta) - 3
    hyper = {
        "log_width": float(np.log(spread * posterior.output.width)),
        "logit_rho2": float(leader.theta[P]) if leader.m is not None else -1.0,
        "log_noise": float(leader.theta[P + 1]),
        "warped": float(posterior.output.warped),
    }
    scales = _with_scales(past.scales, task, posterior.alone.theta[:P])
    columns = task.space.column_axis
    kept = {
        "counts": counts,
        "members": members,
        "log_ell": scales.log_ell[columns],
        "scaled": scales.tasks[columns],
        "failed": posterior.failed[:FAILURES_KEPT],
    }
    return Lesson(_stacked(functions, points) | kept, gates, hyper, replaced)


def _with_scales(scales: Scales, task: Task, log_ell: Array) -> Scales:
    """One more task's, of the parameters that it varied."""
    varied = np.bincount(task.space.column_axis, np.ptp(task.X, axis=0), minlength=len(log_ell)) > 0
    return Scales(scales.log_ell + np.where(varied, log_ell, 0.0), scales.tasks + varied)


def _own_function(c: Component, z: Array, offset: float, spread: float, points: int) -> Latent:
    """The task's own posterior, normalised."""
    ell = c.g.latent.ell if c.g and c.rho**2 > 0.5 else c.ell
    pool = np.vstack([c.X, c.g.latent.Z]) if c.g else c.X
    Z = pool[latent.telling(pool, ell, np.argsort(z, kind="stable")[:8], points)]
    k = prior_cov(c, Z, c.X)
    half = c.fit.W @ k.T
    ratio = c.s / spread
    u = ratio * (prior_mean(c, Z) + k @ c.fit.a) - offset / spread
    return latent.keep(Z, u, ratio**2 * (prior_cov(c, Z, Z) - half.T @ half), ell, ratio**2)


OFFSET_VARIANCE = 0.05  # how far a task's offset may be from what GROUND says, in units of its spread squared


def _family_mean(c: Component, z: Array, offset: float, spread: float, points: int) -> Latent:
    """g given one more task that is rho g + r: exact conditioning, then kept at the most telling points."""
    assert c.g is not None
    g, X, ratio = c.g, c.X, c.s / spread
    A = ratio**2 * (prior_cov(c, X, X) - KAPPA) + OFFSET_VARIANCE
    linalg.diagonal(A)[:] += ratio**2 * c.noise
    fit = gaussian.factorise(A, (z - offset) / spread - ratio * prior_mean(c, X))
    pool = np.vstack([g.latent.Z, X])
    best = len(g.latent.Z) + np.argsort(z, kind="stable")[:4]
    Z = pool[latent.telling(pool, g.latent.ell, best, points)]
    k = ratio * c.rho * latent.cov(g, Z, X)
    half = fit.W @ k.T
    S = latent.cov(g, Z, Z) - half.T @ half
    return latent.keep(Z, latent.mean(g, Z) + k @ fit.a, S, g.latent.ell, g.latent.v)


def _stacked(functions: list[Latent], points: int) -> dict[str, Array]:
    """Functions as arrays of one shape each."""
    M, D = len(functions), functions[0].Z.shape[1]
    arrays = {
        "Z": np.zeros((M, points, D)),
        "u": np.zeros((M, points)),
        "R": np.zeros((M, points, points)),
        "J": np.array([len(g.u) for g in functions], dtype=float),
        "ell": np.array([g.ell for g in functions]),
        "v": np.array([g.v for g in functions]),
    }
    for i, g in enumerate(functions):
        J = len(g.u)
        arrays["Z"][i, :J], arrays["u"][i, :J], arrays["R"][i, :J, :J] = g.Z, g.u, g.R
    return arrays
