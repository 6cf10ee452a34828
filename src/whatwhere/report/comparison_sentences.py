"""What a comparison measured, as sentences."""

import math
from collections.abc import Sequence
from statistics import median

import numpy as np

from whatwhere.comparison.read import AFTER, BEFORE, Comparison
from whatwhere.comparison.results import DistanceCurves
from whatwhere.escape import cut, visible
from whatwhere.report.text import NARROW, capital, count, decimals, listed, percent, ranges

HOLDS = 0.05
"""A scheme holds at a length where it loses at most so much of its score in length: 5 points, or 0.05 of a loss."""

_TASKS = {
    "expressions": "The task is to evaluate an expression such as Max(1,6,2): the answer is one digit. ",
    "recall": "The task is associative recall: which letter followed a given letter earlier in the sequence? ",
    "text": "The task is to predict the next byte of a text. ",
}
_SEEDS = 6  # fewer cannot differ significantly: 2 / 2**5 is above 0.05
_SIGNIFICANT = 0.05
_UNCHANGED = 1e-3  # logits are of order 1 to 10 in float32: rounding moves them by 1e-5, absolute positions by 0.1
_KEPT = 5e-3
_APART = 0.05
_DOORS = {  # for one scheme, for several
    "input": ("adds to the token's vector", "add to the token's vector"),
    "query_key": ("transforms queries and keys", "transform queries and keys"),
    "score": ("adds to attention scores", "add to attention scores"),
}
_NO_DOOR = ("has no positional encoding", "have no positional encoding")


def headline(results: Comparison) -> str:
    """Return which scheme holds best beyond the trained length, and how far the order can be trusted."""
    last = results.beyond[-1] if results.beyond else None
    order = ranking(results, last)
    if not order:
        return "No scheme has a finite score at the longest tested length."
    where = "in length" if last is None else f"at {last} {unit_of(results)}"
    (best, high), (worst, low) = order[0], order[-1]
    text = _best_text(results, best, high, where)
    if worst != best:
        text += f"; {scheme_name(worst)} scores worst: {score_text(results, low)}"
    if absent := [scheme_name(scheme) for scheme in results.schemes if results.score(scheme, last) is None]:
        text += f"; {listed(absent)} {'has' if len(absent) == 1 else 'have'} no row there"
    holding = _holding(results)
    if 0 < len(holding) < len(results.beyond):
        lasting = listed([scheme_name(scheme) for scheme in holding[-1]])
        text += f". Longest to hold: {lasting}, to {results.beyond[len(holding) - 1]}"
    elif results.beyond and not holding:
        text += f". Not one holds even at {results.beyond[0]}"
    return " ".join(filter(None, (f"{text}.", order_caution(results, order, last))))


def order_caution(results: Comparison, order: Sequence[tuple[str, float]], length: int | None) -> str:
    """Return a warning where the seeds do not show which of the two best schemes is better, or "".

    The schemes are compared seed by seed with an exact two-sided sign test.

    Args:
        results: of the comparison.
        order: schemes and medians, the best first.
        length: at which they are ranked; None is in length.
    """
    if len(order) < 2:
        return ""
    if len(results.record.seeds) < _SEEDS:
        return "Too few seeds to rank schemes: treat the order as a hint."
    (first, _), (second, _) = order[:2]
    ahead, pairs = results.ahead(first, second, length)
    if _sign_test(ahead, pairs) <= _SIGNIFICANT:
        return ""
    names = scheme_name(first), scheme_name(second)
    return f"{names[0]} is better than {names[1]} in {ahead} of {pairs} seeds: treat their order as a hint."


def question(results: Comparison) -> str:
    """Describe what was compared, and what the terms of the report mean."""
    seeds = len(results.record.seeds)
    trained = f"{lengths_text(results.task.trained)} {unit_of(results)}"
    text = (
        f"A scheme is a positional encoding. {_TASKS.get(results.task.name, '')}Every scheme was trained on short "
        f"inputs ({trained}) and then tested on longer ones. In length means new inputs of the trained lengths; beyond "
        "means longer ones. A scheme holds where it loses at most "
        f"{'5 points' if results.percent else decimals(HOLDS, 2)} of its score in length. "
    )
    if seeds == 1:
        return f"{text}Each number comes from a single seed, so chance has a part in it."
    return f"{text}Each number is the median over {seeds} seeds, with the least and the greatest."


def scores_sentence(results: Comparison) -> str:
    """Describe between which scores the schemes are, and where seeds differ most."""
    parts: list[str] = []
    if inside := ranking(results, None):
        low, high = (score_text(results, end) for end in sorted((inside[0][1], inside[-1][1])))
        between = f"the medians lie between {low} and {high}" if low != high else f"every median is {low}"
        parts.append(f"In length {between}")
    if results.beyond and (outside := ranking(results, results.beyond[-1])):
        least, most = sorted((outside[0], outside[-1]), key=lambda pair: pair[1])
        ends = [f"{score_text(results, score)} ({scheme_name(scheme)})" for scheme, score in (least, most)]
        at = f"{'at' if parts else 'At'} {results.beyond[-1]} {unit_of(results)}"
        parts.append(f"{at} between {ends[0]} and {ends[1]}" if len(outside) > 1 else f"{at} it is {ends[0]}")
    parts += _widest(results)
    return f"{'; '.join(parts)}." if parts else "No score is finite."


def groups_sentence(results: Comparison) -> str:
    """Return which group of targets breaks first; "" where there are no groups."""
    groups = list(results.task.groups)
    if not groups or not results.beyond:
        return ""
    sign = 1.0 if results.task.higher_is_better else -1.0
    for length in results.beyond:
        medians = {group: median(values) for group in groups if (values := _medians(results, group, length))}
        order = sorted(medians, key=lambda group: sign * medians[group])
        if len(order) > 1 and abs(medians[order[0]] - medians[order[-1]]) >= _APART:
            first, last = (score_text(results, medians[order[end]]) for end in (0, -1))
            at = f"at {length} {unit_of(results)} the median over all schemes is {first}"
            return f"{capital(name_text(order[0]))} breaks first: {at}, against {last} for {name_text(order[-1])}."
    if len(groups) == 1:
        return f"The same scores for a part of each input: {name_text(groups[0])}."
    close = "5 points" if results.percent else f"{decimals(_APART, 2)} {name_text(results.task.measure)}"
    return f"None breaks before the others: their medians over all schemes stay within {close}."


def shift_sentence(results: Comparison) -> str:
    """Return which schemes keep their logits when every position is shifted, and what the shift costs the others."""
    if not results.shifts:
        return "These runs have no shift test."
    first = next((shift for shift in results.shifts if shift > 0), 0)
    groups: dict[str, list[str]] = {"unchanged": [], "kept": [], "moved": [], "absent": []}
    for scheme in results.schemes:
        kind, text = _shift_effect(results, scheme, first)
        groups[kind].append(text)
    parts = [
        *_clause(groups["unchanged"], "does", "do", "not change when every position is shifted"),
        *([f"a shift by {first} takes {listed(groups['moved'])}"] if groups["moved"] else []),
        *_clause(groups["kept"], "keeps its score", "keep their scores", f"at a shift by {first}"),
        *_clause(groups["absent"], "has", "have", "no row for shifted positions"),
    ]
    names = tuple(groups["unchanged"] + groups["kept"] + groups["absent"])
    text = "; ".join(parts)
    return f"{text}." if names and text.startswith(names) else f"{capital(text)}."


def doors_sentence(results: Comparison) -> str:
    """Describe where each scheme enters the Transformer."""
    doors = {scheme: tuple(view.doors) for scheme, view in results.record.schemes.items() if scheme in results.schemes}
    parts: list[str] = []
    for door in dict.fromkeys(doors.values()):
        names = [scheme_name(scheme) for scheme, passed in doors.items() if passed == door]
        several = int(len(names) > 1)
        does = [_DOORS[name][several] if name in _DOORS else name_text(name) for name in door]
        parts.append(f"{listed(names)} {listed(does or [_NO_DOOR[several]])}")
    return f"{'; '.join(parts)}."


def distance_sentence(results: Comparison) -> str:
    """Return of which schemes the curve over distance never rises, and where others rise again."""
    rises = [(name_text(name), _first_rise(curves)) for name, curves in distance_curves(results).items()]
    if not rises:
        return "No scheme of these runs has a curve over distance."
    falling = [name for name, rise in rises if rise is None]
    rising = [f"{name} (first at {rise})" for name, rise in rises if rise is not None]
    parts = [f"never rising with distance: {listed(falling)}"] if falling else []
    parts += [f"rising again{'' if falling else ' with distance'}: {listed(rising)}"] if rising else []
    return f"{capital('; '.join(parts))}."


def change_sentence(results: Comparison) -> str:
    """Describe how far training moved the token table, in one run of the scheme that scores best.

    Raises:
        ResultsError: If a file of the folder is damaged.
    """
    best = best_scheme(results)
    for run in sorted(results.runs, key=lambda run: (run.scheme != best, run.seed)):
        tables = results.tables(run)
        if not {BEFORE, AFTER} <= tables.keys():
            continue
        before, after = tables[BEFORE], tables[AFTER]
        share = float(np.linalg.norm(after - before) / (np.linalg.norm(before) or 1.0))
        return (
            f"Training moved the standard deviation of the token table from {decimals(float(before.std()))} to "
            f"{decimals(float(after.std()))}; the norm of the change E − E0 is {percent(share, 0)} of that of E0. "
            f"Measured on {name_text(run.scheme)}, seed {run.seed}."
        )
    return "No trained token table was found in the folder."


def record_sentence(results: Comparison) -> str:
    """Describe how long the runs took, on which machine, with which versions."""
    record = results.record
    versions = [f"{name} {name_text(record.versions.get(name, '?'))}" for name in ("whatwhere", "torch")]
    return (
        f"{count(len(record.runs), 'run')} took {_duration(record.seconds)} on {count(record.machine.cores, 'core')} "
        f"of {name_text(record.machine.processor)}, with {listed(versions)}."
    )


def repeat_sentence(results: Comparison) -> str:
    """Describe how to repeat the comparison."""
    if results.record.command is None:
        return (
            "To repeat it, call whatwhere.compare again in Python: a scheme or task of your own took part, which no "
            "command line can name."
        )
    return f"The same command, versions and threads give the same numbers: {visible(results.record.command)}"


def ranking(results: Comparison, length: int | None) -> list[tuple[str, float]]:
    """Rank the schemes that have a finite score at a length, with their medians, the best first.

    Args:
        results: of the comparison.
        length: a tested length; None is in length.
    """
    scores = [(scheme, results.score(scheme, length)) for scheme in results.schemes]
    medians = [(scheme, score.median) for scheme, score in scores if score is not None and math.isfinite(score.median)]
    return sorted(medians, key=lambda pair: -pair[1] if results.task.higher_is_better else pair[1])


def best_scheme(results: Comparison) -> str:
    """Return the scheme that scores best at the longest tested length."""
    order = ranking(results, results.beyond[-1] if results.beyond else None) or ranking(results, None)
    return order[0][0] if order else results.schemes[0]


def distance_curves(results: Comparison) -> dict[str, DistanceCurves]:
    """Return the curves over distance, by scheme; schemes without any are ignored."""
    views = ((name, results.record.schemes.get(name)) for name in results.schemes)
    by_scheme = {name: view.by_distance for name, view in views if view is not None and view.by_distance is not None}
    return {name: curves for name, curves in by_scheme.items() if curves.curves and curves.distances}


def name_text(name: str) -> str:
    """Return a name from a file, every character visible, the middle of a long one omitted."""
    return cut(visible(name))


def scheme_name(name: str) -> str:
    """Return the name of a scheme for a sentence, in which a bare none would read as "no scheme".

    Examples:
        >>> scheme_name("none"), scheme_name("alibi")
        ('“none”', 'alibi')
    """
    return f"“{name}”" if name == "none" else name_text(name)


def unit_of(results: Comparison) -> str:
    """Return the unit of lengths."""
    return name_text(results.task.unit)


def measure_text(results: Comparison) -> str:
    """Return the measure with its unit and its better side."""
    side = "higher" if results.task.higher_is_better else "lower"
    return f"{name_text(results.task.measure)}{' in %' if results.percent else ''}; {side} is better"


def lengths_text(lengths: Sequence[int]) -> str:
    """Return trained lengths, consecutive ones by their ends.

    Examples:
        >>> lengths_text([1, 2, 3]), lengths_text([64])
        ('1–3', '64')
    """
    return ranges(sorted(set(lengths)))


def score_text(results: Comparison, value: float, unit: bool = False) -> str:
    """Return a score for a sentence: a share in percent, a loss with its unit where requested."""
    if results.percent or not math.isfinite(value):
        return percent(value)
    return f"{decimals(value)}{NARROW}{name_text(results.task.measure)}" if unit else decimals(value)


def _best_text(results: Comparison, best: str, score: float, where: str) -> str:
    inside, text = results.score(best, None), score_text(results, score, unit=True)
    schemes, name = count(len(results.schemes), "scheme"), scheme_name(best)
    if inside is None or where == "in length":
        return f"Of {schemes}, {name} scores best {where}: {text}"
    text += f" (in length {score_text(results, inside.median)})"
    if _holds(results, best, score):
        return f"Of {schemes}, {name} holds best {where}: {text}"
    if len(results.schemes) == 1:
        return f"{name} does not hold {where}: {text}"
    return f"No scheme holds {where}; of {schemes}, {name} scores best there: {text}"


def _holding(results: Comparison) -> list[list[str]]:
    """Return the schemes that hold up to each length, the best first, as far as any does."""
    names: list[list[str]] = []
    for length in results.beyond:
        order = [scheme for scheme, score in ranking(results, length) if _holds(results, scheme, score)]
        holding = [scheme for scheme in order if not names or scheme in names[-1]]
        if not holding:
            break
        names.append(holding)
    return names


def _holds(results: Comparison, scheme: str, score: float) -> bool:
    inside = results.score(scheme, None)
    return inside is not None and (inside.median - score) * (1 if results.task.higher_is_better else -1) <= HOLDS


def _sign_test(ahead: int, pairs: int) -> float:
    """Return the two-sided p-value of so many wins among pairs without ties."""
    if pairs == 0:
        return 1.0
    tail = sum(math.comb(pairs, k) for k in range(max(ahead, pairs - ahead), pairs + 1))
    return float(min(1.0, 2 * tail / 2**pairs))


def _widest(results: Comparison) -> list[str]:
    """Return where seeds differ most."""
    scores = [(s, n, results.score(s, n)) for s in results.schemes for n in results.beyond]
    widths = [(f.max - f.min, s, n, f) for s, n, f in scores if f is not None and math.isfinite(f.max - f.min)]
    if not widths or (widest := max(widths, key=lambda each: each[:3]))[0] == 0:
        return []
    _, scheme, length, score = widest
    between = f"{score_text(results, score.min)} to {score_text(results, score.max)}"
    return [f"seeds differ most for {scheme_name(scheme)} at {length}: {between}"]


def _medians(results: Comparison, group: str, length: int) -> list[float]:
    scores = [results.score(scheme, length, group) for scheme in results.schemes]
    return [score.median for score in scores if score is not None and math.isfinite(score.median)]


def _shift_effect(results: Comparison, scheme: str, first: int) -> tuple[str, str]:
    shifts, name = results.summary[scheme].shift, scheme_name(scheme)
    changes = [shifts[n].largest_logit_change if n in shifts else None for n in results.shifts]
    before, after = (shifts[n].score if n in shifts else None for n in (0, first))
    if all(change is not None and change.max < _UNCHANGED for change in changes):
        return "unchanged", name
    if before is None or after is None:
        return "absent", name
    if abs(before.median - after.median) < _KEPT:
        return "kept", name
    scores = [score_text(results, score.median) for score in (before, after)]
    return "moved", f"{name} from {scores[0]} to {scores[1]}"


def _clause(names: Sequence[str], one: str, several: str, rest: str) -> list[str]:
    return [f"{listed(names)} {one if len(names) == 1 else several} {rest}"] if names else []


def _first_rise(curves: DistanceCurves) -> int | None:
    """Return the first distance at which the first curve rises by more than rounding."""
    curve = np.array(next(iter(curves.curves.values()))[: len(curves.distances)], np.float64)
    known = curve[np.isfinite(curve)]
    slack = 1e-4 * (float(np.ptp(known)) if known.size else 0.0) or 1e-4
    rises = np.flatnonzero(curve[1:] > curve[:-1] + slack)
    return curves.distances[1 + int(rises[0])] if rises.size else None


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{decimals(seconds, 0)} s"
