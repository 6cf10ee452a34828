"""The section of an inspection on suspicious rows: what was measured, and what that does not show."""

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
from whatwhere.report.section import Paragraph, Part, Table
from whatwhere.report.text import count, decimals, listed, number

_LOWEST = 10


def diagnostics(findings: TokenDiagnostics) -> list[Part]:
    """Write the suspicious rows as paragraphs and tables, with the evidence."""
    return [
        *_unmoved(findings),
        *_under_trained(findings),
        *_far(findings.far),
        *_unreachable(findings.unreachable),
        *_hubs(findings.hubs),
        *_faulty(findings),
        *_faultless(findings),
    ]


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


def _unmoved(findings: TokenDiagnostics) -> list[Part]:
    unmoved = findings.unmoved
    if unmoved is None:
        return []
    known = "The table before training is stored beside this one"
    if not unmoved.count:
        return [Paragraph(f"{known}: training moved each of {count(findings.rows, 'row')}.")]
    text = (
        f"{known}: of {count(findings.rows, 'row')} training did not move {unmoved.count:,}, but for weight decay, "
        "which multiplies a row by a factor."
    )
    rows = [[*_cells(row), decimals(row.factor, 4)] for row in unmoved.examples[:EXAMPLES]]
    table = Table("Rows that training did not move", ("id", "token", "factor"), rows, (2,), unmoved.count)
    return [Paragraph(text), table]


def _under_trained(diagnostics: TokenDiagnostics) -> list[Part]:
    findings = diagnostics.under_trained
    if not findings.count:
        return [Paragraph(none_suspected(findings, diagnostics.rows))]
    also = f", {findings.also_unreachable:,} of them unreachable" if findings.also_unreachable is not None else ""
    text = (
        f"{findings.count:,} of {count(diagnostics.rows, 'token')} are suspected of being under-trained (“glitch "
        f"tokens”){also}: the cosine of their row to the mean of the {count(len(findings.reference), 'row')} of lowest "
        f"norm, both less the mean of all rows, is above {decimals(findings.threshold, 2)}."
    )
    reachable = {None: "not known", True: "yes", False: "no"}
    rows = [
        [*_cells(row), number(row.norm), decimals(row.cosine), reachable[row.reachable]]
        for row in findings.examples[:EXAMPLES]
    ]
    columns = ("id", "token", "norm", "cosine", "reachable")
    table = Table("Tokens suspected of being under-trained", columns, rows, (2, 3), findings.count)
    return [Paragraph(text), table]


def _far(far: FarRows) -> list[Part]:
    """Return the rows far from the others, or else those of lowest norm, by which a reader judges for himself."""
    if far.median_norm is None or far.median_distance is None:
        return []
    if len(far.lowest) < FEWEST_TO_COMPARE:
        return [Paragraph(f"Rows far from the others cannot be detected in {count(len(far.lowest), 'row')}: too few.")]
    medians = f"the median norm is {number(far.median_norm)}, the median distance {number(far.median_distance)}"
    text, caption, shown = "No row is far from the others", "Rows of lowest norm", far.lowest[:_LOWEST]
    if far.count:
        text = f"Behind a gap that one in a thousand sound tables has, {count(far.count, 'row')} far from the others"
        caption, shown = "Rows far from the others", far.examples[:EXAMPLES]
    rows = [
        [*_cells(row), number(row.norm), number(row.norm / far.median_norm), number(row.distance)]
        + ([] if row.why is None else [row.why])
        for row in shown
    ]
    columns = ("id", "token", "norm", "of the median", "distance", *(["far by"] if far.count else []))
    text = f"{text} by norm or by distance from the mean row: {medians}."
    return [Paragraph(text), Table(caption, columns, rows, (2, 3, 4), far.count or None)]


def _unreachable(unreachable: RowList[UnreachableRow] | Missing) -> list[Part]:
    if isinstance(unreachable, Missing):
        return [Paragraph(f"Unreachable tokens: not known, {unreachable.missing}.")]
    if not unreachable.count:
        return [
            Paragraph(
                "The text of each token is encoded to that token again, behind at least one of seven short texts; "
                "tokens that are a part of a character's bytes are not tested."
            )
        ]
    text = (
        f"{count(unreachable.count, 'token')} that no tested text is encoded to: behind each of seven short texts, the "
        "text of such a token is encoded as other tokens."
    )
    rows = [
        [*_cells(row), number(row.norm), " ".join(map(visible_token, row.read_as))]
        for row in unreachable.examples[:EXAMPLES]
    ]
    columns = ("id", "token", "norm", "its text is encoded as")
    return [Paragraph(text), Table("Unreachable tokens", columns, rows, (2,), unreachable.count)]


def _hubs(hubs: Hubs) -> list[Part]:
    if not hubs.queries:
        return [Paragraph("Hubs cannot be detected: fewer than two rows are finite and not 0.")]
    far = (
        f"among the {hubs.neighbors} nearest neighbors of far more rows than {decimals(hubs.expected, 2)} on average, "
        f"of {hubs.queries:,} rows queried."
    )
    if not hubs.rows:
        return [Paragraph(f"No token is a hub: none is {far}")]
    rows = [[*_cells(row), f"{row.times:,}"] for row in hubs.rows]
    text = Paragraph(f"{count(len(hubs.rows), 'hub')}: tokens {far}")
    return [text, Table("Hub tokens", ("id", "token", "times"), rows, (2,))]


def _faulty(findings: TokenDiagnostics) -> list[Part]:
    """Return the rows with a fault that is certain."""
    duplicates, zero, not_finite = findings.duplicates, findings.zero, findings.not_finite
    beyond, parts = findings.beyond_vocabulary, list[Part]()
    if duplicates.rows:
        groups = f"{count(duplicates.rows, 'row')} in {count(duplicates.groups, 'group')}"
        rows = [[f"#{group[0].id}", "  ".join(map(_named, group))] for group in duplicates.examples[:EXAMPLES]]
        parts.append(Paragraph(f"{groups} are equal to each other to the last bit."))
        parts.append(Table("Duplicate rows", ("first", "rows"), rows, (), duplicates.groups))
    if zero.count:
        rows = [_cells(row) for row in zero.examples[:EXAMPLES]]
        parts.append(Paragraph(f"{count(zero.count, 'row')} of zeros."))
        parts.append(Table("Zero rows", ("id", "token"), rows, (), zero.count))
    if not_finite.count:
        rows = [[*_cells(row), f"{row.nan:,}", f"{row.infinite:,}"] for row in not_finite.examples[:EXAMPLES]]
        columns = ("id", "token", "NaN", "infinite")
        parts.append(Paragraph(f"{count(not_finite.count, 'row')} with NaN or infinity."))
        parts.append(Table("Rows with NaN or infinity", columns, rows, (2, 3), not_finite.count))
    if not isinstance(beyond, Missing) and beyond.count:
        text = (
            f"{count(beyond.count, 'row')} beyond the vocabulary, from #{beyond.ids[0]} on, of median norm "
            f"{number(beyond.median_norm)}: the tokenizer has no token for them."
        )
        parts.append(Paragraph(text))
    return parts


def _faultless(findings: TokenDiagnostics) -> list[Part]:
    """Return which faults were looked for and not found."""
    beyond = findings.beyond_vocabulary
    absent = [
        *(["duplicate"] if not findings.duplicates.rows else []),
        *(["zero"] if not findings.zero.count else []),
        *(["not finite"] if not findings.not_finite.count else []),
        *(["beyond the vocabulary"] if not isinstance(beyond, Missing) and not beyond.count else []),
    ]
    parts: list[Part] = [Paragraph(f"No row is {listed(absent, 'or')}.")] if absent else []
    if isinstance(beyond, Missing):
        parts.append(Paragraph(f"Rows beyond the vocabulary: {beyond.missing}."))
    return parts


def _cells(row: TokenRow) -> list[str]:
    return [f"#{row.id}", "" if row.type == "no token" else shown_token(row.token, row.text)]


def _named(row: TokenRow) -> str:
    return " ".join(filter(None, _cells(row)))
