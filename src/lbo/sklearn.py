"""LifelongSearchCV: scikit-learn's search interface to a stream. Cross-validation is scikit-learn's, storage Optuna's.

One fit is one task: configurations are asked of the task's study, evaluated by `BaseSearchCV`, and told back with
the scores of their folds. So `cv_results_` is made from the storage, whoever evaluated what and when.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from optuna.distributions import CategoricalDistribution
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from lbo import trials as trials_of
from lbo.errors import MissingExtra, StreamError
from lbo.models.base import Model
from lbo.spaces import FlatSpace, ParamDistributions, Params, flatten
from lbo.stream import DEFAULT_STORAGE, Stream

try:
    from joblib import effective_n_jobs
    from sklearn.base import is_classifier
    from sklearn.exceptions import FitFailedWarning
    from sklearn.model_selection import check_cv
    from sklearn.model_selection._search import BaseSearchCV
    from sklearn.utils._param_validation import Interval
    from sklearn.utils.metadata_routing import get_routing_for_object
    from sklearn.utils.validation import _num_samples
except ImportError as error:
    raise MissingExtra("scikit-learn", "sklearn") from error

Fold = dict[str, Any]  # what scikit-learn reports of one fit: times and scores
Evaluate = Callable[[list[Params]], dict[str, list[Fold]]]

FOLDS = "lbo:folds"  # user attribute of a trial: times and scores of its folds
SEARCH = "lbo:search"  # user attribute of a study: what its scores depend on
_ALL_FAILED = "fits failed.\nIt is very likely that your model is misconfigured"  # scikit-learn's words


class _SameFolds:
    """A splitter that splits once, so that every configuration gets the same folds, also of one that shuffles."""

    def __init__(self, cv: Any, rows: int) -> None:
        self.rows = rows
        self.n_splits = 0
        self.splits: list[Any] | None = None
        self._cv = cv

    def get_metadata_routing(self) -> Any:
        return get_routing_for_object(self._cv)

    def get_n_splits(self, *args: Any, **params: Any) -> int:  # which `fit` calls before it searches
        self.n_splits = int(self._cv.get_n_splits(*args, **params))
        return self.n_splits

    def split(self, X: Any, y: Any = None, **params: Any) -> list[Any]:
        if self.splits is None:
            self.splits = list(self._cv.split(X, y, **params))
        return self.splits


class LifelongSearchCV(BaseSearchCV):
    """Hyper-parameter search that remembers the searches before it.

    As scikit-learn's `RandomizedSearchCV`, with `best_params_`, `cv_results_`, `predict` and the rest, but every fit is
    a task of a stream, kept in a storage, and profits from the tasks before it, in this process or an earlier one.

    Args:
        estimator: what is tuned.
        param_distributions: a dict of parameters, or a list of dicts, one per algorithm, such as
            `{"model": [XGBClassifier()], "model__max_depth": ...}`. Values are Optuna distributions, distributions of
            scipy.stats or lists; a list's order means nothing, so give numbers as a distribution.
        stream: the name that related searches share.
        task: the name of this one, "2026-03" say. Fitting a task again continues it until it has `n_iter` trials; one
            that has them is only refitted. None for a new task with the next number as its name: one more than there
            are tasks, or the first after that which is free.
        storage: an Optuna storage or its URL. `clone` copies a storage that is in memory.
        n_iter: finished trials of the task, at most; fewer if the space has fewer configurations. Searchers that run at
            once on one task may each add one.
        scoring: as in scikit-learn. Of several metrics the search maximises that of `refit`, or else the first.
        n_jobs: fits at once, through joblib. More than there are folds means several configurations at a time.
        refit: as in scikit-learn, and so are cv, pre_dispatch, error_score and return_train_score. A configuration
            that cannot be fitted is a failed trial, whatever `error_score`.
        verbose: 1 shows a progress bar, more also scikit-learn's lines.
        random_state: seeds the search, not the estimator.
        model: one of `lbo.models`; None for the default.
        callbacks: called after every trial as Optuna's are, with the study and the trial; they may `study.stop()`.

    Attributes:
        task_: the name of the task.
        study_: its Optuna study.
    """

    cv: Any
    verbose: int

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 (scikit-learn's form)
        **BaseSearchCV._parameter_constraints,
        "param_distributions": [dict, list, tuple],
        "stream": [str],
        "task": [str, None],
        "storage": [str, BaseStorage],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "model": "no_validation",
        "callbacks": [list, tuple, None],
    }

    def __init__(
        self,
        estimator: Any,
        param_distributions: ParamDistributions | Sequence[ParamDistributions],
        *,
        stream: str = "default",
        task: str | None = None,
        storage: str | BaseStorage = DEFAULT_STORAGE,
        n_iter: int = 50,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        random_state: int | np.random.RandomState | None = None,
        error_score: Any = np.nan,
        return_train_score: bool = False,
        model: Model | None = None,
        callbacks: Sequence[Callable[[Study, FrozenTrial], None]] | None = None,
    ) -> None:
        super().__init__(
            estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.param_distributions = param_distributions
        self.stream = stream
        self.task = task
        self.storage = storage
        self.n_iter = n_iter
        self.random_state = random_state
        self.model = model
        self.callbacks = callbacks

    @property
    def study_(self) -> Study:
        return Stream(self.stream, self.storage).study(self.task_, direction="maximize", model=self.model)

    def fit(self, X: Any, y: Any = None, **params: Any) -> LifelongSearchCV:
        """Search, and refit the best configuration: as in scikit-learn."""
        cv = self.cv
        folds = _SameFolds(check_cv(cv, y, classifier=is_classifier(self.estimator)), int(_num_samples(X)))
        self.cv = folds
        try:
            super().fit(X, y, **params)
        finally:
            self.cv = cv
            folds.splits = None  # as long as the data, and scikit-learn 1.9 keeps the splitter
        return self

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if not isinstance(state.get("cv"), _SameFolds):
            return state
        # A fit is under way, and scikit-learn sends the search along with every fold: without what workers have no use
        # for and only this process may be able to hold or to reach.
        return {name: value for name, value in state.items() if name not in ("callbacks", "cv", "storage")}

    # scikit-learn's hooks

    def _run_search(self, evaluate_candidates: Evaluate) -> None:
        space = flatten(self.param_distributions)
        study = self._begin(space)
        results = self._search(study, space, evaluate_candidates)
        example = results["folds"][-self.cv.n_splits :]
        rows = self._rows(study, space, example) or [(_best_params(study, space), example)]
        params, folds = zip(*rows, strict=True)
        results.clear()  # in place, since `fit` takes this very dict for cv_results_
        results.update(super()._format_results(list(params), self.cv.n_splits, [fold for row in folds for fold in row]))

    def _format_results(self, candidate_params: Any, n_splits: int, out: list[Fold], more_results: Any = None) -> Any:
        """What `evaluate_candidates` returns: scores as they came. `_run_search` puts them in form, once."""
        return {"folds": out}

    # Searching

    def _begin(self, space: FlatSpace) -> Study:
        stream = Stream(self.stream, self.storage)
        self.task_ = _next_task(stream) if self.task is None else self.task
        study = stream.study(self.task_, direction="maximize", seed=_seed(self.random_state), model=self.model)
        self._check_same_search(study, space)
        return study

    def _search(self, study: Study, space: FlatSpace, evaluate: Evaluate) -> dict[str, Any]:
        """Run what is left of the task; return what the last evaluation returned that did not fail altogether."""
        study._thread_local.in_optimize_loop = True  # so that callbacks may call study.stop()
        budget = int(min(self.n_iter, space.size))
        results = None
        with self._progress(study, budget) as show:
            while (left := budget - len(_finished(study))) > 0 and not study._stop_flag:
                asked = [_ask(study, space) for _ in range(min(left, self._at_once()))]
                evaluated = self._evaluate(study, asked, evaluate)
                results = evaluated or results
                for (trial, _), folds in zip(asked, self._folds_of(evaluated, len(asked)), strict=True):
                    self._tell(study, trial, folds)
                show()
        # Where all trials were there already, or all failed, `fit` needs one evaluation to go on from, or to raise.
        return results or evaluate([_best_params(study, space)])

    def _at_once(self) -> int:
        """As many configurations as keep every job busy: the fewer, the more is known when the next is chosen."""
        jobs, folds = int(effective_n_jobs(self.n_jobs)), max(1, int(self.cv.n_splits))
        return math.ceil(jobs / folds)

    def _evaluate(
        self, study: Study, asked: list[tuple[Trial, Params]], evaluate: Evaluate
    ) -> dict[str, list[Fold]] | None:
        """None if no fit succeeded, which scikit-learn would stop at; with `error_score="raise"` so do we."""
        try:
            return evaluate([params for _, params in asked])
        except Exception as error:
            if isinstance(error, ValueError) and _ALL_FAILED in str(error):
                warnings.warn(str(error), FitFailedWarning, stacklevel=2)
                return None
            for trial, _ in asked:
                study.tell(trial, state=TrialState.FAIL)
            raise

    def _folds_of(self, evaluated: dict[str, list[Fold]] | None, n: int) -> list[list[Fold]]:
        """The folds of each of the last n configurations; none if all of them failed."""
        if evaluated is None:
            return [[]] * n
        last = evaluated["folds"][-n * self.cv.n_splits :]
        return [last[i * self.cv.n_splits : (i + 1) * self.cv.n_splits] for i in range(n)]

    def _tell(self, study: Study, trial: Trial, folds: list[Fold]) -> None:
        value = math.nan
        if folds:
            trial.set_user_attr(FOLDS, [_storable(fold) for fold in folds])
            value = float(np.mean([self._steering_score(fold) for fold in folds]))
        if math.isfinite(value) and not any(fold["fit_error"] for fold in folds):
            told = study.tell(trial, value)
        else:
            told = study.tell(trial, state=TrialState.FAIL)
        for callback in self.callbacks or ():
            callback(study, told)

    def _steering_score(self, fold: Fold) -> float:
        scores = fold["test_scores"]
        if not isinstance(scores, Mapping):
            return float(scores)
        return float(scores[self.refit] if self.refit in scores else next(iter(scores.values())))

    @contextmanager
    def _progress(self, study: Study, budget: int) -> Iterator[Callable[[], None]]:
        """With `verbose` a bar, in place of the line that scikit-learn prints for every evaluation."""
        if not self.verbose:
            yield lambda: None
            return
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        verbose = self.verbose
        self.verbose = 0
        try:
            with Progress(*columns, TextColumn("best {task.fields[best]}"), console=Console(stderr=True)) as bar:
                name = escape(f"{self.stream}/{self.task_}")
                line = bar.add_task(name, total=budget, completed=len(_finished(study)), best=_best_text(study))
                yield lambda: bar.update(line, completed=len(_finished(study)), best=_best_text(study))
        finally:
            self.verbose = verbose

    # Continuing

    def _check_same_search(self, study: Study, space: FlatSpace) -> None:
        """Scores of one task can be compared; a task that was begun otherwise is somebody else's or out of date."""
        now = {"rows": self.cv.rows, "folds": self.cv.n_splits, "scoring": _scoring_text(self.scoring)}
        before = study.user_attrs.get(SEARCH)
        if before is None:
            study.set_user_attr(SEARCH, now)
        elif before != now:
            raise StreamError(
                f"A task is continued on the data, folds and scoring that it was begun with, but task {self.task_!r} "
                f"of stream {self.stream!r} had {before} and now has {now}. Use another task name, or start it again "
                f"after lbo.Stream({self.stream!r}, storage).forget({self.task_!r})."
            )
        shown = trials_of.latest_distributions(study.get_trials(deepcopy=False))
        for name, distribution in space.distributions.items():
            if isinstance(distribution, CategoricalDistribution) and shown.get(name, distribution) != distribution:
                raise StreamError(
                    f"A task keeps its choices, but {name!r} of task {self.task_!r} had {shown[name]} and now has "
                    f"{distribution}. Use another task name: a stream's tasks may differ in their choices."
                )

    def _rows(self, study: Study, space: FlatSpace, example: list[Fold]) -> list[tuple[Params, list[Fold]]]:
        """Parameters and folds of every trial that this search, or an equal one before it, has evaluated."""
        failed = [self._failed_like(fold) for fold in example]
        rows = []
        for trial in _finished(study):
            folds = trial.user_attrs.get(FOLDS)
            if folds is None and trial.state == TrialState.FAIL:
                folds = failed
            params = _decoded(space, trial)
            if folds is not None and params is not None:
                rows.append((params, [{**blank, **fold} for blank, fold in zip(failed, folds, strict=True)]))
        return rows

    def _failed_like(self, fold: Fold) -> Fold:
        """The fold of a fit that failed, with the metrics of one that did not."""
        kinds = ("test_scores", "train_scores") if self.return_train_score else ("test_scores",)
        return {"fit_time": 0.0, "score_time": 0.0} | {kind: _filled(fold[kind], self.error_score) for kind in kinds}


def _next_task(stream: Stream) -> str:
    names = stream.tasks
    numbers = (str(n) for n in range(len(names) + 1, 2 * len(names) + 2))
    return next(number for number in numbers if number not in names)


def _seed(random_state: int | np.random.RandomState | None) -> int | None:
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return None if random_state is None else int(random_state)


def _ask(study: Study, space: FlatSpace) -> tuple[Trial, Params]:
    trial = study.ask()
    return trial, space(trial)


def _finished(study: Study) -> list[FrozenTrial]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]


def _best_params(study: Study, space: FlatSpace) -> Params:
    """Of the best trial that this space can express, or of any if all failed."""
    decoded = [(trial, _decoded(space, trial)) for trial in _finished(study)]
    known = [(trial, params) for trial, params in decoded if params is not None]
    if not known:
        raise StreamError(
            f"Study {study.study_name!r} has all its trials, but none of them in this search space. Use another task "
            f"name, or a larger n_iter."
        )
    return max(known, key=lambda pair: -math.inf if pair[0].value is None else pair[0].value)[1]


def _decoded(space: FlatSpace, trial: FrozenTrial) -> Params | None:
    """What the estimator got; None for a trial of another space."""
    try:
        return space.to_pipeline(trial.params)
    except KeyError:
        return None


def _best_text(study: Study) -> str:
    values = [trial.value for trial in _finished(study) if trial.value is not None]
    return f"{max(values):.4f}" if values else "-"


def _scoring_text(scoring: Any) -> str:
    """A scoring's names; a scorer's repr may hold an address, which changes from process to process."""
    if callable(scoring):
        return str(getattr(scoring, "__qualname__", type(scoring).__name__))
    return scoring if isinstance(scoring, str) else repr(None if scoring is None else list(scoring))


def _storable(fold: Fold) -> Fold:
    """The numbers of a fold. Not the text of an error: it may quote the user's data."""
    times = {key: float(fold[key]) for key in ("fit_time", "score_time")}
    scores = {key: _floats(fold[key]) for key in ("test_scores", "train_scores") if key in fold}
    return times | scores


def _floats(scores: Any) -> Any:
    return {name: float(score) for name, score in scores.items()} if isinstance(scores, Mapping) else float(scores)


def _filled(scores: Any, value: float) -> Any:
    return dict.fromkeys(scores, value) if isinstance(scores, Mapping) else value
