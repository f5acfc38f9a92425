"""Where benchmarks write: JSON, a Markdown table and a picture in results/, the figures as HTML in runs/bench/.

A quick run goes to results/scratch/, which is not kept, so that trying a script out leaves the last full results alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import machine
from lbo.experiments import figures

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PAGES = ROOT / "runs" / "bench"


def parser(description: str) -> argparse.ArgumentParser:
    """A script's options, the common ones there already."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="a minute's worth, into results/scratch/")
    options.add_argument("--out", type=Path, help="folder of the results")
    return options


def folder(arguments: argparse.Namespace) -> Path:
    """Where the results of a run go."""
    return arguments.out or (RESULTS / "scratch" if arguments.quick else RESULTS)


def keep(out: Path, name: str, record: Mapping[str, Any], tables: str, drawn: Mapping[str, Any]) -> None:
    """NAME.json, NAME.md and a picture of each figure; a record says which machine it is from."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    (out / f"{name}.md").write_text(f"{tables}\n{machine.sentence(record['machine'])}\n")
    print(f"\n{tables}\n{out / name}.json, .md")
    draw(out, drawn)


def draw(out: Path, drawn: Mapping[str, Any]) -> None:
    """Each figure as HTML in runs/bench/ and, where there is a Chromium, as PNG beside the results."""
    pages = figures.write(PAGES, drawn)
    chromium = figures.browser()
    if chromium is None:
        print("No PNG: no Chromium was found.")
        return
    for page in pages:
        figures.to_png(page, chromium).replace(out / f"{page.stem}.png")


def lines(title: str, x_title: str, y_title: str, series: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Any:
    """A figure of x and y of each name, both on logarithmic axes."""
    import plotly.graph_objects as go

    figure = go.Figure([go.Scatter(x=x, y=y, name=name, mode="lines+markers") for name, (x, y) in series.items()])
    figure.update_layout(title=title, xaxis_title=x_title, yaxis_title=y_title, template="plotly_white",
                         width=figures.WIDTH, height=figures.HEIGHT)  # fmt: skip
    figure.update_xaxes(type="log", tickvals=sorted({value for x, _ in series.values() for value in x}))
    figure.update_yaxes(type="log", dtick="D2", exponentformat="power")
    return figure


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def short(number: float | None, digits: int = 3) -> str:
    """A number with few digits; nothing for what was not measured."""
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 10**digits else f"{number:.{digits}g}"
