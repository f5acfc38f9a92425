"""Is advice to be trusted? What it says of tasks whose optimum is known, beside what is true.

    python -m lbo.experiments.calibration [--quick] [--repeats 5] [--out runs/calibration]

A claim is made of every task but the first after AFTER trials: how likely it is that keeping the previous task's
configuration (or stopping with the task's own best) loses no more than the stated amount, the advice's threshold.
Written are claims.csv, calibration.md and calibration.html: claimed probability against how often it came true.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
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
from lbo.errors import MissingExtra
from lbo.experiments import cohorts, sequences
from lbo.experiments.problems import Problem, Rows, Step, as_int
from lbo.experiments.sequences import BraninSequence, PublicCohort, SyntheticSequence, TaskSequence
from lbo.sampler import LBOSampler
from lbo.seeds import Seed
from lbo.space import Params
from lbo.stream import Stream

AFTER = (0, 2, 5, 10, 20)  # trials of a task
QUICK_AFTER = (0, 2, 5, 10)
SYNTHETIC = ("family", "alternating", "strangers", "noisy", "moved-optimum")
EDGES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)  # of the bins of claimed probabilities
LABELS = {"keep": "keep the previous configuration", "stop": "stop with the task's own best"}
COLOURS = {"keep": "#0072B2", "stop": "#D55E00"}  # Okabe and Ito's


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
    return "\n".join([*_said(found), "", *_covered(found), "", *_bins_table(found), ""])


def _said(found: Sequence[Claim]) -> list[str]:
    lines = ["| advice | after trials | given | lost no more than stated |", "|---|---|---|---|"]
    for about in LABELS:
        said = [claim for claim in found if claim.about == about == claim.recommendation]
        for n in (None, *sorted({claim.trials for claim in said})):
            of = [claim for claim in said if n in (None, claim.trials)]
            share = f"{fmean(claim.came_true for claim in of):.0%}" if of else ""
            lines.append(f"| {about} | {'any' if n is None else n} | {len(of)} | {share} |")
    return lines


def _covered(found: Sequence[Claim]) -> list[str]:
    lines = [f"| about | claims | loss within `at_most` ({advice.CONFIDENCE:.0%} claimed) |", "|---|---|---|"]
    for about in LABELS:
        of = [claim for claim in found if claim.about == about]
        share = f"{fmean(claim.loss <= claim.at_most for claim in of):.0%}" if of else ""
        lines.append(f"| {about} | {len(of)} | {share} |")
    return lines


def _bins_table(found: Sequence[Claim]) -> list[str]:
    lines = ["| about | claimed | came true | claims |", "|---|---|---|---|"]
    rows = ((about, *bin_) for about in LABELS for bin_ in bins(c for c in found if c.about == about))
    return [*lines, *(f"| {about} | {claimed:.0%} | {true:.0%} | {n} |" for about, claimed, true, n in rows)]


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
    drawn = go.Figure(go.Scatter(x=[0, 1], y=[0, 1], mode="lines", name="calibrated",
                                 line={"color": "#999999", "dash": "dash"}))  # fmt: skip
    for about, label in LABELS.items():
        points = bins(c for c in found if c.about == about)
        drawn.add_scatter(
            x=[claimed for claimed, _, _ in points], y=[true for _, true, _ in points], name=label,
            text=[str(n) for _, _, n in points], textposition="top center", mode="lines+markers+text",
            line={"color": COLOURS[about]}, marker={"size": 9},
        )  # fmt: skip
    drawn.update_layout(
        title="Advice: claimed probability of a loss within the threshold, and how often it was (numbers: claims)",
        xaxis_title="claimed", yaxis_title="came true", template="plotly_white", width=900, height=600,
    )  # fmt: skip
    drawn.update_xaxes(tickformat=".0%", range=[-0.02, 1.02])
    drawn.update_yaxes(tickformat=".0%", range=[-0.05, 1.1])
    return drawn


def write(found: Sequence[Claim], out: Path) -> None:
    """All that came of it."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / "claims.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(found[0])))
        writer.writeheader()
        writer.writerows(asdict(claim) for claim in found)
    (out / "calibration.md").write_text(summary(found), encoding="utf-8")
    figure(found).write_html(out / "calibration.html", config={"displayModeBar": False})


def _sequences(quick: bool) -> list[TaskSequence]:
    branins: list[TaskSequence] = [BraninSequence(sigma) for sigma in ((0.01, 0.1) if quick else (0.01, 0.05, 0.1, 1))]
    synthetic: list[TaskSequence] = [SyntheticSequence(name) for name in (SYNTHETIC[:3] if quick else SYNTHETIC)]
    # The other collections' tables share no configurations, so nobody knows what keeping one loses.
    held_out = [] if quick else sequences.survival("table", [PublicCohort(name) for name in cohorts.RECIPES])
    return [*branins, *synthetic, *held_out]


def main(
    quick: Annotated[bool, typer.Option("--quick", help="Two repetitions of five sequences, in minutes.")] = False,
    repeats: Annotated[int, typer.Option(min=1)] = 5,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that tabulate the cohorts.")] = 1,
    out: Annotated[Path, typer.Option(help="Results go here.")] = Path("runs/calibration"),
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Measure how far advice can be trusted."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    chosen = _sequences(quick)
    for sequence in chosen:
        sequence.prepare(jobs)
    repetitions = range(min(repeats, 2) if quick else repeats)
    units = [(sequence, repetition) for sequence in chosen for repetition in repetitions]
    found: list[Claim] = []
    for sequence, repetition in track(units, description="Tuning", console=Console(stderr=True)):
        found.extend(claims(sequence, repetition, seed, QUICK_AFTER if quick else AFTER))
        write(found, out)
    Console().print(summary(found))


if __name__ == "__main__":
    typer.run(main)
