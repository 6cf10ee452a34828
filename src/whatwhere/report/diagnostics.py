"""The section of an inspection on suspicious rows: what was measured, and what that does not show."""

from whatwhere.escape import visible_token
from whatwhere.inspection.diagnostics import (
    Duplicates,
    HubTokens,
    NotFiniteRow,
    RowList,
    TokenDiagnostics,
    TokenRow,
    UnderTrained,
    UnreachableRow,
)
from whatwhere.records import Missing
from whatwhere.report.section import Paragraph, Part, Table
from whatwhere.report.text import count, decimals, listed, number


def diagnostics(found: TokenDiagnostics) -> list[Part]:
    """Return what is suspicious about which rows, and the evidence.

    Args:
        found: the section.
    """
    return [
        *_under_trained(found),
        *_unreachable(found.unreachable),
        *_hubs(found.hubs),
        *_duplicates(found.duplicates),
        *_zero(found.zero),
        *_not_finite(found.not_finite),
        *_beyond(found),
        *_faultless(found),
    ]


def none_suspected(found: UnderTrained, rows: int) -> str:
    """Return what was measured where no row is suspected of being under-trained, and what that does not show.

    Args:
        found: the list, which is empty.
        rows: of the table.
    """
    if found.highest is None:
        return f"Under-trained tokens cannot be detected in {count(rows, 'row')}: too few are finite and not 0."
    reference = f"the mean of the {count(len(found.reference), 'row')} of lowest norm"
    threshold = decimals(found.threshold, 2)
    if not found.decisive:
        return (
            f"Under-trained tokens cannot be detected here: cosines to {reference} vary so widely that only one above "
            f"{threshold} would be suspicious, and none exceeds 1."
        )
    return (
        f"Of {count(rows, 'row')} none is suspected of being under-trained: no cosine to {reference} is above "
        f"{decimals(found.highest, 2)}, and suspicious is above {threshold}. Rows that keep their random "
        "initialization, whole or shrunk by weight decay, would not be detected."
    )


def _under_trained(diagnostics: TokenDiagnostics) -> list[Part]:
    found = diagnostics.under_trained
    if not found.count:
        return [Paragraph(none_suspected(found, diagnostics.rows))]
    also = f", {found.also_unreachable:,} of them unreachable" if found.also_unreachable is not None else ""
    text = (
        f"{found.count:,} of {count(diagnostics.rows, 'token')} are suspected of being under-trained (“glitch "
        f"tokens”){also}: the cosine of their row to the mean of the {count(len(found.reference), 'row')} of lowest "
        f"norm, both less the mean of all rows, is above {decimals(found.threshold, 2)}."
    )
    reachable = {None: "not known", True: "yes", False: "no"}
    rows = [[*_cells(row), number(row.norm), decimals(row.cosine), reachable[row.reachable]] for row in found.examples]
    columns = ("id", "token", "norm", "cosine", "reachable")
    table = Table("Tokens suspected of being under-trained", columns, rows, (2, 3), found.count)
    return [Paragraph(text), table]


def _unreachable(found: RowList[UnreachableRow] | Missing) -> list[Part]:
    if isinstance(found, Missing):
        return [Paragraph(f"Unreachable tokens: not known, {found.missing}.")]
    if not found.count:
        return [
            Paragraph(
                "The text of each token is encoded to that token again, behind at least one of seven short texts; "
                "tokens that are a part of a character's bytes are not tested."
            )
        ]
    text = (
        f"{count(found.count, 'token')} that no tested text is encoded to: behind each of seven short texts, the text "
        "of such a token is encoded as other tokens."
    )
    rows = [[*_cells(row), number(row.norm), " ".join(map(visible_token, row.read_as))] for row in found.examples]
    columns = ("id", "token", "norm", "its text is encoded as")
    return [Paragraph(text), Table("Unreachable tokens", columns, rows, (2,), found.count)]


def _hubs(found: HubTokens) -> list[Part]:
    if not found.queries:
        return [Paragraph("Hubs cannot be detected: fewer than two rows are finite and not 0.")]
    average = f"{decimals(found.expected, 2)} on average, of {found.queries:,} rows queried"
    if not found.rows:
        text = (
            f"No token is a hub: none is among the {found.neighbors} nearest neighbors of far more rows than {average}."
        )
        return [Paragraph(text)]
    text = (
        f"{count(len(found.rows), 'hub')}: tokens among the {found.neighbors} nearest neighbors of far more rows than "
        f"{average}."
    )
    rows = [[*_cells(row), f"{row.times:,}"] for row in found.rows]
    return [Paragraph(text), Table("Hub tokens", ("id", "token", "times"), rows, (2,))]


def _duplicates(found: Duplicates) -> list[Part]:
    if not found.rows:
        return []
    text = f"{count(found.rows, 'row')} in {count(found.groups, 'group')} are equal to each other to the last bit."
    rows = [[f"#{group[0].id}", "  ".join(map(_named, group))] for group in found.examples]
    return [Paragraph(text), Table("Duplicate rows", ("first", "rows"), rows, (), found.groups)]


def _zero(found: RowList[TokenRow]) -> list[Part]:
    if not found.count:
        return []
    table = Table("Zero rows", ("id", "token"), [*map(_cells, found.examples)], (), found.count)
    return [Paragraph(f"{count(found.count, 'row')} of zeros."), table]


def _not_finite(found: RowList[NotFiniteRow]) -> list[Part]:
    if not found.count:
        return []
    rows = [[*_cells(row), f"{row.nan:,}", f"{row.infinite:,}"] for row in found.examples]
    table = Table("Rows with NaN or infinity", ("id", "token", "NaN", "infinite"), rows, (2, 3), found.count)
    return [Paragraph(f"{count(found.count, 'row')} with NaN or infinity."), table]


def _beyond(diagnostics: TokenDiagnostics) -> list[Part]:
    found = diagnostics.beyond_vocabulary
    if isinstance(found, Missing) or not found.count:
        return []
    return [
        Paragraph(
            f"{count(found.count, 'row')} beyond the vocabulary, from #{found.first} on, of median norm "
            f"{number(found.median_norm)}: the tokenizer has no token for them."
        )
    ]


def _faultless(found: TokenDiagnostics) -> list[Part]:
    """Return which faults were looked for and not found."""
    beyond = found.beyond_vocabulary
    absent = [
        *(["duplicate"] if not found.duplicates.rows else []),
        *(["zero"] if not found.zero.count else []),
        *(["not finite"] if not found.not_finite.count else []),
        *(["beyond the vocabulary"] if not isinstance(beyond, Missing) and not beyond.count else []),
    ]
    parts: list[Part] = [Paragraph(f"No row is {listed(absent, 'or')}.")] if absent else []
    if isinstance(beyond, Missing):
        parts.append(Paragraph(f"Rows beyond the vocabulary: {beyond.missing}."))
    return parts


def _cells(row: TokenRow) -> list[str]:
    return [f"#{row.id}", "" if row.token is None else visible_token(row.token)]


def _named(row: TokenRow) -> str:
    return " ".join(filter(None, _cells(row)))
