"""Samplers of other libraries behind Optuna's interface: trials go in as arrays, a configuration comes out.

X       (N, D)  finished trials as lbo.space encodes them: numbers on [0, 1], K columns for K choices, inactive imputed
y       (N,)    their values, minimised
bounds  (2, D)  the box around everything that can be encoded

All of them see the space that lbo sees, conditions read off the trials included, so that they differ in their models.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState

from lbo import trials as trials_of
from lbo.axis import MIDDLE
from lbo.space import ONE_HOT, Array, Params, Space

INITIAL = 5  # random trials before a model is asked, as for everybody


class EncodedSampler(BaseSampler):
    """Random at first; then `suggest` is asked for a configuration of all parameters.

    Args:
        seed: of whatever is random.
        candidates: configurations to choose from; None for the whole space.
    """

    def __init__(self, seed: int, candidates: Sequence[Params] | None = None) -> None:
        self.seed = seed
        self.candidates = candidates
        self._random = RandomSampler(seed=seed)

    @abstractmethod
    def suggest(self, space: Space, done: Sequence[FrozenTrial]) -> Mapping[str, Any]:
        """A configuration after these trials, with or without what does not exist there."""

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        done = complete(study)
        return trials_of.latest_distributions(done) if len(done) >= INITIAL else {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        done = complete(study)
        suggested = self.suggest(trials_of.space_of(done, None), done)
        return {name: suggested[name] for name in search_space if name in suggested}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def left(self, done: Sequence[FrozenTrial]) -> list[Params]:
        """The candidates that have not been tried."""
        assert self.candidates is not None
        tried = {_key(trial.params) for trial in done}
        return [candidate for candidate in self.candidates if _key(candidate) not in tried]


def complete(study: optuna.Study) -> list[FrozenTrial]:
    """The trials with a value."""
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def _key(params: Params) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(params.items()))


def encode(space: Space, configurations: Sequence[Params]) -> Array:
    """X of configurations."""
    return space.encode(space.to_unit(configurations))


def values(trials: Sequence[FrozenTrial]) -> Array:
    """y of complete trials."""
    return np.array([trial.value for trial in trials], dtype=float)


def bounds(space: Space) -> Array:
    """The box that X lies in."""
    high = [ONE_HOT if space.axes[j].choices else 1.0 for j in space.column_axis]
    return np.array([np.zeros(len(high)), high])


def decode(space: Space, x: Array) -> dict[str, Any]:
    """The configuration nearest to a point of the box (D,): of a categorical's columns the largest counts."""
    u = np.full(len(space.axes), MIDDLE)  # of a parameter that cannot vary and has no column
    for j, axis in enumerate(space.axes):
        columns = x[space.column_axis == j]
        if len(columns):
            u[j] = (columns.argmax() + 0.5) / axis.cells if axis.choices else columns[0]
    return space.from_unit(space.snap(u[None])[0])
