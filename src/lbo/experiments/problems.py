"""What the runner plays on: tasks of one face, whether they are functions, rows of a table or live models.

at        where a trial was made: the configuration of a function or a live model, the row of a table
value     what the method is told, to be minimised         truth  the same without observation noise
minimum, std, spread  of the truth: its least value, and its deviation and range over the space; NaN if unknown
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import RandomSampler

from lbo.experiments.tables import Table
from lbo.sampler import LBOSampler
from lbo.seeds import Seed
from lbo.spaces import suggest

Array = NDArray[np.float64]
Params = dict[str, Any]
At = Any

_REFERENCE_POINTS = 4096  # uniform points for the range of a function
NO_SEED = Seed(0)  # of functions without noise


class Step(NamedTuple):
    """One trial that a method chose."""

    at: At
    value: float
    seconds: float  # of the processor, the method's own, without the evaluation


class Problem(Protocol):
    """One task."""

    @property
    def name(self) -> str: ...
    @property
    def minimum(self) -> float: ...
    @property
    def std(self) -> float: ...
    @property
    def spread(self) -> float: ...
    @property
    def candidates(self) -> Sequence[Params] | None:
        """What may be chosen from, if not the whole space."""

    def draw(self, seed: Seed, n: int) -> list[At]:
        """n random points; the first of them are the same for any n."""

    def evaluate(self, at: At, number: int) -> float:
        """What trial `number` of a task is told at a point."""

    def truth(self, at: At) -> float:
        """The value without observation noise."""

    def trial(self, at: At, value: float) -> optuna.trial.FrozenTrial:
        """A point as a finished trial."""

    def step(self, study: optuna.Study) -> Step:
        """One trial of the study's sampler's choosing."""

    def again(self, at: At, elsewhere: Problem) -> At:
        """The point here that is the same configuration as a point of another task."""


def _drawn_by_optuna(suggest_all: Callable[[optuna.Trial], Params], seed: Seed, n: int) -> list[Params]:
    study = optuna.create_study(sampler=RandomSampler(seed=as_int(seed)))
    return [suggest_all(study.ask()) for _ in range(n)]


def as_int(seed: Seed) -> int:
    """A number for samplers that want one."""
    return int(seed.rng().integers(2**31))


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the unit cube, which is stretched to the ranges of `distributions`.

    noise  deviation of the observations; trial n of every method has the same one
    """

    name: str
    f: Callable[[Array], Array]  # (n, D) -> (n,)
    distributions: Mapping[str, FloatDistribution]
    minimum: float
    std: float
    noise: float = 0.0
    noise_seed: Seed = NO_SEED
    candidates = None

    @cached_property
    def spread(self) -> float:
        U = (Seed(0) / "spread").rng().random((_REFERENCE_POINTS, len(self.distributions)))
        return float(self.f(U).max()) - self.minimum

    def draw(self, seed: Seed, n: int) -> list[At]:
        return _drawn_by_optuna(self._suggest, seed, n)

    def evaluate(self, at: At, number: int) -> float:
        return self.truth(at) + self.noise * float((self.noise_seed / number).rng().standard_normal())

    def truth(self, at: At) -> float:
        u = [(at[name] - d.low) / (d.high - d.low) for name, d in self.distributions.items()]
        return float(self.f(np.array([u]))[0])

    def trial(self, at: At, value: float) -> optuna.trial.FrozenTrial:
        return optuna.trial.create_trial(params=at, distributions=dict(self.distributions), value=value)

    def step(self, study: optuna.Study) -> Step:
        return _step(study, self._suggest, self.evaluate)

    def again(self, at: At, elsewhere: Problem) -> At:
        return at

    def _suggest(self, trial: optuna.Trial) -> Params:
        return {name: suggest(trial, name, d) for name, d in self.distributions.items()}


@dataclass(frozen=True, eq=False)
class Live:
    """A model that is trained at every trial."""

    name: str
    suggest: Callable[[optuna.Trial], Params]
    distributions: Mapping[str, BaseDistribution]
    loss: Callable[[Params], float]
    minimum = std = spread = float("nan")
    candidates = None

    def draw(self, seed: Seed, n: int) -> list[At]:
        return _drawn_by_optuna(self.suggest, seed, n)

    def evaluate(self, at: At, number: int) -> float:
        return self.loss(at)

    def truth(self, at: At) -> float:
        return float("nan")

    def trial(self, at: At, value: float) -> optuna.trial.FrozenTrial:
        distributions = {name: self.distributions[name] for name in at}
        return optuna.trial.create_trial(params=at, distributions=distributions, value=value)

    def step(self, study: optuna.Study) -> Step:
        return _step(study, self.suggest, self.evaluate)

    def again(self, at: At, elsewhere: Problem) -> At:
        return at


def _step(study: optuna.Study, suggest_all: Callable[[optuna.Trial], At], evaluate: Callable[[At, int], float]) -> Step:
    start = time.process_time()
    trial = study.ask()
    at = suggest_all(trial)
    seconds = time.process_time() - start
    value = evaluate(at, trial.number)
    study.tell(trial, value)
    return Step(at, value, seconds)


@dataclass(frozen=True, eq=False)
class Rows:
    """A table; a method that can choose from a list gets its rows, another is rounded to the nearest one left."""

    table: Table

    @property
    def name(self) -> str:
        return self.table.name

    @cached_property
    def minimum(self) -> float:
        return self.table.minimum.value

    @cached_property
    def std(self) -> float:
        return self.table.std

    @cached_property
    def spread(self) -> float:
        return float(np.ptp(self.table.values))

    @property
    def candidates(self) -> Sequence[Params]:
        return self.table.rows

    def draw(self, seed: Seed, n: int) -> list[At]:
        return [int(i) for i in seed.rng().permutation(len(self.table))[:n]]

    def evaluate(self, at: At, number: int) -> float:
        return self.truth(at)

    def truth(self, at: At) -> float:
        return float(self.table.values[at])

    def trial(self, at: At, value: float) -> optuna.trial.FrozenTrial:
        return self.table.as_trial(at)

    def step(self, study: optuna.Study) -> Step:
        if isinstance(study.sampler, LBOSampler):
            return _step(study, self._suggest_row, self.evaluate)
        start = time.process_time()
        i = self.table.step(study)
        return Step(i, self.truth(i), time.process_time() - start)

    def again(self, at: At, elsewhere: Problem) -> At:
        assert isinstance(elsewhere, Rows)
        return self.table.nearest(elsewhere.table.row(at))

    def _suggest_row(self, trial: optuna.Trial) -> At:
        return self.table.nearest(self.table.suggest(trial))
