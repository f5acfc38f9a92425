"""What is asked for: the paper's nine mixed and conditional dimensions, with values that are made up.

The function is smooth in every number, has an offset for each choice, and is shifted a little from task to task, so
that past tasks are worth remembering. Asked flat, all nine dimensions are there in every trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial

import lbo
from machine import Seconds, now

Params = dict[str, Any]

SPACE: dict[str, BaseDistribution] = {
    "model": CategoricalDistribution(["xgb", "lr", "bnb", "mnb"]),
    "n_estimators": IntDistribution(10, 500),
    "max_depth": IntDistribution(1, 10),
    "learning_rate": FloatDistribution(0.005, 0.5),
    "C": FloatDistribution(0.001, 10),
    "solver": CategoricalDistribution(["newton-cg", "lbfgs", "liblinear", "sag", "saga"]),
    "tol": FloatDistribution(0.005, 0.5),
    "bnb_alpha": FloatDistribution(0.005, 5),
    "mnb_alpha": FloatDistribution(0.005, 5),
}
BRANCH = {
    "xgb": ["n_estimators", "max_depth", "learning_rate"],
    "lr": ["C", "solver", "tol"],
    "bnb": ["bnb_alpha"],
    "mnb": ["mnb_alpha"],
}
OFFSET = {"xgb": 0.0, "lr": 0.1, "bnb": 0.3, "mnb": 0.4, "saga": 0.05}
PAST_TASKS, PAST_TRIALS = 5, 50


def suggest(trial: optuna.Trial, flat: bool = False) -> Params:
    """A configuration, asked for as a define-by-run objective does."""
    model = trial._suggest("model", SPACE["model"])
    return {"model": model} | {name: trial._suggest(name, SPACE[name]) for name in _others(model, flat)}


def _others(model: str, flat: bool) -> list[str]:
    """The parameters beside the model."""
    return [name for name in SPACE if name != "model"] if flat else BRANCH[model]


def value(params: Mapping[str, Any], task: int = 0) -> float:
    """What a configuration is worth in a task; smaller is better."""
    shift = np.random.default_rng(task).normal(scale=0.2)
    waves = sum(0.2 * np.sin(4 * _share(name, x) + shift) for name, x in params.items() if not isinstance(x, str))
    return float(waves + sum(OFFSET.get(x, 0.0) for x in params.values() if isinstance(x, str)))


def _share(name: str, x: float) -> float:
    """How far a number is up its range."""
    distribution = SPACE[name]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    return (x - distribution.low) / (distribution.high - distribution.low)


def random_trials(n: int, seed: int, task: int = 0, flat: bool = False) -> list[FrozenTrial]:
    """n random configurations of a task with their values, numbered."""
    rng = np.random.default_rng(seed)
    return [_trial(_draw_all(rng, flat), number, task) for number in range(n)]


def _trial(params: Params, number: int, task: int) -> FrozenTrial:
    shown = {name: SPACE[name] for name in params}
    trial = optuna.create_trial(params=params, distributions=shown, value=value(params, task))
    trial.number = number
    return trial


def _draw_all(rng: np.random.Generator, flat: bool) -> Params:
    model = _draw(SPACE["model"], rng)
    return {"model": model} | {name: _draw(SPACE[name], rng) for name in _others(model, flat)}


def _draw(distribution: BaseDistribution, rng: np.random.Generator) -> Any:
    match distribution:
        case CategoricalDistribution():
            return distribution.choices[rng.integers(len(distribution.choices))]
        case IntDistribution():
            return int(rng.integers(distribution.low, distribution.high + 1))
        case FloatDistribution():
            return float(rng.uniform(distribution.low, distribution.high))
    raise AssertionError(distribution)


def fill(study: optuna.Study, n: int, seed: int, task: int = 0, flat: bool = False) -> None:
    """Add n random trials to a study."""
    study.add_trials(random_trials(n, seed, task, flat))


def add_past(stream: lbo.Stream, flat: bool = False, tasks: int = PAST_TASKS, trials: int = PAST_TRIALS) -> None:
    """Finished tasks before the one that is measured."""
    for task in range(1, tasks + 1):
        fill(stream.study(f"past {task}", direction="minimize"), trials, task, task, flat)


def ask_and_tell(study: optuna.Study, flat: bool = False) -> Seconds:
    """One trial; what its suggestion took, the telling aside."""
    start = now()
    trial = study.ask()
    params = suggest(trial, flat)
    seconds = now().since(start)
    study.tell(trial, value(params))
    return seconds
