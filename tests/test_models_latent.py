"""Remembered functions: kept at all their points they are exact, and the points kept are the telling ones."""

import numpy as np
import pytest

from lbo.maths import matern
from lbo.models import latent
from lbo.models.latent import JITTER, Latent
from model_contract import mean_var, points

ELL, V, NOISE = np.array([0.3, 0.6]), 1.7, 1e-2


def literal_posterior(X, y, X_new):
    """Mean and covariance at X_new given y = g(X) + noise, by the textbook."""
    A = np.linalg.inv(matern.kernel(X, X, ELL, V) + NOISE * np.eye(len(X)))
    k = matern.kernel(X_new, X, ELL, V)
    return k @ A @ y, matern.kernel(X_new, X_new, ELL, V) - k @ A @ k.T


def kept_at(Z, X, y):
    mean, S = literal_posterior(X, y, Z)
    return latent.keep(Z, mean, S, ELL, V)


def stored(g):
    """As it comes back from storage."""
    return Latent(*(np.asarray(part).astype(np.float32).astype(float) for part in g[:4]), float(np.float32(g.v)))


def trials(n, seed=0):
    X = points(2, n, seed)
    return X, np.sin(5 * X[:, 0]) + X[:, 1]


def assert_is_the_posterior(g, X, y, atol):
    X_new = points(2, 60, 9)
    mean, C = literal_posterior(X, y, X_new)
    np.testing.assert_allclose(latent.mean(g, X_new), mean, atol=atol)
    np.testing.assert_allclose(latent.cov(g, X_new, X_new), C, atol=atol)
    for ours, theirs in zip(mean_var(g, X_new), (mean, np.diag(C)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=atol)
    np.testing.assert_allclose(latent.cov(g, X_new[:20], X_new[20:]), C[:20, 20:], atol=atol)
    at_once = latent.mean_var_cov(g, X_new[:20], latent.see(g, X_new[20:]))
    for ours, theirs in zip(at_once, (mean[:20], np.diag(C)[:20], C[:20, 20:]), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=atol)


def test_a_function_kept_at_its_own_points_is_the_exact_posterior(monkeypatch):
    monkeypatch.setattr(latent, "JITTER", 1e-13)
    X, y = trials(40)
    assert_is_the_posterior(latent.prepare(kept_at(X, X, y)), X, y, atol=1e-6)


def test_more_points_than_trials_change_nothing(monkeypatch):
    monkeypatch.setattr(latent, "JITTER", 1e-13)
    X, y = trials(15)
    assert_is_the_posterior(latent.prepare(kept_at(np.vstack([X, points(2, 25, 3)]), X, y)), X, y, atol=1e-6)


def test_jitter_and_storage_in_single_precision_cost_no_more_than_the_fourth_digit():
    X, y = trials(40)
    assert_is_the_posterior(latent.prepare(stored(kept_at(X, X, y))), X, y, atol=2e-4)


def test_thirty_telling_points_of_three_hundred_nearly_are_the_function():
    X, y = trials(300)
    far_fewer = X[latent.telling(X, ELL, np.zeros(0, dtype=int), 30)]
    X_new = points(2, 200, 9)
    mean, _ = literal_posterior(X, y, X_new)
    g, arbitrary = latent.prepare(kept_at(far_fewer, X, y)), latent.prepare(kept_at(X[:30], X, y))
    off, off_arbitrary = (np.abs(latent.mean(f, X_new) - mean).max() for f in (g, arbitrary))
    assert off < 0.05
    assert off < 0.5 * off_arbitrary


def test_where_nothing_is_known_it_is_the_prior():
    X, y = trials(10)
    mean, var = mean_var(latent.prepare(kept_at(X, X, y)), np.full((1, 2), 30.0))
    np.testing.assert_allclose([mean[0], var[0]], [0.0, V], atol=1e-12)


def test_covariances_stay_positive_with_near_duplicates_in_single_precision():
    X, y = trials(30)
    X = np.vstack([X, X + 1e-4])
    y = np.append(y, y)
    Z = X[latent.telling(X, ELL, np.zeros(0, dtype=int), 60)]
    g = latent.prepare(stored(kept_at(Z, X, y)))
    C = latent.cov(g, X, X)
    assert np.linalg.eigvalsh(0.5 * (C + C.T)).min() > -JITTER * V
    assert (mean_var(g, X)[1] >= 0).all()


# Which points tell


def residual_variance(X, chosen):
    k = matern.kernel(X, X[chosen], ELL, 1.0)
    return 1.0 - np.einsum("nj,jn->n", k, np.linalg.solve(k[chosen], k.T))


def test_those_asked_for_come_first_and_then_what_those_before_predict_worst():
    X = points(2, 50)
    chosen = latent.telling(X, ELL, np.array([7, 3, 7, 19]), 12)
    assert chosen[:3].tolist() == [7, 3, 19]
    for j in range(3, 12):
        assert chosen[j] == residual_variance(X, chosen[:j]).argmax()


@pytest.mark.parametrize("count", [1, 5, 50, 500])
def test_no_row_is_chosen_twice(count):
    X = np.vstack([points(2, 30), points(2, 30)])
    chosen = latent.telling(X, ELL, np.array([4, 34]), count)
    assert len(set(chosen.tolist())) == len(chosen) <= min(count, 30)


def test_it_stops_where_nothing_new_is_left():
    X = np.tile(points(2, 6), (4, 1))
    assert sorted(latent.telling(X, ELL, np.zeros(0, dtype=int), 24) % 6) == list(range(6))


def test_one_asked_for_that_tells_nothing_new_is_left_out():
    X = np.vstack([points(2, 5), points(2, 1)])
    assert 5 not in latent.telling(X, ELL, np.array([0, 5]), 6)
