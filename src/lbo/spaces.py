"""Ready search spaces: a pipeline and, for each algorithm, the hyper-parameters to search.

`paper` is the space of the paper's survival experiments, to compare with it; `rich` is for everyday tables.
Both return (estimator, param_distributions) in scikit-learn's idiom for several algorithms: one dict each,
whose "model" is a list of that one estimator. `LifelongSearchCV` takes the pair as it is; `flatten` serves
plain Optuna.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from lbo.errors import MissingExtra, SpaceError

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
    """One algorithm: the unfitted estimator and its parameters, by Optuna name."""

    estimator: Any
    distributions: dict[str, BaseDistribution]
    keys: dict[str, str]  # Optuna name -> the pipeline's name


@dataclass(frozen=True, eq=False)
class FlatSpace:
    """Several algorithms under one set of Optuna names; called with a trial, it gives the pipeline's params.

    The choice is named after the step ("model") and its choices after the estimators' classes; a parameter is
    "<ClassName>__<parameter>", so that two algorithms' `model__alpha` stay two parameters.
    """

    step: str
    branches: dict[str, Branch]

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """Every Optuna parameter, the choice first."""
        choice: dict[str, BaseDistribution] = {self.step: CategoricalDistribution(tuple(self.branches))}
        return choice | {
            name: d for branch in self.branches.values() for name, d in branch.distributions.items()
        }

    def __call__(self, trial: optuna.trial.BaseTrial) -> Params:
        """What `set_params` of a clone of the pipeline takes."""
        return self.to_pipeline(self.suggest(trial))

    def suggest(self, trial: optuna.trial.BaseTrial) -> Params:
        """The trial's configuration in Optuna's names: the choice, and the parameters of what was chosen."""
        chosen = trial.suggest_categorical(self.step, tuple(self.branches))
        of_chosen = self.branches[chosen].distributions.items()
        return {self.step: chosen} | {name: suggest(trial, name, d) for name, d in of_chosen}

    def to_pipeline(self, configuration: Mapping[str, Any]) -> Params:
        """Optuna's names -> the pipeline's, and a fresh estimator, since `set_params` writes into it."""
        branch = self.branches[configuration[self.step]]
        params = {key: configuration[name] for name, key in branch.keys.items()}
        return {self.step: _sklearn("base").clone(branch.estimator), **params}


def flatten(param_distributions: Sequence[ParamDistributions]) -> FlatSpace:
    """One Optuna space, for define-by-run objectives, out of scikit-learn's list of dicts."""
    chosen = [_chosen(i, space) for i, space in enumerate(param_distributions)]
    steps = list(dict.fromkeys(step for step, _ in chosen))
    if len(steps) != 1:
        raise SpaceError(
            f"All algorithms go into the same step of the pipeline, but these go into {steps or 'none'}. "
            "Give every dict the same key, such as 'model': [estimator]."
        )
    names = _distinct([type(estimator).__name__ for _, estimator in chosen])
    branches = {
        name: _branch(name, steps[0], estimator, space)
        for name, (_, estimator), space in zip(names, chosen, param_distributions, strict=True)
    }
    return FlatSpace(steps[0], branches)


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


def _chosen(i: int, space: ParamDistributions) -> tuple[str, Any]:
    """The step that a dict fills, and the estimator it fills it with."""
    found = [(key, value[0]) for key, value in space.items() if _is_one_estimator(value)]
    if len(found) != 1:
        raise SpaceError(
            f"Each dict names one algorithm, but dict {i} with keys {list(space)} names {len(found)}. Give "
            "it one entry such as 'model': [LogisticRegression()]."
        )
    return found[0]


def _is_one_estimator(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 1 and hasattr(value[0], "get_params")


def _branch(name: str, step: str, estimator: Any, space: ParamDistributions) -> Branch:
    keys = {f"{name}__{key.removeprefix(f'{step}__')}": key for key in space if key != step}
    return Branch(estimator, {flat: _distribution(key, space[key]) for flat, key in keys.items()}, keys)


def _distribution(key: str, value: Any) -> BaseDistribution:
    if isinstance(value, BaseDistribution):
        return value
    plain = (bool, int, float, str, type(None))
    if isinstance(value, list | tuple) and value and all(isinstance(v, plain) for v in value):
        return CategoricalDistribution(value)
    raise SpaceError(
        f"A parameter is searched over an Optuna distribution or a list of plain values, but {key!r} has "
        f"{value!r}. Use for example FloatDistribution(1e-3, 10, log=True) or ['l1', 'l2']."
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Names with a number added to repeats: the same class may come twice, with two ranges."""
    return [name if names[:i].count(name) == 0 else f"{name}{names[:i].count(name) + 1}"
            for i, name in enumerate(names)]  # fmt: skip


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
