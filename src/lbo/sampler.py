"""LBOSampler: lbo behind Optuna's sampler interface. Reads trials, encodes, asks the model, decodes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import ThreadpoolController

from lbo import acquisition
from lbo import trials as trials_of
from lbo.models.base import Model, Posterior, Task
from lbo.seeds import Seed, fresh_seed
from lbo.space import Array, Axis, Space, learn_space

if TYPE_CHECKING:
    from lbo.memory import Memory

_SUGGESTION = "lbo:suggestion"  # system attribute: what a running trial was told to try, in chunks
_CHUNK = 2000  # characters; older Optuna schemas hold no more in one attribute
_MAX_SHADOWED = 8  # running trials of other workers whose suggestion is worked out when it is not stored yet


@dataclass(frozen=True)
class _View:
    """A study at one moment, as arrays; everything an ask depends on besides the seed."""

    space: Space
    task: Task  # finished trials
    U: Array  # (N, P) their unit coordinates
    pending: Array  # (R, P) running trials whose suggestion is known
    unpublished: tuple[int, ...]  # numbers of running trials whose suggestion is not known yet


class LBOSampler(BaseSampler):
    """Bayesian optimisation that remembers.

    Without a stream it tunes one task; `lbo.Stream.study` attaches it to a stream, whose memory it then reads.

    Args:
        model: the surrogate, one of `lbo.models`; None for the default.
        seed: the same seed gives the same trials, also when a study is stopped and resumed in another process.
        stream: the `lbo.Stream` that the study belongs to.
        candidates: configurations (dicts of parameters) to choose from; None for the whole space.
    """

    def __init__(
        self,
        *,
        model: Model | None = None,
        seed: int | None = None,
        stream: Any = None,
        candidates: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        from lbo.models import default_model

        self.model = model if model is not None else default_model()
        self.candidates = list(candidates) if candidates is not None else None
        self._seed = Seed(seed) if seed is not None else fresh_seed()
        self._stream = stream
        self._lock = threading.Lock()
        self._fitted: tuple[Task, Posterior] | None = None
        self._joint: tuple[tuple[int, int], dict[str, Any]] | None = None
        self._memory: Callable[[Study], Memory | None] = (
            (lambda study: None) if stream is None else stream.memory_for
        )

    def __getstate__(self) -> dict[str, Any]:
        # Locks do not travel to other processes; fits are worked out again there.
        return {**self.__dict__, "_lock": None, "_fitted": None, "_joint": None, "_memory": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())
        self._memory = (lambda study: None) if self._stream is None else self._stream.memory_for

    # Optuna's interface

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        _check_single_objective(study)
        # Only what this study has shown itself: Optuna refuses a suggestion whose choices differ from the objective's,
        # and a new task's may. What memory knows beyond that is offered in `sample_independent`.
        latest: dict[str, BaseDistribution] = {}
        for past in study.get_trials(deepcopy=False):
            latest.update(past.distributions)
        return dict(sorted(latest.items()))

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        _check_single_objective(study)
        if not search_space:
            return {}
        joint = self._suggest(study, trial, search_space)
        return {name: joint[name] for name in search_space if name in joint}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        _check_single_objective(study)
        trials_of.check_kind(param_name, param_distribution)
        joint = self._suggest(study, trial, None) if self._stream is not None else {}
        if param_name in joint and trials_of.contains(param_distribution, joint[param_name]):
            return joint[param_name]
        axis = Axis(param_name, param_distribution, param_distribution)
        rng = (self._study_seed(study) / trial.number / param_name).rng()
        return axis.from_unit(float(axis.snap(rng.random(1))[0]))

    # One ask

    def _suggest(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution] | None
    ) -> dict[str, Any]:
        """The joint suggestion for a trial, worked out once and then remembered until the next trial."""
        key = (study._study_id, trial.number)
        with self._lock:
            if self._joint is not None and self._joint[0] == key and search_space is None:
                return self._joint[1]
            with ThreadpoolController().limit(limits=1, user_api="blas"):
                suggestion = self._work_out(study, trial, search_space)
            self._joint = (key, suggestion)
        _publish(study, trial, suggestion)
        return suggestion

    def _work_out(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution] | None
    ) -> dict[str, Any]:
        memory = self._memory(study)
        view = _read(study, trial, search_space, memory.space if memory else None)
        if not view.space.axes:
            return {}
        pending = view.pending
        for number in view.unpublished[-_MAX_SHADOWED:]:
            # Another worker is working this one out right now: from the same trials and seed it comes to the same.
            pending = np.vstack([pending, self._point(study, view, memory, pending, number)])
        return view.space.from_unit(self._point(study, view, memory, pending, trial.number))

    def _point(self, study: Study, view: _View, memory: Memory | None, pending: Array, number: int) -> Array:
        seed = self._study_seed(study) / number
        taken = np.vstack([view.U, pending])
        candidates = self._candidate_points(view.space)
        first = self._first_point(view, memory, taken, candidates, seed)
        if first is not None:
            return first
        posterior = self._fit(study, view, memory)
        if len(pending):
            posterior = posterior.believe(view.space.encode(pending))
        if candidates is not None:
            return acquisition.choose(posterior, view.space, candidates, taken)
        return acquisition.maximise(posterior, view.space, _starts(view), taken, (seed / "acquisition").rng())

    def _first_point(
        self, view: _View, memory: Memory | None, taken: Array, candidates: Array | None, seed: Seed
    ) -> Array | None:
        """A past winner that the model wants tried, or a random point while the task is too young for its model."""
        opening = self.model.opening(view.task, memory)
        if opening is not None:
            point = view.space.snap(view.space.to_unit([opening]))[0]
            if candidates is None and not acquisition.is_taken(view.space, point, taken):
                return point
        succeeded = int((~np.isnan(view.task.y)).sum())
        if len(view.U) >= self.model.n_initial and succeeded >= 2:
            return None
        pool = candidates if candidates is not None else view.space.sample((seed / "initial").rng(), 256)
        if candidates is not None:
            pool = (seed / "initial").rng().permutation(pool)[:256]
        return pool[0] if not len(taken) or succeeded else _farthest(view.space, pool, taken)

    def _fit(self, study: Study, view: _View, memory: Memory | None) -> Posterior:
        previous = None
        if self._fitted is not None:
            task, posterior = self._fitted
            if _is_prefix(task, view.task):
                previous = posterior
        fitted = self.model.fit(view.task, memory, self._study_seed(study) / "fit", previous)
        self._fitted = (view.task, fitted)
        return fitted

    def _candidate_points(self, space: Space) -> Array | None:
        return None if self.candidates is None else space.snap(space.to_unit(self.candidates))

    def _study_seed(self, study: Study) -> Seed:
        # In-memory studies get random names, and resuming them is impossible anyway.
        return self._seed if self._stream is None else self._seed / study.study_name


def _read(
    study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution] | None, past: Space | None
) -> _View:
    others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
    done = trials_of.finished(others)
    now = datetime.now()
    running = [t for t in others if t.state == TrialState.RUNNING and trials_of.alive(t, done, now)]
    shown = [t for t in (*done, *running) if t.params]
    for t in shown:
        for name, distribution in t.distributions.items():
            trials_of.check_kind(name, distribution)
    seen = [t.distributions for t in shown]
    space = learn_space([t.params for t in shown], [*seen, search_space] if search_space else seen, past)
    if search_space is not None:
        # A sampler that fixes parameters (optuna.samplers.PartialFixedSampler) takes them out of the search space.
        fixed = {name for t in shown for name in t.distributions} - search_space.keys()
        space = space.only(set(space.names) - fixed)
    published = {t.number: _published(t) for t in running}
    return _View(
        space=space,
        task=trials_of.as_task(space, done, study.direction),
        U=space.to_unit([t.params for t in done]),
        pending=space.to_unit([params for params in published.values() if params]),
        unpublished=tuple(n for n, params in published.items() if not params and n < trial.number),
    )


def _starts(view: _View) -> Array:
    """The best five configurations so far, from which the acquisition climbs too."""
    order = np.argsort(np.where(np.isnan(view.task.y), np.inf, view.task.y), kind="stable")
    return view.U[order[:5]]


def _farthest(space: Space, pool: Array, taken: Array) -> Array:
    """The point of the pool that is farthest from everything tried: what to do while everything fails."""
    A, B = space.encode(pool), space.encode(space.snap(taken))
    distance = ((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=-1).min(axis=1)
    return np.asarray(pool[int(distance.argmax())])


def _is_prefix(task: Task, longer: Task) -> bool:
    n = len(task)
    return (
        n <= len(longer)
        and task.space == longer.space
        and np.array_equal(task.X, longer.X[:n])
        and np.array_equal(task.y, longer.y[:n], equal_nan=True)
    )


def _publish(study: Study, trial: FrozenTrial, suggestion: dict[str, Any]) -> None:
    """Tell other workers what this trial is going to try before its objective asks for it."""
    text = json.dumps(suggestion, default=str)
    for i in range(0, len(text), _CHUNK):
        key = f"{_SUGGESTION}:{i // _CHUNK}"
        study._storage.set_trial_system_attr(trial._trial_id, key, text[i : i + _CHUNK])


def _published(trial: FrozenTrial) -> dict[str, Any] | None:
    """What a running trial tries: what it was told, corrected by what its objective has asked for so far."""
    chunks = []
    while (key := f"{_SUGGESTION}:{len(chunks)}") in trial.system_attrs:
        chunks.append(trial.system_attrs[key])
    try:
        told = json.loads("".join(chunks)) if chunks else None
    except json.JSONDecodeError:  # another worker is between two chunks
        told = None
    if told is None:
        return trial.params or None
    return {**told, **trial.params}


def _check_single_objective(study: Study) -> None:
    if len(study.directions) != 1:
        raise ValueError(
            f"LBOSampler optimises one objective, but the study has {len(study.directions)} directions. "
            f"Return one number (a weighted sum, say) and create the study with direction=..., "
            f"or use optuna.samplers.NSGAIISampler for several objectives."
        )
