"""The difference between two checkpoints as sections."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from whatwhere.analysis.checkpoint_difference import (
    ComparedTable,
    Difference,
    GroupDifference,
    NeighborsDifference,
    PositionsDifference,
    RotatedDifference,
    RowsDifference,
    TokensDifference,
)
from whatwhere.analysis.configuration_difference import ConfigurationDifference, RotaryDifference, Value
from whatwhere.escape import cut, visible, visible_token
from whatwhere.records import Missing
from whatwhere.report.positions import layers_text
from whatwhere.report.section import Chart, Headline, Part, Section, Series, Table, found_section
from whatwhere.report.text import capital, count, decimals, number, percent

_NAMES = 10  # tokens that a sentence lists
_VALUE = 60  # characters of a configuration's value in a table


@dataclass(frozen=True, eq=False)
class DifferenceRecord(Difference, Headline):
    """What `diff --json` prints."""


def headline(findings: Difference) -> str:
    """Return the main facts of a difference in one sentence, without its full stop."""
    facts = _tokens_fact(findings.tokens), _others_fact(findings.others), _configuration_fact(findings.configuration)
    return "; ".join(filter(None, facts))


def sections(findings: Difference) -> list[Section]:
    """Return the sections on tokens, positions, other tensors and configuration."""
    return [
        found_section("tokens", "Tokens", findings.tokens, _tokens),
        found_section("positions", "Positions", findings.positions, _positions),
        found_section("others", "Other tensors", findings.others, _others),
        found_section("configuration", "Configuration", findings.configuration, _configuration),
    ]


def _tokens_fact(tokens: TokensDifference | Missing) -> str:
    if isinstance(tokens, Missing):
        return ""
    facts = [f"{count(tokens.shared, 'token')} in both"]
    if isinstance(tokens.rows, RowsDifference):
        facts.append(f"{count(tokens.rows.equal, 'row')} equal, median cosine {number(tokens.rows.cosine.median, 6)}")
    if isinstance(tokens.neighbors, NeighborsDifference):
        facts.append(f"{percent(tokens.neighbors.kept)} of the nearest neighbors the same")
    return ", ".join(facts)


def _others_fact(groups: Sequence[GroupDifference] | Missing) -> str:
    if isinstance(groups, Missing):
        return ""
    changed, shared = sum(g.shared - g.equal - g.not_read for g in groups), sum(g.shared for g in groups)
    return f"{changed:,} of {count(shared, 'other tensor')} changed"


def _configuration_fact(configuration: ConfigurationDifference | Missing) -> str:
    if isinstance(configuration, Missing):
        return ""
    parts = [*configuration.query_key, *configuration.score]
    settings = len(configuration.keys) + len(configuration.facts)
    layers = len({layer for part in parts for layer in part.layers})
    if not settings and not layers:
        return "no difference between the configurations"
    what = "pair layouts" if all(p.rotary and p.rotary.rotates_alike for p in parts) else "positional encodings"
    differing = f", and the {what} of {count(layers, 'layer')}" if layers else ""
    return f"{count(settings, 'setting')} of the configurations{differing} differ{'s' * (settings == 1 and not layers)}"


def _tokens(tokens: TokensDifference) -> Iterator[Part]:
    yield f"{count(tokens.shared, 'token')} in both, matched by {tokens.matched_by}."
    for side, total, names in (("A", tokens.removed_count, tokens.removed), ("B", tokens.new_count, tokens.new)):
        yield f"{count(total, 'token')} in {side} alone: {_some(names, total)}." if total else ""
    one, other = tokens.tables
    if one.dtype.split(",")[0] != other.dtype.split(",")[0] and isinstance(tokens.rows, RowsDifference):
        yield f"A stores {one.dtype} and B {other.dtype}: rounding is a part of the differences that follow."
    yield from _rows(tokens.rows, "Tokens that moved most")
    yield from _neighbors(tokens.neighbors)
    if isinstance(rotated := tokens.rotated, RotatedDifference):
        yield (
            "The embedding spaces differ. Once A is rotated onto B, by a rotation fitted to "
            f"{count(rotated.fitted, 'row')}, the other rows have a median cosine of "
            f"{decimals(rotated.held_out_cosine, 4)}."
        )
        yield from _moved(rotated, "Tokens that moved most once A is rotated onto B")
    yield from _tables(tokens.tables)


def _positions(positions: PositionsDifference) -> Iterator[Part]:
    yield from _tables(positions.tables)
    for side, offset in zip("AB", positions.offsets, strict=True):
        yield f"In {side} position 0 reads row {offset}." if offset else ""
    alone = f"{positions.removed:,} in A alone, {positions.new:,} in B alone"
    yield f"{count(positions.shared, 'position')} in both; {alone}."
    yield from _rows(positions.rows, "Positions that moved most")


def _others(groups: Sequence[GroupDifference]) -> Iterator[Part]:
    """Return a line for each kind of tensors."""
    for group in groups:
        changed = group.shared - group.equal - group.not_read
        facts = [f"{group.equal:,} of {count(group.shared, 'tensor')} equal"]
        if changed:
            facts.append(f"{changed:,} changed, relative error {number(group.relative_error)}")
        counted = {"not read": group.not_read, "of another shape": group.other_shape}
        counted |= {"in A alone": group.removed, "in B alone": group.new}
        facts += [f"{many:,} {what}" for what, many in counted.items() if many]
        yield f"{capital(group.name)}: {'; '.join(facts)}."


def _tables(tables: tuple[ComparedTable, ComparedTable]) -> Iterator[Part]:
    """Return the tables that are compared, and which of their rows are ignored."""
    sides = [*zip("AB", tables, strict=True)]
    rows = [[side, each.name, f"{each.rows:,} × {each.dim:,}", each.dtype] for side, each in sides]
    yield Table("Tables that are compared", ("checkpoint", "tensor", "shape", "type"), rows, shorten="never")
    for side, each in sides:
        if each.not_finite:
            ignored = f"{count(each.not_finite_count, 'row')}, {_some(each.not_finite, each.not_finite_count)}"
            yield f"Ignored in {side}, with NaN or infinity: {ignored}."


def _rows(rows: RowsDifference | Missing, title: str) -> Iterator[Part]:
    if isinstance(rows, Missing):
        yield f"Rows: {rows.missing}."
        return
    cosine = rows.cosine
    without = (
        f", without {count(rows.without_cosine, 'row')} of zeros in A or in B alone" if rows.without_cosine else ""
    )
    yield (
        f"Cosine of matched rows: median {number(cosine.median, 6)}, mean {number(cosine.mean, 6)}, least "
        f"{number(cosine.min, 6)}{without}; relative error {number(rows.relative_error)}; "
        f"{count(rows.equal, 'row')} equal."
    )
    yield from _moved(rows, title)


def _moved(difference: RowsDifference, title: str) -> Iterator[Part]:
    if not difference.moved_most:
        return
    exact = {
        "distance": [row.distance for row in difference.moved_most],
        "cosine": [row.cosine for row in difference.moved_most],
        "norm B / A": [row.norm_ratio for row in difference.moved_most],
    }
    rows = []
    for row in difference.moved_most:
        exactly = number(row.distance), decimals(row.cosine, 4), decimals(row.norm_ratio, 4)
        rows.append([visible_token(row.token), *map(str, row.ids), *exactly])
    caption = f"{title} (distance in units of the median norm of A)"
    yield Chart(
        kind="bars",
        title=title,
        x_label="distance",
        y_label="",
        x=(0.0, max(exact["distance"])),
        series=[Series(name, values) for name, values in exact.items()],
        table=Table(caption, ("row", "id in A", "id in B", *exact), rows, range(1, 6), shorten="never"),
        note="Distance of the two rows, in units of the median norm of A; the median of all distances is "
        f"{number(difference.distance.median)}.",
        method="|y \u2212 x| / median |x| for the row x of A and the row y of B that is matched with it, in float64.",
    )


def _neighbors(neighbors: NeighborsDifference | Missing) -> Iterator[Part]:
    if isinstance(neighbors, Missing):
        yield f"Nearest neighbors: {neighbors.missing}."
        return
    yield (
        f"{percent(neighbors.kept)} of the {neighbors.k} nearest neighbors are the same, of "
        f"{count(neighbors.queries, 'token')} sampled; random neighbors would keep {percent(neighbors.chance)}."
    )
    least = neighbors.least_kept
    if len({row.kept for row in least}) == 1:
        yield f"{percent(least[0].kept)} are the same for {_some([row.token for row in least], len(least))}."
    elif least:
        title = "Tokens whose nearest neighbors changed most"
        rows = [[visible_token(row.token), percent(row.kept)] for row in least]
        yield Chart(
            kind="bars",
            title=title,
            x_label="share that is kept",
            y_label="",
            x=(0.0, 1.0),
            series=[Series("kept", [row.kept for row in least])],
            table=Table(title, ("token", "kept"), rows, (1,)),
            note=f"Share of the {neighbors.k} nearest neighbors that are the same in both.",
            method=f"The {neighbors.k} nearest rows by cosine among the shared tokens, exact, in A and in B, for "
            f"{count(neighbors.queries, 'token')} sampled uniformly.",
        )


def _configuration(configuration: ConfigurationDifference) -> Iterator[Part]:
    if configuration.not_understood is not None:
        yield f"Compared by keys alone: {configuration.not_understood}."
    changed = [*configuration.facts, *configuration.keys]
    if not changed and not configuration.query_key and not configuration.score:
        yield "No difference that affects tokens and positions."
    if changed:
        rows = [[each.name, *map(_value, (each.first, each.second))] for each in changed]
        yield Table("Settings that differ", ("setting", "A", "B"), rows, shorten="never")
    for layers, of in (
        *((each, "queries and keys") for each in configuration.query_key),
        *((each, "attention scores") for each in configuration.score),
    ):
        rows = [["A", layers.first or "none"], ["B", layers.second or "none"]]
        yield Table(f"{layers_text(layers.layers)}: {of}", ("checkpoint", "scheme"), rows, shorten="never")
        if layers.rotary is not None:
            yield from _rotary(layers.rotary)


def _value(value: Value) -> str:
    return cut(visible("none" if value is None else value), _VALUE)


def _rotary(rotary: RotaryDifference) -> Iterator[Part]:
    if rotary.interleaved[0] != rotary.interleaved[1]:
        yield "They pair features differently: the weights of queries and keys must be stored accordingly."
    if rotary.magnitudes[0] != rotary.magnitudes[1]:
        one, other = (number(each, 6) for each in rotary.magnitudes)
        yield f"Queries and keys are multiplied by {one} and {other}."
    yield f"{rotary.differing} of {count(rotary.pairs, 'pair')} have other frequencies at length {rotary.length:,}."
    if rotary.differing:
        title = "Cosine of a vector rotated by A and by B, by distance"
        columns = ("distance", *(f"{n:,}" for n in rotary.distances))
        rows = [["cosine", *map(decimals, rotary.cosine)]]
        yield Chart(
            kind="lines",
            title=title,
            x_label="distance",
            y_label="cosine",
            x=[*map(float, rotary.distances)],
            series=[Series("cosine", rotary.cosine)],
            table=Table(title, columns, rows, range(1, len(columns)), shorten="never"),
            method="The cosine between a vector rotated by the frequencies of A and by those of B, over all pairs.",
            log_x=True,
        )


def _some(names: Sequence[str], total: int) -> str:
    more = f" and {total - _NAMES:,} more" if total > _NAMES else ""
    return ", ".join(f"'{visible_token(name)}'" for name in names[:_NAMES]) + more
