"""Suspicious rows, list by list: what was measured, and what that does not show."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from whatwhere.analysis.diagnostics import FEWEST_TO_COMPARE
from whatwhere.analysis.subject import EXAMPLES, EXAMPLES_ON_PAGE
from whatwhere.analysis.token_diagnostics import Duplicates, Hubs, TokenDiagnostics, TokenRow, UnderTrained
from whatwhere.escape import shown_token, visible_token
from whatwhere.records import Missing
from whatwhere.report.section import Chart, Part, Section, Series, Table
from whatwhere.report.text import capital, count, decimals, listed, number, percent

_LOWEST, _NAMED = 10, 4
_COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "type": ("type", str),
    "norm": ("norm", number),
    "cosine": ("cosine", decimals),
    "proximity": ("proximity", decimals),
    "distance": ("distance", number),
    "factor": ("factor", partial(decimals, places=4)),
    "times": ("times", "{:,}".format),
    "nan": ("NaN", "{:,}".format),
    "infinite": ("infinite", "{:,}".format),
    "group": ("group", str),
    "why": ("far by", str),
    "reachable": ("reachable", lambda known: "not known" if known is None else "yes" if known else "no"),
    "tried": ("text tried", visible_token),
    "read_as": ("encoded as", lambda tokens: " ".join(map(visible_token, tokens))),
}
"""Heading and text of what is known of a row."""
_TEXTS = ("type", "why", "reachable", "tried", "read_as")


def diagnostics(findings: TokenDiagnostics) -> Iterator[Part]:
    """Write the suspicious rows as paragraphs and tables, with the evidence."""
    for _, write in _LISTS.values():
        yield from write(findings, EXAMPLES)
    faults = ("duplicates", "zero", "not_finite", "beyond_vocabulary")
    absent = [_LISTS[name][0] for name in faults if _count(getattr(findings, name)) == 0]
    yield f"No row is {listed(absent, 'or')}." if absent else ""


def lists(findings: TokenDiagnostics) -> list[Section]:
    """Return sections for a page: how many rows each list has, then each list with rows, then all others as one."""
    written = {
        name: (capital(title), _count(found), [*write(findings, EXAMPLES_ON_PAGE)])
        for name, (title, write) in _LISTS.items()
        if (found := getattr(findings, name)) is not None
    }
    rows = [
        (title, "not known" if n is None else f"{n:,}", "" if n is None else percent(n / findings.rows))
        for title, n, _ in written.values()
    ]
    caption = f"Suspicious rows among {findings.rows:,}"
    table = Table(caption, ("list", "rows", "share"), rows, (1, 2))
    values = Series("rows", [math.nan if n is None else float(n) for _, n, _ in written.values()])
    note, method = (
        "A bar is a share of all rows; a row may be in several lists.",
        "Each list says below how it is found.",
    )
    bars = Chart("bars", caption, "rows", "", (0.0, float(findings.rows)), [values], table, note, method)
    rest = [part for _, n, parts in written.values() if not n for part in parts]
    return [
        Section("counts", "Lists", [bars]),
        *(Section(name, f"{title}: {n:,}", parts) for name, (title, n, parts) in written.items() if n),
        *([Section("empty", "Lists without rows", rest)] if rest else []),
    ]


def first_sentences(findings: TokenDiagnostics) -> dict[str, str]:
    """Return the sentence that each list begins with, by its name, of those that have rows."""
    known = {name: found for name in _LISTS if (found := getattr(findings, name)) is not None and _count(found)}
    return {name: str(next(_LISTS[name][1](findings, 0))) for name in known}


def _count(found: Any) -> int | None:
    """Return how many rows a list has; None where that is not known."""
    if isinstance(found, Missing):
        return None
    if isinstance(found, Hubs):
        return len(found.rows)
    return found.rows if isinstance(found, Duplicates) else int(found.count)


def _none_suspected(findings: UnderTrained, rows: int) -> str:
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


def _rows(
    caption: str, rows: Sequence[TokenRow], total: int | None, most: int, *names: str, groups: Sequence[int] = ()
) -> Table:
    """Return the first of some rows: id, token, type, norm, and what is known of each by these names."""
    shown = rows[:most]
    tokens = ["" if row.type == "no token" else shown_token(row.token, row.text) for row in shown]
    values = {name: [getattr(row, name) for row in shown] for name in ("type", "norm", *names)}
    values |= {"group": [*groups[:most]]} if groups else {}
    texts = [map(_COLUMNS[name][1], column) for name, column in values.items()]
    columns = ["id", "token", *(_COLUMNS[name][0] for name in values)]
    numeric = {n: name for n, name in enumerate(values, 2) if name not in _TEXTS}
    return Table(
        caption,
        columns,
        [*zip((f"#{row.id}" for row in shown), tokens, *texts, strict=True)],
        [*numeric],
        total,
        exact=[Series(columns[n], [*map(float, values[name])]) for n, name in numeric.items()],
    )


def _unmoved(findings: TokenDiagnostics, most: int) -> Iterator[Part]:
    unmoved = findings.unmoved
    if unmoved is None:
        return
    known = "the table before training is stored beside this one"
    if not unmoved.count:
        yield f"Training moved each of {count(findings.rows, 'row')}: {known}."
        return
    named = [shown_token(row.token, row.text) for row in unmoved.examples[:_NAMED]]
    some = f" ({', '.join(named)}{', ...' if len(named) < unmoved.count else ''})" if named else ""
    yield (
        f"Training did not move {unmoved.count:,} of {count(findings.rows, 'row')}{some}, but for weight decay, which "
        f"multiplies a row by a factor: {known}."
    )
    yield _rows("Rows that training did not move", unmoved.examples, unmoved.count, most, "factor")


def _under_trained(diagnostics: TokenDiagnostics, most: int) -> Iterator[Part]:
    findings = diagnostics.under_trained
    if not findings.count:
        yield _none_suspected(findings, diagnostics.rows)
        return
    also = f", {findings.also_unreachable:,} of them unreachable" if findings.also_unreachable is not None else ""
    yield (
        f"{findings.count:,} of {count(diagnostics.rows, 'token')} are suspected of being under-trained (“glitch "
        f"tokens”){also}: the cosine of their row to the mean of the {count(len(findings.reference), 'row')} of lowest "
        f"norm, both less the mean of all rows, is above {decimals(findings.threshold, 2)}."
    )
    caption, names = "Tokens suspected of being under-trained", ("cosine", "proximity", "reachable")
    yield _rows(caption, findings.examples, findings.count, most, *names)


def _far(findings: TokenDiagnostics, most: int) -> Iterator[Part]:
    """Return the rows far from the others, and those of lowest norm and farthest, by which readers judge themselves."""
    far = findings.far
    if far.median_norm is None or far.median_distance is None:
        return
    if len(far.lowest) < FEWEST_TO_COMPARE:
        yield f"Rows far from the others cannot be detected in {count(len(far.lowest), 'row')}: too few."
        return
    text = "No row is far from the others"
    if far.count:
        text = f"Behind a gap that one in a thousand sound tables has, {count(far.count, 'row')} far from the others"
    yield (
        f"{text} by norm or by distance from the mean row: the median norm is {number(far.median_norm)}, the median "
        f"distance {number(far.median_distance)}."
    )
    if far.count:
        yield _rows("Rows far from the others", far.examples, far.count, most, "distance", "why")
    yield _rows("Rows of lowest norm", far.lowest, None, _LOWEST, "distance")
    yield _rows("Rows farthest from the mean", far.farthest, None, _LOWEST, "distance")


def _unreachable(findings: TokenDiagnostics, most: int) -> Iterator[Part]:
    unreachable = findings.unreachable
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
        yield _rows("Unreachable tokens", unreachable.examples, unreachable.count, most, "tried", "read_as")


def _hubs(findings: TokenDiagnostics, most: int) -> Iterator[Part]:
    hubs = findings.hubs
    if not hubs.queries:
        yield "Hubs cannot be detected: fewer than two rows are finite and not 0."
        return
    hub = f"{count(len(hubs.rows), 'hub')}: tokens" if hubs.rows else "No token is a hub: none is"
    yield (
        f"{hub} among the {hubs.neighbors} nearest neighbors of far more rows than {decimals(hubs.expected, 2)} on "
        f"average, of {hubs.queries:,} rows queried."
    )
    if hubs.rows:
        yield _rows("Hub tokens", hubs.rows, len(hubs.rows), most, "times")


def _duplicates(findings: TokenDiagnostics, most: int) -> Iterator[Part]:
    found = findings.duplicates
    if found.rows:
        yield f"{count(found.rows, 'row')} in {count(found.groups, 'group')} are equal to each other to the last bit."
        rows = [row for group in found.examples for row in group]
        groups = [n for n, group in enumerate(found.examples, 1) for _ in group]
        yield _rows("Duplicate rows", rows, found.rows, most, groups=groups)


def _zero(findings: TokenDiagnostics, most: int) -> Iterator[Part]:
    zero = findings.zero
    if zero.count:
        yield f"{count(zero.count, 'row')} of zeros."
        yield _rows("Zero rows", zero.examples, zero.count, most)


def _not_finite(findings: TokenDiagnostics, most: int) -> Iterator[Part]:
    found = findings.not_finite
    if found.count:
        yield f"{count(found.count, 'row')} with NaN or infinity."
        yield _rows("Rows with NaN or infinity", found.examples, found.count, most, "nan", "infinite")


def _beyond(findings: TokenDiagnostics, most: int) -> Iterator[Part]:
    beyond = findings.beyond_vocabulary
    if isinstance(beyond, Missing):
        yield f"Rows beyond the vocabulary: {beyond.missing}."
    elif beyond.count:
        yield (
            f"{count(beyond.count, 'row')} beyond the vocabulary, from #{beyond.ids[0]} on, of median norm "
            f"{number(beyond.median_norm)}: the tokenizer has no token for them."
        )
        yield _rows("Rows beyond the vocabulary", beyond.examples, beyond.count, most)


_LISTS: Mapping[str, tuple[str, Callable[[TokenDiagnostics, int], Iterator[Part]]]] = {
    "unmoved": ("not moved by training", _unmoved),
    "under_trained": ("under-trained", _under_trained),
    "far": ("far from the others", _far),
    "unreachable": ("unreachable", _unreachable),
    "hubs": ("hubs", _hubs),
    "duplicates": ("duplicate", _duplicates),
    "zero": ("zero", _zero),
    "not_finite": ("not finite", _not_finite),
    "beyond_vocabulary": ("beyond the vocabulary", _beyond),
}
"""Of each list of the findings its title, and what writes it with so many of its rows."""
