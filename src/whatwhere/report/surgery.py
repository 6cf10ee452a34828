"""What resize, trim, repair and convert did to a checkpoint, as sections."""

from collections.abc import Mapping, Sequence
from statistics import median

from whatwhere.escape import shown_token
from whatwhere.models.surgery.report import (
    Cast,
    CorpusCheck,
    Measured,
    Repaired,
    RepairedTable,
    Report,
    Resized,
    Retokenized,
    RowStatistics,
    TableDamage,
    TableRows,
    Trimmed,
)
from whatwhere.report.section import Paragraph, Section, Table
from whatwhere.report.text import count, percent

_EXAMPLES = 8
_MADE_OF = {
    "pieces": "as the mean of the pieces of their text",
    "output row": "as their rows of the output projection",
    "covariance": "sampled by the mean and covariance of the other rows",
}
_COMPOSED = {"subtokens": "means of sub-tokens", "omp": "sums by matching pursuit"}


def sections(report: Report) -> list[Section]:
    """Return the changed tensors in a table, then measurements, notes and the output in sentences."""
    rows = [(one.name, one.before, one.after, one.what) for one in report.changed]
    tables = [Table("", ("tensor", "before", "after", "what"), rows)] if rows else []
    return [Section("surgery", report.command, [*tables, *map(Paragraph, _lines(report))])]


def _lines(report: Report) -> list[str]:
    lines = []
    if report.kept:
        verb = "is" if report.kept == 1 else "are"
        lines.append(f"{count(report.kept, 'other tensor')} {verb} the same byte for byte.")
    if isinstance(report.measured, Trimmed):
        saved = report.measured.bytes_saved
        lines.append(f"{saved:,} bytes saved, {percent(saved / (saved + report.bytes))} of the weights.")
    if report.measured is not None:
        lines += [f"{name}: {value}" for name, value in _measurements(report.measured)]
    lines += [f"Note: {note}." for note in report.notes]
    lines += [f"Not copied: {one.name}: {one.why}." for one in report.not_copied]
    lines.append(f"Written: {report.out}, {report.bytes:,} bytes of weights.")
    return lines


def _measurements(measured: Measured) -> list[tuple[str, str]]:
    """Return names and values as text."""
    match measured:
        case Resized():
            ids = ", ".join(f"{number:,}" for number in measured.new_ids)
            return [*_tables(measured.tables), ("new ids", ids or "none")]
        case Trimmed():
            before, kept, requested = measured.tokens_before, measured.tokens_kept, measured.tokens_requested
            tokens = _facts({"tokens before": before, "tokens kept": kept, "of them requested": requested})
            return [*tokens, *_tables(measured.tables), *_corpus(measured.corpus)]
        case Retokenized():
            counts = {"tokens": measured.tokens, "copied": measured.copied}
            counts |= {_COMPOSED[measured.method]: measured.composed, "mean row": measured.mean_rows}
            return [*_facts(counts), *_tables(measured.tables)]
        case Cast():
            return _cast(measured)
        case Repaired():
            return [line for table in measured.tables for line in _repaired(table)]


def _repaired(table: RepairedTable) -> list[tuple[str, str]]:
    """Return the number of rows for each reason, then some of them with their norms."""
    lines = []
    for why in dict.fromkeys(row.why for row in table.rows):
        rows = [row for row in table.rows if row.why == why]
        before = [row.norm_before for row in rows if row.norm_before is not None]
        old = f", median norm {median(before):.6g}" if before else ""
        new = f"{median(row.norm_after for row in rows):.6g}"
        shown = ", ".join(shown_token(row.token, row.text) if row.token else f"#{row.id}" for row in rows[:_EXAMPLES])
        more = ", ..." if len(rows) > _EXAMPLES else ""
        lines.append((f"{table.name}, {why}", f"{count(len(rows), 'row')}{old}, now {new}: {shown}{more}"))
    for source in dict.fromkeys(row.made_of for row in table.rows):
        many = sum(row.made_of == source for row in table.rows)
        lines.append((f"{table.name}, direction of {count(many, 'new row')}", _MADE_OF[source]))
    return [*lines, (f"{table.name}, other rows", f"median norm {table.median_norm:.6g}")]


def _facts(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(name, f"{count:,}") for name, count in counts.items()]


def _tables(tables: Sequence[TableRows]) -> list[tuple[str, str]]:
    return [
        (one.name, _statistics(one.kept) + (f", new rows ({_statistics(one.new)})" if one.new is not None else ""))
        for one in tables
    ]


def _statistics(rows: RowStatistics) -> str:
    spread = "" if rows.standard_deviation is None else f", standard deviation {rows.standard_deviation:.6g}"
    return f"rows {rows.rows:,}, median norm {rows.median_norm:.6g}{spread}"


def _corpus(check: CorpusCheck | None) -> list[tuple[str, str]]:
    if check is None:
        return []
    counts = _facts({"tokens of the corpus": check.tokens, "of them unknown": check.unknown})
    return [*counts, ("encoded as before", "yes" if check.encoded_as_before else "no")]


def _cast(measured: Cast) -> list[tuple[str, str]]:
    lines = [
        ("relative error", f"{measured.relative_error:.6g}"),
        ("worst tensor", measured.worst_tensor),
        ("its relative error", f"{measured.worst_relative_error:.6g}"),
    ]
    return lines if measured.token_table is None else [*lines, ("token table", _damage(measured.token_table))]


def _damage(damage: TableDamage) -> str:
    values = [
        ("relative error", damage.relative_error),
        ("worst row cosine", damage.worst_row_cosine),
        ("median row cosine", damage.median_row_cosine),
        ("share of 10 nearest kept", damage.nearest_kept),
    ]
    return ", ".join(f"{name} {value:.6g}" for name, value in values if value is not None)
