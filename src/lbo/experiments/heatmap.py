"""Which networks of the paper's model go with which functions: figure (c) of the Branin experiment.

g_m(x) = h_m^T phi_m(x), h the head's posterior mean under the gates' probabilities; its sample correlation with a
task's values is multiplied by the gate z_{t,m}.
"""

from __future__ import annotations

import numpy as np
import optuna
from numpy.typing import NDArray
from scipy.special import expit

from lbo.consolidate import fold
from lbo.experiments.runner import Unit, recorded_trials
from lbo.maths import head, networks
from lbo.memory import Memory
from lbo.models.paper import Paper, PaperPosterior
from lbo.seeds import Seed
from lbo.trials import as_task, space_of

Array = NDArray[np.float64]
MINIMIZE = optuna.study.StudyDirection.MINIMIZE


def correlations(unit: Unit) -> Array:
    """(tasks, networks) correlation times gate, of a finished unit of the paper's model."""
    model = unit.method.model
    assert isinstance(model, Paper)
    memory: Memory | None = None
    rows = []
    for task, trials in enumerate(recorded_trials(unit)):
        data = as_task(space_of(trials, memory.space if memory else None), trials, MINIMIZE)
        posterior = model.fit(data, memory, Seed(0) / unit.sequence.name / f"{task}" / "fit", None)
        memory = fold(memory, unit.sequence.name, f"{task}", trials, MINIMIZE, model)
        assert memory is not None
        rows.append(_correlation(_outputs(posterior), posterior.z) * memory.sharing[-1])
    return np.array(rows)


def _outputs(posterior: PaperPosterior) -> Array:
    """(N, M) each network's function at the trials."""
    state = posterior.state
    phi = networks.features(state.W, posterior.X, posterior.past.sizes)  # (M, N, D*)
    Phi = (expit(state.G)[:, None, None] * phi).transpose(1, 0, 2).reshape(len(posterior.X), -1)
    h = head.posterior(Phi, posterior.z, float(np.exp(state.log_lam)), float(np.exp(state.log_beta))).m
    return np.asarray(np.einsum("mnd,md->nm", phi, h.reshape(len(phi), -1)))


def _correlation(g: Array, z: Array) -> Array:
    """(M,) sample correlation of each column with z."""
    centred, about = g - g.mean(axis=0), z - z.mean()
    norm = np.linalg.norm(centred, axis=0) * np.linalg.norm(about)
    return np.asarray(centred.T @ about / np.where(norm > 0, norm, 1.0))
