"""Streams whose trials were made elsewhere, so that a past costs nothing: for plots, reports and advice."""

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState, create_trial

import lbo

SQUARE = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}
MODELS = {
    "model": CategoricalDistribution(("tree", "line")),
    "depth": FloatDistribution(1.0, 100.0, log=True),
    "slope": FloatDistribution(0.0, 1.0),
}


def stream_of(tasks, *, direction="minimize", name="past"):
    """A stream in memory, of task name -> finished trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    stream = lbo.Stream(name, InMemoryStorage())
    for task, trials in tasks.items():
        stream.study(task, direction=direction, seed=0).add_trials(trials)
    return stream


def trial(value, params=None, distributions=SQUARE):
    """A finished trial; failed if it has no value."""
    params = params or {"x": 0.5, "y": 0.5}
    return create_trial(
        value=value,
        params=params,
        distributions={name: distributions[name] for name in params},
        state=TrialState.COMPLETE if value is not None else TrialState.FAIL,
    )


def grid_trials(f, side=4):
    """f on a grid of the square."""
    ticks = [(i + 0.5) / side for i in range(side)]
    return [trial(f(x, y), {"x": x, "y": y}) for x in ticks for y in ticks]
