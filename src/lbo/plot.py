"""Pictures of a stream, as plotly figures: what `optuna.visualization` is to a study, this is to its tasks.

    lbo.plot.progress(stream).show()

Every function takes a stream, shows its `last` tasks, and returns a figure that fits the width it is given. Names are
text in them, whatever they are made of: plotly would read a task called <b>1</b> as markup. Colours are told apart by
the colour-blind: Okabe and Ito's, and scales that differ in lightness.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution

from lbo import blas
from lbo.errors import MissingExtra
from lbo.history import PastTask, memories, past_tasks
from lbo.maths import Array
from lbo.memory import Memory
from lbo.models import families, from_settings, latent
from lbo.models.lifelong import Lifelong
from lbo.seeds import Seed
from lbo.space import Axis
from lbo.stream import Stream
from lbo.trials import latest_distributions

LAST = 30  # tasks shown
DERIVED = 30  # a stream of so many tasks has its memory after each of them derived once more; a longer one has not
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#8A8F98"
TIME_SCALE = ("#9CC3E6", "#4A90C8", "#0072B2", "#08306B")  # old tasks light, new ones dark
AMOUNT_SCALE = ((0.0, "#F4F6F8"), (0.5, "#6BAED6"), (1.0, "#08306B"))
SIGN_SCALE = ((0.0, "#D55E00"), (0.5, "#F7F7F7"), (1.0, "#0072B2"))
LONGEST_LABEL = 20
NEXT_BEST = 3  # configurations of a task in the drift plot, the best one among them
MOST_PARAMETERS = 12
MOST_NAMES = {"x": 15, "y": 30}  # of tasks along an axis, on a phone too; of more, every second or third is named
PANEL = 130  # pixels of height for a parameter
MOST_CHOICES = 5  # of a parameter whose choices are all named on its axis
PROBES = 512  # points at which functions are compared
MARKED = 100  # tasks up to which each is a point of its own on a line
WRITTEN_OUT = 12  # tasks up to which numbers are written into cells and bars, and every name into a legend


def best_values(stream: Stream, *, last: int | None = None) -> Any:
    """The best value of each task, from the records in memory; of all tasks if `last` is None."""
    memory = stream.memory()
    records = memory.records if last is None else memory.records[-last:]
    names = [record.task for record in records]
    figure = _figure("Best value of each task", None, f"best value ({stream.direction})")
    figure.add_scatter(
        x=list(range(len(records))), y=[record.best[0][1] for record in records], showlegend=False,
        mode="lines+markers" if len(records) <= MARKED else "lines",
        line={"color": BLUE, "width": 2}, marker={"size": 7}, customdata=[_text(name) for name in names],
        hovertemplate="%{customdata}: %{y}<extra></extra>",
    )  # fmt: skip
    _name_ticks(figure, names, "x")
    return _or_empty(figure, names, _NOTHING_REMEMBERED)


def progress(stream: Stream, *, last: int = LAST) -> Any:
    """Best value so far against the number of trials, one line per task."""
    tasks = [task for task in past_tasks(stream, last) if task.best]
    figure = _figure("Best value against trials", "trials", f"best value ({stream.direction})")
    for task, colour in zip(tasks, _time_colours(len(tasks)), strict=True):
        newest = task is tasks[-1]
        named = newest or task is tasks[0] or len(tasks) <= WRITTEN_OUT
        figure.add_scatter(
            x=list(range(1, len(task.trials) + 1)), y=task.best_so_far(), name=_label(task.name), showlegend=named,
            mode="lines+markers",
            line={"color": colour, "width": 4 if newest else 2, "shape": "hv"}, marker={"size": 7 if newest else 4},
            hovertemplate=f"{_text(task.name)}<br>%{{y}} after %{{x}} trials<extra></extra>",
        )  # fmt: skip
    return _or_empty(figure, tasks, "No trial has given a value yet.")


def speed_up(stream: Stream, *, last: int = LAST) -> Any:
    """Trials each task needed to reach the best value of the task before it, beside what that one needed itself."""
    tasks = [task for task in past_tasks(stream, last + 1) if task.best]
    pairs = [(old, new, old.best_value) for old, new in pairwise(tasks) if old.best_value is not None]
    names = [new.name for _, new, _ in pairs]
    before = [old.trials_to(level) for old, _, level in pairs]
    needed = [new.trials_to(level) for _, new, level in pairs]
    in_vain = [None if n else len(new.trials) for n, (_, new, _) in zip(needed, pairs, strict=True)]
    figure = _figure("Trials to reach the previous task's level", None, "trials")
    for heights, name, marker in (
        (before, "previous task", {"color": "#C4C9D0"}),
        (needed, "this task", {"color": BLUE}),
        (in_vain, "this task: not reached", {"color": "#FFFFFF", "line": {"color": ORANGE, "width": 2},
                                             "pattern": {"shape": "/", "fgcolor": ORANGE}}),
    ):  # fmt: skip
        figure.add_bar(
            x=list(range(len(names))), y=heights, name=name, marker=marker, customdata=[_text(n) for n in names],
            offsetgroup="previous" if name == "previous task" else "this", textangle=0,
            text=heights if len(names) <= WRITTEN_OUT else None,
            hovertemplate=f"%{{customdata}}<br>{name}: %{{y}} trials<extra></extra>",
        )  # fmt: skip
    _name_ticks(figure, names, "x")
    return _or_empty(figure, names, "It takes two tasks with values to compare them.")


def sharing(stream: Stream, *, last: int = LAST) -> Any:
    """The sharing map: how much each task (rows) used each network (columns)."""
    memory = stream.memory()
    used = [m for m, uses in enumerate(memory.sharing.max(axis=0, initial=0.0)) if uses > 0]
    gates, names = memory.sharing[-last:, used], memory.tasks[-last:]
    figure = _figure("Which tasks share which networks", "network", None)
    _add_heatmap(figure, gates, names, AMOUNT_SCALE, low=0.0, columns=[f"network {m}" for m in used])
    figure.update_xaxes(tickvals=list(range(len(used))), ticktext=[str(m) for m in used])
    return _or_empty(figure, names, _NOTHING_REMEMBERED)


def similarity(stream: Stream, *, last: int = LAST, after: Sequence[Memory | None] | None = None) -> Any:
    """How alike tasks are, from -1 to 1.

    Of the default model: the correlation of what it remembers of the tasks' functions, over the search space; of a
    stream longer than 30 tasks, what it would remember if the stream had begun with those shown. Of another model: the
    cosine between the networks that they use.

    Args:
        stream: whose tasks.
        last: tasks shown.
        after: the memory after each of them, if it is known already; else it is derived once more.
    """
    memory = stream.memory()
    if memory.records and memory.model["name"] == Lifelong.name:
        known = _remembering(_memories(stream, memory, last) if after is None else after)[-last:]
        names, alike = [m.tasks[-1] for m in known], _correlations(memory, known)
    else:
        names, alike = memory.tasks[-last:], _cosines(memory.sharing[-last:])
    figure = _figure("How alike the tasks are", None, None)
    _add_heatmap(figure, alike, names, SIGN_SCALE, low=-1.0, columns=names)
    _name_ticks(figure, names, "x")
    return _or_empty(figure, names, _NOTHING_REMEMBERED)


def drift(stream: Stream, *, last: int = LAST, most: int = MOST_PARAMETERS) -> Any:
    """Where the optimum moved: the best configuration of every task, one panel per parameter, the most moved first.

    Parameters that no task's best trials have are left out.

    Args:
        stream: whose tasks.
        last: tasks shown.
        most: parameters shown.
    """
    tasks = [task for task in past_tasks(stream, last) if task.best]
    distributions = latest_distributions([trial for task in tasks for trial in task.trials])
    used = [name for name in distributions if any(name in t.params for task in tasks for t in task.ranked[:NEXT_BEST])]
    names = sorted(used, key=lambda name: -_movement(tasks, name, distributions[name]))[:most]
    figure = _panels([_text(name) for name in names] or [""])
    for row, name in enumerate(names, start=1):
        _add_parameter(figure, row, tasks, name, distributions[name])
    _name_ticks(figure, [task.name for task in tasks], "x")
    return _or_empty(figure, names, "No trial has given a value yet.")


def memory_size(stream: Stream, *, last: int = LAST, after: Sequence[Memory | None] | None = None) -> Any:
    """Size of the memory in storage after each task.

    In a stream longer than 30 tasks, of the records up to each task and the networks of today: these have long had
    their largest size in the default model, and deriving them once more would take minutes.

    Args:
        stream: whose memory.
        last: tasks shown.
        after: the memory after each of them, if it is known already; else it is derived once more.
    """
    memory = stream.memory()
    if after is None:
        whole = len(stream.tasks) <= DERIVED
        after = _memories(stream, memory, last) if whole else _records_up_to(memory, last)
    kept = _remembering(after)[-last:]
    names = [memory.tasks[-1] for memory in kept]
    figure = _figure("Size of the memory", None, "KiB")
    figure.add_scatter(
        x=list(range(len(kept))), y=[memory.nbytes / 1024 for memory in kept], mode="lines+markers", showlegend=False,
        line={"color": BLUE, "width": 3}, fill="tozeroy", fillcolor="rgba(0, 114, 178, 0.12)",
        customdata=[_text(name) for name in names], hovertemplate="after %{customdata}: %{y:.1f} KiB<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(range=[-0.5, len(kept) - 0.5])
    figure.update_yaxes(rangemode="tozero")
    _name_ticks(figure, names, "x")
    return _or_empty(figure, names, _NOTHING_REMEMBERED)


_NOTHING_REMEMBERED = "Nothing is remembered yet: a task needs two trials with values."


# Memory


def _memories(stream: Stream, memory: Memory, last: int) -> list[Memory | None]:
    """The memory after each of the last tasks; a stream of few tasks is told from its beginning."""
    whole = len(stream.tasks) <= DERIVED
    return list(memories(stream, from_settings(memory.model), None if whole else last))


def _records_up_to(memory: Memory, last: int) -> list[Memory]:
    """A memory without the records after each of the last tasks."""
    n = len(memory.records)
    return [replace(memory, records=memory.records[:k]) for k in range(max(n - last, 0) + 1, n + 1)]


def _remembering(after: Sequence[Memory | None]) -> list[Memory]:
    """The memory after each task that left something in it."""
    grown: list[Memory] = []
    for found in after:
        if found is not None and len(found.records) > (len(grown[-1].records) if grown else 0):
            grown.append(found)
    return grown


def _correlations(memory: Memory, after: Iterable[Memory]) -> Array:
    """(tasks, tasks) of the functions that were the newest one of each memory, at random points of the space."""
    X = memory.space.encode(memory.space.sample((Seed(0) / "similarity").rng(), PROBES))
    with blas.one_thread():
        values = np.array([latent.mean(families.recall(memory.space, m).functions[0], X) for m in after])
    return _cosines(values - values.mean(axis=1, keepdims=True))


def _cosines(rows: Array) -> Array:
    """(n, n) between rows (n, k); 0 to a row of zeros."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
    return np.asarray((unit @ unit.T).clip(-1.0, 1.0))


# Drift


def _panels(titles: Sequence[str]) -> Any:
    try:
        from plotly.subplots import make_subplots
    except ImportError as error:
        raise MissingExtra("plotly", "plot") from error
    height = 60 + PANEL * len(titles)
    figure = make_subplots(
        rows=len(titles), cols=1, shared_xaxes=True, vertical_spacing=0.3 * PANEL / height, subplot_titles=titles
    )
    figure.update_annotations(x=0.0, xanchor="left", font={"size": 13})
    title = "Where the optimum moved (line: best trial, dots: next best)"
    return _laid_out(figure, title, None, None, height).update_layout(showlegend=False)


def _add_parameter(figure: Any, row: int, tasks: Sequence[PastTask], name: str, distribution: BaseDistribution) -> None:
    """The best value of a parameter in each task as a line, the next best as dots; a gap where it was not in use."""
    best, others = _values(tasks, name, 0), [_values(tasks, name, place) for place in range(1, NEXT_BEST)]
    positions = list(range(len(tasks)))
    for values in others:
        figure.add_scatter(
            x=positions, y=_drawable(values, distribution), row=row, col=1, mode="markers",
            marker={"color": GREY, "size": 6, "opacity": 0.5}, hovertemplate="next best: %{y}<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=positions, y=_drawable(best, distribution), row=row, col=1, mode="lines+markers",
        line={"color": BLUE, "width": 2}, marker={"size": 9},
        customdata=[_text(task.name) for task in tasks], hovertemplate="%{customdata}: %{y}<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(row=row, col=1, **_parameter_axis(distribution))


def _values(tasks: Sequence[PastTask], name: str, place: int) -> list[Any]:
    """A parameter's value in each task's best trial but `place`; None where there is none."""
    return [task.ranked[place].params.get(name) if place < len(task.ranked) else None for task in tasks]


def _drawable(values: Sequence[Any], distribution: BaseDistribution) -> list[Any]:
    if isinstance(distribution, CategoricalDistribution):
        return [None if value is None else _label(str(value)) for value in values]
    return list(values)


def _parameter_axis(distribution: BaseDistribution) -> dict[str, Any]:
    """The whole range that was searched, so that a small move looks small."""
    if isinstance(distribution, CategoricalDistribution):
        choices = [_label(str(choice)) for choice in distribution.choices]
        every = {"range": [-0.5, len(choices) - 0.5]} if len(choices) <= MOST_CHOICES else {}
        return {"type": "category", "categoryorder": "array", "categoryarray": choices, **every}
    axis = Axis("", distribution, distribution)
    low, high = float(distribution.low), float(distribution.high)  # type: ignore[attr-defined]
    ends = np.log10([low, high]) if axis.log else np.array([low, high])
    margin = 0.06 * float(np.ptp(ends)) or 1.0
    return {
        "type": "log" if axis.log else "linear",
        "range": [float(ends[0]) - margin, float(ends[1]) + margin],
        "nticks": 4,
        "exponentformat": "power",
    }


def _movement(tasks: Sequence[PastTask], name: str, distribution: BaseDistribution) -> float:
    """Mean step of a parameter's coordinate from task to task; any change of a choice is a whole step."""
    values = [value for value in _values(tasks, name, 0) if value is not None]
    steps = np.diff(Axis(name, distribution, distribution).to_unit(values))
    steps = steps[~np.isnan(steps)]
    if isinstance(distribution, CategoricalDistribution):
        steps = np.sign(steps)
    return float(np.abs(steps).mean()) if len(steps) else 0.0


# Looks


def _plotly() -> Any:
    try:
        import plotly.graph_objects
    except ImportError as error:
        raise MissingExtra("plotly", "plot") from error
    return plotly.graph_objects


def _figure(title: str, x_title: str | None, y_title: str | None) -> Any:
    return _laid_out(_plotly().Figure(), title, x_title, y_title, height=420)


def _laid_out(figure: Any, title: str, x_title: str | None, y_title: str | None, height: int) -> Any:
    figure.update_layout(
        title=title, template="plotly_white", autosize=True, height=height, colorway=[BLUE, ORANGE, GREY],
        font={"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13},
        margin={"l": 10, "r": 10, "t": 60, "b": 10}, hoverlabel={"align": "left"},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0.0, "xanchor": "left"},
    )  # fmt: skip
    # Names that lean to the left end at their ticks, and none hangs over the right edge of a phone.
    figure.update_xaxes(automargin=True, title=x_title, autotickangles=[0, -35, -90])
    figure.update_yaxes(automargin=True, title=y_title)
    return figure


def _or_empty(figure: Any, content: Sequence[Any], otherwise: str) -> Any:
    """The figure, or a sentence where there is nothing to draw."""
    if not len(content):
        figure.update_xaxes(visible=False)
        figure.update_yaxes(visible=False)
        figure.add_annotation(text=otherwise, showarrow=False, xref="paper", yref="paper", x=0.5, y=0.5)
    return figure


def _add_heatmap(
    figure: Any, z: Array, names: Sequence[str], scale: Any, *, low: float, columns: Sequence[str]
) -> None:
    """Rows for tasks, the oldest at the top."""
    cells = [[f"{_text(name)}<br>{_text(column)}" for column in columns] for name in names]
    figure.add_heatmap(
        z=np.round(z, 3).tolist(), zmin=low, zmax=1.0, xgap=2, ygap=2, colorscale=scale, customdata=cells,
        hovertemplate="%{customdata}: %{z:.2f}<extra></extra>",
        texttemplate="%{z:.1f}" if len(names) <= WRITTEN_OUT else None,
        colorbar={"thickness": 10, "outlinewidth": 0, "len": 0.9},
    )  # fmt: skip
    figure.update_layout(height=max(220, 130 + 30 * len(names)))
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(showgrid=False)
    _name_ticks(figure, names, "y")


def _name_ticks(figure: Any, names: Sequence[str], axis: str) -> None:
    """Tasks along an axis, by position: two long names may begin alike."""
    update = figure.update_xaxes if axis == "x" else figure.update_yaxes
    step = max(-(-len(names) // MOST_NAMES[axis]), 1)
    shown = range((len(names) - 1) % step, len(names), step)  # the newest among them
    update(tickvals=list(shown), ticktext=[_label(names[i]) for i in shown], zeroline=False)


def _time_colours(n: int) -> list[str]:
    _plotly()
    from plotly.colors import sample_colorscale

    return [str(colour) for colour in sample_colorscale(list(TIME_SCALE), list(np.linspace(0, 1, n)))] if n else []


def _label(name: str) -> str:
    return _text(name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…")


def _text(name: str) -> str:
    """A name that plotly shows as it is: neither markup nor, between two dollars, mathematics."""
    return html.escape(name, quote=False).replace("$", "&#36;")
