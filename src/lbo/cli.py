"""The command `lbo`: each command here only reads its arguments and hands them on."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import optuna
import typer
from rich.console import Console

import lbo
from lbo import commands
from lbo.errors import LboError, StreamError
from lbo.experiments.command import reproduce
from lbo.stream import DEFAULT_STORAGE, Stream, streams

StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="Name of the stream.")]
StorageUrl = Annotated[str, typer.Option("--storage", help="URL of the Optuna storage.")]
Rows = Annotated[int, typer.Option("--last", min=1, help="How many tasks to show, newest last.")]

app = typer.Typer(
    help="Lifelong Bayesian optimisation: tune again and again, and let every run profit from those before it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """What the installed command runs: errors that lbo raises on purpose are printed without a traceback."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        app()
    except LboError as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {_plain(str(error))}", soft_wrap=True)
        sys.exit(2)


def _plain(text: str) -> str:
    """Text in which square brackets are no markup."""
    from rich.markup import escape

    return escape(text)


@app.callback(invoke_without_command=True)
def _version(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(f"lbo {lbo.__version__}")
        raise typer.Exit


@app.command("streams")
def _streams(storage: StorageUrl = DEFAULT_STORAGE) -> None:
    """List the streams of a storage."""
    from lbo.console import streams_table

    _must_exist(storage)
    found = [Stream(name, storage) for name in streams(storage)]
    Console().print(streams_table(found) if found else f"There are no streams in {storage} yet.")


@app.command("show")
def _show(stream: StreamName, storage: StorageUrl = DEFAULT_STORAGE, last: Rows = 20) -> None:
    """Show what a stream remembers: its tasks, which networks they share, what was learned of each."""
    from lbo.console import show

    show(_existing(stream, storage), Console(), last)


@app.command("forget")
def _forget(
    stream: StreamName,
    task: Annotated[str, typer.Argument(metavar="TASK", help="Name of the task.")],
    storage: StorageUrl = DEFAULT_STORAGE,
) -> None:
    """Delete a task, its trials and everything that memory has of it."""
    with Console(stderr=True).status("Deriving the memory without it"):
        _existing(stream, storage).forget(task)
    print(f"Forgot task {task!r} of stream {stream!r}.")


@app.command("rebuild")
def _rebuild(stream: StreamName, storage: StorageUrl = DEFAULT_STORAGE) -> None:
    """Derive a stream's memory from its trials again."""
    found = _existing(stream, storage)
    with Console(stderr=True).status("Deriving the memory"):
        found.rebuild()
    print(f"Rebuilt the memory of stream {stream!r} from {len(found.tasks)} tasks.")


@app.command("adopt")
def _adopt(
    stream: StreamName,
    study: Annotated[list[str], typer.Argument(metavar="STUDY...", help="Names of Optuna studies, oldest first.")],
    storage: StorageUrl = DEFAULT_STORAGE,
    source: Annotated[str | None, typer.Option("--from", help="URL of the storage to copy them from.")] = None,
) -> None:
    """Take existing Optuna studies into a stream, in order."""
    _must_exist(source or storage)
    adopting = Stream(stream, storage)
    adopting.adopt(*study, storage=source)
    print(f"Stream {stream!r} has {len(adopting.tasks)} tasks now: {', '.join(adopting.tasks)}.")


@app.command("report")
def _report(
    stream: StreamName,
    storage: StorageUrl = DEFAULT_STORAGE,
    out: Annotated[Path | None, typer.Option(help="The file to write; STREAM.html if not given.")] = None,
) -> None:
    """Write a stream's report: one HTML file with tables, pictures and advice, which needs no network."""
    found = _existing(stream, storage)
    with Console(stderr=True).status("Deriving what the stream remembered after each task"):
        path = found.report(out or Path(f"{stream}.html"))
    print(f"Wrote {path}")


app.command("tune")(commands.tune)
app.command("demo")(commands.demo)
app.add_typer(reproduce, name="reproduce")


def _existing(name: str, storage: str) -> Stream:
    _must_exist(storage)
    known = streams(storage)
    if name not in known:
        listed = ", ".join(repr(stream) for stream in known) or "none"
        raise StreamError(f"There is no stream {name!r} in {storage}; its streams are: {listed}.")
    return Stream(name, storage)


def _must_exist(storage: str) -> None:
    """Opening a SQLite file creates it, which somebody who mistyped its name does not want."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(storage)
    except ArgumentError:
        return  # which opening it explains
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise StreamError(
            f"The database file {url.database!r} does not exist. "
            f"Run lbo where it is, or say --storage sqlite:///PATH/TO/{Path(url.database or 'lbo.db').name}."
        )
