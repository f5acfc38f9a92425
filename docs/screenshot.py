"""Pictures of an example report for the documentation: `python docs/screenshot.py` writes docs/images/report*.png.

The example is the stream of `lbo demo`, real patients in windows of years. Pictures are taken by Chromium, without a
network, as wide as a desktop's window and as a phone.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import optuna
from rich.console import Console

import lbo
from lbo.demo import Size, run
from lbo.experiments.figures import browser
from lbo.report import write

IMAGES = Path(__file__).parent / "images"
SHOTS = {"report.png": (1100, 4850), "report-phone.png": (390, 6700)}  # width and height of the page
NARROWEST = 500  # window that Chromium opens; a narrower page is put into a frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--storage", help="URL of a finished demo's storage; without it, the demo is run first")
    storage = parser.parse_args().storage
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        if storage is None:
            run(Console(), Path(folder), Size(windows=6, first=30), seed=0)
            storage = f"sqlite:///{folder}/demo.db"
        page = write(lbo.Stream("remembering", storage), Path(folder, "report.html"))
        for name, (width, height) in SHOTS.items():
            screenshot(page, IMAGES / name, width, height)


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
