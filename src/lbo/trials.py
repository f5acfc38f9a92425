"""Optuna's trials as arrays: minimised values, failures marked, and nothing of Optuna beyond here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lbo.errors import SpaceError
from lbo.models.base import Task
from lbo.space import Array, Space

_KINDS = (FloatDistribution, IntDistribution, CategoricalDistribution)


def sign(direction: StudyDirection) -> float:
    """What a user's values are multiplied by to be minimised."""
    return -1.0 if direction == StudyDirection.MAXIMIZE else 1.0


def finished(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials that a model learns from: over, for better or worse, and with parameters."""
    return [t for t in trials if t.state.is_finished() and t.params]


def values(trials: Sequence[FrozenTrial], direction: StudyDirection) -> Array:
    """Minimised values of finished trials; NaN for failures.

    An infinitely good value counts as the best finite one: it is a bug in a metric more often than a discovery.
    A pruned trial counts as its last report, but never as better than the median of the complete ones, since a
    pruner stopped it for looking no better than those.
    """
    by = sign(direction)
    y = np.array([_last_value(t) for t in trials], dtype=float) * by
    complete = np.array([t.state == TrialState.COMPLETE for t in trials], dtype=bool) & np.isfinite(y)
    if complete.any():
        y = np.where(y == -np.inf, y[complete].min(), y)
        pruned = np.array([t.state == TrialState.PRUNED for t in trials], dtype=bool)
        y = np.where(pruned & np.isfinite(y), np.maximum(y, np.median(y[complete])), y)
    y[np.isinf(y)] = np.nan
    return y


def _last_value(trial: FrozenTrial) -> float:
    if trial.state == TrialState.COMPLETE and trial.value is not None:
        return trial.value
    if trial.state == TrialState.PRUNED and trial.intermediate_values:
        return trial.intermediate_values[max(trial.intermediate_values)]
    return np.nan


def as_task(space: Space, trials: Sequence[FrozenTrial], direction: StudyDirection) -> Task:
    """Finished trials as a model sees them."""
    U = space.to_unit([t.params for t in trials])
    return Task(space.encode(U), values(trials, direction), space)


def alive(running: FrozenTrial, trials: Sequence[FrozenTrial], now: datetime) -> bool:
    """Whether a running trial's process can still be there.

    Storages without heartbeats leave the trials of a killed process running for ever; nobody should steer around
    them for longer than an hour, or ten times what the longest trial so far took.
    """
    if running.datetime_start is None:
        return True
    longest = max((t.duration for t in trials if t.duration is not None), default=timedelta(0))
    return now - running.datetime_start < max(timedelta(hours=1), 10 * longest)


def digest(trials: Sequence[FrozenTrial]) -> str:
    """A fingerprint of finished trials: the same for the same numbers, states, parameters and values."""
    lines = [
        [t.number, t.state.name, dict(sorted(t.params.items())), t.values, sorted(t.intermediate_values.items())]
        for t in sorted(trials, key=lambda t: t.number)
    ]
    return hashlib.sha256(json.dumps(lines, default=repr).encode()).hexdigest()[:16]


def check_kind(name: str, distribution: BaseDistribution) -> None:
    """Refuse a distribution that Optuna has and lbo does not know."""
    if not isinstance(distribution, _KINDS):
        raise SpaceError(
            f"lbo searches float, int and categorical parameters, but {name!r} is {type(distribution).__name__}. "
            f"Use trial.suggest_float, suggest_int or suggest_categorical."
        )


def contains(distribution: BaseDistribution, value: Any) -> bool:
    """Whether a value is one of a distribution's."""
    try:
        return distribution._contains(distribution.to_internal_repr(value))
    except ValueError:  # not one of the choices
        return False
