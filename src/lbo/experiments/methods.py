"""The systems that are compared: what suggests, and what it may remember.

Random draws everything. Previous tunes the first task as SGP does and keeps what it found ever after: what a user gets
who never tunes again. TPE and GPSampler are Optuna's, each task alone, with five random trials first like everybody.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import optuna
from optuna.samplers import BaseSampler, GPSampler, TPESampler

import lbo
from lbo.errors import LboError
from lbo.models import ABLR, DNGO, MTGP, NN, SGP, Lifelong, Paper, WinnersSGP
from lbo.models.base import Model, settings

INITIAL = 5  # random points, the same for every method
ALPHAS = (0.1, 0.5, 1.0, 2.0, 3.0)


class UnknownMethod(LboError, ValueError):
    """A method that is not one of those known here."""


@dataclass(frozen=True)
class Method:
    """One of the systems; with neither model nor sampler, it draws at random.

    model      of lbo's sampler
    sampler    one of Optuna's, made from a seed
    remembers  carries a memory from task to task
    opens      chooses its own first points where it has a memory
    keeps      tunes the first task only
    """

    name: str
    model: Model | None = None
    sampler: Callable[[int], BaseSampler] | None = None
    remembers: bool = False
    opens: bool = False
    keeps: bool = False

    @property
    def draws(self) -> bool:
        """Whether all its points are drawn."""
        return self.model is None and self.sampler is None

    def budget(self, task: int, trials: int) -> int:
        """Trials it makes of a task; from there on, its curve is flat."""
        return 1 if self.keeps and task > 0 else trials

    def drawn(self, task: int, trials: int) -> int:
        """Trials of a task that are drawn at random rather than chosen."""
        if self.draws:
            return trials
        return 0 if task > 0 and (self.opens or self.keeps) else min(INITIAL, trials)

    def settings(self) -> dict[str, Any]:
        """Whatever its trials depend on, as plain data: settings, version, and the code of its model."""
        flags = {"remembers": self.remembers, "opens": self.opens, "keeps": self.keeps}
        if self.model is None:
            return {"name": self.name, **flags, "optuna": optuna.__version__}
        code = _code(sys.modules[type(self.model).__module__])
        return {"name": self.name, **flags, "lbo": lbo.__version__, "model": dict(settings(self.model)), "code": code}


def _tpe(seed: int) -> BaseSampler:
    return TPESampler(seed=seed, n_startup_trials=INITIAL)


def _gp(seed: int) -> BaseSampler:
    return GPSampler(seed=seed, n_startup_trials=INITIAL)


_ALL = (
    Method("Random"),
    Method("SGP", SGP()),
    Method("WinnersSGP", WinnersSGP(), remembers=True, opens=True),
    Method("Previous", SGP(), keeps=True),
    Method("MTGP", MTGP(), remembers=True),
    Method("DNGO", DNGO()),
    Method("ABLR-50", ABLR(units=50), remembers=True),
    Method("ABLR-100", ABLR(units=100), remembers=True),
    Method("Paper", Paper(), remembers=True),
    Method("Lifelong", Lifelong(), remembers=True, opens=True),
    Method("TPE", sampler=_tpe),
    Method("GPSampler", sampler=_gp),
    Method("NN", NN()),
    *(Method(f"Paper alpha={alpha:g}", Paper(networks=25, alpha=alpha), remembers=True) for alpha in ALPHAS),
)
METHODS = {method.name: method for method in _ALL}
DEFAULT = "Lifelong"  # what the others are tested against
RIVALS = ("Random", "SGP", "WinnersSGP", "Previous", "MTGP", "DNGO", "ABLR-50", "ABLR-100", "Paper")
STANDARD = (*RIVALS, DEFAULT)
# Where functions are smooth and of many dimensions, the networks are left out: they take longest.
GAUSSIAN = ("Random", "SGP", "WinnersSGP", "MTGP", DEFAULT)
RUNTIME = (*(f"Paper alpha={alpha:g}" for alpha in ALPHAS), "NN", "ABLR-50")


def pick(names: Iterable[str]) -> tuple[Method, ...]:
    """Methods by name."""
    names = tuple(names)
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        raise UnknownMethod(f"A method is one of {', '.join(METHODS)}, but {', '.join(unknown)} was asked for.")
    return tuple(METHODS[name] for name in names)


def missing(names: Sequence[str]) -> list[str]:
    """Those of the methods that cannot run here because an optional package is not installed."""
    return [name for name in names if name == "GPSampler" and importlib.util.find_spec("torch") is None]


@cache
def _code(module: ModuleType) -> str:
    """The code of a model and of the models it is made of, without comments and docstrings."""
    parts = {module} | {sys.modules[home] for value in vars(module).values() if (home := _home(value))}
    return " ".join(_stripped(part) for part in sorted(parts, key=lambda part: part.__name__))


def _home(value: Any) -> str | None:
    """The module of lbo.models that a value comes from; the interface is none of them."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    is_model = isinstance(name, str) and name.startswith("lbo.models.") and name != "lbo.models.base"
    return name if is_model else None


def _stripped(module: ModuleType) -> str:
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)
