"""The sections on what tokens are: sizes, shares, lengths, spectrum."""

from collections.abc import Mapping
from typing import Any

from whatwhere.inspection.page.parts import figure, panels
from whatwhere.inspection.wording import axes_words, initial_words, norm_words, percent, short, tied_words
from whatwhere.page.charts import Axis, bar_chart, line_chart
from whatwhere.page.markup import Markup, element, folded, join, paragraph, table
from whatwhere.page.wording import code

Written = tuple[str, list[Markup]]

_OPEN = 12


def sizes(found: Mapping[str, Any]) -> Written:
    """Write how large the parts are."""
    input_share = sum(part["share"] or 0 for part in found["parts"] if part["part"] != "the rest")
    seen = f"{found['parameters']:,} parameters, {percent(input_share)} of them in the tables named below."
    rows = []
    for part in found["parts"]:
        shape = "" if part["shape"] is None else " × ".join(f"{n:,}" for n in part["shape"])
        numbers = (
            f"{part['parameters']:,}",
            percent(part["share"]),
            short(part["bytes"]),
            percent(part["share_of_bytes"]),
        )
        rows.append([part["part"], shape, part["dtype"], *numbers, code(part["tensor"]) if part["tensor"] else ""])
    rows.append(
        ["all", "", "", f"{found['parameters']:,}", "", short(found["bytes"]), "", f"{found['tensors']:,} tensors"]
    )
    head = ["part", "shape", "type", "parameters", "share", "bytes", "share", "tensor"]
    written = [table("Parameters and bytes by part", head, rows, "told"), paragraph(tied_words(found))]
    if found["guessed"]:
        written.append(paragraph("The token table was found by the number of its rows, not by its name."))
    if found["initial_scale"] is not None:
        written.append(paragraph(initial_words(found["initial_scale"])))
    return seen, written


def shares(found: Mapping[str, Any]) -> Written:
    """Write what is the token's and what the position's."""
    parts = [("what: the token", "token"), ("where: the position", "position"), ("both together", "interaction")]
    seen = (
        f"{percent(found['token'])} of what the first layer sees is which token it is, {percent(found['position'])} "
        f"where it stands, and {percent(found['interaction'])} what the norm makes of both."
    )
    rows = [[words, percent(found[name]), _bar(found[name])] for words, name in parts]
    return seen, [
        table("Share of the variance", ["part", "share", ""], rows, "told"),
        paragraph(norm_words(found), kind="note"),
    ]


def norms(found: Mapping[str, Any]) -> Written:
    """Write how long the rows are."""
    percentiles = found["percentiles"]
    low, middle, high = (percentiles[name] for name in ("5", "50", "95"))
    seen = f"The median length is {middle:.3g}; 90 % are from {low:.3g} to {high:.3g}."
    edges, counts = found["histogram"]["edges"], found["histogram"]["counts"]
    drawn = bar_chart(
        "token-norms", edges, counts, Axis("length of a row"), Axis("rows"),
        ("Lengths of the token rows", f"Histogram of {found['finite']:,} rows. {seen}"),
    )  # fmt: skip
    cells = [[f"{name} %", f"{value:.4g}"] for name, value in percentiles.items()]
    written = [
        panels(
            figure(drawn, "Lengths of the rows; a second hill at the low end are rows that training hardly touched."),
            table("Percentiles", ["of rows", "below"], cells),
        )
    ]
    for name, caption in (("by_kind", "By kind of token"), ("by_script", "By script")):
        groups = found[name]
        if not isinstance(groups, list):
            written.append(paragraph(caption, ": ", groups["missing"], "."))
            continue
        rows = [
            [group["name"], f"{group['rows']:,}", *(f"{group[part]:.3g}" for part in ("p5", "median", "p95"))]
            for group in groups
        ]
        head = [name.removeprefix("by_"), "rows", "5 %", "median", "95 %"]
        written.append(table(caption, head, rows[:_OPEN]))
        if len(rows) > _OPEN:
            written.append(folded(f"{len(rows) - _OPEN} more", table(caption, head, rows[_OPEN:])))
    return seen, written


def spectrum(found: Mapping[str, Any]) -> Written:
    """Write how rows fill their space."""
    seen = axes_words(found)
    return seen[:1].upper() + seen[1:], spectrum_parts("token-spectrum", found)


def spectrum_parts(name: str, found: Mapping[str, Any]) -> list[Markup]:
    """Draw the shares of the axes, with the first ones in a table."""
    shares = found["shares"]
    places = list(range(1, len(shares) + 1))
    drawn = line_chart(
        name, places, [[100 * share for share in shares]], Axis("axis"),
        Axis("share of the variance, %", bounds=(0.0, 110 * max(shares[0], 1e-9))),
        ("Spectrum", f"Shares of the first {len(shares)} axes, from {percent(shares[0])} to {percent(shares[-1])}."),
    )  # fmt: skip
    rows = [[str(n), percent(share)] for n, share in zip(places, shares, strict=True)]
    return [
        panels(figure(drawn, f"Variance along the first {len(shares)} principal axes.")),
        folded("The numbers", table("Share of the variance by axis", ["axis", "share"], rows)),
    ]


def _bar(share: float) -> Markup:
    width = f"display: inline-block; background: var(--c2); height: .8em; width: {min(max(share, 0.0), 1.0) * 14:.2f}em"
    return join(element("span", style=width, aria_hidden="true"))
