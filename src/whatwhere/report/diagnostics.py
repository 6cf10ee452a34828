"""The section of an inspection on suspicious rows: what was measured, and what that does not show."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from whatwhere.analysis.diagnostics import FEWEST_TO_COMPARE
from whatwhere.analysis.subject import EXAMPLES
from whatwhere.analysis.token_diagnostics import (
    FarRows,
    Hubs,
    RowList,
    TokenDiagnostics,
    TokenRow,
    UnderTrained,
    UnreachableRow,
)
from whatwhere.escape import shown_token, visible_token
from whatwhere.records import Missing
from whatwhere.report.section import Part, Table
from whatwhere.report.text import count, decimals, listed, number

_LOWEST = 10
_COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "norm": ("norm", number),
    "cosine": ("cosine", decimals),
    "factor": ("factor", partial(decimals, places=4)),
    "times": ("times", "{:,}".format),
    "nan": ("NaN", "{:,}".format),
    "infinite": ("infinite", "{:,}".format),
    "reachable": ("reachable", lambda known: "not known" if known is None else "yes" if known else "no"),
    "read_as": ("its text is encoded as", lambda tokens: " ".join(map(visible_token, tokens))),
}
"""Heading and text of what is known of a row."""
_TEXTS = ("reachable", "read_as")


def diagnostics(findings: TokenDiagnostics) -> Iterator[Part]:
    """Write the suspicious rows as paragraphs and tables, with the evidence."""
    yield from _unmoved(findings)
    yield from _under_trained(findings)
    yield from _far(findings.far)
    yield from _unreachable(findings.unreachable)
    yield from _hubs(findings.hubs)
    yield from _faults(findings)


def none_suspected(findings: UnderTrained, rows: int) -> str:
    """Describe what was measured where no row is suspected of being under-trained, and what that does not show."""
    if findings.highest is None:
        return f"Under-trained tokens cannot be detected in {count(rows, 'row')}: too few are finite and not 0."
    reference = f"the mean of the {count(len(findings.reference), 'row')} of lowest norm"
    threshold = decimals(findings.threshold, 2)
    if not findings.decisive:
        return (
            f"Under-trained tokens cannot be detected here: cosines to {reference} vary so widely that only one above "
            f"{threshold} would be suspicious, and none exceeds 1."
        )
    return (
        f"Of {count(rows, 'row')} none is suspected of being under-trained: no cosine to {reference} is above "
        f"{decimals(findings.highest, 2)}, and suspicious is above {threshold}. Rows that keep their random "
        "initialization share no direction, and would be found only by a norm far from the others'."
    )


def _rows(caption: str, rows: Sequence[TokenRow], total: int | None, *names: str) -> Table:
    """Return some rows: id and token, and what is known of each by these names."""
    chosen = {name: _COLUMNS[name] for name in names}
    cells = [[*_cells(row), *(write(getattr(row, name)) for name, (_, write) in chosen.items())] for row in rows]
    columns = ("id", "token", *(heading for heading, _ in chosen.values()))
    return Table(caption, columns, cells, [n for n, name in enumerate(names, 2) if name not in _TEXTS], total)


def _unmoved(findings: TokenDiagnostics) -> Iterator[Part]:
    unmoved = findings.unmoved
    if unmoved is None:
        return
    known = "The table before training is stored beside this one"
    if not unmoved.count:
        yield f"{known}: training moved each of {count(findings.rows, 'row')}."
        return
    yield (
        f"{known}: of {count(findings.rows, 'row')} training did not move {unmoved.count:,}, but for weight decay, "
        "which multiplies a row by a factor."
    )
    yield _rows("Rows that training did not move", unmoved.examples[:EXAMPLES], unmoved.count, "factor")


def _under_trained(diagnostics: TokenDiagnostics) -> Iterator[Part]:
    findings = diagnostics.under_trained
    if not findings.count:
        yield none_suspected(findings, diagnostics.rows)
        return
    also = f", {findings.also_unreachable:,} of them unreachable" if findings.also_unreachable is not None else ""
    yield (
        f"{findings.count:,} of {count(diagnostics.rows, 'token')} are suspected of being under-trained (“glitch "
        f"tokens”){also}: the cosine of their row to the mean of the {count(len(findings.reference), 'row')} of lowest "
        f"norm, both less the mean of all rows, is above {decimals(findings.threshold, 2)}."
    )
    shown = findings.examples[:EXAMPLES]
    yield _rows("Tokens suspected of being under-trained", shown, findings.count, "norm", "cosine", "reachable")


def _far(far: FarRows) -> Iterator[Part]:
    """Return the rows far from the others, or else those of lowest norm, by which a reader judges for himself."""
    median, distance = far.median_norm, far.median_distance
    if median is None or distance is None:
        return
    if len(far.lowest) < FEWEST_TO_COMPARE:
        yield f"Rows far from the others cannot be detected in {count(len(far.lowest), 'row')}: too few."
        return
    text, caption, shown = "No row is far from the others", "Rows of lowest norm", far.lowest[:_LOWEST]
    if far.count:
        text = f"Behind a gap that one in a thousand sound tables has, {count(far.count, 'row')} far from the others"
        caption, shown = "Rows far from the others", far.examples[:EXAMPLES]
    yield (
        f"{text} by norm or by distance from the mean row: the median norm is {number(median)}, the median distance "
        f"{number(distance)}."
    )
    rows = [
        [*_cells(row), *map(number, (row.norm, row.norm / median, row.distance)), *filter(None, [row.why])]
        for row in shown
    ]
    columns = ("id", "token", "norm", "of the median", "distance", *(["far by"] if far.count else []))
    yield Table(caption, columns, rows, (2, 3, 4), far.count or None)


def _unreachable(unreachable: RowList[UnreachableRow] | Missing) -> Iterator[Part]:
    if isinstance(unreachable, Missing):
        yield f"Unreachable tokens: not known, {unreachable.missing}."
    elif not unreachable.count:
        yield (
            "The text of each token is encoded to that token again, behind at least one of seven short texts; tokens "
            "that are a part of a character's bytes are not tested."
        )
    else:
        yield (
            f"{count(unreachable.count, 'token')} that no tested text is encoded to: behind each of seven short texts, "
            "the text of such a token is encoded as other tokens."
        )
        yield _rows("Unreachable tokens", unreachable.examples[:EXAMPLES], unreachable.count, "norm", "read_as")


def _hubs(hubs: Hubs) -> Iterator[Part]:
    if not hubs.queries:
        yield "Hubs cannot be detected: fewer than two rows are finite and not 0."
        return
    hub = f"{count(len(hubs.rows), 'hub')}: tokens" if hubs.rows else "No token is a hub: none is"
    yield (
        f"{hub} among the {hubs.neighbors} nearest neighbors of far more rows than {decimals(hubs.expected, 2)} on "
        f"average, of {hubs.queries:,} rows queried."
    )
    if hubs.rows:
        yield _rows("Hub tokens", hubs.rows, None, "times")


def _faults(findings: TokenDiagnostics) -> Iterator[Part]:
    """Return the rows with a fault that is certain, then which faults were looked for and not found."""
    duplicates, zero, not_finite = findings.duplicates, findings.zero, findings.not_finite
    beyond = findings.beyond_vocabulary
    there = {"duplicate": duplicates.rows, "zero": zero.count, "not finite": not_finite.count}
    if duplicates.rows:
        named = [[" ".join(filter(None, _cells(row))) for row in group] for group in duplicates.examples[:EXAMPLES]]
        rows = [[row[0].partition(" ")[0], "  ".join(row)] for row in named]
        groups = f"{count(duplicates.rows, 'row')} in {count(duplicates.groups, 'group')}"
        yield f"{groups} are equal to each other to the last bit."
        yield Table("Duplicate rows", ("first", "rows"), rows, (), duplicates.groups)
    if zero.count:
        yield f"{count(zero.count, 'row')} of zeros."
        yield _rows("Zero rows", zero.examples[:EXAMPLES], zero.count)
    if not_finite.count:
        yield f"{count(not_finite.count, 'row')} with NaN or infinity."
        shown = not_finite.examples[:EXAMPLES]
        yield _rows("Rows with NaN or infinity", shown, not_finite.count, "nan", "infinite")
    if not isinstance(beyond, Missing):
        there["beyond the vocabulary"] = beyond.count
        yield (
            ""
            if not beyond.count
            else (
                f"{count(beyond.count, 'row')} beyond the vocabulary, from #{beyond.ids[0]} on, of median norm "
                f"{number(beyond.median_norm)}: the tokenizer has no token for them."
            )
        )
    absent = [fault for fault, rows in there.items() if not rows]
    yield f"No row is {listed(absent, 'or')}." if absent else ""
    if isinstance(beyond, Missing):
        yield f"Rows beyond the vocabulary: {beyond.missing}."


def _cells(row: TokenRow) -> list[str]:
    return [f"#{row.id}", "" if row.type == "no token" else shown_token(row.token, row.text)]
