"""Keeps results in the tree: `python -m lbo.experiments.results` copies summaries and pictures and fills the docs.

In docs/results.md, whatever is between `<!-- table: branin/summary.md -->` and `<!-- end -->` is replaced by that file
of results/, so that no number in the docs is typed by hand. A picture images/NAME.png of the page that is among the
figures of results/ is copied beside the page.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Annotated

import typer

KEPT = ("*.md", "summary.csv", "normalised.csv", "figures/*.png")
MARKED = re.compile(r"(<!-- table: (?P<file>\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
PICTURE = re.compile(r"\]\(images/(?P<name>[\w-]+\.png)\)")
NOT_RUN = "*Not run yet.*"


def keep(runs: Path, results: Path) -> list[Path]:
    """Copy what is worth keeping of every run; returns the copies."""
    found = sorted(path for pattern in KEPT for path in runs.glob(f"**/{pattern}") if "units" not in path.parts)
    copies = [results / path.relative_to(runs) for path in found]
    for path, copy in zip(found, copies, strict=True):
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return copies


def filled(text: str, results: Path) -> str:
    """A page with the newest tables between its marks."""

    def table(match: re.Match[str]) -> str:
        file = results / match["file"]
        content = file.read_text().strip() if file.is_file() else NOT_RUN
        return f"{match[1]}\n{content}\n\n{match[3]}"

    return MARKED.sub(table, text)


def illustrate(page: Path, results: Path) -> None:
    """Copy the newest figures to the pictures of a page."""
    for name in PICTURE.findall(page.read_text()):
        for figure in results.glob(f"**/figures/{name}"):
            shutil.copyfile(figure, page.parent / "images" / name)


def main(
    runs: Annotated[Path, typer.Argument(help="Folder of the runs.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Where they are kept.")] = Path("results"),
    page: Annotated[Path, typer.Option(help="The page to fill.")] = Path("docs/results.md"),
) -> None:
    """Copy summaries and pictures of the runs into the tree, and their tables into the docs."""
    copies = keep(runs, results)
    page.write_text(filled(page.read_text(), results))
    illustrate(page, results)
    typer.echo(f"{len(copies)} files in {results}, tables in {page}")


if __name__ == "__main__":
    typer.run(main)
