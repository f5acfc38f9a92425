"""Lifelong Bayesian optimisation: tune models again and again, and let each task profit from those before it.

Names are loaded when they are first used: `import lbo` costs next to nothing beside `import optuna`.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from lbo import models, spaces
    from lbo.memory import Memory
    from lbo.sampler import LBOSampler
    from lbo.sklearn import LifelongSearchCV
    from lbo.stream import Stream, streams

__version__ = "0.1.0"

_HOME = {
    "LBOSampler": "lbo.sampler",
    "LifelongSearchCV": "lbo.sklearn",
    "Memory": "lbo.memory",
    "Stream": "lbo.stream",
    "models": "lbo",
    "spaces": "lbo",
    "streams": "lbo.stream",
}
__all__ = ["LBOSampler", "LifelongSearchCV", "Memory", "Stream", "models", "spaces", "streams"]


def __getattr__(name: str) -> _Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lbo' has no attribute {name!r}")
    home = _HOME[name]
    value = _importlib.import_module(f"lbo.{name}") if home == "lbo" else getattr(_importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
