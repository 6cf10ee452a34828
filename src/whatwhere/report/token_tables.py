"""Sentences and tables on the tables beside the token table, and on the occupancy of hashed n-grams."""

from collections.abc import Iterator
from typing import assert_never

from whatwhere.analysis.token_tables import NGramOccupancy, SiblingTable, SiblingTables
from whatwhere.records import Missing
from whatwhere.report.section import Part, Table
from whatwhere.report.text import capital, count, listed, number, percent


def token_tables(findings: SiblingTables) -> Iterator[Part]:
    """Return what the tables are, their norms, and what the texts read of them."""
    rows = []
    for table in (each.table for each in findings.tables):
        more = f" and {len(table.tensors) - 1:,} more" if len(table.tensors) > 1 else ""
        layer, shape = "" if table.layer is None else str(table.layer), f"{table.rows:,} × {table.features:,}"
        numbers = f"{table.parameters:,}", number(table.bytes or None)
        rows.append([table.kind, layer, shape, table.dtype, *numbers, f"{table.name}{more}"])
    columns = ("kind", "layer", "shape", "type", "parameters", "bytes", "tensor")
    yield Table("Tables that token ids select beside the token table", columns, rows, (4, 5))
    for each in findings.tables:
        yield f"{each.table.name}: {_meaning(each)}."
        yield from _norms(each)
        if isinstance(each.occupancy, Missing):
            yield f"What the text reads of it: {each.occupancy.missing}."
        elif each.occupancy is not None:
            yield from occupancy(each.occupancy)
        elif each.table.kind == "hashed n-grams":
            yield ("Which rows a text reads, and which n-grams share one: whatwhere inspect PATH --text FILE.")


def occupancy(findings: NGramOccupancy) -> Iterator[Part]:
    """Return which rows of hashed tables a text reads, and how many n-grams share one, beside a uniform hash."""
    yield capital(
        f"{'the first ' if findings.left_out else ''}{count(findings.tokens, 'token')} of "
        f"{count(findings.documents, 'document')} read {findings.occupied:,} of {findings.rows:,} rows "
        f"({percent(findings.occupied / findings.rows)})."
    )
    for joint in findings.joint:
        tables = "its table" if joint.tables == 1 else f"each of its {joint.tables} tables"
        yield (
            f"Of {joint.ngrams:,} different n-grams of {joint.n} tokens, {joint.confused:,} share their row with "
            f"another in {tables}, so that the model cannot tell them apart here; {number(joint.expected_confused)} "
            "are expected if rows were at random."
        )
    rows = [
        [
            *(f"{value:,}" for value in (at, each.n, each.rows, each.ngrams, each.occupied)),
            f"{each.expected_occupied:,.1f}",
            f"{each.sharing:,}",
            f"{each.expected_sharing:,.1f}",
            f"{each.fullest:,}",
        ]
        for at, each in enumerate(findings.hashes)
    ]
    columns = ("hash", "n", "rows", "n-grams", "rows read", "expected", "sharing a row", "expected", "fullest row")
    caption = "Different n-grams by table; expected: the mean if each had a row at random"
    yield Table(caption, columns, rows, range(1, len(columns)), shorten="never")


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
            known = {"qwen4_exp": "Qwen4-Exp", "blt": "BLT", "engram": "Engram", "longcat": "LongCat"}
            like = f" as in {known[table.form]}" if table.form in known else ""
            return f"rows that the last tokens choose together, by a hash{like}"
        case _:
            assert_never(table.kind)


def _norms(each: SiblingTable) -> Iterator[Part]:
    norms = each.norms
    if isinstance(norms, Missing):
        yield f"Norms: {norms.missing}."
        return
    if len(norms) == 1 and norms[0].layer is None:
        (one,) = norms
        zero = f"; {count(one.zero, 'row')} of 0" if one.zero else ""
        spread = f"median {number(one.median)}, 90\u00a0% between {number(one.p5)} and {number(one.p95)}{zero}"
        sampled = f"{'all' if each.sampled == each.table.rows else 'a sample of'} {each.sampled:,} rows"
        yield f"Norms of {sampled}: {'all are 0' if one.median is None else spread}."
        return
    if zero_in := [str(one.layer) for one in norms if one.zero]:
        some = f"layer {zero_in[0]}" if len(zero_in) == 1 else f"{len(zero_in)} layers, first {listed(zero_in[:4])}"
        yield f"Rows of {some} that are 0 add nothing there."
    rows = [[str(one.layer), *map(number, (one.p5, one.median, one.p95)), f"{one.zero:,}"] for one in norms]
    medians = [one.median or 0.0 for one in norms]
    yield Table(
        f"Norms by layer, of {each.sampled:,} rows of {each.table.name}",
        ("layer", "5\u00a0%", "median", "95\u00a0%", "rows of 0"),
        rows,
        (1, 2, 3, 4),
        bars=[median / max(max(medians), 1e-300) for median in medians],
        shorten="evenly",
    )
