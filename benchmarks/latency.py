"""How long an ask takes, nine mixed and conditional dimensions, as a task's trials grow: lbo beside Optuna's samplers.

    python benchmarks/latency.py                         10 to 5,000 trials
    python benchmarks/latency.py --trials 50 100 200     fewer

Every sampler sees the same random trials, of the paper's space with made values, in Optuna's in-memory storage, and
with them a memory of five tasks where it has one. A median over --asks asks; each is told a value and the next one is
asked, so hyper-parameters are learned anew as often as in real use. Ratios within one run are what counts.
Optuna's GPSampler needs PyTorch and is left out without it. Writes results/latency.json and prints a table.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

import lbo

RESULTS = Path(__file__).parent.parent / "results" / "latency.json"
TRIALS = (10, 20, 50, 100, 200, 500, 1000, 5000)
SPACE = {
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="*", default=list(TRIALS))
    parser.add_argument("--asks", type=int, default=15)
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seconds = {
        name: {n: median_ask(study, n, arguments.asks) for n in arguments.trials} for name, study in studies().items()
    }
    machine = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": machine, "seconds": seconds}, indent=1) + "\n")
    print("milliseconds per ask, median")
    print("trials".ljust(22), *(f"{n:>8}" for n in arguments.trials))
    for name, row in seconds.items():
        print(name.ljust(22), *(f"{1000 * s:8.1f}" for s in row.values()))


def studies() -> dict[str, Callable[[], optuna.Study]]:
    """A new study of each sampler."""
    found: dict[str, Callable[[], optuna.Study]] = {
        "lbo, no memory": lambda: optuna.create_study(sampler=lbo.LBOSampler(seed=0)),
        "lbo, five tasks": remembering,
        "lbo, Paper": lambda: optuna.create_study(sampler=lbo.LBOSampler(model=lbo.models.Paper(), seed=0)),
        "Optuna TPE": lambda: optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, multivariate=True)),
    }
    if importlib.util.find_spec("torch") is not None:
        found["Optuna GPSampler"] = lambda: optuna.create_study(sampler=optuna.samplers.GPSampler(seed=0))
    return found


def remembering() -> optuna.Study:
    """The sixth task of a stream."""
    stream = lbo.Stream("latency", storage=optuna.storages.InMemoryStorage())
    for task in range(5):
        fill(stream.study(f"{task}", direction="minimize"), 50, seed=task)
    return stream.study("now", direction="minimize", seed=0)


def median_ask(new_study: Callable[[], optuna.Study], n: int, asks: int) -> float:
    study = new_study()
    fill(study, n, seed=100)
    ask_and_tell(study)  # the first one derives the memory
    return float(np.median([ask_and_tell(study) for _ in range(asks)]))


def ask_and_tell(study: optuna.Study) -> float:
    start = time.perf_counter()
    trial = study.ask()
    params = {"model": trial.suggest_categorical("model", SPACE["model"].choices)}
    for name in BRANCH[params["model"]]:
        params[name] = trial._suggest(name, SPACE[name])
    seconds = time.perf_counter() - start
    study.tell(trial, value(params))
    return seconds


def fill(study: optuna.Study, n: int, seed: int) -> None:
    """Add n random trials."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        model = str(rng.choice(SPACE["model"].choices))
        params = {"model": model} | {name: draw(SPACE[name], rng) for name in BRANCH[model]}
        shown = {name: SPACE[name] for name in params}
        study.add_trial(optuna.create_trial(params=params, distributions=shown, value=value(params)))


def draw(distribution: optuna.distributions.BaseDistribution, rng: np.random.Generator) -> object:
    match distribution:
        case CategoricalDistribution():
            return distribution.choices[rng.integers(len(distribution.choices))]
        case IntDistribution():
            return int(rng.integers(distribution.low, distribution.high + 1))
        case FloatDistribution():
            return float(rng.uniform(distribution.low, distribution.high))
    raise AssertionError(distribution)


def value(params: dict[str, object]) -> float:
    """A smooth function of the numbers, with an offset for each choice."""
    offsets = {"xgb": 0.0, "lr": 0.1, "bnb": 0.3, "mnb": 0.4, "saga": 0.05}
    numbers = [float(x) for x in params.values() if not isinstance(x, str)]
    return sum(np.sin(x) for x in numbers) / 10 + sum(offsets.get(str(x), 0.0) for x in params.values())


if __name__ == "__main__":
    main()
