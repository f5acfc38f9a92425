"""Lists, scipy's and Optuna's distributions: what the storage gets, and what the estimator gets back."""

import json

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from scipy import stats
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from lbo.searchable import distinct, searchable

PCA_2, PCA_3 = PCA(2), PCA(3)


@pytest.mark.parametrize(
    ("frozen", "distribution"),
    [
        (stats.uniform(2, 3), FloatDistribution(2, 5)),
        (stats.uniform(loc=-1, scale=2), FloatDistribution(-1, 1)),
        (stats.loguniform(1e-3, 10), FloatDistribution(1e-3, 10, log=True)),
        (stats.reciprocal(a=0.5, b=2), FloatDistribution(0.5, 2, log=True)),
        (stats.loguniform(1, 10, scale=3), FloatDistribution(3, 30, log=True)),
        (stats.randint(1, 10), IntDistribution(1, 9)),
    ],
)
def test_the_common_scipy_distributions_become_optunas(frozen, distribution):
    found = searchable("a", frozen)
    assert (found.distribution, found.suffix) == (distribution, "")
    assert found.decode(3) == 3


@pytest.mark.parametrize("frozen", [stats.norm(5, 2), stats.expon(scale=100), stats.loguniform(1, 10, loc=1)])
def test_other_scipy_distributions_are_searched_by_quantile(frozen):
    found = searchable("a", frozen)
    assert found.suffix == "__quantile"
    low, high = found.decode(found.distribution.low), found.decode(found.distribution.high)
    assert np.isfinite([low, high]).all()
    assert frozen.cdf(found.decode(0.25)) == pytest.approx(0.25)
    assert type(found.decode(0.25)) is float


def test_a_discrete_scipy_distribution_gives_numbers_that_are_whole():
    decoded = searchable("a", stats.poisson(4)).decode(0.5)
    assert decoded == 4


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ([None, "l2", 3, 0.5, True], (None, "l2", 3, 0.5, True)),
        (np.array([1, 2]), (1, 2)),
        ([np.float32(0.5), np.int64(2)], (0.5, 2)),
        (range(3), (0, 1, 2)),
        (CategoricalDistribution(("a", "b")), ("a", "b")),
        ([1, True], ("1", "True")),
        ([2, 2, 3], ("2", "3")),
        ([(50,), (50, 50)], ("(50,)", "(50, 50)")),
        ([{0: 1, 1: 5}, "balanced"], ("{0: 1, 1: 5}", "balanced")),
        (["passthrough", PCA_2, PCA_3], ("passthrough", "PCA", "PCA2")),
        ([None, PCA_2], ("None", "PCA")),
        ([float("nan"), 0.0], ("nan", "0.0")),
        ([np.log1p, test_a_discrete_scipy_distribution_gives_numbers_that_are_whole],
         ("log1p", "test_a_discrete_scipy_distribution_gives_numbers_that_are_whole")),
        ([PCA, LogisticRegression], ("PCA", "LogisticRegression")),
        ([object(), object()], ("object", "object2")),
        ([np.zeros(3), list(range(100))], ("ndarray", "list")),
    ],
)  # fmt: skip
def test_the_storage_gets_json_and_the_estimator_its_values(values, stored):
    found = searchable("a", values)
    assert found.distribution.choices == stored
    assert json.loads(json.dumps(stored, allow_nan=False)) == list(stored)
    decoded = [found.decode(label) for label in stored]
    listed = getattr(values, "choices", values)
    unique = listed if len(listed) == len(stored) else [2, 3]
    assert all(a is b or a == b or (a != a and b != b) for a, b in zip(decoded, unique, strict=True))


def test_a_number_never_collides_with_a_name():
    assert distinct(["PCA", "PCA", "PCA2", "PCA"]) == ["PCA", "PCA2", "PCA22", "PCA3"]
