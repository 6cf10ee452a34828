"""An inspection as sections: what the token table, the positions and the configuration of a checkpoint show."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Any, assert_never

import numpy as np

from whatwhere.analysis.added_positions import InputVariance, PositionTable
from whatwhere.analysis.diagnostics import InitialScale
from whatwhere.analysis.inspection import SECTIONS, Inspection
from whatwhere.analysis.pca import Spectrum
from whatwhere.analysis.rotary import RotaryReport
from whatwhere.analysis.token_diagnostics import TokenDiagnostics
from whatwhere.analysis.token_table import OTHER, Histogram, Norms, SizeOfPart, Sizes, TableChange
from whatwhere.analysis.token_tables import NGramOccupancy, SiblingTable, SiblingTables
from whatwhere.escape import shown_token
from whatwhere.records import Missing
from whatwhere.report.diagnostics import diagnostics
from whatwhere.report.positions import biases, describe_spectrum, positions, rotary
from whatwhere.report.section import Chart, Headline, Part, Section, Series, Table, found_section
from whatwhere.report.text import capital, count, decimals, listed, number, percent

TITLES: Mapping[str, str] = {
    "sizes": "Sizes",
    "tables": "Other token tables",
    "variance": "Variance of the first layer's input",
    "norms": "Norms of the token embeddings",
    "spectrum": "Spectrum of the token embeddings",
    "diagnostics": "Diagnostics of the token table",
    "positions": "Position embedding",
    "rotary": "Rotary",
    "biases": "Biases by distance",
}
_BARS = 16
_NO_SHARE = 1e-12  # of the variance: of an axis beyond the rank of the rows, rounding alone


@dataclass(frozen=True, eq=False)
class InspectionRecord(Inspection, Headline):
    """What `inspect --json` prints, with the sources of a run's schemes of your own by name."""

    sources: Mapping[str, str] = field(default_factory=dict)


def headline(inspection: Inspection) -> str:
    """Return the main facts of an inspection in one sentence, without its full stop."""
    shape, scale, split = inspection.shape, getattr(inspection.sizes, "initial_scale", None), inspection.variance
    tokens = "no token table was found" if shape is None else f"{count(shape[0], 'token')} × {shape[1]:,}"
    facts = [", ".join([tokens, *_encodings(inspection)])]
    if scale is not None and scale.looks_random:
        facts.append("its rows look like random samples, as before any training")
    if isinstance(split, InputVariance):
        facts.append(
            f"token identity explains {percent(split.token, 0)} of the variance of the first layer's input, position "
            f"{percent(split.position, 0)}"
        )
    suspicious = inspection.diagnostics
    if isinstance(suspicious, TokenDiagnostics):
        unreachable = suspicious.unreachable
        rows = [f"{count(suspicious.far.count, 'row')} far from the others"] if suspicious.far.count else []
        if not isinstance(unreachable, Missing) and unreachable.count:
            rows.append(count(unreachable.count, "unreachable token"))
        elif suspicious.under_trained.count:
            rows.append(f"{count(suspicious.under_trained.count, 'token')} suspected of being under-trained")
        facts += [", ".join(rows)] if rows else []
    return "; ".join(facts)


def sections(inspection: Inspection) -> list[Section]:
    """Return the sections that were requested, in their order."""
    writers: Mapping[str, Callable[[Any], Iterable[Part]]] = {
        "sizes": sizes,
        "tables": token_tables,
        "variance": variance,
        "norms": norms,
        "spectrum": lambda found: spectrum(found, inspection.positions),
        "diagnostics": diagnostics,
        "positions": positions,
        "rotary": rotary,
        "biases": biases,
    }
    found = {name: getattr(inspection, name) for name in SECTIONS}
    return [found_section(name, TITLES[name], part, writers[name]) for name, part in found.items() if part is not None]


def sizes(findings: Sizes) -> Iterator[Part]:
    """Return the parameters and bytes of the parts."""
    described = [_tied(findings), *_without_row(findings)]
    if findings.from_configuration:
        yield (
            f"By the configuration alone, without weights: {findings.parameters:,} parameters in the tables of tokens "
            "and positions. Other layers are not counted."
        )
        yield from described
        if findings.rows and findings.dim:
            yield (
                f"A token is one of {findings.rows:,} and becomes {findings.dim:,} numbers: "
                f"{number(findings.rows / findings.dim)} tokens for each feature."
            )
        names = ("table", "shape", "type", "parameters", "share of these")
        cells = [_size(part)[:5] for part in findings.parts]
        yield Table("Parameters by table", names, cells, (3, 4), shorten="never")
        return
    tables = sum((part.share or 0.0 for part in findings.parts if part.part != OTHER), 0.0)
    yield f"{findings.parameters:,} parameters, {percent(tables)} of them in the tables named below."
    yield described[0]
    if findings.guessed:
        yield "The token table was found by its number of rows, not by its name."
    yield from described[1:]
    if findings.change is not None:
        yield change_text(findings.change)
    elif findings.initial_scale:
        yield _initialization(findings.initial_scale)
    total = f"{findings.parameters:,}", "", number(findings.bytes), "", count(findings.tensors, "tensor")
    columns = ("part", "shape", "type", "parameters", "share", "bytes", "of bytes", "tensor")
    rows = [*map(_size, findings.parts), ["all", "", "", *total]]
    yield Table("Parameters and bytes by part", columns, rows, (3, 4, 5, 6), shorten="never")


def change_text(change: TableChange) -> str:
    """Return how far training moved a token table, as a sentence."""
    return (
        f"Training moved the standard deviation of the token table from {decimals(change.std_before)} to "
        f"{decimals(change.std_after)}; the norm of the change E − E0 is {percent(change.share, 0)} of that of E0."
    )


def variance(findings: InputVariance) -> Iterator[Part]:
    """Return the shares of the variance that tokens and positions explain."""
    norm = findings.norm and f"the normalization {findings.norm}"
    after = norm or "a normalization to mean 0 and variance 1 (that of the model was not found)"
    scale = "" if findings.scale == 1 else f", token embeddings multiplied by {number(findings.scale, 4)}"
    unknown = "" if findings.scale_known else ", their factor not known and taken as 1"
    shares = {"token identity": findings.token, "position": findings.position, "interaction": findings.interaction}
    yield (
        f"Token identity explains {percent(findings.token)} of the variance of the first layer's input, position "
        f"{percent(findings.position)}, and their interaction, which the normalization causes, "
        f"{percent(findings.interaction)}."
    )
    rows = [[name, percent(share)] for name, share in shares.items()]
    yield Table("Shares of the variance", ("explained by", "share"), rows, (1,), bars=[*shares.values()])
    yield (
        f"Computed after {after}{scale}{unknown}, over {findings.tokens:,} tokens at {findings.positions:,} positions, "
        "sampled uniformly. The deviations that a token and a position cause have a mean absolute cosine of "
        f"{decimals(findings.mean_abs_cosine)}."
    )


def norms(findings: Norms) -> Iterator[Part]:
    """Return the distribution of the norms."""
    each = findings.percentiles
    ends = f"{number(each['5'])} and {number(each['95'])}"
    yield f"The median norm is {number(each['50'])}; 90\u00a0% are between {ends}."
    yield _histogram(findings.histogram, each["50"])
    rows = [[name, number(norm)] for name, norm in each.items()]
    yield Table("Percentiles of the norms", ("percentile", "norm"), rows, (0, 1))
    for name, groups in (("token type", findings.by_type), ("script", findings.by_script)):
        if isinstance(groups, Missing):
            yield f"By token type and script: {groups.missing}."
            return
        cells = [[one.name, f"{one.rows:,}", *map(number, (one.p5, one.median, one.p95))] for one in groups]
        columns = (name.removeprefix("token "), "rows", "5\u00a0%", "median", "95\u00a0%")
        yield Table(f"Norms by {name}", columns, cells, (1, 2, 3, 4))


def spectrum(findings: Spectrum, of_positions: PositionTable | Missing | None = None) -> Iterator[Part]:
    """Return how the variance of the rows is distributed over principal axes."""
    held = np.flatnonzero(findings.explained_variance_ratio > _NO_SHARE)
    shares = {"token embeddings": findings.explained_variance_ratio[: held[-1] + 1 if len(held) else 1].tolist()}
    if isinstance(of_positions, PositionTable):
        shares["positions"] = of_positions.spectrum.explained_variance_ratio.tolist()
    padded = [*zip_longest(*shares.values(), fillvalue=math.nan)]
    rows = [[str(n), *("" if math.isnan(one) else percent(one) for one in row)] for n, row in enumerate(padded, 1)]
    top = padded[0][0] or 1.0
    bars = [0.0 if math.isnan(first) else first / top for first, *_ in padded]
    title = "Share of the variance by principal axis"
    yield describe_spectrum(findings)
    yield Chart(
        kind="lines",
        title=title,
        x_label="axis",
        y_label="share of the variance, %",
        x=[n + 1.0 for n in range(len(padded))],
        series=[
            Series(name, [100 * share for share in column])
            for name, column in zip(shares, zip(*padded, strict=True), strict=True)
        ],
        table=Table(title, ("axis", *shares), rows, range(len(shares) + 1), bars=bars),
        note=f"The first {len(padded)} axes: the steeper the fall, the fewer directions the rows use.",
        method="Principal components of the rows less their mean, in float64: each has its share of the squares.",
    )


def _encodings(inspection: Inspection) -> list[str]:
    texts = []
    if isinstance(inspection.positions, PositionTable):
        own = inspection.positions
        texts.append(f"{own.positions:,} {'learned' if own.learned else 'fixed'} positions")
        if own.trained < own.examined:
            texts.append(f"trained up to {own.trained:,}")
    if isinstance(inspection.rotary, RotaryReport):
        first, *others = inspection.rotary.groups
        several = f", one of {len(others) + 1} kinds" if others else ""
        claimed = f", claimed {first.claimed:,}" if first.claimed != first.trained else ""
        texts.append(f"{first.scheme} of theta {first.theta:,.0f}{several}, trained length {first.trained:,}{claimed}")
    if inspection.biases is not None and not isinstance(inspection.biases, Missing):
        bias = inspection.biases.groups[0]
        heads = "" if isinstance(bias.curves, Missing) else f" of {count(bias.curves.heads, 'head')}"
        texts.append(f"{bias.scheme} biases{heads}")
    return texts


def _without_row(findings: Sizes) -> list[str]:
    """Return a sentence on tokens that cannot be embedded, if there are any."""
    if not findings.without_row:
        return []
    verb = "has" if findings.without_row == 1 else "have"
    named = ", ".join(f"{shown_token(row.token, row.text)} (#{row.id})" for row in findings.first_without_row)
    more = ", ..." if findings.without_row > len(findings.first_without_row) else ""
    return [
        f"{count(findings.without_row, 'token')} of the tokenizer {verb} no row in the table, whose last is "
        f"#{(findings.rows or 0) - 1:,}: {named}{more}. A text that contains such a token cannot be embedded. Rows are "
        f"added by: whatwhere resize PATH OUT --vocab-size {findings.tokens}."
    ]


def _tied(findings: Sizes) -> str:
    stored = [part for part in findings.parts if part.part == "output projection"]
    but = " But the configuration states tie_word_embeddings: " if findings.contradicts_tie else ""
    if findings.tied is None and but:
        return f"No output projection is in the file.{but}false, so the file is incomplete, or the two are tied."
    if findings.tied is None:
        return f"Tied or not: the file does not show it{'' if stored else ', and stores no output projection'}."
    if not findings.tied:
        but = f"{but or ''}true, or its type ties them: some programs read only one of the two." if but else ""
        return f"Not tied: the output projection is a table of its own.{but}"
    but = f"{but}false: training makes them differ." if but else ""
    twice = ", stored twice" if stored and stored[0].bytes else ""
    return f"Tied: the output projection is the token table{twice}.{but}"


def _initialization(scale: InitialScale) -> str:
    rows = f"all {scale.rows:,} rows (none is suspected of being under-trained)"
    if scale.under_trained:
        rows = f"the {scale.rows:,} rows that are most suspected of being under-trained"
    text = f"Initialization: the numbers of {rows} have a standard deviation of {number(scale.std)} about their mean"
    if scale.rule is None or scale.expected_std is None:
        return f"{text} row, which is near no usual initialization; weight decay may have shrunk them."
    near = f"{text} row, near {number(scale.expected_std)}: {scale.rule}."
    variation = f"Their norms vary {decimals(scale.norm_variation, 2)} times as much as those of random normal rows."
    if not scale.looks_random:
        return near if scale.under_trained else f"{near} {variation}"
    return f"{near} {variation} A table that nothing trained looks the same: neither spread nor norms show training."


def _size(part: SizeOfPart) -> list[str]:
    shape = "" if part.shape is None else " × ".join(f"{n:,}" for n in part.shape)
    numbers = f"{part.parameters:,}", percent(part.share), number(part.bytes), percent(part.share_of_bytes)
    return [part.part, shape, part.dtype, *numbers, part.tensor or ""]


def _histogram(histogram: Histogram, median: float) -> Chart:
    title = "Histogram of the norms"
    counts, edges = histogram.counts.tolist(), histogram.edges.tolist()
    few, ends = _merged(counts, edges, _BARS)
    bins = math.ceil(2 * sum(counts) ** (1 / 3))  # Rice's rule: few rows fill their bins
    counts, edges = _merged(counts, edges, bins)
    rows = [[f"{number(low)} to {number(high)}", f"{n:,}"] for n, (low, high) in zip(few, pairwise(ends), strict=True)]
    bars = [n / max(few) for n in few]
    table = Table(title, ("norm", "rows"), rows, (1,), bars=bars, shorten="never")
    return Chart(
        kind="histogram",
        title=title,
        x_label="norm",
        y_label="rows",
        x=edges,
        series=[Series("rows", [*map(float, counts)])],
        table=table,
        note="A second peak at low norms may be tokens that training rarely updated.",
        method=f"Norms of the {sum(counts):,} rows that hold finite numbers, in float64, in bins of equal width.",
        marks=[(median, f"median {number(median)}")],
    )


def _merged(counts: Sequence[int], edges: Sequence[float], most: int) -> tuple[list[int], list[float]]:
    """Return a histogram of at most so many bins of one width, neighbors merged."""
    width = next(n for n in range(1, len(counts) + 1) if len(counts) % n == 0 and len(counts) <= n * max(most, 1))
    starts = range(0, len(counts), width)
    return [sum(counts[n : n + width]) for n in starts], [*(edges[n] for n in starts), edges[-1]]


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
