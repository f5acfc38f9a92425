"""SMAC3 behind Optuna's interface: its facade for hyper-parameters (random forest, log EI), asked and told.

Settings are the facade's own but for four: no initial design, since everybody starts from the same random trials; one
evaluation of a configuration; the forest is grown anew for every ask, not for every eighth, and on one thread.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from ConfigSpace import Categorical, Configuration, ConfigurationSpace, Float, InCondition, Integer
from ConfigSpace.hyperparameters import Hyperparameter
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial
from smac import HyperparameterOptimizationFacade as Facade
from smac import Scenario
from smac.runhistory import TrialInfo, TrialValue

from encoded import EncodedSampler
from lbo.axis import Axis
from lbo.space import Space

MANY = 1_000_000  # trials: never the reason to stop
INSTANCE_SEED = 0  # of a target function without randomness
LEAVES = 2**20  # of a tree, SMAC3's own limit


class SmacSampler(EncodedSampler):
    """SMAC3; begins anew when trials show a space that it did not know.

    Args:
        seed: of whatever is random.
        leaves: that a tree has at the most. Trees have no more than there are trials, but room for all that are allowed
            is made for every tree, which takes most of an ask's time.
    """

    def __init__(self, seed: int, leaves: int = LEAVES) -> None:
        super().__init__(seed)
        self._leaves = leaves
        self._space: Space | None = None
        self._told: set[int] = set()

    def suggest(self, space: Space, done: Sequence[FrozenTrial]) -> Mapping[str, Any]:
        if space != self._space:
            self._space, self._told = space, set()
            self._configurations = configuration_space(space, self.seed)
            self._facade = self._new_facade()
        for trial in done:
            if trial.number not in self._told:
                self._tell(trial)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # means of the leaves that a tree did not fill
            asked = self._facade.ask()
        return {name: _plain(value) for name, value in dict(asked.config).items()}

    def _tell(self, trial: FrozenTrial) -> None:
        configuration = Configuration(self._configurations, values=dict(trial.params))
        self._facade.tell(TrialInfo(configuration, seed=INSTANCE_SEED), TrialValue(cost=trial.value), save=False)
        self._told.add(trial.number)

    def _new_facade(self) -> Facade:
        logging.getLogger("smac").setLevel(logging.ERROR)  # it warns of what is meant: no initial design
        folder = tempfile.mkdtemp(prefix="smac-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        scenario = Scenario(
            self._configurations, deterministic=True, n_trials=MANY, seed=self.seed, output_directory=folder
        )
        forest = Facade.get_model(scenario)
        forest._rf_opts |= {"n_jobs": 1, "max_leaf_nodes": self._leaves}  # the facade has no settings for them
        return Facade(
            scenario, _never_called, model=forest, overwrite=True, logging_level=False,
            initial_design=Facade.get_initial_design(scenario, n_configs=0),
            intensifier=Facade.get_intensifier(scenario, max_config_calls=1),
            config_selector=Facade.get_config_selector(scenario, retrain_after=1),
        )  # fmt: skip


def configuration_space(space: Space, seed: int) -> ConfigurationSpace:
    """A space as SMAC3 has it, with the conditions on choices."""
    configurations = ConfigurationSpace(seed=seed)
    parameters = {axis.name: _hyperparameter(axis) for axis in space.axes}
    configurations.add(parameters.values())
    rules = [(name, rule) for name, rule in space.conditions if rule.choices]
    configurations.add([InCondition(parameters[name], parameters[rule.parent], rule.choices) for name, rule in rules])
    return configurations


def _hyperparameter(axis: Axis) -> Hyperparameter:
    if axis.choices:
        return Categorical(axis.name, axis.choices)
    kind = Float if isinstance(axis.latest, FloatDistribution) else Integer
    return kind(axis.name, (axis.latest.low, axis.latest.high), log=axis.latest.log)


def _plain(value: Any) -> Any:
    """A number or a choice without NumPy's wrapping."""
    return value.item() if hasattr(value, "item") else value


def _never_called(config: Any, seed: int = 0) -> float:
    raise AssertionError("trials are made by Optuna")
