"""A stream's report: one HTML file with tables, pictures and advice, which needs no network to be read.

It is made of trials (parameters and scores) and of memory, so no row of anybody's data is in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import lbo
from lbo import plot
from lbo.advice import Advice, Gain, Known, advise
from lbo.errors import CannotWrite, MissingExtra
from lbo.history import PastTask, has_value, memories, past_tasks, stored_before
from lbo.memory import Memory, counted
from lbo.models import from_settings
from lbo.models.lifelong import Lifelong
from lbo.stream import Stream

LAST = plot.LAST  # tasks in tables and pictures
ADVISED = 10  # tasks with advice, which takes half a second each


def write(stream: Stream, path: str | os.PathLike[str]) -> Path:
    """Write a stream's report; returns where."""
    written = Path(path)
    html = render(stream)
    try:
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(html, encoding="utf-8")
    except OSError as error:
        raise CannotWrite(path, error) from error
    return written


@dataclass(frozen=True)
class Content:
    """What a report is made of."""

    stream: Stream
    names: list[str]  # of all tasks
    tasks: list[PastTask]  # the last of them
    memory: Memory  # after all of them
    after: list[Memory | None] | None  # the memory after each of the last tasks, where pictures need it
    advice: list[Advice]

    @property
    def whole(self) -> bool:
        """Whether all tasks are shown, and `after` is the memory as it was."""
        return len(self.names) == len(self.tasks)


def render(stream: Stream) -> str:
    """The report as HTML."""
    script = _plotly_script()
    content = _read(stream)
    return _PAGE.substitute(
        name=escape(stream.name),
        version=lbo.__version__,
        style=_STYLE,
        plotly=script,
        left_out=_left_out(content),
        cards=_cards(content),
        which="Every task" if content.whole else _newest(len(content.tasks)).capitalize(),
        tasks=_tasks_table(content.tasks),
        advised=_advised(content),
        advice=_advice_table(content.advice),
        charts="\n".join(_chart(chart, content) for chart in CHARTS),
        resize=_RESIZE,
    )


def _read(stream: Stream) -> Content:
    names, memory, tasks = stream.tasks, stream.memory(), past_tasks(stream, LAST)
    model = from_settings(memory.model)
    whole, default = len(names) == len(tasks), isinstance(model, Lifelong)
    after = list(memories(stream, model, LAST)) if whole or default else None
    advice = _advice(stream, tasks, after if whole else None, model if isinstance(model, Lifelong) else None)
    return Content(stream, names, tasks, memory, after, advice)


def _plotly_script() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtra("plotly", "plot") from error
    return str(get_plotlyjs())


def _advice(
    stream: Stream, tasks: Sequence[PastTask], after: Sequence[Memory | None] | None, model: Lifelong | None
) -> list[Advice]:
    """On the newest tasks, each with the memory that it had.

    Where the memory after each task is not known, on those before which it is stored. Where the stream has another
    model, the default's memory is derived, if the stream is short enough for that.
    """
    if after is None:
        before = stored_before(stream, model or Lifelong())
    else:
        after = after if model else list(memories(stream, Lifelong()))
        before = {task.name: memory for task, memory in zip(tasks, [None, *after], strict=False)}
    advised = [task for task in tasks if task.name in before][-ADVISED:]
    return [
        advise(task.name, Known(task.trials, task.direction, before[task.name]), model=model or Lifelong())
        for task in advised
    ]


# Pictures


class Chart(NamedTuple):
    """A picture and what it says to those who read it, or have it read to them."""

    id: str
    heading: str
    explanation: str
    alt: str
    draw: Callable[[Content], Any]


CHARTS = (
    Chart(
        "best-values", "Best value of each task",
        "How good the best configuration of each task was. It moves with the data, which may be harder or easier, as "
        "much as with the tuning.",
        "Line chart of the best value of each task, oldest first.",
        lambda content: plot.best_values(content.stream),
    ),
    Chart(
        "progress", "Best value against trials",
        "Each line is a task, the newest one dark and thick. A line that starts near where it ends is a task that "
        "profited from those before it.",
        "Line chart of the best value so far against the number of trials, one line per task.",
        lambda content: plot.progress(content.stream),
    ),
    Chart(
        "speed-up", "Trials to reach the previous task's level",
        "How many trials a task needed to be as good as the task before it ended, beside what that task itself needed. "
        "Hatched bars did not get there, perhaps because the new data are harder.",
        "Bar chart of the trials that each task needed to reach the best value of the task before.",
        lambda content: plot.speed_up(content.stream),
    ),
    Chart(
        "drift", "Where the optimum moved",
        "The best value of every hyper-parameter, task by task, over the whole range that was searched; the parameter "
        "that moved most comes first. Grey dots are the next best trials: where they scatter, the parameter matters "
        "little. A gap means that the best model does not have it.",
        "One small chart per hyper-parameter with its best value in each task.",
        lambda content: plot.drift(content.stream),
    ),
    Chart(
        "similarity", "How alike the tasks are",
        "1 is the same landscape, 0 has nothing to do with it, and -1 is its opposite. A block of dark blue cells is a "
        "family of tasks; a task that is pale everywhere was a stranger.",
        "Heat map of the similarity of every pair of tasks.",
        lambda content: plot.similarity(content.stream, after=content.after),
    ),
    Chart(
        "sharing", "Which tasks share which networks",
        "What is remembered is kept in networks, each a function that several tasks may lean on. The darker the cell, "
        "the more the task used it. Tasks in one column learned from each other. In the default model, network 0 is "
        "what the task before looked like, and each of the others is a family of tasks.",
        "Heat map of how much each task used each network.",
        lambda content: plot.sharing(content.stream),
    ),
    Chart(
        "memory-size", "Size of the memory",
        "All that is carried to the next task. There are only so many networks, so in the end it grows by one short "
        "record per task.",
        "Line chart of the memory's size in storage after each task.",
        lambda content: plot.memory_size(content.stream, after=content.after if content.whole else None),
    ),
)  # fmt: skip


def _chart(chart: Chart, content: Content) -> str:
    figure = chart.draw(content).update_layout(title=None, margin_t=30)
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=f"plot-{chart.id}",
        config={"responsive": True, "displayModeBar": False, "displaylogo": False},
    )  # fmt: skip
    return (
        f'<section class="chart" id="{chart.id}"><h2>{chart.heading}</h2><p>{chart.explanation}</p>'
        f'<div role="img" aria-label="{escape(chart.alt)}">{drawn}</div></section>'
    )


# Tables


def _cards(content: Content) -> str:
    stream, memory = content.stream, content.memory
    newest = content.tasks[-1] if content.tasks else None
    advice = content.advice[-1] if content.advice else None
    cards = [
        ("tasks", f"{len(content.names):,}", f"newest: {newest.name}" if newest else ""),
        ("trials", f"{_trials(content):,}", "over all tasks"),
        ("best value", _number(newest.best_value if newest else None), f"of the newest task ({stream.direction})"),
        (
            "memory",
            f"{memory.nbytes / 1024:,.0f} KiB",
            f"{counted(memory.networks, 'network')}, model {memory.model['name']}",
        ),
        ("advice", advice.recommendation if advice else "-", f"for {advice.task}" if advice else ""),
    ]
    return "\n".join(
        f'<div class="card"><span>{title}</span><strong>{escape(value)}</strong><small>{escape(note)}</small></div>'
        for title, value, note in cards
    )


def _trials(content: Content) -> int:
    """Of the tasks shown, and of those before them that left a record."""
    shown = {task.name for task in content.tasks}
    earlier = sum(record.n_trials for record in content.memory.records if record.task not in shown)
    return earlier + sum(len(task.trials) for task in content.tasks)


def _left_out(content: Content) -> str:
    """What the report of a long stream does not show."""
    if content.whole:
        return ""
    default = content.memory.model["name"] == Lifelong.name
    sentences = [
        f"This stream has {len(content.names):,} tasks, and tables and pictures show the newest {len(content.tasks)}. "
        f"Only the best values are of all tasks, as the memory has them.",
        "How alike the tasks are is found as if the stream had begun with those shown." if default else "",
        "The memory's sizes are those of the records up to each task, with the networks of today.",
        f"Advice is on {_newest(len(content.advice))}: what was known before earlier ones is not kept, and "
        f"Stream.advice derives it again, which takes a while.",
    ]
    return f'<p class="left-out">{" ".join(escape(sentence) for sentence in sentences if sentence)}</p>'


def _advised(content: Content) -> str:
    """On which tasks there is advice, if not on all."""
    n = len(content.advice)
    return f" There is advice on {_newest(n)}." if n < len(content.names) else ""


def _newest(n: int) -> str:
    return {0: "no task", 1: "the newest task"}.get(n, f"the newest {n} tasks")


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
.card strong { font-size: 1.6rem; line-height: 1.3; color: var(--blue); white-space: nowrap; }
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
  body { background: #fff; font-size: 10pt; }
  main { max-width: none; padding: 0; }
  section, .card { border-color: #bbb; break-inside: avoid; }
  section.long { break-inside: auto; }
  tr { break-inside: avoid; }
  .scroll { overflow: visible; }
  .card { padding: 8px 10px; }
  .card strong { font-size: 1.2rem; }
  th, td { padding: 4px 6px; }
}
"""

# A chart has the width of the window it was drawn in. Paper is narrower: two charts of the usual height go on a page,
# or a tall one.
_RESIZE = """
const charts = [...document.querySelectorAll(".plotly-graph-div")];
const onScreen = new Map(charts.map(chart => [chart, chart.layout.height]));
const resize = (chart, width, height) => {
  for (const box of [chart, chart.parentElement]) box.style.height = height + "px";
  Plotly.relayout(chart, {width: width, height: height});
};
const onPaper = height => height > 420 ? Math.min(height, 740) : Math.min(height, 300);
window.addEventListener("beforeprint", () => onScreen.forEach((height, chart) => resize(chart, 640, onPaper(height))));
window.addEventListener("afterprint", () => onScreen.forEach((height, chart) => resize(chart, null, height)));
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
<header><h1>$name</h1><p>What was tuned in this stream, what it remembers, and what to do next.</p>$left_out</header>
<div class="cards">
$cards
</div>
<section class="long"><h2>Keep or retune?</h2><p>What a perfect search would gain on average: over keeping the best
configuration of the task before, and over the best trial of the task itself. <b>keep</b>: the old configuration is good
enough. <b>stop</b>: the task's own best is. <b>retune</b>: a gain that counts is still likely.$advised</p>
$advice
</section>
$charts
<section class="long"><h2>Tasks</h2><p>$which, oldest first, with the best configuration found.</p>
$tasks
</section>
<footer>Written by lbo $version. Made of trials and memory: no row of the data is in this file.</footer>
</main>
<script>$resize</script>
</body>
</html>
""")
