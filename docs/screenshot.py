"""Pictures of a demo for the documentation: `python docs/screenshot.py` writes docs/images/report*.png and demo.png.

The example is what `lbo demo` does: real patients in windows of years, tuned with a memory and without. demo.png shows
the AUC that is still missing after each trial, report.png the stream's report as wide as a desktop's window and as a
phone. Pictures are taken by Chromium, without a network.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from rich.console import Console

import lbo
from lbo.demo import Size, run
from lbo.experiments import figures
from lbo.experiments.figures import browser
from lbo.history import PastTask, past_tasks
from lbo.plot import BLUE, ORANGE
from lbo.report import write

IMAGES = Path(__file__).parent / "images"
SHOTS = {
    "report.png": (1100, 5560),
    "report-top.png": (1100, 1360),
    "report-phone.png": (390, 7420),
}  # width and height
NARROWEST = 500  # window that Chromium opens; a narrower page is put into a frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--storage", help="URL of a finished demo's storage; without it, the demo is run first")
    storage = parser.parse_args().storage
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        if storage is None:
            run(Console(), Path(folder), Size(), seed=0)
            storage = f"sqlite:///{folder}/demo.db"
        page = write(lbo.Stream("remembering", storage), Path(folder, "report.html"))
        for name, (width, height) in SHOTS.items():
            screenshot(page, IMAGES / name, width, height)
        chart = figures.write(Path(folder), {"demo": missing(storage)})[0]
        figures.to_png(chart, browser() or "chromium").replace(IMAGES / "demo.png")


def missing(storage: str) -> Any:
    """Of the demo's later windows: how much AUC is missing after each trial, with a memory and without."""
    import plotly.graph_objects as go

    later = past_tasks(lbo.Stream("remembering", storage))[1:]
    afresh = [past_tasks(lbo.Stream(f"afresh {task.name}", storage))[0] for task in later]
    best = [max(task.best_value or 0.0 for task in pair) for pair in zip(later, afresh, strict=True)]
    drawn = go.Figure()
    for name, tasks, colour, symbol in (("afresh", afresh, ORANGE, "square"), ("with a memory", later, BLUE, "circle")):
        left = np.array([_missing(task, most) for task, most in zip(tasks, best, strict=True)])
        trials = list(range(1, left.shape[1] + 1))
        for window in left:
            drawn.add_scatter(x=trials, y=window, mode="lines", line={"color": colour, "width": 1, "shape": "hv"},
                              opacity=0.35, showlegend=False)  # fmt: skip
        drawn.add_scatter(x=trials, y=left.mean(axis=0), name=name, mode="lines+markers",
                          line={"color": colour, "width": 4, "shape": "hv"},
                          marker={"size": 9, "symbol": symbol})  # fmt: skip
    drawn.update_layout(
        title=f"Best AUC known minus best so far: {len(later)} windows of patients (thin) and their mean (thick)",
        template="plotly_white", width=figures.WIDTH, height=figures.HEIGHT, font_size=15,
        xaxis_title="trials of a window", yaxis_title="AUC missing", legend={"x": 0.7, "y": 0.95, "font_size": 18},
    )  # fmt: skip
    drawn.update_yaxes(rangemode="tozero")
    return drawn


def _missing(task: PastTask, most: float) -> list[float]:
    return [most - (value or 0.0) for value in task.best_so_far()]


def screenshot(page: Path, picture: Path, width: int, height: int) -> None:
    """A picture of a page."""
    frame = page.with_name("frame.html")
    frame.write_text(
        f'<body style="margin:0"><iframe src="{page.name}" style="width:{width}px;height:{height}px;border:0">'
    )
    picture.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser() or "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={profile}",
                f"--window-size={max(width, NARROWEST)},{height}", "--virtual-time-budget=10000",
                f"--screenshot={picture}", frame.as_uri(),
            ],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip


if __name__ == "__main__":
    main()
