"""The peers that `peers.py` compares lbo with, each as a method that its runner knows how to run.

Cold methods begin every task anew. "Winners" methods first try the best configurations of the last five tasks, enqueued
as an Optuna user would. The others get the past tasks' trials: BoTorch's two all of them, CMA-ES their order.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, TPESampler
from optuna.trial import FrozenTrial
from scipy.stats import rankdata

from lbo.experiments import methods
from lbo.experiments.methods import DEFAULT, INITIAL, Method
from lbo.experiments.problems import Params, Problem

Candidates = Sequence[Params] | None
Tasks = list[list[FrozenTrial]]

WINNERS = 5  # past tasks whose best configuration is tried


@dataclass(frozen=True)
class Peer(Method):
    """A sampler of another library.

    make        a sampler from a seed, what may be chosen from, and the past tasks' trials
    package     what it needs
    adapters    the modules here that it is made of
    own_points  learns only from points that it drew itself, so that it must not be told where a row really is
    """

    make: Callable[[int, Candidates, Tasks], BaseSampler] | None = None
    package: str = "optuna"
    adapters: tuple[str, ...] = ()
    own_points: bool = False

    @property
    def draws(self) -> bool:
        return False

    def settings(self) -> dict[str, Any]:
        """Whatever its trials depend on: its flags, its package's version and the code around it."""
        assert self.make is not None
        code = [inspect.getsource(self.make), *map(_code, self.adapters)]
        return {"name": self.name, "opens": self.opens, self.package: version(self.package), "code": code}

    def study(self, seed: int, problem: Problem, past: Tasks) -> optuna.Study:
        """That of a new task."""
        assert self.make is not None
        study = optuna.create_study(sampler=self.make(seed, problem.candidates, past))
        for params in winners(past) if self.opens else ():
            study.enqueue_trial(params)
        return study


def _code(module: str) -> str:
    """The code of a module, which is not imported, without its comments."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.dump(ast.parse(Path(spec.origin).read_text()))


def winners(past: Tasks) -> list[Params]:
    """The best configurations of the last tasks, newest first, none twice."""
    best = (min(trials, key=lambda trial: trial.value).params for trials in reversed(past))
    distinct = {tuple(sorted(params.items())): params for params in islice(best, WINNERS)}
    return list(distinct.values())


def ranked(past: Tasks) -> list[FrozenTrial]:
    """All past trials, each valued by its place in its task: values of different tasks do not compare."""
    places = [rankdata([trial.value for trial in trials]) for trials in past]
    return [optuna.create_trial(params=trial.params, distributions=trial.distributions, value=float(place))
            for trials, of_task in zip(past, places, strict=True)
            for trial, place in zip(trials, of_task, strict=True)]  # fmt: skip


def tpe(seed: int, candidates: Candidates, past: Tasks) -> BaseSampler:
    return TPESampler(seed=seed, n_startup_trials=INITIAL, multivariate=True, group=True)


def gp(seed: int, candidates: Candidates, past: Tasks) -> BaseSampler:
    return GPSampler(seed=seed, n_startup_trials=INITIAL)


def cma_es(seed: int, candidates: Candidates, past: Tasks) -> BaseSampler:
    return CmaEsSampler(seed=seed, source_trials=ranked(past) or None)


def smac(seed: int, candidates: Candidates, past: Tasks) -> BaseSampler:
    from smac_sampler import SmacSampler

    return SmacSampler(
        seed, leaves=4096
    )  # more than there are trials; SMAC3's own limit costs hours and changes nothing


def multi_task(seed: int, candidates: Candidates, past: Tasks) -> BaseSampler:
    from botorch_samplers import MultiTaskSampler

    return MultiTaskSampler(seed, candidates, past)


def ensemble(seed: int, candidates: Candidates, past: Tasks) -> BaseSampler:
    from botorch_samplers import EnsembleSampler

    return EnsembleSampler(seed, candidates, past)


_SMAC, _BOTORCH = ("smac_sampler", "encoded"), ("botorch_samplers", "rgpe", "encoded")
PEERS = (
    Peer("TPE", make=tpe),
    Peer("TPE, winners", make=tpe, opens=True),
    Peer("GPSampler", make=gp, package="torch"),
    Peer("GPSampler, winners", make=gp, package="torch", opens=True),
    Peer("CMA-ES, warm", make=cma_es, package="cmaes", own_points=True),
    Peer("SMAC3", make=smac, package="smac", adapters=_SMAC),
    Peer("BoTorch MTGP", make=multi_task, package="botorch", adapters=_BOTORCH),
    Peer("BoTorch RGPE", make=ensemble, package="botorch", adapters=_BOTORCH),
)
CONTENDERS: dict[str, Method] = {method.name: method for method in (*methods.pick(["Random", DEFAULT]), *PEERS)}


def installed() -> list[str]:
    """The contenders whose package is there."""
    needs = {name: method.package if isinstance(method, Peer) else "lbo" for name, method in CONTENDERS.items()}
    return [name for name, package in needs.items() if importlib.util.find_spec(package)]
