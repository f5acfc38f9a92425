"""Keeps results in the tree: `python -m lbo.experiments.results` copies summaries and pictures and fills the docs.

Every trial behind them is packed beside them; `--restore` unpacks all into the folder of the runs, where whatever was
made by the code of today is not made again: adding a repetition or a method costs that repetition or method only.

In docs/results.md, whatever is between `<!-- table: branin/summary.md -->` and `<!-- end -->` is replaced by that file
of results/, so that no number in the docs is typed by hand. A picture images/NAME.png of the page that is among the
figures of results/ is copied beside the page.
"""

from __future__ import annotations

import re
import shutil
import tarfile
from pathlib import Path
from typing import Annotated

import typer

KEPT = ("*.md", "summary.csv", "normalised.csv", "figures/*.png")
TRIALS = "units"  # the folder of a run with the files of its trials (see `runner`)
PACKED = ".tar.xz"
TABLES = Path("cohort-tables")  # cohorts as `sequences.SurvivalTable` tabulates them
MARKED = re.compile(r"(<!-- table: (?P<file>\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
PICTURE = re.compile(r"\]\(images/(?P<name>[\w-]+\.png)\)")
NOT_RUN = "*Not run yet.*"


def keep(runs: Path, results: Path) -> list[Path]:
    """Copy what is worth keeping of every run; returns the copies."""
    found = sorted(path for pattern in KEPT for path in runs.glob(f"**/{pattern}") if TRIALS not in path.parts)
    copies = [results / path.relative_to(runs) for path in found]
    for path, copy in zip(found, copies, strict=True):
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return copies


def pack(folder: Path, archive: Path) -> None:
    """All CSV files below a folder in one archive, the same bytes for the same files."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz") as tar:
        for file in sorted(folder.rglob("*.csv")):
            tar.add(file, str(file.relative_to(folder)), filter=_without_circumstances)


def _without_circumstances(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Only what a file holds: not when, by whom and with what rights it was written."""
    entry.mtime, entry.mode, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0o644, 0, 0, "", ""
    return entry


def unpack(archive: Path, folder: Path) -> None:
    """An archive's files in a folder; those that are there already stay as they are."""
    with tarfile.open(archive) as tar:
        for entry in tar.getmembers():
            file, content = folder / entry.name, tar.extractfile(entry)
            if content is not None and not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content.read())


def pack_all(runs: Path, results: Path, tables: Path = TABLES) -> list[Path]:
    """The trials of every run and the tabulated cohorts; returns the archives."""
    folders = [path for path in sorted(runs.glob(f"**/{TRIALS}")) if path.is_dir()]
    packed = {results / f"{folder.relative_to(runs)}{PACKED}": folder for folder in folders}
    if tables.is_dir():
        packed[results / f"{tables.name}{PACKED}"] = tables
    for archive, folder in packed.items():
        pack(folder, archive)
    return list(packed)


def restore(results: Path, runs: Path, tables: Path = TABLES) -> list[Path]:
    """Where the trials of every run and the tabulated cohorts have been unpacked to."""
    archives = sorted(results.glob(f"**/{TRIALS}{PACKED}"))
    unpacked = {runs / str(archive.relative_to(results)).removesuffix(PACKED): archive for archive in archives}
    if (of_tables := results / f"{tables.name}{PACKED}").is_file():
        unpacked[tables] = of_tables
    for folder, archive in unpacked.items():
        unpack(archive, folder)
    return list(unpacked)


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
    back: Annotated[bool, typer.Option("--restore", help="Unpack the trials that are kept, and nothing else.")] = False,
) -> None:
    """Copy summaries, pictures and trials of the runs into the tree, and their tables into the docs."""
    if back:
        typer.echo("\n".join(str(folder) for folder in restore(results, runs)))
        return
    copies = keep(runs, results) + pack_all(runs, results)
    page.write_text(filled(page.read_text(), results))
    illustrate(page, results)
    typer.echo(f"{len(copies)} files in {results}, tables in {page}")


if __name__ == "__main__":
    typer.run(main)
