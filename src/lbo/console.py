"""A stream on a terminal: its tasks, the networks they share, and what was learned of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lbo.memory import Memory, Record
from lbo.stream import Stream

_SHADES = ((0.5, "[bold green]■[/]"), (0.1, "[green]▪[/]"), (0.0, "[dim]·[/]"))


def streams_table(streams: Sequence[Stream]) -> Table:
    """One line per stream."""
    table = Table("stream", "direction", "tasks", "newest task")
    for stream in streams:
        tasks = stream.tasks
        table.add_row(escape(stream.name), stream.direction, str(len(tasks)), escape(tasks[-1]))
    return table


def show(stream: Stream, console: Console, last: int) -> None:
    """Print what a stream remembers of its last tasks."""
    tasks = stream.tasks
    with console.status("Deriving the memory"):
        memory = stream.memory()
    console.print(
        f"Stream [bold]{escape(stream.name)}[/]: {len(tasks)} tasks, {stream.direction}, model {memory.model['name']}, "
        f"{memory.networks} networks in use, {memory.nbytes:,} bytes of memory",
        highlight=False,
    )
    if len(tasks) > last:
        console.print(f"[dim]The last {last} of them; --last shows more.[/]")
    records = {record.task: record for record in memory.records}
    shown = {task: records.get(task) for task in tasks[-last:]}
    console.print(_tasks_table(shown))
    if memory.records:
        console.print(_sharing_table(memory, shown))
        console.print(_hyper_table(shown))


def _tasks_table(shown: Mapping[str, Record | None]) -> Table:
    table = Table("task", "trials", "best value", "best parameters", title="Tasks", title_justify="left")
    for task, record in shown.items():
        if record is None:
            table.add_row(escape(task), "", "", "[dim]nothing to remember yet: it needs two finished trials[/]")
        else:
            params, value = record.best[0]
            table.add_row(escape(task), str(record.n_trials), f"{value:.6g}", escape(_parameters(params)))
    return table


def _parameters(params: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in params.items()
    )


def _sharing_table(memory: Memory, shown: Mapping[str, Record | None]) -> Table:
    title = "Sharing: ■ a task uses a network, ▪ a little, · not"
    table = Table("task", title=title, title_justify="left", show_footer=True)
    table.columns[0].footer = "tasks that use it"
    for network, uses in enumerate(memory.usage):
        table.add_column(str(network), footer=str(uses), justify="center", no_wrap=True)
    for task, record in shown.items():
        if record is not None:
            table.add_row(escape(task), *(_shade(gate) for gate in record.gates))
    return table


def _shade(gate: float) -> str:
    return next(glyph for above, glyph in _SHADES if gate > above or above == 0.0)


def _hyper_table(shown: Mapping[str, Record | None]) -> Table:
    records = [record for record in shown.values() if record is not None]
    names = sorted({name for record in records for name in record.hyper})
    table = Table("task", *names, title="Hyper-parameters", title_justify="left")
    for record in records:
        table.add_row(escape(record.task), *(f"{record.hyper[n]:.4g}" if n in record.hyper else "" for n in names))
    return table
