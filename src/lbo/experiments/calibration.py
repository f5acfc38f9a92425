"""Is advice to be trusted? What it says of tasks whose optimum is known, beside what is true.

    python -m lbo.experiments.calibration                      every cohort and every made sequence, in half an hour
    python -m lbo.experiments.calibration --cohorts rotterdam --no-made
    python -m lbo.experiments.calibration --quick              a few made sequences, in minutes

A claim is made of every task but the first after AFTER trials: how likely it is that keeping the previous task's
configuration (or stopping with the task's own best) loses no more than the stated amount, the advice's threshold.
Held-out tasks are windows of public survival cohorts, on tables of configurations that were evaluated once
(`cohort-tables/`, tabulated first where they are missing); made ones are Branin and synthetic sequences.

    out/units/SEQUENCE/REPETITION-FINGERPRINT.csv   the claims of one stream, written when it is done
    out/claims.csv, out/calibration.md, out/figures/calibration.html and .png, after every stream

A run that was killed goes on with the streams that are not there yet. The fingerprint is of all that claims depend on,
the code of the model and of advice among it.
"""

from __future__ import annotations

import csv
import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import optuna
import typer
from optuna.storages import InMemoryStorage
from rich.console import Console
from rich.progress import track

from lbo import advice
from lbo.errors import LboError, MissingExtra
from lbo.experiments import DataError, cohorts, figures, methods, sequences
from lbo.experiments.problems import Problem, Rows, Step, as_int
from lbo.experiments.sequences import BraninSequence, PublicCohort, SyntheticSequence, TaskSequence
from lbo.models import draws
from lbo.sampler import LBOSampler
from lbo.seeds import Seed
from lbo.space import Params
from lbo.stream import Stream

AFTER = (0, 2, 5, 10, 20)  # trials of a task
QUICK_AFTER = (0, 2, 5, 10)
SYNTHETIC = ("family", "alternating", "strangers", "noisy", "moved-optimum")
EDGES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)  # of the bins of claimed probabilities
LABELS = {"keep": "keep the previous configuration", "stop": "stop with the task's own best"}
SYMBOLS = {"keep": "circle", "stop": "square"}
COLOURS = {"keep": "#0072B2", "stop": "#D55E00"}  # Okabe and Ito's
HELD_OUT, MADE = "held-out cohorts", "made sequences"
DASHES = {HELD_OUT: "solid", MADE: "dot"}
AIM = 0.8  # of the times that advice says keep or stop


@dataclass(frozen=True)
class Claim:
    """What advice says of keeping or stopping, and what that loses in truth."""

    sequence: str
    repetition: int
    task: str
    trials: int
    about: str  # "keep" or "stop"
    recommendation: str
    threshold: float
    expected: float
    probability: float  # of losing no more than the threshold
    at_most: float
    loss: float

    @property
    def came_true(self) -> bool:
        return self.loss <= self.threshold

    @property
    def held_out(self) -> bool:
        return self.sequence.startswith("survival-")

    @property
    def source(self) -> str:
        """The cohort; of a made sequence, the sequence itself."""
        return self.sequence.removeprefix("survival-").rpartition("-")[0] if self.held_out else self.sequence


def claims(sequence: TaskSequence, repetition: int, seed: int, after: Sequence[int]) -> Iterator[Claim]:
    """One stream of the sequence's tasks, tuned by the default model."""
    root = Seed(seed) / sequence.name / repetition
    stream = Stream("calibration", InMemoryStorage())
    for t, problem in enumerate(sequence.tasks(root)):
        study = stream.study(f"{t}", seed=as_int(root / t))
        study.sampler = LBOSampler(stream=stream, seed=as_int(root / t), candidates=problem.candidates)
        for given, made in _advices(study, stream, problem, after):
            for about, gain, configuration in _statements(given, made, problem):
                yield Claim(
                    sequence=sequence.name, repetition=repetition, task=problem.name, trials=given.trials, about=about,
                    recommendation=given.recommendation, threshold=given.threshold or 0.0, expected=gain.expected,
                    probability=1 - gain.probability, at_most=gain.at_most, loss=configuration - problem.minimum,
                )  # fmt: skip


def _advices(
    study: optuna.Study, stream: Stream, problem: Problem, after: Sequence[int]
) -> Iterator[tuple[advice.Advice, list[Step]]]:
    """Advice after some trials, and where those were made."""
    memory = stream.memory_for(study)
    made: list[Step] = []
    for n in range(max(after) + 1):
        if memory is not None and n in after:
            known = advice.Known(study.get_trials(deepcopy=False), study.direction, memory, problem.candidates)
            yield advice.advise(study.study_name, known), list(made)
        if n < max(after):
            made.append(problem.step(study))


def _statements(
    given: advice.Advice, made: Sequence[Step], problem: Problem
) -> Iterator[tuple[str, advice.Gain, float]]:
    """What is said about keeping and about stopping, with the true value that each ends with."""
    if given.over_previous is not None and given.configuration is not None:
        yield "keep", given.over_previous, _truth(problem, given.configuration)
    if given.left is not None:
        told_best = min(made, key=lambda step: step.value)
        yield "stop", given.left, problem.truth(told_best.at)


def _truth(problem: Problem, configuration: Params) -> float:
    if isinstance(problem, Rows):
        return problem.truth(problem.table.nearest(configuration))
    return problem.truth(configuration)


# What came of it


def summary(found: Sequence[Claim]) -> str:
    """The calibration as Markdown."""
    groups = _groups(found)
    parts = [
        _size(found),
        _in_words(groups),
        _sources(groups),
        _by_trials(groups),
        _covered(groups),
        _bins_table(groups),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _size(found: Sequence[Claim]) -> list[str]:
    streams = len({(claim.sequence, claim.repetition) for claim in found})
    return [f"{len(found):,} claims in {streams} streams of {len({claim.sequence for claim in found})} sequences:"]


def _groups(found: Sequence[Claim]) -> dict[str, list[Claim]]:
    """The claims of held-out cohorts and of made sequences, if there are any."""
    split = {HELD_OUT: [c for c in found if c.held_out], MADE: [c for c in found if not c.held_out]}
    return {name: claims for name, claims in split.items() if claims}


def _in_words(groups: dict[str, list[Claim]]) -> list[str]:
    return [
        f"* {name}: advice said {about} {len(said)} times, and {_share(said, _came_true)} of them lost no more than "
        f"stated ({advice.CONFIDENCE:.0%} claimed, {AIM:.0%} wanted)."
        for name, found in groups.items()
        for about in LABELS
        if (said := _said(found, about))
    ]


def _said(found: Iterable[Claim], about: str) -> list[Claim]:
    """Where advice was to keep, or to stop."""
    return [claim for claim in found if claim.about == about == claim.recommendation]


def _came_true(claim: Claim) -> bool:
    return claim.came_true


def _within(claim: Claim) -> bool:
    return claim.loss <= claim.at_most


def _share(found: Sequence[Claim], kept: Callable[[Claim], bool]) -> str:
    return f"{fmean(kept(claim) for claim in found):.0%}" if found else "-"


def _sources(groups: dict[str, list[Claim]]) -> list[str]:
    """How often advice came true, cohort by cohort and sequence by sequence."""
    stated = "lost no more than stated"
    lines = [f"| tasks of | said keep | {stated} | said stop | {stated} |", "|" + "---|" * 5]
    for found in groups.values():
        for source in dict.fromkeys(claim.source for claim in found):
            said = [_said((c for c in found if c.source == source), about) for about in LABELS]
            cells = [f"{len(of)} | {_share(of, _came_true)}" for of in said]
            lines.append(f"| {source} | {' | '.join(cells)} |")
    return lines


def _by_trials(groups: dict[str, list[Claim]]) -> list[str]:
    lines = ["| tasks of | advice | after trials | said | lost no more than stated |", "|" + "---|" * 5]
    for name, found in groups.items():
        for about in LABELS:
            said = _said(found, about)
            for n in sorted({claim.trials for claim in said}):
                of = [claim for claim in said if claim.trials == n]
                lines.append(f"| {name} | {about} | {n} | {len(of)} | {_share(of, _came_true)} |")
    return lines


def _covered(groups: dict[str, list[Claim]]) -> list[str]:
    lines = [
        f"| tasks of | about | claims | loss within `at_most` ({advice.CONFIDENCE:.0%} claimed) |",
        "|" + "---|" * 4,
    ]
    for name, found in groups.items():
        for about in LABELS:
            of = [claim for claim in found if claim.about == about]
            lines.append(f"| {name} | {about} | {len(of)} | {_share(of, _within)} |")
    return lines


def _bins_table(groups: dict[str, list[Claim]]) -> list[str]:
    lines = ["| tasks of | about | claimed | came true | claims |", "|" + "---|" * 5]
    for name, found in groups.items():
        for about in LABELS:
            rows = bins(c for c in found if c.about == about)
            lines += [f"| {name} | {about} | {claimed:.0%} | {true:.0%} | {n} |" for claimed, true, n in rows]
    return lines


def bins(found: Iterable[Claim]) -> list[tuple[float, float, int]]:
    """(mean claimed probability, share that came true, claims) of each bin that has any."""
    found = list(found)
    result = []
    for low, high in pairwise(EDGES):
        of = [c for c in found if low <= c.probability < high or c.probability == high == 1.0]
        if of:
            result.append((fmean(c.probability for c in of), fmean(c.came_true for c in of), len(of)))
    return result


def figure(found: Sequence[Claim]) -> Any:
    """The calibration plot; on or above the diagonal, advice keeps what it promises."""
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise MissingExtra("plotly", "plot") from error
    drawn = go.Figure(go.Scatter(x=[0, 1], y=[0, 1], mode="lines", name="as claimed",
                                 line={"color": "#999999", "dash": "dash"}))  # fmt: skip
    for group, claims in _groups(found).items():
        for about, label in LABELS.items():
            points = bins(c for c in claims if c.about == about)
            drawn.add_scatter(
                x=[claimed for claimed, _, _ in points], y=[true for _, true, _ in points], name=f"{label}: {group}",
                text=[f"{n} claims" for _, _, n in points], mode="lines+markers",
                hovertemplate="%{x:.0%} claimed, %{y:.0%} came true: %{text}<extra></extra>",
                line={"color": COLOURS[about], "dash": DASHES[group]},
                marker={"size": [6 + 2 * n**0.4 for _, _, n in points], "symbol": SYMBOLS[about]},
            )  # fmt: skip
    drawn.update_layout(
        title="Advice: is the loss within the threshold as often as claimed?",
        xaxis_title="claimed probability (the larger the mark, the more claims)", yaxis_title="how often it was",
        template="plotly_white", width=figures.WIDTH, height=figures.HEIGHT, font_size=14,
        legend={"orientation": "h", "y": -0.2},
    )  # fmt: skip
    drawn.update_xaxes(tickformat=".0%", range=[-0.03, 1.03])
    drawn.update_yaxes(tickformat=".0%", range=[-0.05, 1.07])
    return drawn


def write(found: Sequence[Claim], out: Path) -> Path:
    """All that came of it; returns the figure's page."""
    out.mkdir(parents=True, exist_ok=True)
    _write_claims(found, out / "claims.csv")
    (out / "calibration.md").write_text(summary(found), encoding="utf-8")
    return figures.write(out / "figures", {"calibration": figure(found)})[0]


# Units of work


def _unit_path(sequence: TaskSequence, repetition: int, seed: int, after: Sequence[int], out: Path) -> Path:
    """Where the claims of one stream are kept, named after all that they depend on."""
    depends_on = {"sequence": sequences.settings(sequence), "method": methods.METHODS[methods.DEFAULT].settings(),
                  "advice": _code(), "seed": seed, "after": list(after)}  # fmt: skip
    fingerprint = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:12]
    return out / "units" / sequence.name / f"{repetition}-{fingerprint}.csv"


@cache
def _code() -> str:
    """What advice is made by, as it was when this process began."""
    return "".join(inspect.getsource(module) for module in (advice, draws))


def _write_claims(found: Sequence[Claim], path: Path) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=[field.name for field in fields(Claim)])
        writer.writeheader()
        writer.writerows(asdict(claim) for claim in found)
    unfinished.replace(path)


def _read_claims(path: Path) -> list[Claim]:
    kinds = {"int": int, "float": float, "str": str}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Claim(**{field.name: kinds[str(field.type)](row[field.name]) for field in fields(Claim)})
            for row in csv.DictReader(file)
        ]


def _made(quick: bool) -> list[TaskSequence]:
    branins: list[TaskSequence] = [BraninSequence(sigma) for sigma in ((0.01, 0.1) if quick else (0.01, 0.05, 0.1, 1))]
    return [*branins, *(SyntheticSequence(name) for name in (SYNTHETIC[:3] if quick else SYNTHETIC))]


def _held_out(names: Iterable[str], configurations: int) -> list[TaskSequence]:
    """Every overlap of the cohorts. The other collections' tables share no configurations, so nobody knows what
    keeping one loses."""
    unknown = [name for name in names if name not in cohorts.RECIPES]
    if unknown:
        raise DataError(f"A cohort is one of {', '.join(cohorts.RECIPES)}, but {', '.join(unknown)} was asked for.")
    return sequences.survival("table", [PublicCohort(name) for name in names], configurations)


def main(
    chosen: Annotated[
        str, typer.Option("--cohorts", help="Public cohorts, separated by commas; an empty text for none.")
    ] = ",".join(cohorts.RECIPES),
    made: Annotated[bool, typer.Option(help="Branin and synthetic sequences too.")] = True,
    repeats: Annotated[int, typer.Option(min=1, help="Streams of every sequence.")] = 5,
    configurations: Annotated[int, typer.Option(min=4, help="Of a cohort's table.")] = sequences.CONFIGURATIONS,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that tabulate the cohorts.")] = 1,
    out: Annotated[Path, typer.Option(help="Results go here; a killed run goes on from what is there.")] = Path(
        "runs/calibration"
    ),
    seed: Annotated[int, typer.Option(min=0)] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Five made sequences and no cohort, in minutes.")] = False,
    png: Annotated[bool, typer.Option(help="A picture beside the HTML figure; needs Chromium.")] = True,
) -> None:
    """Measure how far advice can be trusted."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    names = [name.strip() for name in chosen.split(",") if name.strip() and not quick]
    todo = [*_held_out(names, configurations), *(_made(quick) if made or quick else [])]
    if not todo:
        raise DataError("Advice is measured on cohorts or on made sequences, but neither was asked for.")
    console = Console(stderr=True)
    for sequence in todo:
        with console.status(f"Tabulating {sequence.name} where that was not done before"):
            sequence.prepare(jobs)
    after = QUICK_AFTER if quick else AFTER
    units = [(sequence, repetition) for repetition in range(repeats) for sequence in todo]
    found: list[Claim] = []
    page = None
    for sequence, repetition in track(units, description="Tuning", console=console):
        path = _unit_path(sequence, repetition, seed, after, out)
        if not path.is_file():
            _write_claims(list(claims(sequence, repetition, seed, after)), path)
        found += _read_claims(path)
        page = write(found, out)
    print(summary(found))
    chromium = figures.browser() if png else None
    if page is not None and chromium is not None:
        figures.to_png(page, chromium)


if __name__ == "__main__":
    try:
        typer.run(main)
    except LboError as error:
        sys.exit(f"Error: {error}")
