"""Draw the pictures of tables: as colors, as points, along a line. They hold tokens; schemes are named in HTML."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from whatwhere.page.charts import MARKERS
from whatwhere.page.markup import Markup, visible
from whatwhere.page.svg import GRID, INK, MUTED, PAGE, canvas, color, drawing, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NEGATIVE, _POSITIVE = (0.85, 0.41, 0.12), (0.18, 0.50, 0.82)  # orange and blue: apart for every kind of color vision

_MAP = 420  # the width of a map of tokens, in CSS pixels: as wide as a telephone, so that its names stay readable


@drawing
def heat_map(
    name: str,
    values: Float[np.ndarray, "rows columns"],
    axes_labels: tuple[str, str],
    limit: float,
    *,
    rows: Sequence[str] | None = None,
    texts: tuple[str, str] = ("", ""),
) -> Markup:
    """Draw a table as colors: blue above zero, orange below, the page itself at zero, full color at +-limit.

    The picture is one transparent PNG inside the SVG, so that zero is white on a light page and dark on a dark one.
    """
    left = 60 if rows is not None else 46
    height = min(max(13 * len(values), 130), 390) if rows is not None else 210
    figure, axes = canvas(330, height + 50, left, 8, 44, 6)
    share = np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64)) / (limit or 1.0), -1, 1)
    colors = np.where(share[..., None] < 0, _NEGATIVE, _POSITIVE)
    axes.imshow(np.concatenate([colors, np.abs(share)[..., None]], axis=-1), interpolation="none", aspect="auto")
    axes.set_xlabel(axes_labels[0], color=MUTED, fontsize=12)
    columns = values.shape[1]
    axes.set_xticks(_places(columns))
    if rows is not None and len(rows) * 13 <= 390:
        axes.set_yticks(range(len(rows)), [visible(row) for row in rows])
        axes.tick_params(axis="y", labelsize=11, length=0)
    else:
        axes.set_yticks(_places(len(values)))
        axes.set_ylabel(axes_labels[1], color=MUTED, fontsize=12)
    return to_svg(figure, name, *texts)


def _places(count: int) -> list[int]:
    if count <= 10:
        return list(range(count))
    step = next(s for s in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1 << 20) if count / s <= 8)
    return list(range(0, count, step))


@drawing
def scale_bar(
    name: str, limit: float, values: Float[np.ndarray, "rows columns"] | None = None, cut: bool = False
) -> Markup:
    """Draw the key of a heat map: what its colors mean.

    Args:
        values: with them, the key covers only the signs that they have.
        cut: say that numbers beyond the limit have its color too.
    """
    least = -1 if values is None or np.nanmin(values) < 0 else 0
    greatest = 1 if values is None or np.nanmax(values) > 0 or not least else 0
    figure, axes = canvas(240, 34, 32, 32, 20, 2)
    share = np.linspace(least, greatest, 65)
    colors = np.where(share[:, None] < 0, _NEGATIVE, _POSITIVE)
    ramp = np.concatenate([colors, np.abs(share)[:, None]], axis=-1)[None]
    axes.imshow(ramp, interpolation="none", aspect="auto", extent=(least, greatest, 0, 1))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    ends = {-1: f"{'≤ ' * cut}\u2212{limit:.3g}", 0: "0", 1: f"{'≥ ' * cut}{limit:.3g}"}
    ticks = [tick for tick in ends if least <= tick <= greatest]
    axes.set_xticks(ticks, [ends[tick] for tick in ticks])
    return to_svg(figure, name, "Color key", f"Orange is below zero, to {-limit:.3g}; blue above, to {limit:.3g}.")


@drawing
def token_map(
    name: str,
    points: Float[np.ndarray, "tokens two"],
    labels: Sequence[str],
    kinds: Sequence[int],
    texts: tuple[str, str] = ("", ""),
) -> Markup:
    """Draw tokens as points with their names; a name that would cover another is left out and stands in the table."""
    figure, axes = canvas(_MAP, 360, 44, 12, 28, 10)
    for kind in sorted(set(kinds)):
        chosen = [i for i, k in enumerate(kinds) if k == kind]
        sign: dict[str, Any] = {
            "s": 34,
            "color": color(kind),
            "marker": MARKERS[kind],
            "edgecolors": PAGE,
            "linewidths": 0.6,
        }
        axes.scatter(points[chosen, 0], points[chosen, 1], **sign)
    axes.margins(0.1)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.locator_params(nbins=6)
    axes.axhline(0, color=MUTED, linewidth=0.8, zorder=0.6)
    axes.axvline(0, color=MUTED, linewidth=0.8, zorder=0.6)
    _label_points(axes, points, [visible(label) for label in labels])
    return to_svg(figure, name, *texts)


def _label_points(axes: "Axes", points: Float[np.ndarray, "tokens two"], labels: Sequence[str]) -> None:
    """Put each label at the first of eight places where it covers neither a point nor an earlier label."""
    pixels = [(float(x), float(y)) for x, y in axes.transData.transform(points)]
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in pixels]
    for (x, y), label in zip(pixels, labels, strict=True):
        width, height = 7.0 * len(label) + 2, 12.0
        for dx, dy in (
            (7, -5),
            (-7 - width, -5),
            (-width / 2, 7),
            (-width / 2, -18),
            (5, 5),
            (5, -16),
            (-5 - width, 5),
        ):
            box = (x + dx, y + dy, x + dx + width, y + dy + height)
            if box[0] < 0 or box[2] > _MAP - 2 or any(_overlap(box, other) for other in taken):
                continue
            taken.append(box)
            axes.annotate(label, (x + dx, y + dy + 2), xycoords="figure pixels", color=INK, fontsize=12)
            break


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@drawing
def number_line(
    name: str, places: Float[np.ndarray, " digits"], labels: Sequence[str], texts: tuple[str, str] = ("", "")
) -> Markup:
    """Draw names along a line, stacked where they would meet."""
    figure, axes = canvas(450, 58, 10, 10, 12, 2)
    axes.spines["left"].set_visible(False)
    axes.set(yticks=[], xticks=[], ylim=(0, 44), xlim=(0, 430))
    span = float(np.ptp(places)) or 1.0
    pixels = 14 + (places - places.min()) / span * 402
    ends = [-100.0] * 3
    for index in np.argsort(pixels, kind="stable"):
        x = float(pixels[index])
        level = next((i for i, end in enumerate(ends) if x - end > 11), int(np.argmin(ends)))
        ends[level] = x
        axes.plot([x, x], [0, 7 + 13 * level], color=MUTED, linewidth=1)
        axes.plot([x], [0], marker="o", color=color(2), markersize=6, clip_on=False)
        axes.text(x, 8 + 13 * level, visible(labels[index]), ha="center", fontsize=13, color=INK)
    return to_svg(figure, name, *texts)
