"""Our Gaussian processes against BoTorch's at equal hyper-parameters, where BoTorch is installed (`lbo[bench]`)."""

import numpy as np
import pytest

from lbo.models import gp, mtgp, past_trials
from lbo.models.base import standardise
from model_contract import branin_task, cube, points

torch = pytest.importorskip("torch")
botorch = pytest.importorskip("botorch")
gpytorch = pytest.importorskip("gpytorch")

THETA = np.log([0.3, 0.7, 1.4, 0.02])  # ell, v, noise
ELL, V, NOISE = np.exp(THETA[:2]), float(np.exp(THETA[2])), float(np.exp(THETA[3]))
F = np.array([[0.9, 0.0, 0.0], [0.6, 0.7, 0.0], [-0.4, 0.3, 1.1]])

pytestmark = pytest.mark.filterwarnings("ignore")  # botorch warns of inputs, defaults and its own dependencies


def double(x):
    # Even of single numbers: torch would read a Python float as float32.
    return torch.tensor(np.asarray(x), dtype=torch.float64)


def matern(dims):
    kernel = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2, active_dims=dims).double()
    kernel.lengthscale = double(ELL)
    return kernel


def zero_mean():
    return gpytorch.means.ZeroMean()


def noise():
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive()).double()
    likelihood.noise = double(NOISE)
    return likelihood


def constant_kernel():
    kernel = gpytorch.kernels.ConstantKernel().double()
    kernel.constant = double(1.0)
    return kernel


def predictions(model, X):
    model.eval()
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        posterior = model.posterior(X)
        return posterior.mean[:, 0].numpy(), posterior.variance[:, 0].numpy()


def test_single_task():
    task, X = branin_task(25), points(2, 40, 1)
    z, _ = standardise(task.y)
    scaled = gpytorch.kernels.ScaleKernel(matern((0, 1))).double()
    scaled.outputscale = double(V)
    theirs = botorch.models.SingleTaskGP(
        double(task.X), double(z)[:, None], likelihood=noise(), covar_module=scaled + constant_kernel(),
        mean_module=zero_mean(), outcome_transform=None,
    )  # fmt: skip
    _, mean, var = gp._single_posterior(THETA, 25, task).mixture(X)
    expected_mean, expected_var = predictions(theirs, double(X))
    np.testing.assert_allclose(mean[0], expected_mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(var[0], expected_var, rtol=1e-8, atol=1e-11)


class SameTask(gpytorch.kernels.Kernel):
    """The covariance of the tasks' constants: 1 within a task, 0 between two."""

    def forward(self, x1, x2, diag=False, **params):
        same = (x1[..., :, None, 0] == x2[..., None, :, 0]).to(x1)
        return same.diagonal(dim1=-1, dim2=-2) if diag else same


def test_all_tasks():
    X, X_new = points(2, 30), points(2, 40, 1)
    task = np.repeat(np.arange(3), 10)
    z = np.random.default_rng(1).normal(size=30)
    index = gpytorch.kernels.IndexKernel(num_tasks=3, rank=3, active_dims=(2,)).double()
    index.covar_factor.data = double(np.sqrt(V) * F)
    index.var = double(np.full(3, 1e-300))  # all of B is in its factor
    theirs = botorch.models.SingleTaskGP(
        double(np.column_stack([X, task])), double(z)[:, None], likelihood=noise(), mean_module=zero_mean(),
        covar_module=matern((0, 1)) * index + SameTask(active_dims=(2,)), outcome_transform=None,
    )  # fmt: skip
    triangle = (F + np.diag(np.log(np.diag(F)) - np.diag(F)))[np.tril_indices(3)]
    data = past_trials.PastTrials(X, z, task)
    ours = mtgp._joint_posterior(np.append(THETA, triangle), 10, data, standardise(z)[1], cube(2))
    _, mean, var = ours.mixture(X_new)
    expected_mean, expected_var = predictions(theirs, double(np.column_stack([X_new, np.full(40, 2.0)])))
    np.testing.assert_allclose(mean[0], expected_mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(var[0], expected_var, rtol=1e-8, atol=1e-11)
