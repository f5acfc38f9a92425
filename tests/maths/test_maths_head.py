"""The linear head against the joint Gaussian that it stands for, and its derivatives against autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from lbo.maths import head

SHAPES = [(4, 9), (9, 4), (6, 6), (1, 3), (3, 1)]  # both sides of the primal / dual border
PRECISIONS = [(1.0, 1.0), (0.3, 50.0), (40.0, 0.2)]


def problem(rng, N, P):
    return rng.normal(size=(N, P)), rng.normal(size=N)


def literal_evidence(Phi, y, lam, beta):
    """log N(y; 0, Phi Phi^T / lam + I / beta), as written."""
    C = Phi @ Phi.T / lam + jnp.eye(len(y)) / beta
    quadratic = y @ jnp.linalg.solve(C, y)
    return -0.5 * (quadratic + jnp.linalg.slogdet(C)[1] + len(y) * jnp.log(2 * jnp.pi))


def literal_primal(Phi, y, lam, beta):
    """The primal evidence of the paper, its missing 1/2 put back."""
    N, P = Phi.shape
    K = beta / lam * Phi.T @ Phi + np.eye(P)
    b = Phi.T @ y
    explained = beta**2 / (2 * lam) * b @ np.linalg.solve(K, b)
    return -N / 2 * np.log(2 * np.pi / beta) - beta / 2 * y @ y + explained - 0.5 * np.linalg.slogdet(K)[1]


@pytest.mark.parametrize(("lam", "beta"), PRECISIONS)
@pytest.mark.parametrize(("N", "P"), SHAPES)
def test_evidence_is_the_density_of_the_joint_gaussian(rng, N, P, lam, beta):
    Phi, y = problem(rng, N, P)
    expected = multivariate_normal.logpdf(y, np.zeros(N), Phi @ Phi.T / lam + np.eye(N) / beta)
    for form in (head.evidence, head.evidence_primal, head.evidence_dual):
        np.testing.assert_allclose(form(Phi, y, lam, beta), expected, rtol=1e-9)
    np.testing.assert_allclose(literal_primal(Phi, y, lam, beta), expected, rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.floats(-4, 4),
    st.floats(-4, 4),
    st.integers(0, 2**32 - 1),
)
def test_primal_and_dual_are_equal_with_all_their_derivatives(N, P, log10_lam, log10_beta, seed):
    Phi, y = problem(np.random.default_rng(seed), N, P)
    lam, beta = 10.0**log10_lam, 10.0**log10_beta
    primal = head.evidence_primal_grad(Phi, y, lam, beta)
    dual = head.evidence_dual_grad(Phi, y, lam, beta)
    for one, other in zip(primal, dual, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7 * np.abs(one).max() + 1e-9 / lam)


@pytest.mark.parametrize(("lam", "beta"), PRECISIONS)
@pytest.mark.parametrize(("N", "P"), [(4, 7), (7, 4)])
def test_hand_derivative_is_autodiff(rng, N, P, lam, beta):
    Phi, y = problem(rng, N, P)
    expected = jax.grad(literal_evidence, argnums=(0, 2, 3))(Phi, y, lam, beta)
    for form in (head.evidence_grad, head.evidence_primal_grad, head.evidence_dual_grad):
        value, *derivatives = form(Phi, y, lam, beta)
        np.testing.assert_allclose(value, literal_evidence(Phi, y, lam, beta), rtol=1e-9)
        for ours, theirs in zip(derivatives, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(("N", "P"), [(4, 9), (9, 4)])
def test_cheaper_form_is_taken(rng, N, P, monkeypatch):
    Phi, y = problem(rng, N, P)
    dearer = "primal" if N < P else "dual"
    monkeypatch.setattr(head, f"_fit_{dearer}", None)  # calling it would be a TypeError
    head.evidence(Phi, y, 1.0, 1.0)
    head.evidence_grad(Phi, y, 1.0, 1.0)
    head.posterior(Phi, y, 1.0, 1.0)


@pytest.mark.parametrize(("lam", "beta"), PRECISIONS)
@pytest.mark.parametrize(("N", "P"), SHAPES)
def test_prediction_is_conditioning_of_the_joint_gaussian(rng, N, P, lam, beta):
    Phi, y = problem(rng, N, P)
    Phi_new = rng.normal(size=(5, P))
    C = Phi @ Phi.T / lam + np.eye(N) / beta
    Cs, Css = Phi_new @ Phi.T / lam, Phi_new @ Phi_new.T / lam
    mean, var = head.predict(head.posterior(Phi, y, lam, beta), Phi_new)
    np.testing.assert_allclose(mean, Cs @ np.linalg.solve(C, y), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(var, np.diag(Css - Cs @ np.linalg.solve(C, Cs.T)), rtol=1e-7)


def test_no_data_leaves_the_prior(rng):
    Phi_new = rng.normal(size=(5, 3))
    nothing = np.zeros((0, 3)), np.zeros(0)
    mean, var = head.predict(head.posterior(*nothing, 4.0, 1.0), Phi_new)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(var, np.sum(Phi_new**2, axis=1) / 4.0)
    assert head.evidence_grad(*nothing, 4.0, 1.0)[0] == 0.0


@pytest.mark.parametrize(("lam", "beta"), [(1.0, 1e8), (1e-4, 1e4), (1e-8, 1.0)])
@pytest.mark.parametrize(("N", "P"), [(30, 50), (60, 50)])
def test_almost_noiseless_data_keep_their_digits(rng, N, P, lam, beta):
    # Singular values and vectors are the exact reference: K_h is diagonal in them and nothing is factorised.
    U, _ = np.linalg.qr(rng.normal(size=(N, min(N, P))))
    V, _ = np.linalg.qr(rng.normal(size=(P, min(N, P))))
    d = 10.0 ** np.linspace(1, -6, min(N, P))
    Phi, y = U * d @ V.T, rng.normal(size=N)
    c, along = beta / lam, U.T @ y
    shrunk = along / np.sqrt(1 + c * d**2)
    data_term = beta * (y @ y - along @ along + shrunk @ shrunk)
    expected = 0.5 * (N * np.log(beta / (2 * np.pi)) - data_term - np.log1p(c * d**2).sum())
    # Forming K loses eps c |Phi|^2 = 2e-16 1e8 1e2 of it, 2e-6, and no more may be lost after that.
    np.testing.assert_allclose(head.evidence(Phi, y, lam, beta), expected, rtol=2e-6)

    _, var = head.predict(head.posterior(Phi, y, lam, beta), Phi)
    exact = np.sum((U * d) ** 2 / (1 + c * d**2), axis=1) / lam
    np.testing.assert_allclose(var, exact, rtol=1e-3)
    assert np.all(var > 0)


def test_variance_never_rounds_to_zero(rng):
    Phi, y = problem(rng, 20, 50)
    _, var = head.predict(head.posterior(Phi, y, 1.0, 1e15), Phi)
    assert np.all((var > 0) & (var < 1e-12))
