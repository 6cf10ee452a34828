"""A card for each scheme, from one template: equation, picture, users, our own curve, traps, paper."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.generate.scheme_figures import (
    DIM,
    DISTANCES,
    HEADS,
    OPTIONS,
    TRAINED,
    Measurement,
    curve_file,
    measurements,
    values_by_distance,
)
from experiments.evidence_page import FAULT_COLUMNS, fault_row, why
from experiments.record import Evidence, FaultRow
from experiments.tutorials.all_claims import claim
from whatwhere.comparison.results import Spread
from whatwhere.report.paper import markdown
from whatwhere.report.section import Table
from whatwhere.report.text import count, listed, spread
from whatwhere.where.catalogue import Scheme, catalogue

DOORS: Mapping[str | None, str] = {"input": "1 input", "query_key": "2 query_key", "score": "3 score", None: "none"}
_TITLES: Mapping[str | None, str] = {
    None: "No positions", "input": "Door 1: input", "query_key": "Door 2: query_key", "score": "Door 3: score",
}  # fmt: skip
ABSENT = "–"
LEGEND = (
    "In the formulas p is a position, `w_n = theta^(-2n/d)` the frequency of the n-th pair of d features (the first "
    "pairs are the fast ones; theta is 10,000 unless set), s the factor by which the trained length L_0 grows, and H "
    'the number of heads. "Relative" means that shifting all positions by the same offset changes no score ("in one '
    'regime": as long as the frequencies, which here depend on the sequence\'s length, stay the same). "Up to" is the '
    "length up to which a scheme is defined, where a model can still fail."
)
MISSING = """## What is missing

Schemes whose formula is known, but which are not entries:

- Of Selective RoPE ([Movahedi et al. 2025](https://arxiv.org/abs/2511.17388)) the options of its repository beside the
  settings that it publishes for all tasks (`selective_rope.yaml`): a projection of full rank with normalized weights
  and SiLU after the convolution, which its sweep over language models uses, an added bias, learned or other
  frequencies.
- PaTH ([Yang et al. 2025](https://arxiv.org/abs/2505.16381)): a product of one Householder matrix for each token
  between key and query. It is not a map of queries and keys one by one, and needs an attention of its own.
- The term of values of Shaw et al. 2018: here distances change scores, never values."""
TRAPS: Mapping[str, Sequence[Mapping[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("traps.toml").read_text(encoding="utf-8")
)
"""What goes wrong with each scheme: a sentence or two, and what shows it."""
_MEASURE = "whatwhere compare {name} none --lengths 12,24 --seeds 8"
_CLAIM, _STATEMENT = re.compile(r"\d\.\d+[a-z]?"), re.compile(r"(E\d+)\.\d+")
_SHOWN: Mapping[str | None, str] = {
    "input": "The cosine of the vectors that are added at two positions: the first, and the one at that distance.",
    "query_key": "The dot product of a key of ones at position 0 and a query of ones at that distance, divided by the "
    "squared norm of the query.",
    "score": "What is added to the score of a key at each distance, one line for each head.",
}


def overview(evidence: Sequence[Evidence]) -> str:
    """Write the page of all schemes: a table whose rows link to the cards.

    Args:
        evidence: that is committed.
    """
    measured = {each.evidence.id: each for each in measurements(evidence)}.get("E1")
    parts = [
        "# The schemes",
        "A card for each scheme: equation, picture, who uses it, what we measured beyond the trained length, traps, "
        "paper. This page and the cards are written from the catalogue and the [evidence](evidence.md) by `make docs`, "
        "their figures by `make site`. "
        '`whatwhere schemes` prints the catalogue; `whatwhere.scheme("rotary", dim=64, num_heads=4, max_length=128)` '
        "builds one by name.",
        "Positions enter a Transformer at three places (*doors*):",
        "```text\nx_i         = what(token_i) + input(p_i)                                 door 1  input\n"
        "score(i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale       door 2  query_key\n"
        "              + score(h, p_i, p_j)                                       door 3  score\n```",
        LEGEND,
        *([_columns_measured(measured)] if measured else []),
    ]
    for door, title in _TITLES.items():
        entries = [entry for entry in catalogue.values() if entry.door == door]
        width = max(len(entry.name) for entry in entries)
        formulas = "\n".join(f"{entry.name:{width}}  {entry.formula}" for entry in entries)
        parts += [f"## {title}", _table(entries, measured), f"```text\n{formulas}\n```"]
    return "\n\n".join([*parts, MISSING]) + "\n"


def card(entry: Scheme, evidence: Sequence[Evidence]) -> str:
    """Write the card of a scheme.

    Args:
        entry: of the catalogue.
        evidence: that is committed.
    """
    parts = [
        f"# {entry.name}",
        f"[All schemes](../schemes.md), with what the symbols mean. Door: {DOORS[entry.door]}.",
        f"## Equation\n\n```text\n{entry.formula}\n```",
        "\n".join(_facts(entry)),
        f"## Picture\n\n{_picture(entry)}",
        f"## Who uses it\n\n{_capital(', '.join(entry.used_by))}.",
        f"## Our curve\n\n{_curves(entry.name, measurements(evidence, entry.name))}",
        f"## Traps\n\n{_traps(entry, evidence)}",
        f"## Paper\n\n[{entry.paper}, {entry.year}]({entry.url})\n\n```bibtex\n{entry.bibtex}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def scheme_navigation() -> str:
    """Return the part of the site's navigation with the overview and the cards by door, in TOML."""
    groups = []
    for door, title in _TITLES.items():
        cards = [f'{{ "{name}" = "schemes/{name}.md" }}' for name, entry in catalogue.items() if entry.door == door]
        groups.append(f'{{ "{title}" = [{", ".join(cards)}] }}')
    first = '{ "All schemes" = "schemes.md" }'
    return f"[{', '.join([first, *groups])}]"


def yes(fact: bool) -> str:
    """Write a fact as a word."""
    return "yes" if fact else "no"


def _table(entries: Sequence[Scheme], measured: Measurement | None) -> str:
    columns = ["scheme", "learned", "relative", "up to"]
    columns += [f"at {n}x" for n in (2, 4)] if measured else []
    rows = []
    for entry in entries:
        row = [f"[`{entry.name}`](schemes/{entry.name}.md)", yes(entry.learned), entry.shift_invariance, entry.length]
        row += [_median(measured, entry.name, length) for length in measured.lengths[1:]] if measured else []
        rows.append([*row, ", ".join(entry.used_by)])
    lines = [[*columns, "used by"], ["---"] * (len(columns) + 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _facts(entry: Scheme) -> list[str]:
    where = entry.build(64, 4, 128)
    parameters = sum(p.numel() for p in where.parameters())
    lines = [
        f"- learned: {yes(entry.learned)}; parameters at dim 64, 4 heads, 128 positions: {parameters:,}",
        f"- relative (shifting all positions by the same offset changes no score): {entry.shift_invariance}",
    ]
    if entry.length == "any":
        lines.append(
            f"- defined at every position, tested up to {entry.tested_up_to:,}; a trained model can still fail there"
        )
    else:
        lines.append(f"- defined up to {entry.length} only; a position beyond is an error")
    if entry.relative_below:
        lines.append(f"- relative while all positions stay below {entry.relative_below:,}")
    if entry.follows_length:
        lines.append(
            "- its frequencies depend on the length of the sequence; in one regime: among sequences with the same "
            "frequencies, as with one `regime_length`"
        )
    if entry.causal_only:
        lines.append("- supports causal attention only: `causal=False` is an error")
    if entry.distinct_up_to:
        lines.append(f"- distances up to {entry.distinct_up_to} have different biases in bfloat16")
    return [*lines, f"- built as: `{where!r}`"]


def _picture(entry: Scheme) -> str:
    values = values_by_distance(entry)
    if values is None:
        return "No position enters anywhere, so there is nothing to draw."
    beside = " The grey line is plain rotary." if entry.name.startswith("rotary-") else ""
    distances = DISTANCES if entry.any_length else TRAINED
    sizes = f"dim {DIM}, {HEADS} heads, trained length {TRAINED}, in a sequence of {distances} positions"
    start = ", its parameters as initialized, before any training" if entry.learned else ""
    if entry.name in OPTIONS:
        chosen = ", ".join(f"{name}={value}" for name, value in OPTIONS[entry.name].items())
        start += f", with {chosen}, because its default start is zero everywhere"
    about = f"{_SHOWN[entry.door]}{beside} At {sizes}{start}."
    alt = f"{entry.name}: {values.label} at distances 0 to {distances - 1}, drawn from the scheme's own values"
    return f"<!-- figure: {entry.name}.svg {alt} -->\n\n{about}"


def _curves(name: str, measured: Sequence[Measurement]) -> str:
    if not measured:
        return f"Not measured. To measure it:\n\n```text\n{_MEASURE.format(name=name)}\n```"
    return "\n\n".join(_curve(name, each) for each in measured)


def _curve(name: str, measured: Measurement) -> str:
    task, evidence = measured.comparison.task, measured.evidence
    factor, places = (100.0, 1) if measured.comparison.percent else (1.0, 3)
    unit = f"{task.measure}, %" if measured.comparison.percent else task.measure
    columns = [unit, *(f"{n}x: {length} {task.unit}" for n, length in zip((1, 2, 4), measured.lengths, strict=True))]
    cells = [spread(measured.comparison.score(name, n), places, factor, ABSENT) for n in measured.lengths]
    table = markdown(Table("", columns, [[task.name, *cells]], numeric=(1, 2, 3))).strip()
    seeds = count(len(measured.comparison.record.seeds), "seed")
    about = (
        f"Median and range over {seeds}; {measured.comparison.record.settings.layers} layers, dim "
        f"{measured.comparison.record.settings.dim}. Measured on {_machine(evidence)} by `{evidence.command}` "
        f"([{evidence.id}](../evidence.md#{evidence.id.lower()})). One task and one small model."
    )
    if any(measured.comparison.score(name, n) is None for n in measured.lengths):
        about += f" {ABSENT}: the scheme has no row for such a position."
    alt = f"{task.measure} of {name} by {task.unit}, trained up to {measured.lengths[0]}, with the range over the seeds"
    return f"{table}\n\n<!-- figure: {curve_file(name, measured)} {_capital(alt)} -->\n\n{about}"


def _machine(evidence: Evidence) -> str:
    machine = f"{evidence.machine.processor}, {count(evidence.machine.cores, 'core')}, {evidence.machine.system}"
    versions = ", ".join(f"{name} {version}" for name, version in evidence.versions.items())
    return f"{evidence.created[:10]}, {machine}, with {versions}"


def _traps(entry: Scheme, evidence: Sequence[Evidence]) -> str:
    lines = [
        f"- {trap['says']} *Shown by* {listed([_shown_by(id, evidence) for id in trap['shown_by']])}."
        for trap in TRAPS.get(entry.name, ())
    ]
    faults = [fault for each in evidence for fault in each.faults if fault.scheme == entry.name]
    parts = ["\n".join(lines)] if lines else []
    if faults:
        parts.append(_faults(faults))
    return "\n\n".join(parts) or "None that a test of this repository shows."


def _faults(faults: Sequence[FaultRow]) -> str:
    """Return the table of what mistakes with this scheme cost that raise no error."""
    columns = [n for n, name in enumerate(FAULT_COLUMNS) if name != "scheme"]
    rows = [[fault_row(fault)[n] for n in columns] for fault in faults]
    table = markdown(Table("", [FAULT_COLUMNS[n] for n in columns], rows)).strip()
    about = "Mistakes that raise no error, and what each costs trained models, in the median"
    unmeasured = f" ({ABSENT}: no trained model)" if any(not fault.right for fault in faults) else ""
    return f"{about}{unmeasured}, by [E13](../evidence.md#e13):\n\n{table}"


def _shown_by(id: str, evidence: Sequence[Evidence]) -> str:
    """Return a link to what shows a trap: a claim, a statement of the evidence with its verdict, or a test.

    Raises:
        ValueError: If the id is none of these.
    """
    if _CLAIM.fullmatch(id):
        return f"claim [{id}](../errata.md#{claim(id).anchor})"
    if match := _STATEMENT.fullmatch(id):
        results = {result.id: result for each in evidence for result in each.results}
        said = f"{results[id].verdict}: {why(results[id]).rstrip('.')}" if id in results else "not measured yet"
        return f"[{id}](../evidence.md#{match[1].lower()}) ({said})"
    file, found, name = id.partition("::")
    if not found:
        raise ValueError(f"{id!r} is not a claim, a statement of the evidence or a test.")
    return f"[{name}](../../{file})"


def _columns_measured(measured: Measurement) -> str:
    trained, twice, four = measured.lengths
    task, unit = measured.comparison.task, measured.comparison.task.unit
    return (
        f'"At 2x" and "at 4x" are the median {task.measure} in percent on {task.name} of {twice} and {four} {unit}, '
        f"trained up to {trained} ([{measured.evidence.id}](evidence.md#{measured.evidence.id.lower()}): "
        f"{count(len(measured.comparison.record.seeds), 'seed')}, {_machine(measured.evidence)}); {ABSENT} is not "
        "measured, or has no row for such positions. One task and one small model: another task can order the schemes "
        "otherwise."
    )


def _median(measured: Measurement, name: str, length: int) -> str:
    found: Spread | None = measured.comparison.score(name, length) if name in measured.comparison.schemes else None
    return spread(found and Spread(found.median, found.median, found.median), 1, 100.0, ABSENT)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
