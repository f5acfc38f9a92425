"""Which of several methods differ: Friedman's test, Nemenyi's critical difference and its plot (Demsar 2006).

N     blocks: tasks or sequences on which all methods were run             k  methods
R     (N, k)  place of each method in each block, 1 the best, ties sharing theirs
Two methods differ if their mean ranks are further apart than q sqrt(k (k + 1) / 6 N), where q is the quantile of the
studentised range over sqrt 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

from lbo.experiments import figures
from lbo.space import Array

LEVEL = 0.05


def ranks(losses: Array) -> Array:
    """R of losses (N, k), less being better."""
    return rankdata(losses, axis=1)


def friedman_p(R: Array) -> float:
    """How likely ranks as different as these are if all methods are alike."""
    return float(friedmanchisquare(*R.T).pvalue) if np.ptp(R) > 0 else 1.0


def critical_difference(k: int, N: int, level: float = LEVEL) -> float:
    """The least difference of two mean ranks that counts."""
    q = studentized_range.ppf(1 - level, k, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(k * (k + 1) / (6 * N)))


def alike(mean_ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """(first, last) of the largest groups of ascending mean ranks that do not differ, those of one left out."""
    groups: list[tuple[int, int]] = []
    for first, rank in enumerate(mean_ranks):
        last = max(i for i, other in enumerate(mean_ranks) if other - rank <= difference)
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups


def plot(title: str, mean_ranks: Mapping[str, float], difference: float) -> Any:
    """Methods along the axis of ranks, the better half named on the left; a bar joins those that do not differ."""
    import plotly.graph_objects as go

    names = sorted(mean_ranks, key=lambda name: mean_ranks[name])
    places = [mean_ranks[name] for name in names]
    k = len(names)
    figure = go.Figure()
    for i, (name, place) in enumerate(zip(names, places, strict=True)):
        better = i < (k + 1) // 2
        height = -(i if better else k - 1 - i) - 2.5
        end = 0.6 if better else k + 0.4
        _line(figure, [place, place, end], [0, height, height], "black", 1)
        label = f"{name} {place:.2f}"
        figure.add_annotation(x=end, y=height, text=label, showarrow=False, xanchor="right" if better else "left")
    for row, (first, last) in enumerate(alike(places, difference)):
        level = -0.5 - 0.35 * row
        _line(figure, [places[first] - 0.05, places[last] + 0.05], [level, level], "#d62728", 5)
    _line(figure, [1, 1 + difference], [1.2, 1.2], "black", 2)
    figure.add_annotation(x=1 + difference / 2, y=1.7, text=f"critical difference {difference:.2f}", showarrow=False)
    figure.update_xaxes(range=[-k / 3, k * 4 / 3 + 1], tickvals=list(range(1, k + 1)), side="top", zeroline=False)
    figure.update_yaxes(visible=False, range=[-k / 2 - 4, 2.5])
    figure.update_layout(title=title, template="plotly_white", showlegend=False, width=figures.WIDTH,
                         height=figures.HEIGHT)  # fmt: skip
    return figure


def _line(figure: Any, x: Sequence[float], y: Sequence[float], colour: str, width: int) -> None:
    figure.add_scatter(x=list(x), y=list(y), mode="lines", line={"color": colour, "width": width}, hoverinfo="skip")
