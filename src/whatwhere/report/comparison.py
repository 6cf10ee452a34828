"""What a comparison measured, as the sections of a report: sentences and tables."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from whatwhere.analysis.pca import principal_components
from whatwhere.comparison.read import AFTER, BEFORE, Comparison, Scored
from whatwhere.comparison.results import ALL, ComparisonRecord, Spread, Statistics, TableSnapshot
from whatwhere.comparison.results import spread as results_spread
from whatwhere.comparison.statistics import PairedDifferences, paired_differences
from whatwhere.escape import visible, visible_token
from whatwhere.records import Missing
from whatwhere.report import comparison_sentences as sentences
from whatwhere.report.comparison_figures import by_distance, differences_figure, figures, fingerprints, held_out_figure
from whatwhere.report.comparison_sentences import ABSENT, last_length, measure_text, name_text, question, unit_of
from whatwhere.report.figures import looks
from whatwhere.report.section import Chart, Part, Section, Series, Table, source_tables
from whatwhere.report.text import count, decimals, number, percent, ranges, spread

if TYPE_CHECKING:
    from whatwhere.comparison.answers import Answers  # and with them PyTorch

_TESTED = (
    "The same Transformer is trained under each scheme, then tested on new sequences of each length. The curve is the "
    "median over the seeds, the band the range from the least to the greatest. A gap is a length for which the scheme "
    "has no row. Bands that overlap do not show that schemes are alike, for runs are paired by seed: see the paired "
    "differences. Thin gray lines are predictors that ignore the order of tokens."
)
_SHIFTED = (
    " again with the first token at position 1, 2, 4, … instead of 0. Nothing else changes. A gap is a position for "
    "which a table has no row."
)
NO_ROW = "no row"
RUNS = ("run", "steps", "seconds", "last loss", "parameters", "of tokens", "of positions", "trained model")
"""Columns of the table of runs."""

BASELINES = {
    "chance": "a blind guess",
    "always 9 or 0": "9 for every Max, 0 for every Min",
    "order-free ceiling": "the best score of a reader who sees all tokens, but not their order",
    "all bytes alike": "every byte equally likely",
    "frequency of bytes": "every byte by its share of the training text",
    "all tokens alike": "every token equally likely",
    "frequency of tokens": "every token by its share of the training text",
}
"""What the baselines of our own tasks are."""


@dataclass(frozen=True)
class ComparedRecord(ComparisonRecord):
    """What `compare --json` prints: the content of results.json, and the differences that follow from it."""

    differences: PairedDifferences | Missing  # at the longest length; why there are none where SciPy is not installed


def sections(results: Comparison) -> list[Section]:
    """Return the whole report of a comparison; what most readers skip is folded."""
    found = paired_differences(results, last_length(results))
    whole, *rest = figures(results)
    groups, shifts = rest[: len(results.task.groups)], rest[len(results.task.groups) :]
    whole = replace(whole, table=_lengths_table(results, "By"), note=sentences.scores_sentence(results), method=_TESTED)
    alone = [replace(figure, table=_lengths_table(results, f"{name_text(group)} alone, by", group))
             for group, figure in zip(results.task.groups, groups, strict=True)]  # fmt: skip
    known = [f"{name}: {BASELINES[name]}" for name in results.task.baselines if name in BASELINES]
    blind = f"What can be scored without the order of tokens. {'; '.join(known)}." if known else ""
    against = None if results.against is None else differences_figure(results, results.against)
    few = isinstance(found, Missing) or not found.enough_seeds
    tested = [*sentences.conclusions(results, found)]  # its first sentence is beside the scores where it limits them
    differences: list[Part] = [*tested[few:], *([] if against is None else [against])]
    scores: list[Part] = [sentences.headline(results), *tested[:few], whole, summary(results)]
    schemes: list[Part] = [sentences.doors_sentence(results), *fingerprints(results), *by_distance(results)]
    made_of = sentences.start_sentence, sentences.record_sentence, sentences.repeat_sentence
    made: list[Part] = [sentence(results) for sentence in made_of]
    made += [*held_out_figure(results), runs(results)]
    named: list[tuple[str, str, Iterable[Part], bool]] = [
        ("scores", "Scores", [*scores, question(results), blind], False),
        ("scope", "What was not tested", [sentences.scope_sentence(results)], True),
        ("differences", "Which schemes differ", differences, few),
        ("layouts", "Layouts by layer", by_layout(results), False),
        ("groups", "Parts of the inputs", [sentences.first_to_fail(results), *alone] if alone else [], False),
        ("shift", "Shift test", _by_shift(results, shifts), False),
        ("token-table", "What training wrote into the token table", _token_table(results), False),
        ("schemes", "What each scheme makes of positions", schemes, False),
        ("costs", "Costs", [costs(results)], True),
        ("sources", "Schemes of your own", source_tables(results.record.sources), True),
        ("runs", "Seeds, runs and settings", [*made, settings(results)], True),
    ]
    written = [Section(name, title, [part for part in parts if part], folded) for name, title, parts, folded in named]
    return [section for section in written if section.parts]


def summary(results: Scored) -> Table:
    """Return the scores of each scheme and baseline in and beyond the trained length."""
    columns = ["scheme", "in length", *(f"at {length}" for length in results.beyond)]
    rows = _rows(results, (None, *results.beyond), baselines=True)
    scores = [results.score(scheme, None) for scheme in results.schemes]
    losses = [None if score is None else score.median for score in scores]
    losses += [sentences.baseline_in_length(results, line) for line in results.task.baselines.values()]
    bits = [sentences.bits_per_byte(results, loss) for loss in losses]
    if any(each is not None for each in bits):
        columns.append("bits per byte")
        rows = [[*row, "" if each is None else decimals(each)] for row, each in zip(rows, bits, strict=True)]
    over = "a single seed" if (n := len(results.seeds)) == 1 else f"median (least to greatest) over {n} seeds"
    caption = f"Scores: {measure_text(results)}; {over}; “at” counts {unit_of(results)}"
    return Table(caption, columns, rows, numeric=range(1, len(columns)), shorten="never")


def _lengths_table(results: Comparison, caption: str, group: str = ALL) -> Table:
    lengths = [*results.trained, *results.beyond]
    columns = ["scheme", *map(str, lengths)]
    rows = _rows(results, lengths, group, baselines=group == ALL)
    caption = f"{caption} {unit_of(results)}: {measure_text(results)}"
    return Table(caption, columns, rows, range(1, len(columns)))


def _rows(
    results: Scored, lengths: Sequence[int | None], group: str = ALL, *, baselines: bool = False
) -> list[list[str]]:
    """Return a row of scores for each scheme, then for each baseline."""
    rows = [
        [name_text(scheme), *(score_cell(results, results.score(scheme, length, group)) for length in lengths)]
        for scheme in results.schemes
    ]
    for name, line in results.task.baselines.items() if baselines else ():
        scores = [
            sentences.baseline_in_length(results, line) if length is None else line.get(length) for length in lengths
        ]
        cells = ("" if score is None else score_cell(results, Spread(score, score, score)) for score in scores)
        rows.append([name_text(name), *cells])
    return rows


def by_layout(results: Comparison) -> Iterator[Part]:
    """Return the scores by layout, in groups; nothing where no layer has a window."""
    if results.record.model is not None:
        return  # which may have no layers
    from whatwhere.comparison.variants import layer_kinds  # loads PyTorch

    layers = {run.scheme: layer_kinds(run.scheme, results.settings(run).layers) for run in results.runs}
    if not any(layer.local for each in layers.values() for layer in each):
        return
    columns = ["with a window", "layout", "layers with", "layers without", "in length"]
    columns += [f"at {length}" for length in results.beyond]
    groups, rows = ("no layer", "every layer", "some layers"), list[list[str]]()
    for scheme, each in layers.items():
        local, cells = [layer.local for layer in each], list[str]()
        for wanted in (True, False):
            kinds = Counter(str(layer) for layer in each if layer.local is wanted)
            cells.append("; ".join(f"{number}: {name_text(kind)}" for kind, number in kinds.items()) or ABSENT)
        cells += [score_cell(results, results.score(scheme, length)) for length in (None, *results.beyond)]
        rows.append([groups[1 if all(local) else 2 * any(local)], name_text(scheme), *cells])
    yield "Layers of some of these models see the tokens in a window alone. Which models differ is tested above."
    rows.sort(key=lambda row: groups.index(row[0]))
    yield Table(f"By layout: {measure_text(results)}", columns, rows, range(4, len(columns)), shorten="never")


def costs(results: Comparison) -> Table:
    """Return the parameters and the training time of each scheme."""
    rows = []
    for scheme in results.schemes:
        cost = results.summary[scheme]
        counts = [f"{cost.parameters.total:,}", f"{cost.parameters.positions:,}"]
        rows.append([name_text(scheme), *counts, spread(cost.seconds_per_step, 1, 1000.0)])
    columns = ["scheme", "parameters", "of positions", "ms per step"]
    return Table("Costs", columns, rows, numeric=range(1, 4), shorten="never")


def runs(results: Comparison) -> Table:
    """Return one row for each run."""
    rows = []
    for run in results.runs:
        loss, sizes = number(run.losses[-1][1]) if run.losses else ABSENT, run.parameters
        counts = [ABSENT if each is None else f"{each:,}" for each in (sizes.total, sizes.tokens, sizes.positions)]
        took = f"{run.steps:,}", decimals(run.seconds, 1)
        rows.append([f"{name_text(run.scheme)}, seed {run.seed}", *took, loss, *counts, visible(run.file)])
    return Table("One row for each run", RUNS, rows, numeric=range(1, len(RUNS) - 1), shorten="never")


def settings(results: Comparison) -> Table:
    """Return versions, machine and settings."""
    record = results.record
    values: dict[str, object] = {f"version of {name}": value for name, value in record.versions.items()}
    values |= {field.name: getattr(record.machine, field.name) for field in fields(record.machine)}
    values |= {"written": record.created, "seconds": record.seconds, "device": record.device}
    values |= {"threads_per_run": record.threads_per_run, "seeds": record.seeds}
    values |= {} if record.model is None else {"model": f"{record.model.name}, not whatwhere's"}
    values |= {name: getattr(record.settings, name) for name in sentences.settings_read(results)}
    values |= {"tested": sentences.tested_text(results)}
    rows = [[visible(name), visible(_value(value))] for name, value in values.items()]
    return Table("Settings, machine, versions", ["what", "value"], rows, shorten="never")


def score_cell(results: Scored, values: Spread | None) -> str:
    """Return a score for a cell, without its unit, which the caption names."""
    return spread(values, *((1, 100.0) if results.percent else (3, 1.0)), absent=NO_ROW)


def _by_shift(results: Comparison, drawn: Iterable[Chart]) -> Iterator[Part]:
    yield sentences.shift_sentence(results)
    for chart in drawn:
        columns = ["scheme", *map(str, results.shifts)]
        rows = []
        for scheme in results.schemes:
            shifted = [results.summary[scheme].shift.get(shift) for shift in results.shifts]
            rows.append([name_text(scheme), *(score_cell(results, None if s is None else s.score) for s in shifted)])
        caption = f"By how far every position is shifted: {measure_text(results)}"
        length = f"New inputs of {results.task.shift_length} {unit_of(results)} are tested"
        yield replace(chart, table=Table(caption, columns, rows, range(1, len(columns))), method=f"{length}{_SHIFTED}")


def _value(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return number(value, 6)
    if isinstance(value, Sequence):
        return ", ".join(map(_value, value))
    return ABSENT if value is None else json.dumps(value)


# What training wrote into the token table of the expressions task

_DIGITS = "0123456789"


def _change(name: str) -> Callable[[TableSnapshot], float | None]:
    """Return how a cosine of what training wrote is read: a table that did not move has none, nor a number line."""
    return lambda at: None if None in (at.change_cosines, at.number_line) else getattr(at.change_cosines, name)


_NUMBERS: Mapping[str, tuple[int, Callable[[TableSnapshot], float | None]]] = {
    "mean": (3, lambda at: at.table.mean),
    "standard deviation": (3, lambda at: at.table.std),
    "cosine of Max and Min": (2, _change("max_min")),
    "cosine of First and Last": (2, _change("first_last")),
    "mean cosine within the digits": (2, _change("within_digits")),
    "mean cosine within the operators": (2, _change("within_operators")),
    "mean cosine within ( ) and comma": (2, _change("within_syntax")),
    "digits on a line, |r|": (2, lambda at: at.number_line),
}
"""Decimals of each quantity, and how it is read from a snapshot."""


def _token_table(results: Comparison) -> Iterator[Part]:
    """Yield what training did to the token table; of the expressions, at shares of the steps, over all runs."""
    runs = [run.token_table for run in results.runs if run.token_table]
    if not runs:
        yield sentences.change_sentence(results)
        return
    percents = [snapshot.percent for snapshot in runs[0]]
    at = [[each for snapshots in runs for each in snapshots if each.percent == percent] for percent in percents]
    rows = []
    for name, (digits, read) in _NUMBERS.items():
        known = [[value for value in map(read, each) if value is not None] for each in at]
        rows.append([name, *(spread(results_spread(each), digits, absent=ABSENT) for each in known)])
    rows.insert(2, ["least and greatest value", *(_range([each.table for each in snapshots]) for snapshots in at)])
    with_positions = [[each.with_positions for each in snapshots if each.with_positions] for snapshots in at]
    rows.insert(3, ["the same after adding positions", *map(_range, with_positions)])
    caption = (
        f"The token table E after a share of the steps, median (least to greatest) over {count(len(runs), 'run')} of "
        "all schemes; cosines and |r| are of what training wrote, E − E0."
    )
    yield Table(caption, ["quantity", *(f"at {percent} %" for percent in percents)], rows)
    yield from _digits(results)


def _digits(results: Comparison) -> Iterator[Chart]:
    """Yield the digits along the first principal axis of what training wrote into them, for the first seeds."""
    tokens, look = list(results.task.tokens), looks(results.schemes)
    digits = [tokens.index(digit) for digit in _DIGITS if digit in tokens]
    rows, series = [], []
    for run in results.first_runs:
        tables = results.tables(run)
        if len(digits) == len(_DIGITS) and {BEFORE, AFTER} <= tables.keys() and max(digits) < len(tables[AFTER]):
            change = (tables[AFTER] - tables[BEFORE])[digits]
            coordinates = principal_components(change, 1).coordinates[:, 0]
            r = float(np.corrcoef(coordinates, np.arange(len(digits)))[0, 1]) if np.ptp(coordinates) else 0.0
            line = (-coordinates if r < 0 else coordinates).tolist()  # the sign of a principal axis is arbitrary
            rows.append([name_text(run.scheme), *(decimals(x, 2) for x in line), decimals(abs(r), 2)])
            series.append(Series(f"{name_text(run.scheme)}, |r| {decimals(abs(r), 2)}", line, look[run.scheme]))
    if series:
        labels = "The digits on a line, by scheme", "digit", "coordinate"
        yield Chart(
            "lines",
            *labels,
            [*map(float, range(len(_DIGITS)))],
            series,
            Table("The digits on a line, first seed of each scheme", ["scheme", *_DIGITS, "|r|"], rows, range(1, 12)),
            note="No input tells the model that 3 is between 2 and 4. |r| is 1 if the digits are in order and evenly "
            "spaced: then the curve is a straight line.",
            method="The change of the ten digits' embeddings, E − E0, along its first principal axis.",
        )


def _range(tables: Sequence[Statistics]) -> str:
    """Return the median of the least and of the greatest values of several tables."""
    low, high = results_spread(each.min for each in tables), results_spread(each.max for each in tables)
    return ABSENT if low is None or high is None else f"{decimals(low.median, 2)} to {decimals(high.median, 2)}"


# What trained models answer

LEARNED = 0.99  # the share of right answers in length from which on a run has learned its task
_CHOSEN = {
    "median": "of each scheme, the run of the median score",
    "all": "every run",
    "given": "the runs of the requested seed",
}


def answers(asked: "Answers") -> Iterator[Part]:
    """Return the answers, as `ask` returns them, as text and a table."""
    tokens = " ".join(map(visible_token, asked.tokens))
    right = "the task knows no correct answer to it" if asked.correct is None else f"correct is {asked.correct}"
    seen = f" (trained with {ranges(asked.trained)} tokens)"
    seen = ", longer than any in training" if len(asked.tokens) > asked.trained[-1] else seen
    yield f"{tokens}: {count(len(asked.tokens), 'token')}{seen}; {right}."
    if len({answer.positions for answer in asked.answers}) == 1:
        yield f"Positions {', '.join(map(str, asked.answers[0].positions))}."
    columns = ("scheme", "seed", "answer", "probability", "correct", "then", "right in length")
    rows = []
    for answer in asked.answers:
        first, *rest = answer.top
        then = ", ".join(f"“{visible_token(one.token)}” {percent(one.probability)}" for one in rest)
        correct = ABSENT if answer.correct is None else "yes" if answer.correct else "no"
        named = name_text(answer.scheme), str(answer.seed), f"“{visible_token(first.token)}”"
        rows.append([*named, percent(first.probability), correct, then, percent(answer.in_length) or ABSENT])
    yield Table(f"Answers, {_CHOSEN[asked.chosen]}", columns, rows, numeric=(1, 3, 6), shorten="never")
    shares = [answer.in_length for answer in asked.answers if answer.in_length is not None]
    if unlearned := [share for share in shares if not share >= LEARNED]:  # NaN too
        several = f"{len(unlearned)} of these {len(asked.answers)} runs"
        yield (
            f"{several if len(asked.answers) > 1 else 'This run'} did not learn the task, which takes "
            f"{percent(LEARNED, 0)} right in length: such an answer shows nothing of the scheme."
        )
    for one in asked.without:
        yield f"{name_text(one.scheme)}, seed {one.seed}: no answer. {visible(one.reason.splitlines()[0])}"
