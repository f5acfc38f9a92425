"""The interface every model stands behind: fit a task beside a memory, predict, and say what to remember.

N     finished trials of the task, failed ones among them         D  columns of the encoded space
X     (N, D)  encoded points            y  (N,)  values as the user gave them, minimised; NaN where the trial failed
M     networks, or whatever else a model's memory is made of

A model is a frozen dataclass of settings; what it learns is a `Posterior` (of one task) and arrays in a `Memory`
(of all tasks before it). `fit` must give the same posterior whether it is handed `previous` or not: that is what
makes a resumed study equal to an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from lbo.seeds import Seed
from lbo.space import Array, Space

if TYPE_CHECKING:
    from lbo.memory import Memory


@dataclass(frozen=True)
class Task:
    """A task's finished trials as arrays, oldest first."""

    X: Array
    y: Array
    space: Space

    def __len__(self) -> int:
        return len(self.y)

    def first(self, n: int) -> Task:
        return Task(self.X[:n], self.y[:n], self.space)


class Posterior(Protocol):
    """What a model believes of one task's function, in units of its own."""

    @property
    def stranger(self) -> float:
        """How likely it is that nothing remembered helps: a young task then tries random points, like a first one."""

    def mixture(self, X: Array) -> tuple[Array, Array, Array]:
        """log weights (S,) or (S, n), means (S, n) and variances (S, n) of f at X, without observation noise.

        Weights may sum to less than one: the rest is the chance that a trial at X fails.
        """

    def gain(self, X: Array) -> tuple[Array, Array, Array]:
        """log weights (S,) or (S, n), means and variances (S, n) of what a trial at X gains over the best trial so far.

        The plain gain is best - f (`plain_gain`). With noise a trial does not show f, it moves the estimate of it.
        """

    def believe(self, X: Array) -> Posterior:
        """The same posterior after its own mean had been observed at X: what running trials are taken for."""

    def to_user(self, values: Array) -> Array:
        """Values in the model's units as the user's (minimised) values."""

    def sharing(self, x: Array) -> Mapping[str, float]:
        """What a prediction at x (D,) leans on, for people to read; empty for a model that remembers nothing."""


def plain_gain(best: float, mixture: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    """What f at X, known by its mixture, is below the best value so far."""
    log_w, mean, var = mixture
    return log_w, best - mean, var


class Lesson(NamedTuple):
    """What consolidation keeps of a task: the next memory's arrays and this task's line in its records."""

    arrays: dict[str, Array]
    gates: Array  # (M,) how much the task used each network, in [0, 1]
    hyper: dict[str, float]  # learned hyper-parameters, by name
    replaced: int | None = None  # the network whose place the task took: earlier tasks' gates to it mean nothing now


class Model(Protocol):
    """Settings of a surrogate; see the module's first lines."""

    name: ClassVar[str]

    def n_initial(self, memory: Memory | None) -> int:
        """Trials drawn at random before `fit` is asked, besides openings; a memory may do instead of them."""

    def opening(self, task: Task, memory: Memory | None) -> Mapping[str, Any] | None:
        """A configuration to try next without asking a posterior (a past winner, say); None when there is none."""

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> Posterior:
        """The posterior after the task's trials; `previous` is that of a shorter prefix of them, if known."""

    def consolidate(self, task: Task, memory: Memory | None, seed: Seed) -> Lesson:
        """Fold a finished task into what is remembered of those before it; arrays are framed by task.space."""


class Scale(NamedTuple):
    """y = offset + spread * z."""

    offset: float
    spread: float

    def to_user(self, z: Array) -> Array:
        return np.asarray(self.offset + self.spread * z)


def standardise(y: Array) -> tuple[Array, Scale]:
    """z of mean 0 and variance 1, failures (NaN) at the worst value seen, and at least one deviation above the mean.

    Values are first divided by their largest magnitude, so that 1e300 does not overflow and 1e-300 does not vanish.
    """
    ok = ~np.isnan(y)
    if not ok.any():
        return np.zeros_like(y), Scale(0.0, 1.0)
    unit = float(np.abs(y[ok]).max()) or 1.0
    scaled = y[ok] / unit
    offset, spread = float(scaled.mean()), float(scaled.std())
    if spread < 1e-12 * max(1.0, abs(offset)):
        spread = 1.0  # a constant objective has no scale of its own
    z = np.empty_like(y)
    z[ok] = (scaled - offset) / spread
    z[~ok] = max(float(z[ok].max()), 1.0)
    return z, Scale(offset * unit, spread * unit)


def checkpoint(n: int, first: int, growth: float) -> int:
    """The largest of first, then each `growth` times the one before (and at least one more), that is at most n.

    Fits start afresh at checkpoints only, so a resumed run repeats little work to stand where the old one stood.
    """
    c = first
    while (following := max(c + 1, int(c * growth))) <= n:
        c = following
    return min(c, n)


def settings(model: Model) -> Mapping[str, Any]:
    """A model's name and settings, as plain data: a memory belongs to the model that has the same."""
    names: list[str] = [field.name for field in fields(model)] if is_dataclass(model) else []
    return {"name": model.name, **{name: getattr(model, name) for name in names}}
