"""The paper's figures from a run's results: plotly HTML that opens without a network, and PNG through Chromium."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lbo.errors import MissingExtra
from lbo.experiments import cohorts, summary
from lbo.experiments.summary import Results, mean_and_error

if TYPE_CHECKING:
    import pandas as pd

WIDTH, HEIGHT = 1000, 600
# One colour per method, the same in every figure; what has none here takes the spare ones in turn.
COLOURS = {"Random": "#7f7f7f", "SGP": "#1f77b4", "WinnersSGP": "#17becf", "Previous": "#bcbd22", "MTGP": "#9467bd",
           "DNGO": "#8c564b", "ABLR-50": "#ff9896", "ABLR-100": "#e377c2", "Paper": "#2ca02c", "Lifelong": "#d62728",
           "NN": "#000000"}  # fmt: skip
SPARE = ("#ff7f0e", "#aec7e8", "#98df8a", "#c5b0d5", "#c49c94")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def _plotly() -> Any:
    try:
        import plotly.graph_objects
    except ImportError as error:
        raise MissingExtra("plotly", "plot") from error
    return plotly.graph_objects


def lines(
    title: str, x_title: str, y_title: str, series: Mapping[str, tuple[Sequence[float], Any, Any]], *, log: bool = False
) -> Any:
    """A line with a band of one standard error for each name: (x, mean, error)."""
    go = _plotly()
    figure = go.Figure()
    for i, (name, (x, mean, error)) in enumerate(series.items()):
        mean, error = np.asarray(mean, dtype=float), np.nan_to_num(np.asarray(error, dtype=float))
        colour = COLOURS.get(name, SPARE[i % len(SPARE)])
        low = np.maximum(mean - error, mean / 10) if log else mean - error
        figure.add_trace(
            go.Scatter(x=list(x), y=mean, name=name, legendgroup=name, mode="lines", line={"color": colour})
        )
        figure.add_trace(
            go.Scatter(x=[*x, *reversed(x)], y=[*(mean + error), *reversed(low)], fill="toself", fillcolor=colour,
                       mode="lines", opacity=0.12, line={"width": 0}, legendgroup=name, showlegend=False,
                       hoverinfo="skip")
        )  # fmt: skip
    figure.update_layout(title=title, xaxis_title=x_title, yaxis_title=y_title, template="plotly_white",
                         width=WIDTH, height=HEIGHT)  # fmt: skip
    if log:
        positive = [y for _, mean, _ in series.values() for y in np.asarray(mean, dtype=float) if y > 0]
        wide = bool(positive) and max(positive) > 300 * min(positive)
        # Over many decades only their ends are named, over few also 2 and 5.
        figure.update_yaxes(type="log", dtick=1 if wide else "D2", exponentformat="power")
    return figure


def curves(results: Results, names: Sequence[str], measure: str, title: str, *, log: bool) -> Any:
    """A measure against the number of trials, averaged over all tasks of some sequences."""
    longest = int(results.trials["trial"].max()) + 1
    every = summary.curves(_only(results, names), range(1, longest + 1))
    every = every.assign(repetition=every["sequence"] + "/" + every["repetition"].astype(str))
    return lines(title, "function evaluations", measure, _series(every, "trials", measure), log=log)


def _series(frame: pd.DataFrame, x: str, measure: str) -> dict[str, tuple[Sequence[float], Any, Any]]:
    """Mean and error over repetitions, by method, along x."""
    series: dict[str, tuple[Sequence[float], Any, Any]] = {}
    for method, rows in frame.groupby("method", sort=False):
        by_x = rows.groupby([x, "repetition"])[measure].mean().unstack()
        numbers = [mean_and_error(by_x.loc[value]) for value in by_x.index]
        series[str(method)] = (list(by_x.index), [m for m, _ in numbers], [e for _, e in numbers])
    return series


def _only(results: Results, names: Sequence[str]) -> Results:
    return Results(*(frame[frame["sequence"].isin(list(names))] for frame in results))


def branin(results: Results) -> dict[str, Any]:
    """(a) and (b): the paper's raw minimum and our regret over sequences 1-3 and 3-5."""
    names = list(results.trials["sequence"].unique())
    halves = {"a": names[:3], "b": names[-3:]}
    raw = {f"branin-{part}-minimum": curves(results, of, "best", f"({part}) average minimum: {', '.join(of)}", log=True)
           for part, of in halves.items()}  # fmt: skip
    regret = {f"branin-{part}-regret": curves(results, of, "regret", f"({part}) regret: {', '.join(of)}", log=True)
              for part, of in halves.items()}  # fmt: skip
    return raw | regret


def each_sequence(results: Results, measure: str = "regret") -> dict[str, Any]:
    """Regret against trials, one figure per sequence."""
    return {f"{name}-{measure}": curves(results, [name], measure, f"{name}: {measure}", log=measure != "best")
            for name in results.trials["sequence"].unique()}  # fmt: skip


def by_task(results: Results, trials: int) -> dict[str, Any]:
    """Regret after some trials against the number of tasks seen, one figure per sequence."""
    at = summary.curves(results, [trials])
    at = at.assign(task=at["task"] + 1)
    return {f"{name}-by-task": lines(f"{name}: regret after {trials} trials", "tasks seen", "regret",
                                     _series(rows, "task", "regret"), log=True)
            for name, rows in at.groupby("sequence", sort=False)}  # fmt: skip


def survival(results: Results, trials: int) -> dict[str, Any]:
    """Normalised AUC after some trials against overlap, one figure per cohort, and the supplement's curves."""
    table = summary.normalised_auc(results, [trials])
    cohort_of = table["sequence"].str.rsplit("-", n=1).str[0]
    overlap = table["sequence"].str.rsplit("-", n=1).str[1].astype(int)
    figures = {}
    for cohort, rows in table.assign(overlap=overlap).groupby(cohort_of, sort=False):
        series = {str(method): (list(part["overlap"]), part["gain"], part["gain_error"])
                  for method, part in rows.groupby("method", sort=False)}  # fmt: skip
        title = f"{cohort}: normalised AUC after {trials} trials"
        figures[f"{cohort}-normalised"] = lines(title, "overlap (years)", "(AUC - random's) / random's", series)
    return figures | _auc_curves(results)


def _auc_curves(results: Results) -> dict[str, Any]:
    """Best AUC against trials, one figure per cohort and overlap, as in the supplement."""
    longest = int(results.trials["trial"].max()) + 1
    every = summary.curves(results, range(1, longest + 1))
    every = every.assign(auc=1 - every["best"])
    return {f"{name}-auc": lines(f"{name}: AUC", "function evaluations", "AUC", _series(rows, "trials", "auc"))
            for name, rows in every.groupby("sequence", sort=False)}  # fmt: skip


def sample_sizes(cohort: cohorts.Cohort) -> Any:
    """How many patients arrived each year."""
    years, counts = np.unique(cohort.year, return_counts=True)
    figure = _plotly().Figure(_plotly().Bar(x=years, y=counts))
    figure.update_layout(title=f"{cohort.name}: patients by year", template="plotly_white", width=WIDTH, height=HEIGHT)
    return figure


def runtime(results: Results) -> dict[str, Any]:
    """Accumulated seconds over the functions of a sequence, and the seconds of each function alone."""
    per_task = results.seconds.groupby(["method", "sequence", "repetition", "task"], sort=False)["seconds"].sum()
    total = per_task.groupby(level=["method", "sequence", "repetition"], sort=False).cumsum()
    frames = {name: seconds.reset_index().eval("functions = task + 1") for name, seconds in
              (("accumulated", total), ("each", per_task))}  # fmt: skip
    titles = {"accumulated": "accumulated optimisation time", "each": "optimisation time of each function"}
    return {f"runtime-{name}": lines(titles[name], "functions", "seconds", _series(frame, "functions", "seconds"))
            for name, frame in frames.items()}  # fmt: skip


def heat_map(correlation: Any) -> Any:
    """(c) correlation of networks (columns) and functions (rows), times the gate."""
    go = _plotly()
    tasks, networks = correlation.shape
    figure = go.Figure(
        go.Heatmap(z=correlation, x=[f"g{m + 1}" for m in range(networks)], y=[f"f{t + 1}" for t in range(tasks)],
                   zmin=-1, zmax=1, colorscale="RdBu", text=np.round(correlation, 2), texttemplate="%{text}")
    )  # fmt: skip
    figure.update_layout(title="(c) correlation of networks and functions, times the gate", template="plotly_white",
                         width=WIDTH, height=HEIGHT, yaxis_autorange="reversed")  # fmt: skip
    return figure


# Files


def write(folder: Path, figures: Mapping[str, Any]) -> list[Path]:
    """Each figure as HTML, beside one copy of plotly's script; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures.items():
        paths.append(folder / f"{name}.html")
        figure.write_html(paths[-1], include_plotlyjs="directory", div_id=name,
                          config={"displayModeBar": False})  # fmt: skip
    return paths


def browser() -> str | None:
    """A Chromium that can take pictures, if there is one."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def to_png(html: Path, chromium: str) -> Path:
    """A picture of an HTML figure."""
    png = html.with_suffix(".png").resolve()
    with tempfile.TemporaryDirectory() as profile:
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
                   "--hide-scrollbars", f"--window-size={WIDTH + 16},{HEIGHT + 16}", "--virtual-time-budget=10000",
                   f"--screenshot={png}", html.resolve().as_uri()]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return png
