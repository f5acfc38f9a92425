"""The default model without one of its parts at a time, on the same functions: what each part is worth.

    lbo reproduce ablation

A variant is the default with one method changed; everything else, the seeds among it, is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp

from lbo.experiments.methods import METHODS, Method
from lbo.maths import Array
from lbo.memory import Memory
from lbo.models.base import Lesson, Posterior, Task, plain_gain
from lbo.models.families import Past, unscaled
from lbo.models.lifelong import OPENINGS, Lifelong, LifelongPosterior
from lbo.models.output import Output, plain
from lbo.seeds import Seed
from lbo.space import Space


class WithoutOpenings(Lifelong):
    """The posterior chooses from the third trial on; the first two are random."""

    def opening(self, task: Task, memory: Memory | None) -> Mapping[str, Any] | None:
        return super().opening(task, memory) if len(task) >= OPENINGS else None


class WithoutLooks(Lifelong):
    """An algorithm that a task has overlooked stays so."""

    def opening(self, task: Task, memory: Memory | None) -> Mapping[str, Any] | None:
        return super().opening(task, memory) if len(task) < OPENINGS else None


class WithoutOffsets(Lifelong):
    """Algorithms have no offsets of their own: what a task says of one it says of all."""

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> LifelongPosterior:
        return super().fit(_unconditional(task), memory, seed, previous)

    def consolidate(self, task: Task, memory: Memory | None, seed: Seed) -> Lesson:
        return super().consolidate(_unconditional(task), memory, seed)


def _unconditional(task: Task) -> Task:
    return replace(task, space=Space(task.space.axes))


class WithoutFunctions(Lifelong):
    """Remembers past winners, failures and hyper-parameters, but no function."""

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> LifelongPosterior:
        return _Forgetful(self.functions, self.points).fit(task, memory, seed, previous)


class _Forgetful(Lifelong):
    def _recall(self, task: Task, memory: Memory | None) -> Past:
        past = super()._recall(task, memory)
        return past._replace(functions=(), counts=past.counts[:0], members=past.members[:0])


class WithoutFamilies(Lifelong):
    """Leans on the latest task's function or on none."""

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> LifelongPosterior:
        return _ShortSighted(self.functions, self.points).fit(task, memory, seed, previous)


class _ShortSighted(Lifelong):
    def _recall(self, task: Task, memory: Memory | None) -> Past:
        past = super()._recall(task, memory)
        return past._replace(functions=past.functions[:1], counts=past.counts[:1], members=past.members[:1])


class WithoutAlone(Lifelong):
    """Always leans on some function: no gate can stay shut."""

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> LifelongPosterior:
        posterior = super().fit(task, memory, seed, previous)
        kept = [i for i, c in enumerate(posterior.components) if c.m is not None]
        return _only(posterior, kept) if kept else posterior


class WithoutWarp(Lifelong):
    """Values are standardised, never warped."""

    def _outputs(self, task: Task, past: Past) -> Sequence[Output]:
        return (plain(task.y, past.width),)


class WithoutPriors(Lifelong):
    """Hyper-parameters are learned anew for each task."""

    def _recall(self, task: Task, memory: Memory | None) -> Past:
        return super()._recall(task, memory)._replace(theta={}, scales=unscaled(task.space))


class WithoutScales(Lifelong):
    """Nothing is known of a parameter's length scale before a task's own trials."""

    def _recall(self, task: Task, memory: Memory | None) -> Past:
        return super()._recall(task, memory)._replace(scales=unscaled(task.space))


class WithoutOwnBests(Lifelong):
    """Plain expected improvement: all hypotheses have one best value to beat, and a trial shows the function."""

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> LifelongPosterior:
        return _as(_OneBest, super().fit(task, memory, seed, previous))


@dataclass(frozen=True)
class _OneBest(LifelongPosterior):
    def gain(self, X: Array) -> tuple[Array, Array, Array]:
        return plain_gain(float(self.mean(self.X).min()), self.mixture(X))


class WithoutDoubt(Lifelong):
    """Believes in the length scales it has learned."""

    _doubt: ClassVar[float] = 0.0


class WithoutOpposites(Lifelong):
    """No task is what a function says turned upside down."""

    _both_ways_up: ClassVar[bool] = False


class WithoutExploring(Lifelong):
    """A young task that resembles nothing remembered draws no random points."""

    def fit(self, task: Task, memory: Memory | None, seed: Seed, previous: Posterior | None) -> LifelongPosterior:
        return _as(_Confident, super().fit(task, memory, seed, previous))


@dataclass(frozen=True)
class _Confident(LifelongPosterior):
    stranger: ClassVar[float] = 0.0


def _as(kind: type[LifelongPosterior], posterior: LifelongPosterior) -> LifelongPosterior:
    """The same posterior of another kind."""
    return kind(**{name: getattr(posterior, name) for name in posterior.__dataclass_fields__})


def _only(posterior: LifelongPosterior, kept: Sequence[int]) -> LifelongPosterior:
    """Some components of a mixture."""
    log_w = posterior.log_w[list(kept)]
    components = tuple(posterior.components[i] for i in kept)
    return replace(posterior, components=components, log_w=np.asarray(log_w - logsumexp(log_w)))


VARIANTS = {
    "without openings": WithoutOpenings(),
    "without looks": WithoutLooks(),
    "without offsets": WithoutOffsets(),
    "without functions": WithoutFunctions(),
    "without families": WithoutFamilies(),
    "without alone": WithoutAlone(),
    "without warp": WithoutWarp(),
    "without priors": WithoutPriors(),
    "without scales": WithoutScales(),
    "without own bests": WithoutOwnBests(),
    "without doubt": WithoutDoubt(),
    "without opposites": WithoutOpposites(),
    "without exploring": WithoutExploring(),
}
COMPARED = (
    METHODS["Lifelong"],
    *(Method(name, model, remembers=True, opens=True) for name, model in VARIANTS.items()),
    METHODS["SGP"],
)
