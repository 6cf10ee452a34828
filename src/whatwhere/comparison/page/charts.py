"""Draw the charts of scores: medians over lengths and shifts, and their ranges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from whatwhere.page.charts import line
from whatwhere.page.markup import Markup, visible
from whatwhere.page.svg import GRID, MUTED, PAGE, SHADE, canvas, color, drawing, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Spread = tuple[float, float, float]  # median, least, greatest


@dataclass(frozen=True)
class Scale:
    """Say what the upright axis of a chart shows."""

    label: str
    factor: float = 1.0  # 100 where shares are shown as percent
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True)
class Chart:
    """Hold what a chart of scores shows.

    Args:
        categories: what stands along the axis, evenly spaced.
        series: for each scheme its spread at each category, None where there is no row.
        scale: the upright axis.
        axis: the name of the level axis.
        trained: how many of the first categories were trained; they are shaded.
        baselines: dotted lines by name.
        texts: title and description.
    """

    categories: Sequence[str]
    series: Sequence[Sequence[Spread | None]]
    scale: Scale
    axis: str
    trained: int = 0
    baselines: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    texts: tuple[str, str] = ("", "")


@drawing
def score_chart(name: str, chart: Chart, wide: bool = False) -> Markup:
    """Draw medians joined by lines, ranges over seeds as bars, and None on a strip of its own, "no row"."""
    series, scale = chart.series, chart.scale
    right = 120 if chart.baselines else 12
    figure, axes = canvas(*((760, 380, 58, right, 46, 34) if wide else (330, 220, 52, 8, 44, 28)))
    low, high = _bounds(series, list(chart.baselines.values()), scale)
    no_row = low - 0.11 * (high - low)
    if chart.trained:
        axes.axvspan(-0.5, chart.trained - 0.5, color=SHADE, linewidth=0, zorder=0)
        axes.text(-0.45, 1.02, "trained", transform=axes.get_xaxis_transform(), color=MUTED, fontsize=12)
    step = min(0.09, 0.7 / max(len(series), 1))
    clear = 0.75 if len(series) <= 8 else 0.3  # many bars would hide the medians
    for index, spreads in enumerate(series):
        shift = (index - (len(series) - 1) / 2) * step
        placed = [(x + shift, _scaled(found, scale.factor)) for x, found in enumerate(spreads)]
        _draw_spreads(axes, index, placed, no_row, clear)
    _draw_baselines(axes, chart.baselines, scale.factor, (high - low) / 300, named=wide)
    missing = any(spread is None for spreads in series for spread in spreads)
    ticks = [tick for tick in _ticks(low, high, scale) if low - 1e-9 <= tick <= high + 1e-9]
    decimals = max((len(f"{tick:.6g}".partition(".")[2]) for tick in ticks), default=0)
    labels = [f"{tick:.{decimals}f}" for tick in ticks]
    axes.set_yticks([no_row, *ticks] if missing else ticks, ["no row", *labels] if missing else labels)
    axes.set_ylim(no_row - 0.05 * (high - low) if missing else low - 0.02 * (high - low), high + 0.03 * (high - low))
    axes.set_xticks(range(len(chart.categories)), chart.categories)
    axes.set_xlim(-0.5, len(chart.categories) - 0.5)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(visible(chart.axis), color=MUTED, fontsize=12)
    axes.text(1, 1.02, visible(scale.label), transform=axes.transAxes, color=MUTED, fontsize=12, ha="right")
    return to_svg(figure, name, *chart.texts)


def _draw_baselines(
    axes: "Axes", baselines: Mapping[str, Sequence[float | None]], factor: float, pixel: float, named: bool
) -> None:
    """Draw what a guess scores, each named at its right end; names that would meet are moved apart."""
    ends = []
    for name, baseline in baselines.items():
        points = [(x, y * factor) for x, y in enumerate(baseline) if y is not None and np.isfinite(y)]
        if points:
            axes.plot([x for x, _ in points], [y for _, y in points], color=MUTED, linestyle=(0, (1, 2)), linewidth=1.6)
            ends.append((points[-1][1], len(baseline) - 0.5, name))
    floor = -np.inf
    for height, right, name in sorted(ends) if named else []:
        floor = max(height, floor + 15 * pixel)
        axes.text(right, floor, f" {visible(name)}", color=MUTED, fontsize=12, va="center", clip_on=False)


def _scaled(found: Spread | None, factor: float) -> Spread | None:
    return None if found is None else (found[0] * factor, found[1] * factor, found[2] * factor)


def _draw_spreads(
    axes: "Axes", index: int, placed: Sequence[tuple[float, Spread | None]], no_row: float, clear: float
) -> None:
    there = {x: found for x, found in placed if found is not None and np.isfinite(found).all()}
    for x, (_, least, greatest) in there.items():
        axes.plot([x, x], [least, greatest], color=color(index), linewidth=1.6, alpha=clear)
    # A gap stays a gap: a line across a missing length would invent a number.
    axes.plot([x for x, _ in placed], [there[x][0] if x in there else np.nan for x, _ in placed], **line(index))
    absent = [x for x, found in placed if found is None]
    hollow = {"linestyle": "", "markerfacecolor": PAGE, "markeredgecolor": color(index), "markeredgewidth": 1.6}
    axes.plot(absent, [no_row] * len(absent), **line(index) | hollow)


def _bounds(
    series: Sequence[Sequence[Spread | None]], baselines: Sequence[Sequence[float | None]], scale: Scale
) -> tuple[float, float]:
    if scale.bounds:
        return scale.bounds
    values = [v for spreads in series for s in spreads if s is not None for v in s]
    values += [v for baseline in baselines for v in baseline if v is not None]
    finite = [v * scale.factor for v in values if np.isfinite(v)] or [0.0, 1.0]
    margin = 0.05 * (max(finite) - min(finite)) or 0.5
    return min(finite) - margin, max(finite) + margin


def _ticks(low: float, high: float, scale: Scale) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    return (
        [float(tick) for tick in MaxNLocator(5).tick_values(low, high)]
        if not scale.bounds
        else [0.0, 25.0, 50.0, 75.0, 100.0]
    )
