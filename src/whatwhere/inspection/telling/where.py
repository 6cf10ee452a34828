"""The sections on where tokens stand: positions, rotary, biases."""

from collections.abc import Mapping
from typing import Any

from whatwhere.inspection.answer import there
from whatwhere.inspection.telling.parts import Part, Table
from whatwhere.inspection.wording import (
    at_round_distances,
    axes_words,
    layers_words,
    length_words,
    pair_columns,
    reach_words,
    shift_words,
    short,
    trained_words,
)
from whatwhere.page.wording import capital

_DISTANCES = tuple(2**n for n in range(10))
_OUTLIERS = 20


def positions(found: Mapping[str, Any]) -> list[Part]:
    """Tell what the table of positions looks like."""
    kind = "Learned" if found["learned"] else "Fixed"
    outliers = [f"{row['position']} ({row['norm']:.3g})" for row in found["outliers"]]
    more = f" and {len(outliers) - _OUTLIERS:,} more" if len(outliers) > _OUTLIERS else ""
    axes = axes_words(found["spectrum"])
    near = [(n, found["by_distance"][n]) for n in _DISTANCES if n < len(found["by_distance"])]
    told = [
        f"{kind}: {found['positions']:,} positions x {found['dim']:,}; median length {found['median_norm']:.3g}.",
        trained_words(found),
        shift_words(found),
        capital(axes),
        f"Positions of unusual length: {', '.join(outliers[:_OUTLIERS]) or 'none'}{more}.",
    ]
    return [
        *filter(None, told),
        Table(
            "How alike two positions are, by their distance",
            ("distance", "mean cosine"),
            [[str(distance), f"{value:.3f}"] for distance, value in near],
            (0, 1),
            bars=[max(value, 0.0) for _, value in near],
        ),
    ]


def rotary(found: Mapping[str, Any]) -> list[Part]:
    """Tell how each kind of layer turns."""
    told: list[Part] = []
    for n, own in enumerate(found["settings"]):
        layers = layers_words(own["layers"], found["layers"])
        scaling = own["scaling"] or "no scaling"
        turning = f"{own['scheme']}, theta {own['theta']:,.6g}, {own['pairs']} pairs of {own['head_dim']} features"
        told += [f"{layers}: {turning}, {scaling}.", *length_words(own)]
        if own["scaling"]:
            told.append(_agreement("with and without the scaling", own["effect"]))
        for other in found["between"]:
            if other["other"] == n:
                told.append(_agreement("as here and as in the first kind of layer", other))
        columns = pair_columns(own)
        rows = [[str(pair), *(short(own[part][pair], "never") for part in columns)] for pair in range(own["pairs"])]
        head = ("pair", *columns.values())
        told.append(Table(f"{layers}: pairs, the fastest first", head, rows, range(len(head)), short="evenly"))
    if found["without"]:
        told.append(f"{layers_words(found['without'], found['layers'])}: nothing turns.")
    return told


def _agreement(words: str, found: Mapping[str, Any]) -> str:
    cosines = ", ".join(f"{cosine:.3f} at {distance:,}" for distance, cosine in at_round_distances(found))
    return f"Cosine of a vector turned {words}, by distance: {cosines}."


def biases(found: Mapping[str, Any]) -> list[Part]:
    """Tell how far each head reaches."""
    told: list[Part] = [_reached(found)]
    for own in found["settings"]:
        part = f"{own['part']}, " if own["part"] else ""
        title = f"{own['scheme']}, {part}layers {layers_words(own['layers'])}"
        told += [_heads(title, own)] if there(own) else [f"{title}: {own['missing']}."]
    return told


def _reached(found: Mapping[str, Any]) -> str:
    known = [head["reach"] for own in found["settings"] if there(own) for head in own["past"]]
    if not known:
        return "The bias is not known from a checkpoint alone."
    ends = [reach for reach in known if reach is not None]
    means = "Reach: the distance from which on every weight is below 1 % of the greatest; half: below 50 %."
    if not ends:
        return f"In no head the weight falls below 1 % of its greatest, as far as distances were looked at. {means}"
    return f"{len(ends)} of {len(known)} heads reach from {min(ends):,} to {max(ends):,} tokens. {means}"


def _heads(title: str, own: Mapping[str, Any]) -> Table:
    rows = []
    for head, past in enumerate(own["past"]):
        cells = [str(head), reach_words(past["reach"], own), reach_words(past["half"], own), str(past["greatest"])]
        cells += [reach_words(own["future"][head]["reach"], own)] if "future" in own else []
        rows.append(cells + ([f"{own['slopes'][head]:.4g}"] if "slopes" in own else []))
    extra = [*(["reach ahead"] if "future" in own else []), *(["slope"] if "slopes" in own else [])]
    names = ("head", "reach", "half", "greatest at", *extra)
    return Table(f"{title}: how far each head reaches", names, rows, range(len(names)), short="evenly")
