"""The sections on where tokens stand: positions, rotary, biases."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from whatwhere.inspection.answer import there
from whatwhere.inspection.page.parts import figure, key, panels
from whatwhere.inspection.page.what import spectrum_parts
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
from whatwhere.page.charts import Axis, line_chart
from whatwhere.page.markup import Markup, element, folded, join, paragraph, table
from whatwhere.page.wording import plain

_POINTS = 1024
_HEADS = 8


def positions(found: Mapping[str, Any]) -> tuple[str, list[Markup]]:
    """Write what the table of positions looks like."""
    kind = "learned" if found["learned"] else "fixed"
    seen = f"{found['positions']:,} {kind} positions. {trained_words(found)} {shift_words(found)}"
    norms, cosines = _thinned(found["norms"]), _thinned(found["by_distance"])
    outliers = ", ".join(f"{row['position']} ({row['norm']:.3g})" for row in found["outliers"][:20]) or "none"
    lengths = line_chart(
        "position-norms", norms[0], [norms[1]], Axis("position"), Axis("length of its row"),
        ("Lengths by position", f"Median {found['median_norm']:.3g}. Unusual: {outliers}."),
    )  # fmt: skip
    near = {
        d: found["by_distance"][d] for d in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if d < len(found["by_distance"])
    }
    alike = line_chart(
        "position-cosine", cosines[0], [cosines[1]], Axis("distance"), Axis("mean cosine of two rows"),
        ("Similarity by distance", ", ".join(f"{value:.2f} at {distance}" for distance, value in near.items()) + "."),
    )  # fmt: skip
    rows = [[str(distance), plain(value)] for distance, value in near.items()]
    return seen, [
        panels(
            figure(lengths, f"Positions of unusual length: {outliers}."), figure(alike, "How alike two positions are.")
        ),
        folded("The numbers", table("Mean cosine by distance", ["distance", "cosine"], rows)),
        paragraph("Spectrum: ", axes_words(found["spectrum"])),
        *spectrum_parts("position-spectrum", found["spectrum"]),
    ]


def rotary(found: Mapping[str, Any]) -> tuple[str, list[Markup]]:
    """Write how each kind of layer turns."""
    first = found["settings"][0]
    seen = " ".join(length_words(first)[:3])
    written = []
    for n, own in enumerate(found["settings"]):
        settings = f"{own['scheme']}, theta {own['theta']:,.6g}, {own['pairs']} pairs of {own['head_dim']} features"
        written += [
            element("h3", layers_words(own["layers"], found["layers"])),
            paragraph(settings, ", ", element("code", own["scaling"]) if own["scaling"] else "no scaling", "."),
            *(paragraph(line) for line in (length_words(own) if n else length_words(own)[3:])),
            *_turns(f"rotary-{n}", own, [other for other in found["between"] if other["other"] == n]),
        ]
    if found["without"]:
        written.append(paragraph(layers_words(found["without"], found["layers"]), ": nothing turns."))
    return seen, written


def _turns(name: str, own: Mapping[str, Any], between: list[Mapping[str, Any]]) -> list[Markup]:
    pairs = list(range(own["pairs"]))
    lengths = [(float(own["trained"]), f"trained {own['trained']:,}")]
    if own["claimed"] != own["trained"]:
        lengths.append((float(own["claimed"]), f"claimed {own['claimed']:,}"))
    curves = [own["unscaled"], own["wavelength"]] if own["scaling"] else [own["wavelength"]]
    drawn = line_chart(
        f"{name}-wavelength", pairs, curves, Axis("pair"), Axis("positions for one turn", log=True),
        ("Wavelength of each pair", " ".join(length_words(own))), level=lengths,
    )  # fmt: skip
    figures = [
        figure(
            drawn, "Positions that each pair needs for one full turn; a pair above a dotted line never finishes one."
        )
    ]
    written = []
    if own["scaling"]:
        written.append(key(f"{name}-wavelength", ["without the scaling", "with it"]))
        figures.append(_agreement(f"{name}-effect", own["effect"], "with and without the scaling"))
    figures += [_agreement(f"{name}-between", other, "as here and as in the first kind of layer") for other in between]
    columns = pair_columns(own)
    cells = [[str(n), *(short(own[part][n], "never") for part in columns)] for n in pairs]
    head = ["pair", *columns.values()]
    return [*written, panels(*figures), folded("Every pair", table("Pairs, the fastest first", head, cells))]


def _agreement(name: str, found: Mapping[str, Any], words: str) -> Markup:
    numbers = ", ".join(f"{cosine:.3f} at {distance:,}" for distance, cosine in at_round_distances(found))
    drawn = line_chart(
        name, found["distances"], [found["cosine"]], Axis("distance", log=True), Axis("cosine"),
        (f"A vector turned {words}", f"Cosine by distance: {numbers}."),
    )  # fmt: skip
    return figure(drawn, f"Cosine of a vector turned {words}: {numbers}.")


def biases(found: Mapping[str, Any]) -> tuple[str, list[Markup]]:
    """Write how far each head reaches."""
    written: list[Markup] = []
    for n, own in enumerate(found["settings"]):
        title = f"{own['scheme']}{', ' + own['part'] if own['part'] else ''}, layers {layers_words(own['layers'])}"
        written.append(element("h3", title))
        written += _reaches(f"bias-{n}", own) if there(own) else [paragraph(own["missing"], ".")]
    known = [head["reach"] for own in found["settings"] if there(own) for head in own["past"]]
    if not known:
        return "The bias is not known from a checkpoint alone.", written
    ends = [reach for reach in known if reach is not None]
    if not ends:
        return "In no head the weight falls below 1 % of its greatest, as far as distances were looked at.", written
    seen = f"{len(ends)} of {len(known)} heads reach from {min(ends):,} to {max(ends):,} tokens"
    return f"{seen}; beyond, no key has 1 % of the greatest weight.", written


def _reaches(name: str, own: Mapping[str, Any]) -> list[Markup]:
    heads = sorted({round(n) for n in np.linspace(0, own["heads"] - 1, min(own["heads"], _HEADS))})
    drawn = line_chart(
        name, own["distances"], [own["curves"][head] for head in heads], Axis("distance (tokens back)"), Axis("bias"),
        ("Bias by distance", f"Heads {', '.join(map(str, heads))}."),
    )  # fmt: skip
    extra = [*(["reach ahead"] if "future" in own else []), *(["slope"] if "slopes" in own else [])]
    rows = []
    for head, past in enumerate(own["past"]):
        row = [str(head), reach_words(past["reach"], own), reach_words(past["half"], own), str(past["greatest"])]
        row += [reach_words(own["future"][head]["reach"], own)] if "future" in own else []
        rows.append(row + ([f"{own['slopes'][head]:.4g}"] if "slopes" in own else []))
    caption = "Reach of each head: from there on every weight is below 1 % (half: 50 %) of the greatest"
    return [
        key(name, [f"head {head}" for head in heads]),
        panels(
            figure(drawn, join("What is added to the score of a key at each distance.")),
            table(caption, ["head", "reach", "half", "greatest at", *extra], rows),
        ),
    ]


def _thinned(values: list[float]) -> tuple[list[int], list[float]]:
    """Give at most so many points, the first and the last among them."""
    places = sorted({round(n) for n in np.linspace(0, len(values) - 1, min(len(values), _POINTS))})
    return places, [values[n] for n in places]
