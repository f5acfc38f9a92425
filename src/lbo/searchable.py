"""What scikit-learn's searches take as a parameter's values, as an Optuna distribution and back.

| the user gives | Optuna stores |
|---|---|
| an Optuna distribution | its value |
| scipy's `uniform`, `loguniform`, `randint` | the same range as an Optuna distribution |
| any other frozen scipy distribution | the quantile, from 0.001 to 0.999, as "<parameter>__quantile" |
| a list of texts, finite numbers, booleans, None | the value, as one of a set without order |
| a list of anything else | a label: the class of an estimator, the name of a function, the text of a tuple |

So the storage holds nothing but JSON, and a label means the same in every process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from lbo.errors import SpaceError

TAIL = 0.001  # of a scipy distribution, left out at either end: many end at infinity
LONGEST_LABEL = 60  # characters


class Searchable(NamedTuple):
    """A parameter's values, as Optuna searches them."""

    distribution: BaseDistribution
    decode: Callable[[Any], Any]  # what Optuna stores -> what the estimator gets
    suffix: str = ""  # of the name, where what is stored is not the value


def searchable(key: str, values: Any) -> Searchable:
    """What a user gave for a parameter, as Optuna searches it."""
    if isinstance(values, CategoricalDistribution):
        return _choices(values.choices)
    if isinstance(values, BaseDistribution):
        return Searchable(values, _itself)
    if is_list(values) and len(values) > 0:
        return _choices(values)
    if hasattr(values, "ppf") and hasattr(values, "support"):
        return _scipy(values)
    raise SpaceError(
        f"A parameter is searched over a list that is not empty, an Optuna distribution or a frozen distribution of "
        f"scipy.stats, but {key!r} has {values!r}. Use for example [1, 2], FloatDistribution(1e-3, 10, log=True) or "
        f"scipy.stats.loguniform(1e-3, 10)."
    )


def is_list(values: Any) -> bool:
    """Whether values are listed one by one."""
    return (isinstance(values, Sequence) and not isinstance(values, str)) or (
        isinstance(values, np.ndarray) and values.ndim == 1
    )


def label(value: Any) -> str:
    """A text for a value that JSON cannot hold, the same in every process."""
    if isinstance(value, str):
        return value
    if hasattr(value, "get_params") and not isinstance(value, type):
        return type(value).__name__
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__))
    text = repr(value)
    readable = value is None or isinstance(value, bool | int | float | tuple | list | dict)
    return text if readable and len(text) <= LONGEST_LABEL and " at 0x" not in text else type(value).__name__


def distinct(names: Sequence[str]) -> list[str]:
    """Names with a number added to repeats: the same class may come twice, with two settings."""
    made: list[str] = []
    for name in names:
        numbered = (f"{name}{n}" for n in range(2, len(names) + 2))
        made.append(name if name not in made else next(text for text in numbered if text not in made))
    return made


def _choices(values: Sequence[Any]) -> Searchable:
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    if not all(_is_plain(value) for value in values):
        by_label = dict(zip(distinct([label(value) for value in values]), values, strict=True))
    elif len(set(values)) == len(values):
        return Searchable(CategoricalDistribution(values), _itself)
    else:  # 1 and True are equal, and Optuna would not tell them apart
        by_label = {repr(value): value for value in values}
    return Searchable(CategoricalDistribution(tuple(by_label)), by_label.__getitem__)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))


def _scipy(frozen: Any) -> Searchable:
    low, high = (float(end) for end in frozen.support())
    kind = frozen.dist.name
    if kind == "uniform":
        return Searchable(FloatDistribution(low, high), _itself)
    if kind == "randint":
        return Searchable(IntDistribution(int(low), int(high)), _itself)
    # A shifted loguniform is no longer one: then its median is not where a logarithm's is.
    if kind in ("loguniform", "reciprocal") and low > 0 and math.isclose(frozen.median(), math.sqrt(low * high)):
        return Searchable(FloatDistribution(low, high, log=True), _itself)
    return Searchable(FloatDistribution(TAIL, 1 - TAIL), lambda quantile: frozen.ppf(quantile).item(), "__quantile")


def _itself(value: Any) -> Any:
    return value
