"""The pictures of the documentation, drawn as small SVG files: `python docs/pictures.py`.

Curves come from the library itself, on one-dimensional toy tasks, so that a picture shows what the code does.
Colours are those of Okabe and Ito, which the colour-blind can tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution

from lbo.memory import Memory, Record
from lbo.models import Lifelong, families, latent, output
from lbo.models.base import Task, settings
from lbo.models.component import predict
from lbo.models.lifelong import log_weight
from lbo.seeds import Seed
from lbo.space import Axis, Space

Array = NDArray[np.float64]

IMAGES = Path(__file__).parent / "images"
BLUE, ORANGE, GREEN, RED, GREY, INK = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#8a8a8a", "#222222"
UNIT = FloatDistribution(0.0, 1.0)
SPACE = Space((Axis("x", UNIT, UNIT),))
MODEL = Lifelong()
GRID = np.linspace(0, 1, 121)


# Drawing


def svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """A whole picture; the title is what a screen reader says."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' role="img" font-family="system-ui, sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="white"/>',
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, *, anchor: str = "middle", colour: str = INK, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, lines: Sequence[str], *, colour: str = BLUE) -> str:
    """A rounded box with lines of text in its middle."""
    first = y + height / 2 - 8 * (len(lines) - 1) + 4
    words = [text(x + width / 2, first + 16 * i, line, bold=not i and len(lines) > 1) for i, line in enumerate(lines)]
    frame = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{colour}" fill-opacity="0.12"'
    return "\n".join([f'{frame} stroke="{colour}"/>', *words])


def arrow(x1: float, y1: float, x2: float, y2: float, colour: str = INK) -> str:
    along = np.array([x2 - x1, y2 - y1]) / np.hypot(x2 - x1, y2 - y1)
    across = np.array([-along[1], along[0]])
    tip = np.array([x2, y2])
    corners = [tip, tip - 8 * along + 4 * across, tip - 8 * along - 4 * across]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    line = f'<path d="M{x1:.1f},{y1:.1f}L{x2:.1f},{y2:.1f}" stroke="{colour}" stroke-width="1.5"/>'
    return f'{line}<polygon points="{points}" fill="{colour}"/>'


class Plot:
    """A frame with an x and a y axis, to which curves are added."""

    def __init__(self, left: float, top: float, width: float, height: float, x: Array, y: Array, title: str) -> None:
        self.left, self.top, self.width, self.height = left, top, width, height
        self.x, self.y = (float(x.min()), float(x.max())), (float(y.min()), float(y.max()))
        self.parts = [
            f'<path d="M{left},{top}V{top + height}H{left + width}" fill="none" stroke="{GREY}"/>',
            text(left + width / 2, top - 10, title, bold=True),
        ]

    def at(self, x: Array, y: Array) -> list[str]:
        right = self.left + self.width * (x - self.x[0]) / (self.x[1] - self.x[0])
        down = self.top + self.height * (self.y[1] - np.clip(y, *self.y)) / (self.y[1] - self.y[0])
        return [f"{a:.1f},{b:.1f}" for a, b in zip(right, down, strict=True)]

    def line(self, x: Array, y: Array, colour: str, *, dashed: bool = False, width: float = 2) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        path = "L".join(self.at(x, y))
        self.parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>')

    def band(self, x: Array, low: Array, high: Array, colour: str) -> None:
        path = "L".join(self.at(x, low) + self.at(x, high)[::-1])
        self.parts.append(f'<path d="M{path}Z" fill="{colour}" fill-opacity="0.18"/>')

    def dots(self, x: Array, y: Array, colour: str, *, hollow: bool = False, size: float = 4) -> None:
        look = f'fill="none" stroke="{colour}" stroke-width="1.5"' if hollow else f'fill="{colour}"'
        for point in self.at(x, y):
            a, b = point.split(",")
            self.parts.append(f'<circle cx="{a}" cy="{b}" r="{size}" {look}/>')

    def crosses(self, x: Array, y: Array, colour: str) -> None:
        for point in self.at(x, y):
            a, b = (float(c) for c in point.split(","))
            path = f"M{a - 4:.1f},{b - 4:.1f}l8,8m0,-8l-8,8"
            self.parts.append(f'<path d="{path}" stroke="{colour}" stroke-width="2"/>')

    def label(self, words: str) -> None:
        """Below the x axis."""
        self.parts.append(text(self.left + self.width / 2, self.top + self.height + 20, words, colour=GREY))


# Toy tasks


def january(x: Array) -> Array:
    return np.sin(6 * x) + 0.8 * np.cos(11 * x + 0.5)


def another_customer(x: Array) -> Array:
    return 2.5 * (x - 0.25) ** 2 + 0.3 * np.sin(14 * x)


def february(x: Array) -> Array:
    """January's shape on another scale, a little moved."""
    return 5 + 0.6 * january(x - 0.03)


def toy(f: Callable[[Array], Array], x: Sequence[float]) -> Task:
    at = np.array(x)
    return Task(at[:, None], f(at), SPACE)


def remember(memory: Memory | None, task: Task, name: str) -> Memory:
    lesson = MODEL.consolidate(task, memory, Seed(0) / name)
    best = ({"x": float(task.X[task.y.argmin(), 0])}, float(task.y.min()))
    record = Record(name, len(task), "", tuple(lesson.gates), lesson.hyper, (best,))
    return Memory(settings(MODEL), SPACE, (*(memory.records if memory else ()), record), lesson.arrays)


def two_tasks() -> Memory:
    memory = remember(None, toy(january, np.linspace(0.03, 0.97, 14)), "January")
    return remember(memory, toy(another_customer, np.linspace(0.02, 0.98, 12)), "another customer")


# The pictures


def stream() -> str:
    parts = [text(20, 28, "a stream", anchor="start", bold=True)]
    for i, (task, colour) in enumerate([("January", BLUE), ("February", ORANGE), ("March", GREEN)]):
        x = 20 + 250 * i
        parts.append(box(x, 50, 150, 60, [task, "one Optuna study"], colour=colour))
        parts.append(box(x + 60, 150, 150, 60, ["memory", f"after {i + 1} task{'s' * (i > 0)}"], colour=GREY))
        parts.append(arrow(x + 90, 112, x + 115, 146))
        if i < 2:
            parts.append(arrow(x + 195, 148, x + 247, 100))
            parts.append(arrow(x + 212, 180, x + 306, 180))
    parts.append(text(385, 238, "A memory is a few networks and one short record per task.", colour=GREY))
    return svg(770, 255, "A stream of tasks: each hands a memory to the next", parts)


def remembered() -> str:
    task = toy(january, [0.02, 0.14, 0.22, 0.41, 0.5, 0.63, 0.66, 0.70, 0.93])
    arrays = remember(None, task, "January").arrays
    J = int(arrays["J"][0])
    g = latent.prepare(
        latent.Latent(arrays["Z"][0, :J], arrays["u"][0, :J], arrays["R"][0, :J, :J], arrays["ell"][0], arrays["v"][0])
    )
    mean, var = latent.mean(g, GRID[:, None]), np.diag(latent.cov(g, GRID[:, None], GRID[:, None]))
    spread = 2 * np.sqrt(var)
    both = np.concatenate([mean - spread, mean + spread])
    left = Plot(40, 40, 320, 190, GRID, np.array([-2.0, 2.0]), "A task: its trials")
    left.line(GRID, january(GRID), GREY, dashed=True)
    left.dots(task.X[:, 0], task.y, INK)
    left.label("x, a hyper-parameter")
    right = Plot(420, 40, 320, 190, GRID, both, "What is remembered of it")
    right.band(GRID, mean - spread, mean + spread, BLUE)
    right.line(GRID, mean, BLUE)
    right.dots(g.latent.Z[:, 0], g.latent.u, BLUE, hollow=True, size=5)
    right.label("a mean and a band of doubt, kept at a few points")
    return svg(770, 270, "Nine trials of a task become a function with a band of doubt", left.parts + right.parts)


def hypotheses() -> str:
    memory = two_tasks()
    task = toy(february, [0.3, 0.55, 0.7, 0.9])
    posterior = MODEL.fit(task, memory, Seed(0), None)
    names = {None: "on nobody", 0: "on network 0 (the latest task)", 1: "on network 1 (January's)"}
    names[2] = "on network 2 (the other customer's)"
    weights = np.exp(posterior.log_w)
    truth = february(GRID)
    parts = [text(20, 26, "Four trials of February. It leans ...", anchor="start", bold=True)]
    shown = sorted(zip(posterior.components, weights, strict=True), key=lambda pair: -pair[1])[:3]
    for i, (component, weight) in enumerate(shown):
        mean, var = predict(component, GRID[:, None])
        low, high = posterior.to_user(mean - 2 * np.sqrt(var)), posterior.to_user(mean + 2 * np.sqrt(var))
        colour = (BLUE, ORANGE, GREEN)[i]
        plot = Plot(30 + 250 * i, 70, 210, 170, GRID, np.array([3.4, 6.8]), f"... {names[component.m]}")
        plot.band(GRID, low, high, colour)
        plot.line(GRID, truth, GREY, dashed=True)
        plot.line(GRID, posterior.to_user(mean), colour)
        plot.dots(task.X[:, 0], task.y, INK)
        plot.label(f"weight {weight:.2f}")
        parts += plot.parts
    parts.append(
        text(385, 292, "Dashed: the truth. The next trial is chosen with all of them, by weight.", colour=GREY)
    )
    return svg(770, 310, "The same four trials under several hypotheses, each with its weight", parts)


def restaurant() -> str:
    seated = np.array([1.0, 5.0, 2.0])
    past = families.Past(counts=seated, members=seated, tasks=10)
    guests = [*seated, past.tasks - 1 - seated.sum()]
    names = ["network 0", "network 1", "network 2", "nobody"]
    chance = [np.exp(log_weight(past, m)) for m in (0, 1, 2, None)]
    question = "Nine tasks after the first sit at the networks they leaned on. Where will the next sit?"
    parts = [text(20, 28, question, anchor="start")]
    for i, (name, n, p) in enumerate(zip(names, guests, chance, strict=True)):
        x, colour = 100 + 185 * i, GREY if i == 3 else BLUE
        parts.append(f'<circle cx="{x}" cy="125" r="42" fill="{colour}" fill-opacity="0.12" stroke="{colour}"/>')
        parts.append(text(x, 130, name))
        for k in range(int(n)):
            angle = 2 * np.pi * k / max(n, 1) - np.pi / 2
            parts.append(
                f'<circle cx="{x + 56 * np.cos(angle):.1f}" cy="{125 + 56 * np.sin(angle):.1f}" r="7" fill="{INK}"/>'
            )
        parts.append(text(x, 212, f"{p:.2f}", bold=True))
    return svg(770, 232, "Networks as tables in a restaurant, with the prior chance of each for the next task", parts)


def transform() -> str:
    auc = np.array([0.50, 0.50, 0.51, 0.70, 0.755, 0.761, 0.768, 0.772, 0.775, 0.781])
    grid = np.linspace(0.49, 0.79, 121)
    parts: list[str] = []
    for i, (make, name, colour) in enumerate([(output.plain, "plain", BLUE), (output.warped, "warped", ORANGE)]):
        out = make(-auc, 1.0)
        z = out.to_z(-grid)
        plot = Plot(40 + 380 * i, 40, 320, 180, grid, z, name)
        plot.line(grid, z, colour)
        plot.dots(auc, out.to_z(-auc), INK)
        plot.label("AUC of a trial (what the model sees: lower is better)")
        parts += plot.parts
    return svg(770, 260, "Ten trials, three of them collapsed, on a plain and on a warped scale", parts)


def failures() -> str:
    y = np.array([np.nan, np.nan, 1.0, 0.6, 0.4, 0.7])
    task = Task(np.array([0.08, 0.2, 0.38, 0.55, 0.7, 0.95])[:, None], y, SPACE)
    log_w, _, _ = MODEL.fit(task, None, Seed(0), None).mixture(GRID[:, None])
    chance = np.exp(log_w).sum(axis=0)
    plot = Plot(40, 40, 690, 130, GRID, np.array([0.0, 1.05]), "Chance that a trial does not fail")
    plot.line(GRID, chance, BLUE)
    plot.crosses(task.X[:2, 0], np.full(2, 0.06), RED)
    plot.dots(task.X[2:, 0], np.full(4, 0.06), GREEN)
    plot.label("x: two trials failed (crosses), four did not (dots)")
    return svg(770, 215, "Near failed trials the chance of success is small", plot.parts)


def consolidation() -> str:
    parts = [
        box(20, 20, 170, 56, ["a task ends", "its trials are the truth"], colour=ORANGE),
        box(280, 20, 200, 56, ["network 0", "becomes this task's function"]),
        arrow(192, 48, 276, 48),
        box(20, 130, 170, 66, ["Does a family", "explain it better", "than nobody does?"], colour=GREY),
        arrow(105, 78, 105, 126),
        box(280, 115, 200, 56, ["that family's function", "learns from it"]),
        arrow(192, 155, 276, 145),
        text(234, 140, "yes"),
        box(20, 250, 170, 56, ["Is a place free?"], colour=GREY),
        arrow(105, 198, 105, 246),
        text(120, 226, "no", anchor="start"),
        box(280, 250, 200, 56, ["it founds a family", "in that place"]),
        arrow(192, 278, 276, 278),
        text(234, 270, "yes"),
        box(560, 250, 190, 56, ["it takes the place", "of the smallest family"]),
        '<path d="M105,308V332H655" fill="none" stroke="#222222" stroke-width="1.5"/>',
        arrow(655, 332, 655, 310),
        text(120, 324, "no", anchor="start"),
    ]
    return svg(770, 348, "Consolidation: where a finished task goes", parts)


PICTURES = (stream, remembered, hypotheses, restaurant, transform, failures, consolidation)


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    for picture in PICTURES:
        (IMAGES / f"{picture.__name__}.svg").write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
