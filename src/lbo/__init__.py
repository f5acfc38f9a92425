"""Lifelong Bayesian optimisation: tune models again and again, and let each task profit from those before it.

Names are loaded when they are first used: `import lbo` costs next to nothing beside `import optuna`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbo.lazy import loader as _loader

if TYPE_CHECKING:
    from lbo import models, spaces
    from lbo.memory import Memory
    from lbo.sampler import LBOSampler
    from lbo.sklearn import LifelongSearchCV
    from lbo.stream import Stream, streams

__version__ = "0.1.0"
__all__ = ["LBOSampler", "LifelongSearchCV", "Memory", "Stream", "models", "spaces", "streams"]

__getattr__ = _loader(
    __name__,
    {
        "LBOSampler": "lbo.sampler",
        "LifelongSearchCV": "lbo.sklearn",
        "Memory": "lbo.memory",
        "Stream": "lbo.stream",
        "models": "lbo.models",
        "spaces": "lbo.spaces",
        "streams": "lbo.stream",
    },
)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
