"""`lbo tune`: a stream of windows tuned one after the other with LifelongSearchCV, and what came of it as a table.

Every window begins with the configuration that was best in the window before, so that what a retuned model gains over
the old one is measured and not guessed.
"""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lbo import spaces
from lbo.errors import MissingExtra
from lbo.interrupts import interrupts
from lbo.stream import Stream
from lbo.windows import FOLDS, TableError, Window

if TYPE_CHECKING:
    import pandas as pd

SPACES: dict[str, Callable[[], tuple[Any, list[spaces.Params]]]] = {"paper": spaces.paper, "rich": spaces.rich}
MOST_CATEGORIES = 20  # of a text column; the rarest share one
CLOSE = 0.001  # to the best score: near enough
KEPT = "lbo:kept"  # user attribute of the trial that repeats the configuration of the window before


@dataclass(frozen=True)
class Settings:
    """What is the same for every window."""

    stream: str
    storage: str
    metric: str = "roc_auc"
    trials: int = 50
    space: str = "paper"
    seed: int = 0
    jobs: int = 1


@dataclass(frozen=True)
class Outcome:
    """What tuning a window came to."""

    window: str
    rows: int
    trials: int
    failed: int
    model: str
    score: float
    gain: float | None  # over the configuration of the window before
    trials_to_level: int | None  # until the score of the window before was reached, if it was
    trials_to_best: int  # until a score close to the best
    params: str


def tune(windows: Sequence[Window], settings: Settings, console: Console) -> tuple[list[Outcome], Any]:
    """Tune the windows, oldest first; what came of each, and the newest one's refitted model."""
    _check_metric(settings.metric, windows)
    stream = Stream(settings.stream, settings.storage)
    _check_begun(windows, stream, settings, console)
    outcomes: list[Outcome] = []
    before: Study | None = None
    model: Any = None
    with interrupts() as heed, _progress(settings.trials * len(windows), console) as draw:

        def show(name: str, study: Study) -> None:
            draw(name, study)
            heed()

        for window in windows:
            study = stream.study(window.name, direction="maximize")
            if window is windows[-1] or _finished(study) < settings.trials:
                _prepare(study, before)
                model = _fit(window, stream, settings, show)
            show(window.name, study)
            outcomes.append(outcome(window, study, before))
            before = study
    return outcomes, model


def outcome(window: Window, study: Study, before: Study | None) -> Outcome:
    """A window's line in the table."""
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    if not any(trial.state == TrialState.COMPLETE for trial in trials):
        raise TableError(
            f"No configuration could be fitted and scored in window {window.name}. Choose another --metric, or look "
            f"for what is odd about its rows."
        )
    best = study.best_trial
    kept = next((trial.value for trial in trials if KEPT in trial.user_attrs), None)
    reached = trials_to(trials, study.best_value - CLOSE)
    assert reached is not None  # by the best itself
    return Outcome(
        window=window.name,
        rows=_begun_with(study, "rows", len(window.y)),
        trials=len(trials),
        failed=sum(trial.state == TrialState.FAIL for trial in trials),
        model=str(best.params["model"]),
        score=study.best_value,
        gain=None if kept is None else study.best_value - kept,
        trials_to_level=None if before is None else trials_to(trials, before.best_value),
        trials_to_best=reached,
        params=json.dumps(best.params),
    )


def trials_to(trials: Sequence[FrozenTrial], score: float) -> int | None:
    """How many trials it took to reach a score."""
    reached = (n for n, trial in enumerate(trials, start=1) if trial.value is not None and trial.value >= score)
    return next(reached, None)


def save(outcomes: Sequence[Outcome], model: Any, directory: Path) -> list[Path]:
    """Write the table and the model; return where."""
    directory.mkdir(parents=True, exist_ok=True)
    table, saved = directory / "windows.csv", directory / "model.skops"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(outcomes[0])))
        writer.writeheader()
        writer.writerows(asdict(outcome) for outcome in outcomes)
    _skops().dump(model, saved)
    return [table, saved]


def as_table(outcomes: Sequence[Outcome], settings: Settings) -> Table:
    """The outcomes, for a terminal."""
    table = Table(
        title=f"{escape(settings.stream)}: {settings.metric}, {FOLDS} folds",
        title_justify="left",
        caption="gain: over the best configuration of the window before, on the rows of this one; old score: the best "
        f"of the window before; trials to best: until within {CLOSE} of it",
        caption_justify="left",
    )
    for heading in ("window", "rows", "best model", "score", "gain", "trials to old score", "trials to best"):
        is_text = heading in ("window", "best model")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=is_text)
    for i, o in enumerate(outcomes):
        gain = "" if o.gain is None else f"{o.gain:+.4f}"
        level = str(o.trials_to_level or "never") if i else ""
        table.add_row(escape(o.window), str(o.rows), o.model, f"{o.score:.4f}", gain, level, str(o.trials_to_best))
    return table


def pipeline(estimator: Any, X: pd.DataFrame) -> Any:
    """An estimator behind what makes numbers of a table.

    Missing numbers become the median. A text becomes one column per category, of which there are at most
    MOST_CATEGORIES: the rarest share one, new ones count as such, and a missing text is a category too.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder

    numbers = [name for name in X.columns if X[name].dtype == float]
    texts = [name for name in X.columns if name not in numbers]
    one_hot = OneHotEncoder(max_categories=MOST_CATEGORIES, handle_unknown="infrequent_if_exist", sparse_output=False)
    columns = ColumnTransformer(
        [("numbers", SimpleImputer(strategy="median", keep_empty_features=True), numbers), ("texts", one_hot, texts)]
    )
    return Pipeline([("columns", columns), *estimator.steps])


def _check_begun(windows: Sequence[Window], stream: Stream, settings: Settings, console: Console) -> None:
    """Windows that were begun before go on with the metric and the rows that they were begun with."""
    known = set(stream.tasks)
    for window in windows:
        if window.name not in known:
            continue
        study = stream.study(window.name)
        metric, rows = _begun_with(study, "scoring", settings.metric), _begun_with(study, "rows", len(window.y))
        if metric != settings.metric:
            raise TableError(
                f"A stream is tuned for one metric, but {settings.stream!r} was tuned for {metric} and --metric is "
                f"{settings.metric}. Say --metric {metric}, or use another --stream."
            )
        if rows == len(window.y):
            continue
        if window is windows[-1] or _finished(study) < settings.trials:
            raise TableError(
                f"A window keeps its rows while it is tuned, but {window.name} had {rows} and now has "
                f"{len(window.y)}. Use another --stream, or to tune this window again, run: "
                f"lbo forget '{settings.stream}' '{window.name}' --storage '{settings.storage}'"
            )
        console.print(
            f"Window {escape(window.name)} had {rows} rows when it was tuned and has {len(window.y)} now; it is left "
            f"as it was.",
            soft_wrap=True,
        )


def _begun_with(study: Study, what: str, otherwise: Any) -> Any:
    """What a search has noted of the data and the scores of a study."""
    from lbo.sklearn import SEARCH

    return study.user_attrs.get(SEARCH, {}).get(what, otherwise)


def _prepare(study: Study, before: Study | None) -> None:
    """Begin a window with the configuration of the one before."""
    trials = study.get_trials(deepcopy=False)
    if before and not any(KEPT in trial.user_attrs for trial in trials if trial.state != TrialState.RUNNING):
        study.enqueue_trial(before.best_params, user_attrs={KEPT: True})


def _fit(window: Window, stream: Stream, settings: Settings, show: Callable[[str, Study], None]) -> Any:
    """Tune a window and refit its best model."""
    from sklearn.model_selection import StratifiedKFold

    from lbo.sklearn import LifelongSearchCV

    estimator, param_distributions = SPACES[settings.space]()
    search = LifelongSearchCV(
        pipeline(estimator, window.X),
        param_distributions,
        stream=settings.stream,
        task=window.name,
        storage=stream.storage,
        n_iter=settings.trials,
        scoring=settings.metric,
        cv=StratifiedKFold(FOLDS, shuffle=True, random_state=settings.seed),
        n_jobs=settings.jobs,
        random_state=settings.seed,
        callbacks=[lambda study, _: show(window.name, study)],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of solvers that did not converge: such a configuration scores as it does
        return search.fit(window.X, window.y).best_estimator_


def _check_metric(metric: str, windows: Sequence[Window]) -> None:
    try:
        from sklearn.metrics import get_scorer_names
    except ImportError as error:
        raise MissingExtra("scikit-learn", "sklearn") from error
    if metric not in get_scorer_names():
        raise TableError(
            f"--metric is one of scikit-learn's scorers, such as roc_auc, accuracy or neg_log_loss, but got {metric!r}."
        )
    if metric == "roc_auc" and max(int(window.y.max()) for window in windows) > 1:
        raise TableError("roc_auc is for two classes, but the target has more. Use --metric roc_auc_ovr.")


def _finished(study: Study) -> int:
    return sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))


@contextmanager
def _progress(total: int, console: Console) -> Iterator[Callable[[str, Study], None]]:
    """A bar over all trials of all windows; what it yields shows how far a window has come."""
    columns = (
        TextColumn("window {task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("best {task.fields[best]}"),
    )  # fmt: skip
    finished: dict[str, int] = {}
    with Progress(*columns, console=console) as bar:
        line = bar.add_task("", total=total, best="-")

        def show(window: str, study: Study) -> None:
            finished[window] = _finished(study)
            values = [trial.value for trial in study.get_trials(deepcopy=False) if trial.value is not None]
            best = f"{max(values):.4f}" if values else "-"
            bar.update(line, description=escape(window), completed=sum(finished.values()), best=best)

        yield show


def _skops() -> Any:
    try:
        import skops.io
    except ImportError as error:
        raise MissingExtra("skops", "sklearn") from error
    return skops.io
