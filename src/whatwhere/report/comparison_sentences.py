"""What a comparison measured, as sentences: the first ones, which schemes differ, and one for each part."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import PurePath

from whatwhere.analysis.token_table import table_change
from whatwhere.comparison.read import AFTER, BEFORE, Comparison, Scored
from whatwhere.comparison.results import DistanceCurves, TaskDescription
from whatwhere.comparison.settings import MODEL_SETTINGS, Settings
from whatwhere.comparison.statistics import Difference, PairedDifferences
from whatwhere.escape import cut, visible
from whatwhere.records import Missing
from whatwhere.report.inspection import change_text
from whatwhere.report.section import Part, Table
from whatwhere.report.text import NARROW, capital, count, decimals, duration, listed, number, percent, ranges

ABSENT = "–"
HOLDS = 0.05
"""A scheme holds at a length where it loses at most so much of its score in length: 5 points, or 0.05 of a loss."""
_FRESH = 4  # names of tensors that began anew to list, for each scheme
_LISTED = 5  # schemes to list in a sentence, the best ones
_UNCHANGED = 1e-3  # logits are of order 1 to 10 in float32: rounding moves them by 1e-5, absolute positions by 0.1
_KEPT = 5e-3

_TASKS = {
    "expressions": "The task is to evaluate an expression such as Max(1,6,2): the answer is one digit. ",
    "recall": "The task is associative recall: which letter followed a given letter earlier in the sequence? ",
    "text": "The task is to predict the next byte of a text. ",
    "text in tokens": "The task is to predict the next token of a text. ",
}
_ELSEWHERE = {
    "expressions": " The repository of whatwhere has the same schemes on text and other tasks, docs/evidence.md, and "
    "what tutorials claim of them beside what was measured, docs/errata.md."
}
"""Where the same schemes are measured on other tasks, beside the task of the demo."""
_DOORS = {
    "input": "added to the token's vector",
    "query_key": "transforming queries and keys",
    "score": "added to attention scores",
}
_SIZES = ("layers", "dim", "heads", "learning_rate")
_RECIPE = (*_SIZES, "steps", "batch", "schedule", "direction")
"""Settings that the set-up of runs always states; it states others where they are not the default."""
_CONCLUSIONS = {"better": "better", "not separated": "not separated by these seeds", "too few seeds": "too few seeds"}
_COLUMNS = ("better in the mean", "than", "conclusion", "by", "95 % interval", "better in", "effect", "p", "p (Holm)")


# The first sentences


def first_sentences(results: Comparison, found: PairedDifferences | Missing) -> list[str]:
    """Return the headline, between which scores the schemes are, and which differences the seeds show."""
    return [text for text in (headline(results), scores_sentence(results), conclusion(results, found)) if text]


def headline(results: Comparison) -> str:
    """Return the best median at the longest length and whether it holds, in one sentence of at most 20 words.

    Nothing is said of lengths beyond the trained ones where no scheme learned the task.
    """
    last = last_length(results)
    order, inside = ranking(results, last), ranking(results, None)
    if not order:
        return "No scheme has a finite score at the longest tested length."
    schemes = count(len(results.compared), "scheme")
    if not any(learned(results, scheme) for scheme in results.compared.values()):
        best = f"the best score in length is {score_text(results, inside[0][1])} ({scheme_name(inside[0][0])})"
        return f"Of {schemes}, not one learned the task: {best if inside else 'no score in length is finite'}."
    best, high = order[0]
    score, name, where = results.score(best, None), scheme_name(best), _length_text(results, last)
    text, average = score_text(results, high, unit=True), "median" if len(results.record.seeds) > 1 else "score"
    alone, among = len(results.compared) == 1, f"Of {schemes}, {name} has the best {average} {where}"
    if score is None or last is None:
        return f"{name}: {text} {where}." if alone else f"{among}: {text}."
    text, holds = f"{text} (in length {score_text(results, score.median)})", _holds(results, best, high)
    if alone:
        return f"{name} {'holds' if holds else 'does not hold'} {where}: {text}."
    if holds:
        return f"{among} and holds: {text}."
    return f"No scheme holds {where}; {name} has the best {average} there: {text}."


def _holds(results: Comparison, scheme: str, score: float) -> bool:
    """Return whether a scheme that learned the task loses at most HOLDS of its score in length."""
    inside = results.score(scheme, None)
    sign = 1 if results.task.higher_is_better else -1
    return inside is not None and learned(results, scheme) and (inside.median - score) * sign <= HOLDS


def settings_read(results: Comparison) -> list[str]:
    """Return the names of the settings that the runs read; a model of the caller's own may not read some."""
    model = results.record.model
    unread = () if model is None else {*MODEL_SETTINGS} - {*model.reads}
    return [field.name for field in fields(Settings) if field.name not in unread]


def _values(results: Comparison, name: str) -> list[object]:
    """Return the values of a setting in all runs: first that of the comparison, which no name has."""
    own = getattr(results.record.settings, name)
    values = {run.varied.get(name, own) for run in results.runs}
    return sorted(values, key=lambda value: (value != own, isinstance(value, str), value))


def _stated(results: Comparison, names: Iterable[str]) -> str:
    values = {name: _values(results, name) for name in settings_read(results) if name in names}
    stated = [f"{name.replace('_', ' ')} {listed([*map(str, each)], 'or')}" for name, each in values.items()]
    several = any(len(each) > 1 for each in values.values())
    return "; ".join(stated) + ("; of several, a scheme has the one in its name, else the first" if several else "")


def scope_sentence(results: Comparison) -> str:
    """State what was not tested: another task, another size of model, another recipe."""
    one = not any(len(_values(results, name)) > 1 for name in _SIZES)
    own = "" if results.record.model is None else f"your own, {name_text(results.record.model.name)}; "
    return (
        f"These runs show one task ({name_text(results.task.name)}) and {'one model' if one else 'models of one kind'} "
        f"({own}{_stated(results, _SIZES)}). Another task, size or learning rate can "
        f"order the schemes otherwise; it was not tested here.{_ELSEWHERE.get(results.task.name, '')}"
        f"{_tokenizer_sentence(results.task)}"
    )


def _tokenizer_sentence(task: TaskDescription) -> str:
    if (text := task.tokenized) is None:
        return ""
    unknown = f", {text.unknown:.2%} of them unknown" if text.unknown else ""
    name = name_text("/".join(PurePath(text.tokenizer).parts[-2:]))
    size = task.bytes_per_token.get(task.trained[0])
    tested = "" if size is None else f" ({size:.2f} in the part that is tested in length)"
    bits = ", but bits per byte do, of nearly the same tested part"
    if text.unknown:
        bits = ", nor do bits per byte: an unknown token is predicted without the bytes it hides"
    return (
        f" The text has {text.tokens:,} tokens of {name}{unknown}, of {text.bytes_per_token:.2f} bytes in the "
        f"mean{tested}: losses per token of another tokenizer do not compare with these{bits * (size is not None)}."
    )


def question(results: Comparison) -> str:
    """Describe what was compared, and what the terms of the report mean."""
    trained = f"{ranges(sorted(set(results.task.trained)))} {unit_of(results)}"
    return (
        f"A scheme is a positional encoding. {_TASKS.get(results.task.name, '')}Every scheme was trained on inputs of "
        f"{trained} and then tested on longer ones. In length means new inputs of the trained lengths; beyond means "
        "longer ones. A scheme holds where it beats every predictor that ignores order in length and loses at most "
        f"{'5 points' if results.percent else decimals(HOLDS, 2)} of that score."
    )


# Which schemes differ


def conclusions(results: Comparison, found: PairedDifferences | Missing) -> Iterator[Part]:
    """Return which schemes the seeds separate, how that was tested, and the table of differences."""
    yield conclusion(results, found)
    if not isinstance(found, Missing) and found.pairs:
        yield methods_sentence(results, found)
        yield from (differences_table(results, found), *choices_table(results))


def setup_sentence(results: Scored) -> str:
    """Describe what was trained, how and where, as a paper's section on methods does; "" of scores from elsewhere."""
    if not isinstance(results, Comparison):
        return ""
    record, task, own = results.record, results.task, {run.scheme for run in results.runs if run.own}
    apart = {"task", "lengths", "trained", "device", *(["test_sequences"] if task.sequences else [])}
    schemes = listed([f"{name_text(name)}{' (of our own)' if name in own else ''}" for name in results.schemes])
    paths = map(PurePath, () if record.request is None else record.request.files)
    files = [name_text(path.name) for path in paths if f"sha256 {path.stem}" != task.identity]  # not a copy's checksum
    text = f" on {listed(files) or 'a text'} ({visible(task.identity)}; the last tenth is held out)"
    changed = {field.name for field in fields(Settings) if _values(results, field.name) != [field.default]}
    model = "a Transformer" if record.model is None else f"the model {name_text(record.model.name)}"
    trained = f"inputs of {ranges(sorted(set(results.task.trained)))} {unit_of(results)}"
    done = f"trained by AdamW on {trained}" if any(run.steps for run in results.runs) else "measured without training"
    where = f"on {name_text(record.device)} in {'bfloat16' if record.device == 'cuda' else 'float32'}"
    return (
        f"Task: {name_text(task.name)}{text if task.name in ('text', 'text in tokens') else ''}. "
        f"Schemes: {schemes}. With each, {model} was {done}, tested on {tested_text(results)}, "
        f"{count(len(results.seeds), 'seed')}, {where}. Settings: {_stated(results, changed - apart | {*_RECIPE})}; "
        f"others are whatwhere's defaults. {(start := start_sentence(results)) and f'{start} '}"
        f"{record_sentence(results)}{_tokenizer_sentence(task)}"
    )


def tested_text(results: Scored) -> str:
    """Return which lengths were tested, and on how many sequences, where the results hold it."""
    lengths = dict[int | None, list[int]]()
    for length in results.tested:
        lengths.setdefault(results.task.sequences.get(length), []).append(length)
    known = [f"{'' if n is None else f'{n:,} of '}{ranges(each)}" for n, each in lengths.items()]
    return f"new {'sequences: ' if results.task.sequences else 'inputs of '}{'; '.join(known)} {unit_of(results)}"


def methods_sentence(results: Scored, found: PairedDifferences) -> str:
    """Describe how differences were tested, as a paper's section on methods does."""
    varied = isinstance(results, Comparison) and any(run.varied for run in results.runs)
    shared = "test sets and what their settings leave equal" if varied else "initial tokens, batches and test sets"
    shared = f"{'share' if isinstance(results, Comparison) else 'are taken to share'} {shared}"
    pairs = "every pair of schemes" if found.against is None else f"every scheme against {scheme_name(found.against)}"
    if found.against is not None and isinstance(results, Comparison) and results.record.request is not None:
        before = "all pairs" if results.against is None else scheme_name(results.against)
        after = f"after the runs, so p (Holm) is too small; before them: {before}"
        pairs += f" (chosen {'before the runs' if found.against == results.against else after})"
    others = len(list(results.folder.glob("runs/*.json"))) - len(results.runs) if isinstance(results, Comparison) else 0
    apart = f" The folder also holds {count(others, 'run')} of other calls, which no test counts." if others > 0 else ""
    chosen = ""
    if isinstance(results, Comparison) and results.record.choices:
        names = () if results.record.request is None else results.record.request.vary
        chosen = (
            f" Each scheme is compared in one of {len(results.record.choices[0].losses)} settings "
            f"({listed([name_text(name) for name in names])}): that of the least held-out loss after training, the "
            "mean over the seeds, of sequences of the trained lengths that neither training nor any test has."
        )
    return (
        f"Runs of one seed {shared}, so {pairs} is compared seed by seed. p: exact "
        f"two-sided sign-flip permutation test of the mean difference; p (Holm): corrected for {_family(found)}, each "
        f"length by itself; claimed up to {decimals(found.level, 2)}. Intervals are 95{NARROW}% intervals of Student's "
        "t for the mean of one pair, without that correction, from five seeds on; of very skewed differences they are "
        f"too narrow. Effect: Hedges' g of the paired differences.{chosen}{apart}"
    )


def choices_table(results: Scored) -> list[Table]:
    """Return the table of the settings of each scheme and which of them is compared; none where there is no choice."""
    if not isinstance(results, Comparison) or not results.record.choices:
        return []
    rows = [
        [name_text(each.scheme), name_text(name), decimals(loss, 3), "compared" if name == each.chosen else ""]
        for each in results.record.choices
        for name, loss in each.losses.items()
    ]
    caption = "Settings of each scheme: held-out loss after training (cross-entropy, nats), mean over the seeds"
    return [Table(caption, ("scheme", "setting", "held-out loss", ""), rows, (2,), shorten="never")]


def conclusion(results: Comparison, found: PairedDifferences | Missing) -> str:
    """State which schemes the seeds show to be better, or why they show none; "" where there is nothing to compare."""
    if isinstance(found, Missing):
        return f"Which scheme is better was not tested: {found.missing}."
    if not found.pairs:
        return ""
    if found.length is not None and not any(learned(results, scheme) for scheme in results.compared.values()):
        return f"No scheme learned the task: differences {_length_text(results, found.length)} do not rank the schemes."
    if not found.enough_seeds:
        return (
            f"{count(len(found.seeds), 'seed')} cannot show any difference at the {percent(found.level, 0)} level: "
            f"{_family(found)} {'needs' if found.family == 1 else 'need'} at least {found.seeds_needed} seeds. Treat "
            "the order of schemes as a hint."
        )
    best = _best(results, found)
    own = [pair for pair in found.pairs if best in (pair.first, pair.second)]
    parts = [*_about(results, own, best)]
    if others := [pair.outcome == "better" for pair in found.pairs if pair not in own]:
        several = f"{sum(others)} of {len(others)} other pairs" if len(others) > 1 else "the other pair"
        parts.append(f"{several if any(others) else 'no other pair'} {'is' if sum(others) < 2 else 'are'} separated")
    return f"{capital(_length_text(results, found.length))}, {'; '.join(parts)}."


def _about(results: Comparison, own: Sequence[Difference], best: str) -> Iterator[str]:
    """Yield what the seeds show of the best scheme: than which it is better, which are better, and which may be."""
    name = scheme_name(best)
    won = [pair for pair in own if pair.outcome == "better" and pair.first == best]
    lost = [scheme_name(pair.first) for pair in own if pair.outcome == "better" and pair.first != best]
    open_ = [scheme_name(pair.second if pair.first == best else pair.first) for pair in own if pair.outcome != "better"]
    if won:
        shown = f"these seeds show that {name} is better than {listed([scheme_name(pair.second) for pair in won])}"
        tested = f"p ≤ {number(max(pair.p_holm for pair in won), 2)}, Holm"
        if len(won) == 1:
            (pair,) = won
            ends = _interval(results, pair)
            shown += f" by {_amount(results, pair.mean)} {gain_unit(results)}, the mean of the paired differences"
            tested = f"{ends and f'95{NARROW}% interval {ends}; '}p = {number(pair.p_holm, 2)}, Holm"
        yield f"{shown} ({tested})"
    if lost:
        yield f"yet in the mean {listed(lost)} {'is' if len(lost) == 1 else 'are'} better than {name}"
    if open_:
        yield f"these seeds do not separate {name} from {listed(open_, 'or')}"


def differences_table(results: Scored, found: PairedDifferences, rows: int | None = None) -> Table:
    """Return the table of differences: at most so many rows of pairs, those with the best scheme first."""
    best = _best(results, found)
    pairs = sorted(found.pairs, key=lambda pair: best not in (pair.first, pair.second))
    caption = (
        f"Paired differences {_length_text(results, found.length)}: by how much the first scheme is better, mean over "
        f"{count(len(found.seeds), 'seed')}, {gain_unit(results)}"
    )
    cells = []
    for pair in pairs[:rows]:
        gain = _amount(results, pair.mean), _interval(results, pair) or ABSENT, f"{pair.ahead} of {len(pair.gains)}"
        effect = ABSENT if pair.effect is None else decimals(pair.effect, 2)
        names = name_text(pair.first), name_text(pair.second), _CONCLUSIONS[pair.outcome]
        cells.append([*names, *gain, effect, number(pair.p, 2), number(pair.p_holm, 2)])
    return Table(caption, _COLUMNS, cells, range(3, 9), len(pairs))


def _best(results: Scored, found: PairedDifferences) -> str:
    return next((scheme for scheme, _ in ranking(results, found.length) if scheme not in found.left_out), "")


def _family(found: PairedDifferences) -> str:
    return count(found.family, "pair of schemes", "pairs of schemes")


def _interval(results: Scored, pair: Difference) -> str:
    ends = pair.interval
    return "" if ends is None else f"{_amount(results, ends.low)} to {_amount(results, ends.high)}"


def _amount(results: Scored, value: float) -> str:
    return decimals(100 * value, 1) if results.percent else decimals(value, 3)


def gain_unit(results: Scored) -> str:
    """Return the unit of a difference of scores."""
    return "points" if results.percent else name_text(results.task.measure)


# A sentence for each part of the report


def scores_sentence(results: Comparison) -> str:
    """Describe between which scores the schemes are, which have none, and how far any holds."""
    parts: list[str] = []
    if inside := ranking(results, None):
        low, high = (score_text(results, end) for end in sorted((inside[0][1], inside[-1][1])))
        between = f"the medians lie between {low} and {high}" if low != high else f"every median is {low}"
        parts.append(f"In length {between}")
    if inside and not any(learned(results, scheme) for scheme in results.compared.values()):
        blind = blind_scores(results)
        name = (max if results.task.higher_is_better else min)(blind, key=lambda name: blind[name])
        return (
            f"{parts[0]}; a predictor that ignores order has {score_text(results, blind[name])} ({name_text(name)}). "
            "So nothing can be concluded on longer inputs: train longer."
        )
    if results.beyond and (outside := ranking(results, results.beyond[-1])):
        least, most = sorted((outside[0], outside[-1]), key=lambda pair: pair[1])
        ends = [f"{score_text(results, score)} ({scheme_name(scheme)})" for scheme, score in (least, most)]
        at = f"{'at' if parts else 'At'} {results.beyond[-1]} {unit_of(results)}"
        parts.append(f"{at} between {ends[0]} and {ends[1]}" if len(outside) > 1 else f"{at} it is {ends[0]}")
        absent = [name for name in results.compared.values() if results.score(name, results.beyond[-1]) is None]
        has = "has" if len(absent) == 1 else "have"
        parts += [f"{listed([*map(scheme_name, absent)])} {has} no row there"] if absent else []
    return f"{'; '.join(parts)}.{_farthest(results)}" if parts else "No score is finite."


def _farthest(results: Comparison) -> str:
    """Return which schemes hold longest, and how far, where none holds at the longest length."""
    holding, until = list(results.compared.values()), 0
    for length in results.beyond:
        lasting = [s for s, score in ranking(results, length) if s in holding and _holds(results, s, score)]
        if not lasting:
            held = listed([scheme_name(scheme) for scheme in holding])
            return f" Longest to hold: {held}, to {until}." if until else f" Not one holds even at {length}."
        holding, until = lasting, length
    return ""


def first_to_fail(results: Comparison) -> str:
    """Return which part of the inputs the best scheme is the first to get wrong beyond the trained lengths, or ""."""
    best, *others = [scheme for scheme, _ in ranking(results, last_length(results)) if learned(results, scheme)] or [""]
    for length in results.beyond if best else ():
        scores = {g: s.median for g in results.task.groups if (s := results.score(best, length, g)) is not None}
        order = sorted(scores, key=lambda group: scores[group], reverse=not results.task.higher_is_better)
        if len(order) > 1 and not _holds(results, best, scores[order[0]]):
            worst, other = ((name_text(g), score_text(results, scores[g])) for g in (order[0], order[-1]))
            at = f"{worst[1]} {_length_text(results, length)}, where {other[0]} has {other[1]}"
            known = {scheme_name(scheme): results.score(scheme, length, order[0]) for scheme in others}
            each = [f"{score_text(results, x.median)} with {scheme}" for scheme, x in known.items() if x is not None]
            there = f" There, {worst[0]} has {listed(each[:_LISTED])}." if each else ""
            return f"With {scheme_name(best)}, {worst[0]} fails first: {at}.{there}"
    return ""


def shift_sentence(results: Comparison) -> str:
    """Return which schemes keep their logits when every position is shifted, and what the shift costs the others."""
    if not results.shifts:
        return "These runs have no shift test."
    first = next((shift for shift in results.shifts if shift > 0), 0)
    within = f"{number(100 * _KEPT if results.percent else _KEPT)} {gain_unit(results)}"
    groups: dict[str, list[str]] = {
        f"no logit changes by {_UNCHANGED} when every position is shifted": [],
        f"a shift by {first} takes": [],
        f"the score stays within {within} at a shift by {first}": [],
        "no row for shifted positions": [],
        "no score to keep, for the task was not learned": [],
    }
    unchanged, moved, kept, absent, unlearned = groups.values()
    for scheme in results.schemes:
        shifts, name = results.summary[scheme].shift, scheme_name(scheme)
        changes = [shifts[n].largest_logit_change if n in shifts else None for n in results.shifts]
        before, after = (shifts[n].score if n in shifts else None for n in (0, first))
        if all(change is not None and change.max < _UNCHANGED for change in changes):
            unchanged.append(name)
        elif before is None or after is None:
            absent.append(name)
        elif not learned(results, scheme):
            unlearned.append(name)
        elif abs(before.median - after.median) < _KEPT:
            kept.append(name)
        else:
            moved.append(f"{name} from {score_text(results, before.median)} to {score_text(results, after.median)}")
    return _by_group(groups)


def doors_sentence(results: Comparison) -> str:
    """Describe where each scheme enters the Transformer."""
    groups: dict[str, list[str]] = {}
    for scheme, view in results.record.schemes.items():
        if scheme in results.schemes:
            does = listed([_DOORS.get(name, name_text(name)) for name in view.doors]) or "no positional encoding"
            groups.setdefault(does, []).append(scheme_name(scheme))
    return _by_group(groups)


def _by_group(groups: Mapping[str, Sequence[str]]) -> str:
    return capital("; ".join(f"{what}: {listed(names)}" for what, names in groups.items() if names)) + "."


def change_sentence(results: Comparison) -> str:
    """Describe how far training moved the token table, in one run of the scheme that scores best."""
    order = ranking(results, last_length(results)) or ranking(results, None)
    best = order[0][0] if order else results.schemes[0]
    for run in sorted(results.runs, key=lambda run: (run.scheme != best, run.seed)):
        tables = results.tables(run)
        if {BEFORE, AFTER} <= tables.keys():
            text = change_text(table_change(tables[BEFORE], tables[AFTER]))
            return f"{text} Measured on {name_text(run.scheme)}, seed {run.seed}."
    return "No trained token table was found in the folder."


def record_sentence(results: Comparison) -> str:
    """Describe how long the runs took, on which machine, with which versions."""
    record = results.record
    seconds = sum(run.seconds for run in record.runs)
    versions = [f"{name} {name_text(record.versions.get(name, '?'))}" for name in ("whatwhere", "torch")]
    return (
        f"{count(len(record.runs), 'run')} took {duration(seconds)}, added up, on a machine of "
        f"{count(record.machine.cores, 'core')} ({name_text(record.machine.processor)}), with {listed(versions)}."
    )


def start_sentence(results: Comparison) -> str:
    """Describe the kept models that runs started from, and what began anew in each scheme; "" where none did."""
    starts = {run.scheme: run.start for run in results.runs if run.start is not None}
    clauses = []
    for scheme, start in starts.items():
        anew = "nothing began anew"
        if start.fresh:
            more = f", and {len(start.fresh) - _FRESH} more" if len(start.fresh) > _FRESH else ""
            anew = f"began anew: {', '.join(map(name_text, start.fresh[:_FRESH]))}{more}"
        copied = count(len(start.loaded), "tensor")
        clauses.append(f"{name_text(scheme)} from {scheme_name(start.scheme)}, {copied} copied, {anew}")
    return f"Runs started from kept models: {'; '.join(clauses)}." if clauses else ""


def repeat_sentence(results: Comparison) -> str:
    """Describe how to repeat the comparison."""
    if results.record.command is None:
        call = f": {visible(results.record.python)}" if results.record.python else "."
        return (
            "A scheme, task or model of your own took part, which no command can name. Passed again in Python, it "
            f"gives the same numbers with the same settings, versions, threads and processor{call}"
        )
    return f"The same command, versions, threads and processor give the same numbers: {visible(results.record.command)}"


# What sentences and tables are made of


def last_length(results: Scored) -> int | None:
    """Return the longest tested length beyond the trained ones; None, which is in length, where there is none."""
    return results.beyond[-1] if results.beyond else None


def ranking(results: Scored, length: int | None) -> list[tuple[str, float]]:
    """Rank the schemes that are compared and have a finite score at a length, with their medians, the best first."""
    scores = [(scheme, results.score(scheme, length)) for scheme in results.compared.values()]
    medians = [(scheme, score.median) for scheme, score in scores if score is not None and math.isfinite(score.median)]
    return sorted(medians, key=lambda pair: -pair[1] if results.task.higher_is_better else pair[1])


def distance_curves(results: Comparison) -> dict[str, DistanceCurves]:
    """Return the curves over distance, by scheme; schemes without any are ignored."""
    views = ((name, results.record.schemes.get(name)) for name in results.schemes)
    by_scheme = {name: view.by_distance for name, view in views if view is not None and view.by_distance is not None}
    return {name: curves for name, curves in by_scheme.items() if curves.curves and curves.distances}


def learned(results: Comparison, scheme: str) -> bool:
    """Return whether a scheme's median in length is better than that of every predictor that ignores positions."""
    score, blind = results.score(scheme, None), blind_scores(results).values()
    if score is None or not math.isfinite(score.median):
        return False
    return all(score.median > value if results.task.higher_is_better else score.median < value for value in blind)


def blind_scores(results: Comparison) -> dict[str, float]:
    """Return the scores in length of the predictors that ignore positions, by name."""
    scores = {name: baseline_in_length(results, line) for name, line in results.task.baselines.items()}
    return {name: score for name, score in scores.items() if score is not None}


def baseline_in_length(results: Scored, baseline: Mapping[int, float]) -> float | None:
    """Return the mean score of a baseline over the trained lengths; None where it has none."""
    values = [baseline[n] for n in results.task.tested_in_length if n in baseline]
    return sum(values) / len(values) if values else None


def bits_per_byte(results: Scored, score: float | None) -> float | None:
    """Return a loss in length in bits per byte of the tested text, which compares across tokenizers."""
    task = results.task
    size = 1.0 if task.measure == "nats per byte" else task.bytes_per_token.get(task.trained[0])
    return None if score is None or size is None else score / math.log(2) / size


def name_text(name: str) -> str:
    """Return a name from a file, every character visible, the middle of a long one omitted."""
    return cut(visible(name))


def scheme_name(name: str) -> str:
    """Return the name of a scheme for a sentence, in which a bare none would read as "no scheme"."""
    return f"“{name}”" if name == "none" else name_text(name)


def unit_of(results: Scored) -> str:
    """Return the unit of lengths."""
    return name_text(results.task.unit)


def _length_text(results: Scored, length: int | None) -> str:
    return "in length" if length is None else f"at {length} {unit_of(results)}"


def measure_text(results: Scored) -> str:
    """Return the measure with its unit and its better side."""
    side = "higher" if results.task.higher_is_better else "lower"
    return f"{name_text(results.task.measure)}{' in %' if results.percent else ''}; {side} is better"


def score_text(results: Scored, value: float, unit: bool = False) -> str:
    """Return a score for a sentence: a share in percent, a loss with its unit where requested."""
    if results.percent or not math.isfinite(value):
        return percent(value)
    return f"{decimals(value)}{NARROW}{name_text(results.task.measure)}" if unit else decimals(value)
