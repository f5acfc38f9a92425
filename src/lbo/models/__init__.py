"""The surrogates: what each assumes of a task and of those before it.

Names are loaded when they are first used: a process that tunes with one model does not wait for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lbo.errors import MemoryDamaged
from lbo.lazy import loader as _loader

if TYPE_CHECKING:
    from lbo.models.ablr import ABLR
    from lbo.models.base import Model
    from lbo.models.dngo import DNGO, NN
    from lbo.models.gp import SGP, WinnersSGP
    from lbo.models.lifelong import Lifelong
    from lbo.models.mtgp import MTGP
    from lbo.models.paper import Paper

__all__ = ["ABLR", "DNGO", "MTGP", "NN", "SGP", "Lifelong", "Paper", "WinnersSGP"]

_HOMES = {
    "ABLR": "lbo.models.ablr",
    "DNGO": "lbo.models.dngo",
    "Lifelong": "lbo.models.lifelong",
    "MTGP": "lbo.models.mtgp",
    "NN": "lbo.models.dngo",
    "Paper": "lbo.models.paper",
    "SGP": "lbo.models.gp",
    "WinnersSGP": "lbo.models.gp",
}
__getattr__ = _loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)


def default_model() -> Model:
    """What Stream, LBOSampler, LifelongSearchCV and the command line use when no model is named."""
    from lbo.models.lifelong import Lifelong

    return Lifelong()


def from_settings(settings: Mapping[str, Any]) -> Model:
    """The model that `base.settings` described."""
    fields = dict(settings)
    name = fields.pop("name", None)
    if name not in _HOMES:
        raise MemoryDamaged(f"a memory was made by model {name!r}, which this version of lbo does not have")
    model: Model = __getattr__(name)(**fields)
    return model
