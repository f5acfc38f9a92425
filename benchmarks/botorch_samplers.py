"""BoTorch behind Optuna's interface: one task's GP, all tasks' GP, and the ranking-weighted ensemble.

Each learns its hyper-parameters anew at every ask, as BoTorch's own examples do, in at most 200 steps, and maximises
log EI: over the box from ten starts chosen among 512 points, or over the candidates where there are some.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import MultiTaskGP, SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms import Standardize
from botorch.optim import optimize_acqf
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.sampling import manual_seed
from gpytorch.distributions import MultivariateNormal
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.operators import DiagLinearOperator
from optuna.trial import FrozenTrial
from torch import Tensor

import encoded
import rgpe
from encoded import EncodedSampler
from lbo.space import Array, Params, Space

Tasks = Sequence[Sequence[FrozenTrial]]

STARTS, RAW_POINTS = 10, 512
RANKING_DRAWS = 256
FIT_STEPS = 200  # of L-BFGS; without a limit, values without noise lead it thousands of steps along a flat ridge


class BoTorchSampler(EncodedSampler):
    """What the three have in common: a model of -y, and log EI over it."""

    def model(self, space: Space, X: Array, y: Array) -> Model:
        """A fitted model whose posterior at X is that of -y, standardised or not."""
        raise NotImplementedError

    def suggest(self, space: Space, done: Sequence[FrozenTrial]) -> Mapping[str, Any]:
        X, y = encoded.encode(space, [trial.params for trial in done]), encoded.values(done)
        with warnings.catch_warnings(), manual_seed(self.seed + len(done)):
            warnings.simplefilter("ignore")  # fits that needed another attempt, inputs that are not centred
            model = self.model(space, X, y)
            best = model.posterior(double(X)).mean.max()
            acquisition = LogExpectedImprovement(model, best_f=best)
            if self.candidates is None:
                return encoded.decode(space, _best_of_box(acquisition, space))
            left = self.left(done)
            return left[_best_of(acquisition, encoded.encode(space, left))]


class SingleTaskSampler(BoTorchSampler):
    """SingleTaskGP: the task alone."""

    def model(self, space: Space, X: Array, y: Array) -> Model:
        return single_task(X, y)


class MultiTaskSampler(BoTorchSampler):
    """MultiTaskGP: every trial of every task in one Gaussian process."""

    def __init__(self, seed: int, candidates: Sequence[Params] | None = None, past: Tasks = ()) -> None:
        super().__init__(seed, candidates)
        self.past = past

    def model(self, space: Space, X: Array, y: Array) -> Model:
        if not self.past:
            return single_task(X, y)
        X_of = [*(encoded.encode(space, [trial.params for trial in trials]) for trials in self.past), X]
        y_of = [*(encoded.values(trials) for trials in self.past), y]
        here = len(self.past)
        model = MultiTaskGP(
            double(np.vstack([np.column_stack([x, np.full(len(x), task)]) for task, x in enumerate(X_of)])),
            double(np.concatenate([standardised(-y) for y in y_of]))[:, None],
            task_feature=-1, output_tasks=[here],
        )  # fmt: skip
        return fitted(model)


class EnsembleSampler(BoTorchSampler):
    """RGPE: a Gaussian process of each past task and one of this, weighed by how well they rank this task's trials."""

    def __init__(self, seed: int, candidates: Sequence[Params] | None = None, past: Tasks = ()) -> None:
        super().__init__(seed, candidates)
        self.past = past
        self._learned: tuple[Space, list[SingleTaskGP]] | None = None

    def model(self, space: Space, X: Array, y: Array) -> Model:
        before = self._past_models(space)
        own = single_task(X, y)
        rng = np.random.default_rng(self.seed + len(y))
        z = standardised(-y)
        losses = [rgpe.ranking_losses(_draws(model, X), z) for model in before]
        own_losses = rgpe.own_ranking_losses(*_left_out(own, z), z, rng, RANKING_DRAWS)
        return Ensemble([*before, own], rgpe.weights(np.array([*losses, own_losses]), rng))

    def _past_models(self, space: Space) -> list[SingleTaskGP]:
        """Learned once for a space, which grows when a trial has a parameter that none had before."""
        if self._learned is None or self._learned[0] != space:
            self._learned = space, [single_task(encoded.encode(space, [trial.params for trial in trials]),
                                                encoded.values(trials)) for trials in self.past]  # fmt: skip
        return self._learned[1]


class Ensemble(Model):
    """A sum of independent processes, each in units of its own task."""

    num_outputs = 1

    def __init__(self, models: Sequence[SingleTaskGP], weights: Array) -> None:
        super().__init__()
        self.models = torch.nn.ModuleList(models)
        self.weights = weights

    def posterior(self, X: Tensor, **options: Any) -> GPyTorchPosterior:
        """Point by point, which is all that log EI asks for."""
        used = [(w, in_own_units(model, X)) for w, model in zip(self.weights, self.models, strict=True) if w > 0]
        mean = sum(w * posterior.mean for w, posterior in used)
        variance = sum(w**2 * posterior.variance for w, posterior in used)
        return GPyTorchPosterior(MultivariateNormal(mean, DiagLinearOperator(variance)))


def single_task(X: Array, y: Array) -> SingleTaskGP:
    """BoTorch's standard model of -y."""
    model = SingleTaskGP(double(X), double(-y)[:, None], outcome_transform=Standardize(1))
    return fitted(model)


def fitted(model: Any) -> Any:
    """A model with its likeliest hyper-parameters, ready to predict."""
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": {"maxiter": FIT_STEPS}})
    return model.eval()


def in_own_units(model: SingleTaskGP, X: Tensor) -> MultivariateNormal:
    """The posterior of standardised values."""
    return model(model.transform_inputs(X))


def double(x: Array) -> Tensor:
    return torch.tensor(np.asarray(x), dtype=torch.float64)


def standardised(y: Array) -> Array:
    return (y - y.mean()) / (y.std(ddof=1) or 1.0)


def _draws(model: SingleTaskGP, X: Array) -> Array:
    """(S, N) joint draws of a past task's function at this task's points."""
    with torch.no_grad():
        return in_own_units(model, double(X)).sample(torch.Size([RANKING_DRAWS])).numpy()


def _left_out(model: SingleTaskGP, z: Array) -> tuple[Array, Array]:
    """Mean and deviation that a model expects of each of its values given the others."""
    with torch.no_grad():
        prior = model.forward(model.train_inputs[0])
        K = model.likelihood(prior).covariance_matrix.numpy()
        residual, std = rgpe.left_out(K, z - prior.mean.numpy())
        return prior.mean.numpy() + residual, std


def _best_of_box(acquisition: Any, space: Space) -> Array:
    point, _ = optimize_acqf(
        acquisition, double(encoded.bounds(space)), q=1, num_restarts=STARTS, raw_samples=RAW_POINTS
    )
    return point[0].numpy()


def _best_of(acquisition: Any, X: Array) -> int:
    with torch.no_grad():
        return int(acquisition(double(X)[:, None]).argmax())
