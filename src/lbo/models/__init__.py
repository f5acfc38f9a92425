"""The surrogates: what each assumes of a task and of those before it."""

from collections.abc import Mapping
from typing import Any

from lbo.errors import MemoryDamaged
from lbo.models.ablr import ABLR
from lbo.models.base import Model
from lbo.models.dngo import DNGO, NN
from lbo.models.gp import SGP, WinnersSGP
from lbo.models.lifelong import Lifelong
from lbo.models.mtgp import MTGP
from lbo.models.paper import Paper

__all__ = ["ABLR", "DNGO", "MTGP", "NN", "SGP", "Lifelong", "Paper", "WinnersSGP"]

_BY_NAME: dict[str, type[Model]] = {
    model.name: model for model in (Lifelong, Paper, SGP, WinnersSGP, MTGP, DNGO, NN, ABLR)
}


def default_model() -> Model:
    """What Stream, LBOSampler, LifelongSearchCV and the command line use when no model is named."""
    return Lifelong()


def from_settings(settings: Mapping[str, Any]) -> Model:
    """The model that `base.settings` described."""
    fields = dict(settings)
    name = fields.pop("name", None)
    if name not in _BY_NAME:
        raise MemoryDamaged(f"a memory was made by model {name!r}, which this version of lbo does not have")
    return _BY_NAME[name](**fields)
