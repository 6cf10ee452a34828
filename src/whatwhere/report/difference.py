"""The difference between two checkpoints as sections."""

from collections.abc import Sequence
from itertools import chain

from whatwhere.escape import cut, visible, visible_token
from whatwhere.inspection.configurations import ConfigurationDifference, LayerDifference, RotaryDifference, Value
from whatwhere.inspection.difference import ComparedTable, Difference, PositionsDifference, TokensDifference
from whatwhere.inspection.row_differences import NeighborsDifference, RotatedDifference, RowsDifference
from whatwhere.records import Missing
from whatwhere.report.positions import layers_text
from whatwhere.report.section import Paragraph, Part, Section, Table
from whatwhere.report.text import capital, count, decimals, number, percent

_NAMES = 10
"""Tokens that a sentence lists."""
_VALUE = 60
"""Characters of a configuration's value in a table."""


def headline(found: Difference) -> str:
    """Return the main facts of a difference in one sentence, without its full stop.

    Args:
        found: the difference, with A the first and B the second.
    """
    return "; ".join(filter(None, (_tokens_fact(found.tokens), _configuration_fact(found.configuration))))


def sections(found: Difference) -> list[Section]:
    """Return the sections on tokens, positions and configuration.

    Args:
        found: the difference, with A the first and B the second.
    """
    tokens, positions, configuration = found.tokens, found.positions, found.configuration
    return [
        Section("tokens", "Tokens", _missing(tokens) if isinstance(tokens, Missing) else _tokens(tokens)),
        Section(
            "positions", "Positions", _missing(positions) if isinstance(positions, Missing) else _positions(positions)
        ),
        Section(
            "configuration",
            "Configuration",
            _missing(configuration) if isinstance(configuration, Missing) else _configuration(configuration),
        ),
    ]


def describe_rows(found: RowsDifference) -> str:
    """Return a sentence on how far matched rows differ.

    Args:
        found: the difference.
    """
    cosine = found.cosine
    return (
        f"Cosine of matched rows: median {number(cosine.median, 6)}, mean {number(cosine.mean, 6)}, least "
        f"{number(cosine.min, 6)}; relative error {number(found.relative_error)}; {count(found.equal, 'row')} equal."
    )


def _missing(found: Missing) -> list[Part]:
    return [Paragraph(f"{capital(found.missing)}.")]


def _tokens_fact(found: TokensDifference | Missing) -> str:
    if isinstance(found, Missing):
        return ""
    facts = [f"{count(found.shared, 'token')} in both"]
    if isinstance(found.rows, RowsDifference):
        facts.append(f"{count(found.rows.equal, 'row')} equal, median cosine {number(found.rows.cosine.median, 6)}")
    if isinstance(found.neighbors, NeighborsDifference):
        facts.append(f"{percent(found.neighbors.kept)} of the nearest neighbors the same")
    return ", ".join(facts)


def _configuration_fact(found: ConfigurationDifference | Missing) -> str:
    if isinstance(found, Missing):
        return ""
    settings = len(found.keys) + len(found.facts)
    layers = len({layer for part in (*found.query_key, *found.score) for layer in part.layers})
    if not settings and not layers:
        return "no difference between the configurations"
    differing = f", and the positional encodings of {count(layers, 'layer')}" if layers else ""
    return f"{count(settings, 'setting')} of the configurations{differing} differ"


def _tokens(found: TokensDifference) -> list[Part]:
    text = [f"{count(found.shared, 'token')} in both, matched by {found.matched_by}."]
    for side, total, names in (("A", found.removed_count, found.removed), ("B", found.new_count, found.new)):
        if total:
            text.append(f"{count(total, 'token')} in {side} alone: {_some(names)}.")
    parts: list[Part] = [_tables(found.tables), *_ignored(found.tables), *map(Paragraph, text)]
    one, other = found.tables
    if one.dtype != other.dtype and isinstance(found.rows, RowsDifference):
        parts.append(
            Paragraph(f"A stores {one.dtype} and B {other.dtype}: rounding is a part of the differences that follow.")
        )
    parts += _rows(found.rows, "Tokens that moved most")
    parts += _neighbors(found.neighbors)
    if isinstance(found.rotated, RotatedDifference):
        parts += _rotated(found.rotated)
    return parts


def _positions(found: PositionsDifference) -> list[Part]:
    offsets = [
        f"In {side} position 0 reads row {offset}." for side, offset in zip("AB", found.offsets, strict=True) if offset
    ]
    text = [
        *offsets,
        f"{count(found.shared, 'position')} in both; {found.removed:,} in A alone, {found.new:,} in B alone.",
    ]
    rows = _rows(found.rows, "Positions that moved most")
    return [_tables(found.tables), *_ignored(found.tables), *map(Paragraph, text), *rows]


def _tables(tables: tuple[ComparedTable, ComparedTable]) -> Table:
    rows = [
        [side, each.name, f"{each.rows:,} × {each.dim:,}", each.dtype] for side, each in zip("AB", tables, strict=True)
    ]
    return Table("Tables that are compared", ("", "tensor", "shape", "type"), rows, shorten="never")


def _ignored(tables: tuple[ComparedTable, ComparedTable]) -> list[Part]:
    return [
        Paragraph(
            f"Ignored in {side}, with NaN or infinity: {count(len(each.not_finite), 'row')}, {_some(each.not_finite)}."
        )
        for side, each in zip("AB", tables, strict=True)
        if each.not_finite
    ]


def _rows(found: RowsDifference | Missing, caption: str) -> list[Part]:
    if isinstance(found, Missing):
        return [Paragraph(f"Rows: {found.missing}.")]
    return [Paragraph(describe_rows(found)), *_moved(found, caption)]


def _moved(found: RowsDifference, caption: str) -> list[Part]:
    if not found.moved_most:
        return []
    columns = ("row", "id in A", "id in B", "distance", "cosine", "norm B / A")
    rows = [
        [
            visible_token(row.token),
            *map(str, row.ids),
            decimals(row.distance, 4),
            decimals(row.cosine, 4),
            decimals(row.norm_ratio, 4),
        ]
        for row in found.moved_most
    ]
    return [
        Table(f"{caption} (distance in units of the median norm of A)", columns, rows, range(1, 6), shorten="never")
    ]


def _neighbors(found: NeighborsDifference | Missing) -> list[Part]:
    if isinstance(found, Missing):
        return [Paragraph(f"Nearest neighbors: {found.missing}.")]
    text = (
        f"{percent(found.kept)} of the {found.k} nearest neighbors are the same, of {count(found.queries, 'token')} "
        f"sampled; random neighbors would keep {percent(found.chance)}."
    )
    rows = [[visible_token(row.token), percent(row.kept)] for row in found.least_kept]
    table = Table("Tokens whose nearest neighbors changed most", ("token", "kept"), rows, (1,))
    return [Paragraph(text), *([table] if rows else [])]


def _rotated(found: RotatedDifference) -> list[Part]:
    text = (
        f"The embedding spaces differ. Once A is rotated onto B, by a rotation fitted to {count(found.fitted, 'row')}, "
        f"the other rows have a median cosine of {decimals(found.held_out_cosine, 4)}."
    )
    return [Paragraph(text), *_moved(found, "Tokens that moved most once A is rotated onto B")]


def _configuration(found: ConfigurationDifference) -> list[Part]:
    parts: list[Part] = []
    if found.not_understood is not None:
        parts.append(Paragraph(f"Compared by keys alone: {found.not_understood}."))
    changed = [*found.facts, *found.keys]
    if not changed and not found.query_key and not found.score:
        parts.append(Paragraph("No difference that affects tokens and positions."))
    if changed:
        rows = [[each.name, *map(_value, (each.first, each.second))] for each in changed]
        parts.append(Table("Settings that differ", ("setting", "A", "B"), rows, shorten="never"))
    return [
        *parts,
        *chain.from_iterable(_layers(each, "queries and keys") for each in found.query_key),
        *chain.from_iterable(_layers(each, "attention scores") for each in found.score),
    ]


def _value(value: Value) -> str:
    return cut(visible("none" if value is None else value), _VALUE)


def _layers(found: LayerDifference, of: str) -> list[Part]:
    caption = f"{layers_text(found.layers)}: {of}"
    rows = [["A", found.first or "none"], ["B", found.second or "none"]]
    table = Table(caption, ("", "scheme"), rows, shorten="never")
    return [table, *(_rotary(found.rotary) if found.rotary is not None else [])]


def _rotary(found: RotaryDifference) -> list[Part]:
    text = []
    if found.interleaved[0] != found.interleaved[1]:
        text.append("They pair features differently: the weights of queries and keys must be stored accordingly.")
    if found.magnitudes[0] != found.magnitudes[1]:
        one, other = (number(each, 6) for each in found.magnitudes)
        text.append(f"Queries and keys are multiplied by {one} and {other}.")
    text.append(
        f"{found.differing} of {count(found.pairs, 'pair')} have other frequencies, at a length of {found.length:,}."
    )
    parts: list[Part] = [*map(Paragraph, text)]
    if found.differing:
        caption = "Cosine of a vector rotated by A and by B, by distance"
        columns = ("distance", *(f"{n:,}" for n in found.distances))
        rows = [["cosine", *map(decimals, found.cosine)]]
        parts.append(Table(caption, columns, rows, range(1, len(columns)), shorten="never"))
    return parts


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
    return ", ".join(map(visible_token, names[:_NAMES])) + more
