"""Ready search spaces: a pipeline and, for each algorithm, the hyper-parameters to search.

`paper` is the space of the paper's survival experiments, to compare with it; `rich` is for everyday tables.
Both return (estimator, param_distributions) in scikit-learn's idiom for several algorithms: one dict each,
whose "model" is a list of that one estimator. `LifelongSearchCV` takes the pair as it is; `flatten` serves
plain Optuna.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from lbo.axis import Axis
from lbo.errors import MissingExtra, SpaceError
from lbo.searchable import Searchable, distinct, is_list, label, searchable

Params = dict[str, Any]
ParamDistributions = Mapping[str, Any]

SOLVERS = ("newton-cg", "lbfgs", "liblinear", "sag", "saga")


def paper() -> tuple[Any, list[Params]]:
    """XGBoost, logistic regression and two naive Bayes: nine dimensions with the choice among them.

    Ranges are the paper's, and so is the linear scale (it gives type, least and largest value, nothing more),
    although learning rate, C, tol and alpha would be searched better on a log scale. The paper's learning
    rate of logistic regression, which scikit-learn does not have, is `tol`.
    """
    # Multinomial naive Bayes wants features that are not negative, in the validation folds too: hence
    # min-max, clipped.
    pipeline = _sklearn("pipeline").Pipeline(
        [("scaler", _sklearn("preprocessing").MinMaxScaler(clip=True)), ("model", _logistic_regression())]
    )
    bayes = _sklearn("naive_bayes")
    return pipeline, [
        {
            "model": [_xgboost()],
            "model__n_estimators": IntDistribution(10, 500),
            "model__max_depth": IntDistribution(1, 10),
            "model__learning_rate": FloatDistribution(0.005, 0.5),
        },
        {
            "model": [_logistic_regression()],
            "model__C": FloatDistribution(0.001, 10),
            "model__solver": CategoricalDistribution(SOLVERS),
            "model__tol": FloatDistribution(0.005, 0.5),
        },
        {
            # Binarised at the middle of the scaled range: at scikit-learn's 0, every number but the least
            # becomes 1.
            "model": [bayes.BernoulliNB(binarize=0.5)],
            "model__alpha": FloatDistribution(0.005, 5),
        },
        {
            "model": [bayes.MultinomialNB()],
            "model__alpha": FloatDistribution(0.005, 5),
        },
    ]


def rich() -> tuple[Any, list[Params]]:
    """Boosted and bagged trees and logistic regression on sensible scales; XGBoost too if it is installed."""
    pipeline = _sklearn("pipeline").Pipeline(
        [("scaler", _sklearn("preprocessing").StandardScaler()), ("model", _logistic_regression())]
    )
    ensemble = _sklearn("ensemble")
    forest = {
        "model__n_estimators": IntDistribution(50, 500, log=True),
        "model__max_features": FloatDistribution(0.1, 1.0),
        "model__min_samples_leaf": IntDistribution(1, 50, log=True),
    }
    algorithms = [
        {
            "model": [ensemble.HistGradientBoostingClassifier(random_state=0)],
            "model__learning_rate": FloatDistribution(0.01, 0.5, log=True),
            "model__max_iter": IntDistribution(30, 500, log=True),
            "model__max_leaf_nodes": IntDistribution(3, 127, log=True),
            "model__min_samples_leaf": IntDistribution(2, 100, log=True),
            "model__l2_regularization": FloatDistribution(1e-6, 10, log=True),
        },
        {"model": [ensemble.RandomForestClassifier(random_state=0)], **forest},
        {"model": [ensemble.ExtraTreesClassifier(random_state=0)], **forest},
        {"model": [_logistic_regression()], "model__C": FloatDistribution(1e-4, 100, log=True)},
    ]
    try:
        booster = _xgboost()
    except MissingExtra:
        return pipeline, algorithms
    return pipeline, [
        *algorithms,
        {
            "model": [booster],
            "model__n_estimators": IntDistribution(30, 500, log=True),
            "model__max_depth": IntDistribution(1, 10),
            "model__learning_rate": FloatDistribution(0.01, 0.5, log=True),
            "model__subsample": FloatDistribution(0.5, 1.0),
            "model__reg_lambda": FloatDistribution(1e-3, 100, log=True),
        },
    ]


@dataclass(frozen=True, eq=False)
class Branch:
    """One algorithm: the parameters that are searched, by Optuna name, and those that are not."""

    searched: dict[str, Searchable]
    keys: dict[str, str]  # Optuna name -> the pipeline's name
    fixed: Params  # the pipeline's name -> the one value that was given

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        return {name: searched.distribution for name, searched in self.searched.items()}


@dataclass(frozen=True, eq=False)
class FlatSpace:
    """Several algorithms under one set of Optuna names; called with a trial, it gives the pipeline's params.

    The choice is named after what the algorithms differ in, the step ("model") or parameter ("kernel"), and
    its choices after the estimators' classes or the parameter's values. A parameter is
    "<ClassName>__<parameter>", so that two algorithms' `model__alpha` stay two parameters.
    """

    step: str  # the choice; "" where there is only one algorithm, which needs no name
    branches: dict[str, Branch]

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """Every Optuna parameter, the choice first."""
        choice: dict[str, BaseDistribution] = {}
        if self.step:
            choice[self.step] = CategoricalDistribution(tuple(self.branches))
        return choice | {name: d for branch in self.branches.values() for name, d in branch.distributions.items()}

    @property
    def size(self) -> float:
        """How many configurations there are; infinity if a parameter is continuous."""
        return sum(
            math.prod(Axis(name, d, d).cells or math.inf for name, d in branch.distributions.items())
            for branch in self.branches.values()
        )

    def __call__(self, trial: optuna.trial.BaseTrial) -> Params:
        """What `set_params` of a clone of the pipeline takes."""
        return self.to_pipeline(self.suggest(trial))

    def suggest(self, trial: optuna.trial.BaseTrial) -> Params:
        """The trial's configuration in Optuna's names: the choice, and the parameters of what was chosen."""
        chosen = {}
        if self.step:
            chosen[self.step] = trial.suggest_categorical(self.step, tuple(self.branches))
        of_chosen = self._branch(chosen).distributions.items()
        return chosen | {name: suggest(trial, name, d) for name, d in of_chosen}

    def to_pipeline(self, configuration: Mapping[str, Any]) -> Params:
        """Optuna's names -> the pipeline's, with fresh estimators, since `set_params` writes into them."""
        branch = self._branch(configuration)
        params = {branch.keys[name]: s.decode(configuration[name]) for name, s in branch.searched.items()}
        clone = _sklearn("base").clone
        return {key: clone(value, safe=False) for key, value in (branch.fixed | params).items()}

    def _branch(self, configuration: Mapping[str, Any]) -> Branch:
        return self.branches[configuration[self.step] if self.step else ""]


def flatten(param_distributions: ParamDistributions | Sequence[ParamDistributions]) -> FlatSpace:
    """One Optuna space, for define-by-run objectives, out of scikit-learn's dict or list of dicts.

    A list of one value is a setting, not a parameter, and Optuna never hears of it. What tells the dicts of a
    list apart is the setting that each of them has, estimators before others; dicts without such a setting
    are "1", "2", ... of a choice called "branch".
    """
    given = [param_distributions] if isinstance(param_distributions, Mapping) else list(param_distributions)
    if not given or not all(isinstance(space, Mapping) for space in given):
        raise SpaceError(
            f"A search space is a dict of parameters or a list of such dicts, one per algorithm, but got "
            f"{param_distributions!r}."
        )
    step = _step(given)
    if step:
        names = distinct([label(space[step][0]) for space in given])
    elif len(given) > 1:
        step, names = "branch", [str(i + 1) for i in range(len(given))]
    else:
        names = [""]
    return FlatSpace(step, {name: _branch(name, step, space) for name, space in zip(names, given, strict=True)})


def suggest(trial: optuna.trial.BaseTrial, name: str, distribution: BaseDistribution) -> Any:
    """Ask a trial for a parameter by its distribution."""
    match distribution:
        case CategoricalDistribution():
            return trial.suggest_categorical(name, distribution.choices)
        case IntDistribution():
            return trial.suggest_int(
                name, distribution.low, distribution.high, step=distribution.step, log=distribution.log
            )
        case FloatDistribution():
            return trial.suggest_float(
                name, distribution.low, distribution.high, step=distribution.step, log=distribution.log
            )
    raise SpaceError(f"Parameter {name!r} needs an Optuna distribution, but has {distribution!r}.")


def _step(given: Sequence[ParamDistributions]) -> str:
    """The setting that tells algorithms apart; "" if there is none."""
    shared = [key for key in given[0] if all(_is_setting(space.get(key)) for space in given)]
    with_estimators = [key for key in shared if all(hasattr(space[key][0], "get_params") for space in given)]
    differing = [key for key in shared if len({label(space[key][0]) for space in given}) == len(given) > 1]
    return next(iter(with_estimators or differing), "")


def _is_setting(values: Any) -> bool:
    return is_list(values) and len(values) == 1


def _branch(name: str, step: str, space: ParamDistributions) -> Branch:
    prefix = f"{name}__" if name else ""
    searched, keys = {}, {}
    for key, values in space.items():
        if not _is_setting(values):
            parameter = searchable(key, values)
            flat = f"{prefix}{key.removeprefix(f'{step}__')}{parameter.suffix}"
            searched[flat], keys[flat] = parameter, key
    return Branch(searched, keys, {key: values[0] for key, values in space.items() if _is_setting(values)})


def _sklearn(module: str) -> Any:
    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError as error:
        raise MissingExtra("scikit-learn", "sklearn,xgboost") from error


def _logistic_regression() -> Any:
    # The largest tolerance to stop at is the paper's, so the number of steps must never be what stops it.
    return _sklearn("linear_model").LogisticRegression(max_iter=1000, random_state=0)


def _xgboost() -> Any:
    try:
        from xgboost import XGBClassifier
    except ImportError as error:
        raise MissingExtra("xgboost", "sklearn,xgboost") from error
    # One thread: trials and folds are what runs in parallel, and results do not depend on the number of
    # cores.
    return XGBClassifier(n_jobs=1, random_state=0)
