"""What resize, trim, repair and convert did to a checkpoint, as sections."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING

from whatwhere.escape import shown_token
from whatwhere.records import Missing
from whatwhere.report.section import Part, Table
from whatwhere.report.text import count, number, percent
from whatwhere.surgery.report import (
    Cast,
    Extended,
    Measured,
    Repaired,
    RepairedTable,
    Report,
    Resized,
    Retokenized,
    RowStatistics,
    TableRows,
    Trimmed,
)

if TYPE_CHECKING:
    from whatwhere.models.probe.findings import ProbedRotation

_EXAMPLES = 8
_MADE_OF = {
    "pieces": "as the mean of the pieces of their text",
    "output row": "as their rows of the output projection",
    "covariance": "sampled by the mean and covariance of the other rows",
}
_COMPOSED = {"subtokens": "means of sub-tokens", "omp": "sums by matching pursuit"}


def parts(report: Report) -> Iterator[Part]:
    """Return the changed tensors in a table, then measurements, notes and the output in sentences."""
    rows = [(one.name, one.before, one.after, one.what) for one in report.changed]
    if rows:
        yield Table("", ("tensor", "before", "after", "what"), rows)
    if report.kept:
        verb = "is" if report.kept == 1 else "are"
        yield f"{count(report.kept, 'other tensor')} {verb} the same byte for byte."
    if isinstance(report.measured, Trimmed):
        saved = report.measured.bytes_saved
        yield f"{saved:,} bytes saved, {percent(saved / (saved + report.bytes))} of the weights."
    if report.measured is not None:
        for name, value in _measurements(report.measured):
            yield f"{name}: {value}"
    for note in report.notes:
        yield f"Note: {note}."
    for one in report.not_copied:
        yield f"Not copied: {one.name}: {one.why}."
    yield f"Written: {report.out}, {report.bytes:,} bytes of weights."


def _measurements(measured: Measured) -> Iterator[tuple[str, object]]:
    """Yield names and values."""
    match measured:
        case Resized():
            yield from _tables(measured.tables)
            yield "new ids", ", ".join(f"{number:,}" for number in measured.new_ids) or "none"
        case Trimmed():
            yield "tokens before", f"{measured.tokens_before:,}"
            yield "tokens kept", f"{measured.tokens_kept:,}"
            yield "of them requested", f"{measured.tokens_requested:,}"
            yield from _tables(measured.tables)
            if (corpus := measured.corpus) is not None:
                yield "tokens of the corpus", f"{corpus.tokens:,}"
                yield "of them unknown", f"{corpus.unknown:,}"
                yield "encoded as before", "yes" if corpus.encoded_as_before else "no"
        case Retokenized():
            yield "tokens", f"{measured.tokens:,}"
            yield "copied", f"{measured.copied:,}"
            yield _COMPOSED[measured.method], f"{measured.composed:,}"
            yield "mean row", f"{measured.mean_rows:,}"
            yield from _tables(measured.tables)
        case Cast():
            yield "relative error", f"{measured.relative_error:.6g}"
            yield "worst tensor", measured.worst_tensor
            yield "its relative error", f"{measured.worst_relative_error:.6g}"
            if (table := measured.token_table) is not None:
                values = {
                    "relative error": table.relative_error,
                    "worst row cosine": table.worst_row_cosine,
                    "median row cosine": table.median_row_cosine,
                    "share of 10 nearest kept": table.nearest_kept,
                }
                known = [f"{name} {value:.6g}" for name, value in values.items() if value is not None]
                yield "token table", ", ".join(known)
        case Extended():
            yield (
                "length",
                f"{measured.length:,}, trained {measured.trained:,}: {measured.scaling}, {measured.factor:g}",
            )
            for when, found in (("before", measured.before), ("after", measured.after)):
                rotations = found.missing if isinstance(found, Missing) else "; ".join(map(_rotation, found))
                yield f"probed {when}", rotations or "no rotation"
        case Repaired():
            for repaired in measured.tables:
                yield from _repaired(repaired)


def _rotation(found: "ProbedRotation") -> str:
    both = (found.frequencies, found.far_frequencies)
    near, far = (" to ".join(number(each, 5) for each in part[:: max(len(part) - 1, 1)]) for part in both)
    beyond = f", in long texts {far}" if far else ""
    return f"{near} radians for each position{beyond}, times {number(found.magnitude, 5)}"


def _repaired(table: RepairedTable) -> Iterator[tuple[str, str]]:
    """Yield the number of rows for each reason, then some of them with their norms."""
    for why in dict.fromkeys(row.why for row in table.rows):
        rows = [row for row in table.rows if row.why == why]
        before = [row.norm_before for row in rows if row.norm_before is not None]
        old = f", median norm {median(before):.6g}" if before else ""
        new = f"{median(row.norm_after for row in rows):.6g}"
        shown = ", ".join(shown_token(row.token, row.text) if row.token else f"#{row.id}" for row in rows[:_EXAMPLES])
        more = ", ..." if len(rows) > _EXAMPLES else ""
        yield f"{table.name}, {why}", f"{count(len(rows), 'row')}{old}, now {new}: {shown}{more}"
    for source in dict.fromkeys(row.made_of for row in table.rows):
        many = sum(row.made_of == source for row in table.rows)
        yield f"{table.name}, direction of {count(many, 'new row')}", _MADE_OF[source]
    yield f"{table.name}, other rows", f"median norm {table.median_norm:.6g}"


def _tables(tables: Sequence[TableRows]) -> Iterator[tuple[str, str]]:
    for one in tables:
        yield one.name, _statistics(one.kept) + ("" if one.new is None else f", new rows ({_statistics(one.new)})")


def _statistics(rows: RowStatistics) -> str:
    spread = "" if rows.standard_deviation is None else f", standard deviation {rows.standard_deviation:.6g}"
    return f"rows {rows.rows:,}, median norm {rows.median_norm:.6g}{spread}"
