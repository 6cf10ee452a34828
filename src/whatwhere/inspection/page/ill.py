"""The section on rows that are not well."""

from collections.abc import Mapping, Sequence
from typing import Any

from whatwhere.inspection.answer import there
from whatwhere.inspection.page.parts import shown, token
from whatwhere.inspection.wording import FAULTS, beyond_words, faultless
from whatwhere.page.markup import Markup, element, folded, join, paragraph, table

_OPEN = 12
_MOST = 100


def unhealthy(found: Mapping[str, Any]) -> tuple[str, list[Markup]]:
    """Write what is wrong with which rows, and how that is known."""
    never, lost = found["never_trained"], found["unreachable"]
    seen = f"Of {found['rows']:,} rows training seems not to have reached {never['count']:,}"
    seen += f", and no text leads to {lost['count']:,}." if there(lost) else "."
    return seen, [*_never(never), *_unreachable(lost), *_hubs(found["hubs"]), *_others(found)]


def _never(found: Mapping[str, Any]) -> list[Markup]:
    also = found["also_unreachable"]
    words = (
        f"{found['count']:,} rows. The {len(found['seeds']):,} rows of lowest length are taken for rows that training "
        "never reached; a row is suspected whose cosine to their mean, both less the mean of all rows, is above "
        f"{found['threshold']:.2f}."
    )
    if also is not None:
        words += f" {also:,} of them are out of reach of any text; the others are rare."
    reachable = {None: "not known", True: "yes", False: "no"}
    rows = [
        [f"#{row['id']}", token(row), f"{row['norm']:.3g}", f"{row['cosine']:.3f}", reachable[row["reachable"]]]
        for row in found["shown"]
    ]
    head = ["id", "token", "length", "cosine", "text can reach it"]
    return [
        element("h3", "Never trained"),
        paragraph(words),
        *_tables("Rows nearest to those that were never trained", head, rows, found["count"]),
    ]


def _unreachable(found: Mapping[str, Any]) -> list[Markup]:
    heading = element("h3", "Out of reach of any text")
    if not there(found):
        return [heading, paragraph("Not known: ", found["missing"], ".")]
    words = (
        f"{found['count']:,} rows. The text that such a token stands for is read as other tokens, behind each of seven "
        "short texts."
    )
    rows = [[f"#{row['id']}", token(row), f"{row['norm']:.3g}", _several(row["reads_as"])] for row in found["shown"]]
    head = ["id", "token", "length", "its text is read as"]
    return [heading, paragraph(words), *_tables("Rows that no text leads to", head, rows, found["count"])]


def _hubs(found: Mapping[str, Any]) -> list[Markup]:
    words = (
        f"{len(found['shown'])} found. A hub is among the {found['neighbors']} nearest of many rows: a row is named "
        f"{found['expected']:.2f} times on average by the {found['asked']:,} rows that were asked."
    )
    rows = [[f"#{row['id']}", token(row), str(row["times"])] for row in found["shown"]]
    return [
        element("h3", "Hubs"),
        paragraph(words),
        *_tables("Rows that are neighbors of many", ["id", "token", "named"], rows, len(rows)),
    ]


def _others(found: Mapping[str, Any]) -> list[Markup]:
    double, beyond = found["duplicates"], found["beyond"]
    written = [element("h3", "Equal, zero, broken, beyond")]
    if double["rows"]:
        written.append(paragraph(f"{double['rows']:,} rows in {double['groups']:,} groups are equal to each other."))
    groups = [
        [f"#{group[0]['id']}", _several([f"#{row['id']} {row['token'] or ''}".strip() for row in group])]
        for group in double["shown"]
    ]
    written += _tables("Rows that are equal", ["first", "rows"], groups, double["groups"])
    for name in ("zero", "broken"):
        rows = [
            [f"#{row['id']}", token(row), f"{row['nan']} NaN, {row['infinite']} infinite" if "nan" in row else "0"]
            for row in found[name]["shown"]
        ]
        written += _tables(f"Rows that are {FAULTS[name]}", ["id", "token", "numbers"], rows, found[name]["count"])
    if beyond["count"]:
        written.append(paragraph(beyond_words(beyond)))
    return [*written, paragraph(faultless(found))]


def _tables(caption: str, head: Sequence[str], rows: list[list[str]], count: int) -> list[Markup]:
    """Write the first rows, and the next ones folded."""
    if not rows:
        return []
    more = f" ({len(rows)} of {count:,} listed; --json lists every id)" if count > len(rows) else ""
    written = [table(f"{caption}{more}", head, rows[:_OPEN], "words")]
    if len(rows) > _OPEN:
        written.append(folded(f"{len(rows) - _OPEN} more", table(caption, head, rows[_OPEN:_MOST], "words")))
    return written


def _several(texts: Sequence[str]) -> Markup:
    pieces = [piece for text in texts for piece in (shown(text), " ")]
    return join(*pieces[:-1])
