"""The commands `lbo tune` and `lbo demo`."""

from __future__ import annotations

import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from lbo.errors import CannotWrite, MissingExtra
from lbo.stream import DEFAULT_STORAGE, Stream

INTERRUPTED = 130  # what a shell reports after Ctrl-C

Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same trials.")]


class Space(StrEnum):
    """The ready spaces, by their names in `lbo.spaces`."""

    PAPER = "paper"
    RICH = "rich"


def tune(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A .csv or .parquet file.")],
    target: Annotated[str, typer.Option(help="Column to predict: classes 0, 1, ...")],
    time: Annotated[str, typer.Option(help="Column of dates or whole numbers.")],
    window: Annotated[str, typer.Option(help="Length of a window: 4 (years, or what the column counts), 6m or 30d.")],
    step: Annotated[str, typer.Option(help="From one window's begin to the next one's.")],
    metric: Annotated[str, typer.Option(help="One of scikit-learn's scorers.")] = "roc_auc",
    trials: Annotated[int, typer.Option(min=1, help="Per window.")] = 50,
    stream: Annotated[str | None, typer.Option(help="Name of the stream; the file's if not given.")] = None,
    storage: Annotated[str, typer.Option(help="URL of the Optuna storage.")] = DEFAULT_STORAGE,
    space: Annotated[Space, typer.Option(help="Models to search.")] = Space.PAPER,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out; may be given again.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the results; STREAM-tuned if not given.")] = None,
    seed: Seed = 0,
    jobs: Annotated[int, typer.Option(help="Folds at once; -1 for every core.")] = 1,
) -> None:
    """Tune a model on every window of a table that grows with time, each with the help of those before it.

    Run it again to go on where it stopped, or when there are new rows.
    """
    from lbo import tuning, windows

    console, progress = Console(), Console(stderr=True)
    settings = tuning.Settings(
        stream or data.stem, storage, metric=metric, trials=trials, space=space.value, seed=seed, jobs=jobs
    )
    lengths = windows.Span.parse(window, "--window"), windows.Span.parse(step, "--step")
    cut, notes = windows.cut(
        windows.read(data), target=target, time=time, window=lengths[0], step=lengths[1], drop=drop or ()
    )
    for note in notes:
        console.print(escape(note), soft_wrap=True)
    directory = _folder(out or Path(f"{settings.stream}-tuned"))
    try:
        outcomes, model = tuning.tune(cut, settings, progress)
    except KeyboardInterrupt:
        progress.print(f"Stopped. Finished trials are in {storage}: run the same command to go on.", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
    console.print(tuning.as_table(outcomes, settings))
    paths = tuning.save(outcomes, model, directory)
    try:
        paths.append(Stream(settings.stream, storage).report(directory / "report.html"))
    except MissingExtra as missing:  # the table and the model are there without it
        console.print(escape(f"No report. {missing}"), soft_wrap=True)
    for path in paths:
        console.print(f"Wrote {escape(str(path))}", soft_wrap=True, highlight=False)


def demo(
    out: Annotated[Path | None, typer.Option(help="Directory for the results; a temporary one if not given.")] = None,
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Two windows and a few trials, in seconds.")] = False,
) -> None:
    """See it work: real patients, window by window, tuned with a memory and without, in a minute or two."""
    from lbo.demo import QUICK, Size, run

    folder = _folder(out or Path(tempfile.mkdtemp(prefix="lbo-demo-")))
    run(Console(), folder, QUICK if quick else Size(), seed)


def _folder(path: Path) -> Path:
    """A folder for results, made before anything is tuned."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(path, error) from error
    return path
