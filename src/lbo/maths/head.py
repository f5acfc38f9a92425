"""Bayesian linear head: evidence and posterior of y = Phi h + noise, h integrated out.

Phi   (N, P)  features, gates already applied
y     (N,)    standardised targets
lam   ()      prior precision of h          beta  ()  noise precision          c = beta / lam
K_h   (P, P)  I + c Phi^T Phi               K_y  (N, N)  I + c Phi Phi^T       |K_h| = |K_y|
W             whitener of whichever was formed, W K W^T = I
m     (P,)    posterior mean of h           r    (N,)  residual y - Phi m
dof   ()      effective parameters, P - tr K_h^-1 = N - tr K_y^-1
The primal form (K_h) costs N P^2 + P^3, the dual (K_y) N^2 P + N^3: `evidence` takes the cheaper one.

Both write the data term as beta |r|^2 + lam |m|^2. It equals beta |y|^2 - c beta y^T Phi K_h^-1 Phi^T y, but
m minimises it, so rounding in m counts to second order only: at c = 1e8 the difference errs 1000 times more.
"""

from typing import NamedTuple

import numpy as np

from lbo.maths import Array
from lbo.maths.linalg import half_log_det, inverse, solve, whitener

Fit = tuple[Array, Array, Array]  # W, m, r
Grad = tuple[float, Array, float, float]  # value, dPhi, dlam, dbeta


def evidence(Phi: Array, y: Array, lam: float, beta: float) -> float:
    """log N(y; 0, Phi Phi^T / lam + I / beta)."""
    return (evidence_dual if _dual_is_cheaper(Phi) else evidence_primal)(Phi, y, lam, beta)


def evidence_grad(Phi: Array, y: Array, lam: float, beta: float) -> Grad:
    """The evidence and its derivatives: value, dPhi, dlam, dbeta."""
    return (evidence_dual_grad if _dual_is_cheaper(Phi) else evidence_primal_grad)(Phi, y, lam, beta)


def evidence_primal(Phi: Array, y: Array, lam: float, beta: float) -> float:
    """The evidence by K_h."""
    return _log_evidence(*_fit_primal(Phi, y, lam, beta), lam, beta)


def evidence_primal_grad(Phi: Array, y: Array, lam: float, beta: float) -> Grad:
    """The evidence and its derivatives by K_h."""
    W, m, r = _fit_primal(Phi, y, lam, beta)
    K_inv = inverse(W)
    dof = Phi.shape[1] - float(np.trace(K_inv))
    dPhi = beta * np.outer(r, m) - (beta / lam) * (Phi @ K_inv)
    return _log_evidence(W, m, r, lam, beta), dPhi, *_precision_grads(m, r, dof, lam, beta)


def evidence_dual(Phi: Array, y: Array, lam: float, beta: float) -> float:
    """The evidence by K_y."""
    return _log_evidence(*_fit_dual(Phi, y, lam, beta), lam, beta)


def evidence_dual_grad(Phi: Array, y: Array, lam: float, beta: float) -> Grad:
    """The evidence and its derivatives by K_y."""
    W, m, r = _fit_dual(Phi, y, lam, beta)
    K_inv = inverse(W)
    dof = Phi.shape[0] - float(np.trace(K_inv))
    dPhi = beta * np.outer(r, m) - (beta / lam) * (K_inv @ Phi)
    return _log_evidence(W, m, r, lam, beta), dPhi, *_precision_grads(m, r, dof, lam, beta)


class Posterior(NamedTuple):
    """h given the data: its mean, and a root of its covariance or of what the data took from the prior's.

    m     (P,)    mean of h
    R             lam cov(h) = R^T R, R (P, P), if primal;  lam cov(h) = I - R^T R, R (N, P), if dual
    """

    m: Array
    R: Array
    lam: float
    dual: bool


def posterior(Phi: Array, y: Array, lam: float, beta: float) -> Posterior:
    """h | y ~ N(m, K_h^-1 / lam)."""
    dual = _dual_is_cheaper(Phi)
    if dual:
        W, m, _ = _fit_dual(Phi, y, lam, beta)
        R = np.sqrt(beta / lam) * (W @ Phi)
    else:
        R, m, _ = _fit_primal(Phi, y, lam, beta)
    return Posterior(m, R, lam, dual)


def predict(posterior: Posterior, Phi_new: Array) -> tuple[Array, Array]:
    """Mean and variance of f = Phi_new h; add 1 / beta to the variance for an observation."""
    m, R, lam, dual = posterior
    prior = _row_squares(Phi_new)
    moved = _row_squares(Phi_new @ R.T)
    var = prior - moved if dual else moved
    # The dual's difference may round below zero; nothing under the prior's last digit is known.
    return Phi_new @ m, np.maximum(var, np.finfo(float).eps * prior) / lam


def _dual_is_cheaper(Phi: Array) -> bool:
    return len(Phi) < len(Phi.T)


def _fit_primal(Phi: Array, y: Array, lam: float, beta: float) -> Fit:
    c = beta / lam
    W = whitener(np.eye(Phi.shape[1]) + c * (Phi.T @ Phi))
    m = c * solve(W, Phi.T @ y)
    return W, m, y - Phi @ m


def _fit_dual(Phi: Array, y: Array, lam: float, beta: float) -> Fit:
    c = beta / lam
    W = whitener(np.eye(Phi.shape[0]) + c * (Phi @ Phi.T))
    r = solve(W, y)
    return W, c * (Phi.T @ r), r


def _log_evidence(W: Array, m: Array, r: Array, lam: float, beta: float) -> float:
    log_norm = 0.5 * len(r) * np.log(beta / (2.0 * np.pi))
    return float(log_norm - 0.5 * beta * (r @ r) - 0.5 * lam * (m @ m) - half_log_det(W))


def _precision_grads(m: Array, r: Array, dof: float, lam: float, beta: float) -> tuple[float, float]:
    # m is stationary in the data term, so only the explicit lam and beta count.
    dlam = 0.5 * (dof / lam - m @ m)
    dbeta = 0.5 * ((len(r) - dof) / beta - r @ r)
    return float(dlam), float(dbeta)


def _row_squares(U: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", U, U))
