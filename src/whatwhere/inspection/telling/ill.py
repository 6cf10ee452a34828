"""The section on rows that are not well."""

from collections.abc import Mapping
from typing import Any

from whatwhere.inspection.answer import there
from whatwhere.inspection.telling.parts import Part, Table, seen, token
from whatwhere.inspection.wording import FAULTS, beyond_words, faultless
from whatwhere.page.wording import count


def unhealthy(found: Mapping[str, Any]) -> list[Part]:
    """Tell what is wrong with which rows, and how that is known."""
    return [
        *_never(found["never_trained"], found["rows"]),
        *_unreachable(found["unreachable"]),
        *_hubs(found["hubs"]),
        *_plainly_bad(found),
    ]


def _never(found: Mapping[str, Any], rows: int) -> list[Part]:
    if not found["count"]:
        return [f"Of {count(rows, 'row')} none looks as if training had never reached it."]
    also = found["also_unreachable"]
    lost = "" if also is None else f", {also:,} of them out of reach of any text (the others are rare)"
    told = (
        f"Training seems never to have reached {found['count']:,} of {count(rows, 'row')}{lost}. The "
        f"{count(len(found['seeds']), 'row')} of lowest length are taken for such; suspected is a row whose cosine to "
        f"their mean, both less the mean of all rows, is above {found['threshold']:.2f}."
    )
    reachable = {None: "?", True: "yes", False: "no"}
    cells = [
        [_id(row), token(row), f"{row['norm']:.3g}", f"{row['cosine']:.3f}", reachable[row["reachable"]]]
        for row in found["shown"]
    ]
    head = ("id", "token", "length", "cosine", "reachable")
    return [told, *_listed("Rows that training seems never to have reached", head, cells, (2, 3), found["count"])]


def _unreachable(found: Mapping[str, Any]) -> list[Part]:
    if not there(found):
        return [f"Out of reach of any text: not known, {found['missing']}."]
    if not found["count"]:
        return ["Every token can be reached by some text."]
    told = (
        f"No text can reach {count(found['count'], 'row')}: what such a token stands for is read as other tokens, "
        "behind each of seven short texts."
    )
    cells = [
        [_id(row), token(row), f"{row['norm']:.3g}", " ".join(seen(part) for part in row["reads_as"])]
        for row in found["shown"]
    ]
    head = ("id", "token", "length", "its text is read as")
    return [told, *_listed("Rows that no text leads to", head, cells, (2,), found["count"])]


def _hubs(found: Mapping[str, Any]) -> list[Part]:
    many = len(found["shown"])
    if not many:
        return [
            f"No row is among the {found['neighbors']} nearest of many more than is usual, of {found['asked']:,} asked."
        ]
    told = (
        f"{many} {'hub' if many == 1 else 'hubs'}: rows that are among the {found['neighbors']} nearest of many more "
        f"than the {found['expected']:.2f} rows that are usual, of {found['asked']:,} asked."
    )
    cells = [[_id(row), token(row), f"{row['times']:,}"] for row in found["shown"]]
    return [told, *_listed("Rows that are neighbors of many", ("id", "token", "times"), cells, (2,), many)]


def _plainly_bad(found: Mapping[str, Any]) -> list[Part]:
    told: list[Part] = []
    double, beyond = found["duplicates"], found["beyond"]
    if double["rows"]:
        told.append(f"{count(double['rows'], 'row')} in {double['groups']:,} groups: equal to each other.")
    groups = [[_id(group[0]), "  ".join(map(_named, group))] for group in double["shown"]]
    told += _listed("Rows that are equal", ("first", "rows"), groups, (), double["groups"])
    for name in ("zero", "broken"):
        rows = found[name]["shown"]
        more = ("NaN", "infinite") if name == "broken" else ()
        cells = [[_id(row), token(row), *(str(row[part.lower()]) for part in more)] for row in rows]
        if found[name]["count"]:
            told.append(f"{count(found[name]['count'], 'row')}: {FAULTS[name]}.")
        caption = f"Rows that are {FAULTS[name]}"
        told += _listed(caption, ("id", "token", *more), cells, range(2, 2 + len(more)), found[name]["count"])
    if beyond["count"]:
        told.append(beyond_words(beyond))
    return [*told, sound] if (sound := faultless(found)) else told


def _listed(caption: str, head: Any, cells: list[list[str]], numbers: Any, count: int) -> list[Part]:
    return [Table(caption, head, cells, numbers, count)] if cells else []


def _id(row: Mapping[str, Any]) -> str:
    return f"#{row['id']}"


def _named(row: Mapping[str, Any]) -> str:
    return f"{_id(row)} {token(row)}".strip()
