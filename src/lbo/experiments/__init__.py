"""The paper's experiments and their successors: problems, and the runner that compares methods on them.

A problem is one task whose answer is known: it has `.distributions`, `.objective(trial)`, `.minimum` and
`.std`, and is always minimised, so that regret is (best so far - minimum.value) / std whatever the problem.
`branin` and `tables` are such problems; `cohorts` are real data, which become problems once tabulated.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from lbo.errors import LboError, MissingExtra


class Minimum(NamedTuple):
    """The smallest value of a problem, and where it is."""

    value: float
    at: Any


class DataError(LboError, ValueError):
    """Data for an experiment that is not there, or that cannot be used."""


def data_package(name: str) -> Any:
    """A package of the extra "data", imported when it is needed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra(name.partition(".")[0], "data") from error
