"""A stream's report: one HTML file with tables, pictures and advice, which needs no network to be read.

It is made of trials (parameters and scores) and of memory, so no row of anybody's data is in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import lbo
from lbo import plot
from lbo.advice import Advice, Gain, Known, advise
from lbo.errors import MissingExtra
from lbo.history import PastTask, has_value, memories, past_tasks
from lbo.memory import Memory
from lbo.models import from_settings
from lbo.models.lifelong import Lifelong
from lbo.stream import Stream

LAST = plot.LAST  # tasks in tables and pictures


def write(stream: Stream, path: str | os.PathLike[str]) -> Path:
    """Write a stream's report; returns where."""
    written = Path(path)
    written.write_text(render(stream), encoding="utf-8")
    return written


def render(stream: Stream) -> str:
    """The report as HTML."""
    script = _plotly_script()
    memory, tasks = stream.memory(), past_tasks(stream)
    model = from_settings(memory.model)
    after = list(memories(stream, model))
    advice = _advice(stream, tasks, after, model if isinstance(model, Lifelong) else None)
    return _PAGE.substitute(
        name=escape(stream.name),
        version=lbo.__version__,
        style=_STYLE,
        plotly=script,
        cards=_cards(stream, tasks, memory, advice),
        tasks=_tasks_table(tasks[-LAST:]),
        advice=_advice_table(advice[-LAST:]),
        charts="\n".join(_chart(chart, stream, after) for chart in CHARTS),
        resize=_RESIZE,
    )


def _plotly_script() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtra("plotly", "plot") from error
    return str(get_plotlyjs())


def _advice(
    stream: Stream, tasks: Sequence[PastTask], after: Sequence[Memory | None], model: Lifelong | None
) -> list[Advice]:
    """Of each task, with the memory that it had; the default model's memory where the stream has another's."""
    if model is None:
        model, after = Lifelong(), list(memories(stream, Lifelong()))
    before = [None, *after][: len(tasks)]
    return [
        advise(task.name, Known(task.trials, task.direction, memory), model=model)
        for task, memory in list(zip(tasks, before, strict=True))[-LAST:]
    ]


# Pictures


class Chart(NamedTuple):
    """A picture and what it says to those who read it, or have it read to them."""

    id: str
    heading: str
    explanation: str
    alt: str
    draw: Callable[..., Any]
    needs_memories: bool = False


CHARTS = (
    Chart(
        "progress", "Best value against trials",
        "Each line is a task, the newest one dark and thick. A line that starts near where it ends is a task that "
        "profited from those before it.",
        "Line chart of the best value so far against the number of trials, one line per task.", plot.progress,
    ),
    Chart(
        "speed-up", "Trials to reach the previous task's level",
        "How many trials a task needed to be as good as the task before it ended, beside what that task itself needed. "
        "Hatched bars did not get there, perhaps because the new data are harder.",
        "Bar chart of the trials that each task needed to reach the best value of the task before.", plot.speed_up,
    ),
    Chart(
        "drift", "Where the optimum moved",
        "The best value of every hyper-parameter, task by task, over the whole range that was searched; the parameter "
        "that moved most comes first. Grey dots are the next best trials: where they scatter, the parameter matters "
        "little. A gap means that the best model does not have it.",
        "One small chart per hyper-parameter with its best value in each task.", plot.drift,
    ),
    Chart(
        "similarity", "How alike the tasks are",
        "1 is the same landscape, 0 has nothing to do with it, and -1 is its opposite. A block of dark blue cells is a "
        "family of tasks; a task that is pale everywhere was a stranger.",
        "Heat map of the similarity of every pair of tasks.", plot.similarity, True,
    ),
    Chart(
        "sharing", "Which tasks share which networks",
        "What is remembered is kept in networks, each a function that several tasks may lean on. The darker the cell, "
        "the more the task used it. Tasks in one column learned from each other.",
        "Heat map of how much each task used each network.", plot.sharing,
    ),
    Chart(
        "memory-size", "Size of the memory",
        "All that is carried to the next task. There are only so many networks, so in the end it grows by one short "
        "record per task.",
        "Line chart of the memory's size in storage after each task.", plot.memory_size, True,
    ),
)  # fmt: skip


def _chart(chart: Chart, stream: Stream, after: Sequence[Memory | None]) -> str:
    figure = chart.draw(stream, after=after) if chart.needs_memories else chart.draw(stream)
    figure.update_layout(title=None, margin_t=30)
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=f"plot-{chart.id}",
        config={"responsive": True, "displayModeBar": False, "displaylogo": False},
    )  # fmt: skip
    return (
        f'<section class="chart" id="{chart.id}"><h2>{chart.heading}</h2><p>{chart.explanation}</p>'
        f'<div role="img" aria-label="{escape(chart.alt)}">{drawn}</div></section>'
    )


# Tables


def _cards(stream: Stream, tasks: Sequence[PastTask], memory: Memory, advice: Sequence[Advice]) -> str:
    newest = tasks[-1] if tasks else None
    cards = [
        ("tasks", str(len(tasks)), f"newest: {newest.name}" if newest else ""),
        ("trials", str(sum(len(task.trials) for task in tasks)), "over all tasks"),
        ("best value", _number(newest.best_value if newest else None), f"of the newest task ({stream.direction})"),
        ("memory", f"{memory.nbytes / 1024:.0f} KiB", f"{memory.networks} networks, model {memory.model['name']}"),
        ("advice", advice[-1].recommendation if advice else "-", "for the newest task"),
    ]
    return "\n".join(
        f'<div class="card"><span>{title}</span><strong>{escape(value)}</strong><small>{escape(note)}</small></div>'
        for title, value, note in cards
    )


def _tasks_table(tasks: Sequence[PastTask]) -> str:
    rows = [
        [
            task.name,
            str(len(task.trials)),
            str(sum(not has_value(trial) for trial in task.trials)),
            _number(task.best_value),
            _to_best(task),
            _parameters(task),
        ]
        for task in tasks
    ]
    return _table(("task", "trials", "without a value", "best value", "found at trial", "best configuration"), rows)


def _to_best(task: PastTask) -> str:
    return "-" if task.best_value is None else str(task.trials_to(task.best_value))


def _parameters(task: PastTask) -> str:
    params = task.best.params if task.best else {}
    return ", ".join(f"{k} = {_number(v) if isinstance(v, float) else v}" for k, v in params.items())


def _advice_table(advice: Sequence[Advice]) -> str:
    rows = [[a.task, a.recommendation, _expected(a.over_previous), _expected(a.left), a.reason] for a in advice]
    return _table(("task", "advice", "gain over the previous configuration", "gain left", "why"), rows)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "\n".join(f"<tr>{''.join(_cells(headings, row))}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _cells(headings: Sequence[str], row: Sequence[str]) -> Iterator[str]:
    """The first is a heading; the others carry theirs, for phones; advice gets a sign beside its word."""
    yield f'<th scope="row">{escape(row[0])}</th>'
    for heading, cell in zip(headings[1:], row[1:], strict=True):
        sign = f'<span class="{cell}" aria-hidden="true">{_SIGNS[cell]}</span> ' if heading == "advice" else ""
        yield f'<td data-heading="{escape(heading)}">{sign}{escape(cell)}</td>'


_SIGNS = {"keep": "●", "stop": "■", "retune": "▲"}  # told apart without their colours too


def _expected(gain: Gain | None) -> str:
    return "-" if gain is None else f"{gain.expected:.2g}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


# The page


_STYLE = """
:root { color-scheme: light; --ink: #1b2430; --soft: #5c6672; --line: #dfe4ea; --blue: #0072B2; }
* { box-sizing: border-box; }
body { margin: 0; background: #f5f7f9; color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
  sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { margin: 0; font-size: 1.8rem; overflow-wrap: anywhere; }
h2 { margin: 0 0 4px; font-size: 1.15rem; }
p { margin: 0 0 8px; color: var(--soft); max-width: 72ch; }
section { background: #fff; border: 1px solid var(--line); border-radius: 10px; padding: 20px; margin-top: 20px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); gap: 12px; margin-top: 20px; }
.card { background: #fff; border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; }
.card span, .card small { display: block; color: var(--soft); font-size: .85rem; overflow-wrap: anywhere; }
.card strong { font-size: 1.6rem; line-height: 1.3; color: var(--blue); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 8px 10px; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; }
tbody th { min-width: 6rem; max-width: 14rem; overflow-wrap: anywhere; }
td:last-child { min-width: 18rem; overflow-wrap: anywhere; }
td[data-heading="advice"] { white-space: nowrap; }
.keep { color: #009E73; }
.stop { color: #0072B2; }
.retune { color: #D55E00; }
footer { margin-top: 24px; color: var(--soft); font-size: .85rem; }
@media (max-width: 600px) {
  main { padding: 16px 8px 32px; }
  section { padding: 14px 10px; }
  .cards { grid-template-columns: 1fr 1fr; }
  thead { display: none; }
  tr { display: block; padding: 8px 0; border-top: 1px solid var(--line); }
  tbody th, td, td:last-child { display: block; min-width: 0; max-width: none; padding: 1px 0; border: 0; }
  tbody th { font-size: 1rem; }
  td::before { content: attr(data-heading) ": "; color: var(--soft); }
  .card:last-child:nth-child(odd) { grid-column: 1 / -1; }
}
@media print {
  @page { margin: 14mm; }
  body { background: #fff; font-size: 11pt; }
  main { max-width: none; padding: 0; }
  section, .card { border-color: #bbb; break-inside: avoid; }
  section.long { break-inside: auto; }
  tr { break-inside: avoid; }
  .scroll { overflow: visible; }
}
"""

# A chart has the width of the window it was drawn in; paper is narrower.
_RESIZE = """
const charts = () => [...document.querySelectorAll(".js-plotly-plot")];
window.addEventListener("beforeprint", () => charts().forEach(chart => Plotly.relayout(chart, {width: 640})));
window.addEventListener("afterprint", () => charts().forEach(chart => Plotly.relayout(chart, {width: null})));
"""

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline';
  style-src 'unsafe-inline'; img-src data: blob:; font-src data:">
<title>$name: lbo report</title>
<style>$style</style>
<script>$plotly</script>
</head>
<body>
<main>
<header><h1>$name</h1><p>What was tuned in this stream, what it remembers, and what to do next.</p></header>
<div class="cards">
$cards
</div>
<section class="long"><h2>Tasks</h2><p>Every task, oldest first, with the best configuration found.</p>
$tasks
</section>
<section class="long"><h2>Keep or retune?</h2><p>What a perfect search would gain on average: over keeping the best
configuration of the task before, and over the best trial of the task itself. <b>keep</b>: the old configuration is good
enough. <b>stop</b>: the task's own best is. <b>retune</b>: a gain that counts is still likely.</p>
$advice
</section>
$charts
<footer>Written by lbo $version. Made of trials and memory: no row of the data is in this file.</footer>
</main>
<script>$resize</script>
</body>
</html>
""")
