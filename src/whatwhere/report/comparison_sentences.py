"""What a comparison measured, as sentences."""

import math
from collections.abc import Mapping

import numpy as np

from whatwhere.comparison.read import AFTER, BEFORE, Comparison, Scored
from whatwhere.comparison.results import DistanceCurves
from whatwhere.escape import cut, visible
from whatwhere.report.text import NARROW, capital, count, decimals, duration, listed, number, percent, ranges

_FRESH = 4
"""Names of tensors that began anew to list, for each scheme."""
HOLDS = 0.05
"""A scheme holds at a length where it loses at most so much of its score in length: 5 points, or 0.05 of a loss."""

_TASKS = {
    "expressions": "The task is to evaluate an expression such as Max(1,6,2): the answer is one digit. ",
    "recall": "The task is associative recall: which letter followed a given letter earlier in the sequence? ",
    "text": "The task is to predict the next byte of a text. ",
    "text in tokens": "The task is to predict the next token of a text. ",
}
_UNCHANGED = 1e-3  # logits are of order 1 to 10 in float32: rounding moves them by 1e-5, absolute positions by 0.1
_KEPT = 5e-3
_DOORS = {
    "input": "added to the token's vector",
    "query_key": "transforming queries and keys",
    "score": "added to attention scores",
}


def question(results: Comparison) -> str:
    """Describe what was compared, and what the terms of the report mean."""
    seeds = len(results.record.seeds)
    trained = f"{ranges(sorted(set(results.task.trained)))} {unit_of(results)}"
    text = (
        f"A scheme is a positional encoding. {_TASKS.get(results.task.name, '')}Every scheme was trained on inputs of "
        f"{trained} and then tested on longer ones. In length means new inputs of the trained lengths; beyond means "
        "longer ones. A scheme holds where it beats every predictor without positions in length and loses at most "
        f"{'5 points' if results.percent else decimals(HOLDS, 2)} of that score. "
    )
    if seeds == 1:
        return f"{text}Each number comes from a single seed, so chance has a part in it."
    return f"{text}Each number is the median over {seeds} seeds, with the least and the greatest."


def scores_sentence(results: Comparison) -> str:
    """Describe between which scores the schemes are."""
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
    return f"{'; '.join(parts)}." if parts else "No score is finite."


def groups_sentence(results: Comparison) -> str:
    """Return which parts of each input are scored by themselves, or ""."""
    groups = [name_text(group) for group in results.task.groups]
    return f"The same scores for {listed(groups)} alone, each a part of the inputs." if groups else ""


def shift_sentence(results: Comparison) -> str:
    """Return which schemes keep their logits when every position is shifted, and what the shift costs the others."""
    if not results.shifts:
        return "These runs have no shift test."
    first = next((shift for shift in results.shifts if shift > 0), 0)
    within = (
        f"{number(100 * _KEPT)} points" if results.percent else f"{number(_KEPT)} {name_text(results.task.measure)}"
    )
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
    return capital("; ".join(f"{what}: {listed(names)}" for what, names in groups.items() if names)) + "."


def doors_sentence(results: Comparison) -> str:
    """Describe where each scheme enters the Transformer."""
    groups: dict[str, list[str]] = {}
    for scheme, view in results.record.schemes.items():
        if scheme in results.schemes:
            does = listed([_DOORS.get(name, name_text(name)) for name in view.doors]) or "no positional encoding"
            groups.setdefault(does, []).append(scheme_name(scheme))
    return capital("; ".join(f"{does}: {listed(names)}" for does, names in groups.items())) + "."


def change_sentence(results: Comparison) -> str:
    """Describe how far training moved the token table, in one run of the scheme that scores best."""
    order = ranking(results, results.beyond[-1] if results.beyond else None) or ranking(results, None)
    best = order[0][0] if order else results.schemes[0]
    for run in sorted(results.runs, key=lambda run: (run.scheme != best, run.seed)):
        tables = results.tables(run)
        if {BEFORE, AFTER} <= tables.keys():
            before, after = tables[BEFORE], tables[AFTER]
            share = float(np.linalg.norm(after - before) / (np.linalg.norm(before) or 1.0))
            ends = f"{decimals(float(before.std()))} to {decimals(float(after.std()))}"
            return (
                f"Training moved the standard deviation of the token table from {ends}; the norm of the change E − E0 "
                f"is {percent(share, 0)} of that of E0. Measured on {name_text(run.scheme)}, seed {run.seed}."
            )
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


def ranking(results: Scored, length: int | None) -> list[tuple[str, float]]:
    """Rank the schemes that have a finite score at a length, with their medians, the best first."""
    scores = [(scheme, results.score(scheme, length)) for scheme in results.schemes]
    medians = [(scheme, score.median) for scheme, score in scores if score is not None and math.isfinite(score.median)]
    return sorted(medians, key=lambda pair: -pair[1] if results.task.higher_is_better else pair[1])


def distance_curves(results: Comparison) -> dict[str, DistanceCurves]:
    """Return the curves over distance, by scheme; schemes without any are ignored."""
    views = ((name, results.record.schemes.get(name)) for name in results.schemes)
    by_scheme = {name: view.by_distance for name, view in views if view is not None and view.by_distance is not None}
    return {name: curves for name, curves in by_scheme.items() if curves.curves and curves.distances}


def name_text(name: str) -> str:
    """Return a name from a file, every character visible, the middle of a long one omitted."""
    return cut(visible(name))


def scheme_name(name: str) -> str:
    """Return the name of a scheme for a sentence, in which a bare none would read as "no scheme"."""
    return f"“{name}”" if name == "none" else name_text(name)


def unit_of(results: Scored) -> str:
    """Return the unit of lengths."""
    return name_text(results.task.unit)


def length_text(results: Scored, length: int | None) -> str:
    """Return a tested length for a sentence, such as "at 32 arguments"; None is in length."""
    return "in length" if length is None else f"at {length} {unit_of(results)}"


def baseline_in_length(results: Scored, baseline: Mapping[int, float]) -> float | None:
    """Return the mean score of a baseline over the trained lengths; None where it has none."""
    values = [baseline[n] for n in results.task.tested_in_length if n in baseline]
    return sum(values) / len(values) if values else None


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


def bits_per_byte(results: Scored, score: float | None) -> float | None:
    """Return a loss in length in bits per byte of the tested text, which compares across tokenizers."""
    task = results.task
    size = 1.0 if task.measure == "nats per byte" else task.bytes_per_token.get(task.trained[0])
    return None if score is None or size is None else score / math.log(2) / size


def measure_text(results: Scored) -> str:
    """Return the measure with its unit and its better side."""
    side = "higher" if results.task.higher_is_better else "lower"
    return f"{name_text(results.task.measure)}{' in %' if results.percent else ''}; {side} is better"


def score_text(results: Scored, value: float, unit: bool = False) -> str:
    """Return a score for a sentence: a share in percent, a loss with its unit where requested."""
    if results.percent or not math.isfinite(value):
        return percent(value)
    return f"{decimals(value)}{NARROW}{name_text(results.task.measure)}" if unit else decimals(value)
