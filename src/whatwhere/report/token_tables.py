"""Sentences and tables on the tables beside the token table, and on the occupancy of hashed n-grams."""

from collections.abc import Sequence
from typing import assert_never

from whatwhere.analysis.token_tables import JointOccupancy, NGramOccupancy, SampledNorms, SiblingTable, SiblingTables
from whatwhere.models.checkpoint.names import TokenTable
from whatwhere.records import Missing
from whatwhere.report.section import Paragraph, Part, Table
from whatwhere.report.text import capital, count, listed, number, percent

_TEXT = "whatwhere inspect PATH --text FILE counts which rows a text reads, and which n-grams share one"


def token_tables(findings: SiblingTables) -> list[Part]:
    """Return what the tables are, their norms, and what the texts read of them."""
    rows = [
        [
            each.table.kind,
            "" if each.table.layer is None else str(each.table.layer),
            f"{each.table.rows:,} × {each.table.features:,}",
            each.table.dtype,
            f"{each.table.parameters:,}",
            number(each.table.bytes or None),
            each.table.name
            if len(each.table.tensors) == 1
            else f"{each.table.name} and {len(each.table.tensors) - 1:,} more",
        ]
        for each in findings.tables
    ]
    columns = ("kind", "layer", "shape", "type", "parameters", "bytes", "tensor")
    parts: list[Part] = [Table("Tables that token ids select beside the token table", columns, rows, (4, 5))]
    for each in findings.tables:
        parts.append(Paragraph(f"{each.table.name}: {_meaning(each)}."))
        parts += _norms(each)
        if isinstance(each.occupancy, Missing):
            parts.append(Paragraph(f"What the text reads of it: {each.occupancy.missing}."))
        elif each.occupancy is not None:
            parts += occupancy(each.occupancy)
        elif each.table.kind == "hashed n-grams":
            parts.append(Paragraph(f"{capital(_TEXT)}."))
    return parts


def occupancy(findings: NGramOccupancy) -> list[Part]:
    """Return which rows of hashed tables a text reads, and how many n-grams share one, beside a uniform hash."""
    first = "the first " if findings.left_out else ""
    text = (
        f"{capital(first)}{count(findings.tokens, 'token')} of {count(findings.documents, 'document')} read "
        f"{findings.occupied:,} of {findings.rows:,} rows ({percent(findings.occupied / findings.rows)})"
    )
    rows = [
        [
            str(at),
            str(each.n),
            *(f"{value:,}" for value in (each.rows, each.ngrams, each.occupied)),
            f"{each.expected_occupied:,.1f}",
            f"{each.sharing:,}",
            f"{each.expected_sharing:,.1f}",
            f"{each.fullest:,}",
        ]
        for at, each in enumerate(findings.hashes)
    ]
    columns = ("hash", "n", "rows", "n-grams", "rows read", "expected", "sharing a row", "expected", "fullest row")
    caption = "Different n-grams by table; expected: the mean if each had a row at random"
    return [
        Paragraph(f"{capital(text)}."),
        *(Paragraph(f"{capital(_joint(each))}.") for each in findings.joint),
        Table(caption, columns, rows, range(1, len(columns)), shorten="never"),
    ]


def _joint(found: JointOccupancy) -> str:
    tables = "its table" if found.tables == 1 else f"each of its {found.tables} tables"
    return (
        f"of {found.ngrams:,} different n-grams of {found.n} tokens, {found.confused:,} share their row with another "
        f"in {tables}, so that the model cannot tell them apart here; {number(found.expected_confused)} are expected "
        "if rows were at random"
    )


def _meaning(each: SiblingTable) -> str:
    """Return what the vectors of a table are used for."""
    table = each.table
    match table.kind:
        case "per layer":
            layers = "each layer" if each.num_layers is None else f"each of {count(each.num_layers, 'layer')}"
            size = "" if each.num_layers is None else f" of {table.features // each.num_layers:,} features"
            return (
                f"a vector{size} of each token for {layers}, added to a projection of its input vector; a gate of the "
                "layer's hidden state multiplies the sum"
            )
        case "factorized":
            between = f", after {table.between}" if table.between else ""
            saved = ""
            if each.factors is not None:
                saved = f"; both factors have {each.factors[0]:,} numbers, a plain table would have {each.factors[1]:,}"
            return f"rows of {table.features:,} features, which a projection widens{between}{saved}"
        case "values":
            gate = ", multiplied by a gate of its hidden state" if "gate" in table.others else ""
            return f"a vector of each token that is added to the values of attention{gate}"
        case "hashed n-grams":
            return f"rows that the last tokens choose together, by a hash{_names(table)}"
        case _:
            assert_never(table.kind)


def _names(table: TokenTable) -> str:
    known = {"qwen4_exp": "Qwen4-Exp", "blt": "BLT", "engram": "Engram", "longcat": "LongCat"}
    return f" as in {known[table.form]}" if table.form in known else ""


def _norms(each: SiblingTable) -> list[Part]:
    if isinstance(each.norms, Missing):
        return [Paragraph(f"Norms: {each.norms.missing}.")]
    if len(each.norms) == 1 and each.norms[0].layer is None:
        return [Paragraph(f"{_of_sample(each)}: {_spread(each.norms[0])}.")]
    zero = [str(one.layer) for one in each.norms if one.zero]
    parts: list[Part] = []
    if zero:
        some = f"layer {zero[0]}" if len(zero) == 1 else f"{len(zero)} layers, first {listed(zero[:4])}"
        parts.append(Paragraph(f"Rows of {some} that are 0 add nothing there."))
    return [*parts, _by_layer(each, each.norms)]


def _by_layer(each: SiblingTable, norms: Sequence[SampledNorms]) -> Table:
    rows = [[str(one.layer), *map(number, (one.p5, one.median, one.p95)), f"{one.zero:,}"] for one in norms]
    medians = [one.median or 0.0 for one in norms]
    return Table(
        f"Norms by layer, of {each.sampled:,} rows of {each.table.name}",
        ("layer", "5\u00a0%", "median", "95\u00a0%", "rows of 0"),
        rows,
        (1, 2, 3, 4),
        bars=[median / max(max(medians), 1e-300) for median in medians],
        shorten="evenly",
    )


def _of_sample(each: SiblingTable) -> str:
    every = each.sampled == each.table.rows
    return f"Norms of {'all' if every else 'a sample of'} {each.sampled:,} rows"


def _spread(norms: SampledNorms) -> str:
    if norms.median is None:
        return "all are 0"
    zero = f"; {count(norms.zero, 'row')} of 0" if norms.zero else ""
    return f"median {number(norms.median)}, 90\u00a0% between {number(norms.p5)} and {number(norms.p95)}{zero}"
