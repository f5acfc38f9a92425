"""Feature maps: tanh networks phi_m from the unit cube to (-1, 1)^D*, several at a time.

sizes (D, ..., D*)   layer widths, inputs first; every layer is tanh, the last one too
X     (N, D)         points of the unit cube
W     (A, P)         one flat weight vector per network
Phi   (A, N, D*)     features
H     (A, N, width)  activations of one layer; the tape keeps them all, centred inputs first
dPhi, dW             derivatives of a scalar, shaped as Phi and W
"""

from itertools import pairwise

import numpy as np

from lbo.maths import Array

Sizes = tuple[int, ...]
Tape = list[Array]


def n_weights(sizes: Sizes) -> int:
    """P, the length of one network's weight vector."""
    return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(sizes))


def split(W: Array, sizes: Sizes) -> list[tuple[Array, Array]]:
    """Views of W as layers: weights (A, in, out) and biases (A, out)."""
    layers = []
    start = 0
    for fan_in, fan_out in pairwise(sizes):
        middle = start + fan_in * fan_out
        end = middle + fan_out
        layers.append((W[:, start:middle].reshape(-1, fan_in, fan_out), W[:, middle:end]))
        start = end
    return layers


def init(rng: np.random.Generator, sizes: Sizes, count: int, *, gain: float = 1.0) -> Array:
    """Draw `count` networks: weights N(0, gain^2 / fan_in), first biases N(0, gain^2), other biases zero.

    A first-layer unit turns where w.x = -b. With |w| near gain, a bias of std gain spreads those planes over
    the centred cube at any gain; zero biases would send them all through its middle and leave odd functions.
    """
    W = np.zeros((count, n_weights(sizes)))
    layers = split(W, sizes)
    for weight, _ in layers:
        weight[:] = rng.normal(0.0, gain / np.sqrt(weight.shape[1]), weight.shape)
    first_bias = layers[0][1]
    first_bias[:] = rng.normal(0.0, gain, first_bias.shape)
    return W


def features(W: Array, X: Array, sizes: Sizes) -> Array:
    """Phi, every network at every point."""
    return features_tape(W, X, sizes)[0]


def features_tape(W: Array, X: Array, sizes: Sizes) -> tuple[Array, Tape]:
    """Phi, and the activations that `features_vjp` needs."""
    tape = [2.0 * X[None] - 1.0]
    for weight, bias in split(W, sizes):
        H = tape[-1] @ weight
        H += bias[:, None]
        tape.append(np.tanh(H, out=H))
    return tape[-1], tape


def features_vjp(W: Array, tape: Tape, dPhi: Array, sizes: Sizes) -> Array:
    """dW from dPhi, by reverse mode."""
    dW = np.empty_like(W)
    layers, dlayers = split(W, sizes), split(dW, sizes)
    dH = dPhi
    for i in reversed(range(len(layers))):
        H_in, H_out = tape[i], tape[i + 1]
        dA = dH * (1.0 - H_out * H_out)
        dweight, dbias = dlayers[i]
        np.matmul(H_in.transpose(0, 2, 1), dA, out=dweight)
        np.sum(dA, axis=1, out=dbias)
        if i:
            dH = dA @ layers[i][0].transpose(0, 2, 1)
    return dW


def rebase(W: Array, sizes: Sizes, A: Array, b: Array) -> Array:
    """The same networks as functions of X_new, where X_old = X_new A + b: only the first layer changes.

    With c = 2 X - 1 the centred inputs, c_old = c_new A + (1^T A + 2 b - 1).
    """
    layers = split(W, sizes)
    weight, bias = layers[0]
    shift = A.sum(axis=0) + 2.0 * b - 1.0
    flat = [np.einsum("nd,adh->anh", A, weight).reshape(len(W), -1), bias + shift @ weight]
    for other_weight, other_bias in layers[1:]:
        flat += [other_weight.reshape(len(W), -1), other_bias]
    return np.concatenate(flat, axis=1)
