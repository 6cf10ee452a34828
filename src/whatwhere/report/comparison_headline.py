"""The first sentences of a comparison: what its medians are, what its seeds show, and what was not tested."""

import math
from collections.abc import Iterable

from whatwhere.comparison.read import Comparison
from whatwhere.comparison.statistics import PairedDifferences
from whatwhere.records import Missing
from whatwhere.report.comparison_sentences import (
    HOLDS,
    baseline_in_length,
    length_text,
    name_text,
    ranking,
    scheme_name,
    score_text,
)
from whatwhere.report.paired_differences import conclusion, last_length
from whatwhere.report.text import count, listed


def headline(results: Comparison, found: PairedDifferences | Missing) -> str:
    """Return the best and worst median at the longest length, and which differences the seeds show.

    Nothing is said of lengths beyond the trained ones where no scheme learned the task.

    Args:
        results: of a comparison.
        found: its paired differences at the longest length.
    """
    last = last_length(results)
    order = ranking(results, last)
    if not order:
        return "No scheme has a finite score at the longest tested length."
    if not any(learned(results, scheme) for scheme in results.schemes):
        return _not_learned(results)
    (best, high), (worst, low) = order[0], order[-1]
    text = _best_text(results, best, high, last)
    if worst != best:
        text += f"; {scheme_name(worst)} has the worst: {score_text(results, low)}"
    if absent := [scheme_name(scheme) for scheme in results.schemes if results.score(scheme, last) is None]:
        text += f"; {listed(absent)} {'has' if len(absent) == 1 else 'have'} no row there"
    holding = _holding(results)
    if 0 < len(holding) < len(results.beyond):
        lasting = listed([scheme_name(scheme) for scheme in holding[-1]])
        text += f". Longest to hold: {lasting}, to {results.beyond[len(holding) - 1]}"
    elif results.beyond and not holding:
        text += f". Not one holds even at {results.beyond[0]}"
    return " ".join(filter(None, (f"{text}.", conclusion(results, found))))


def scope_sentence(results: Comparison) -> str:
    """State what was not tested: another task, another size of model, another recipe."""
    settings = [results.settings(run) for run in results.runs]
    layers, heads = ({getattr(each, name) for each in settings} for name in ("layers", "heads"))
    dims, rates = ({getattr(each, name) for each in settings} for name in ("dim", "learning_rate"))
    model = [
        f"{_values(layers)} {'layer' if layers == {1} else 'layers'}",
        f"dim {_values(dims)}",
        f"{_values(heads)} {'head' if heads == {1} else 'heads'}",
        f"learning rate {_values(rates)}",
    ]
    one = all(len(values) == 1 for values in (layers, dims, heads, rates))
    return (
        f"These runs show one task ({name_text(results.task.name)}) and {'one model' if one else 'models of one kind'} "
        f"({', '.join(model)}). Another task, size or learning rate can order the schemes otherwise; it was not tested "
        "here."
    )


def _values(values: Iterable[int | float]) -> str:
    return listed([f"{value:g}" for value in sorted(values)])


def learned(results: Comparison, scheme: str) -> bool:
    """Return whether a scheme's median in length is better than that of every predictor that ignores positions.

    Args:
        results: of a comparison.
        scheme: its name.
    """
    score, blind = results.score(scheme, None), _blind(results).values()
    if score is None or not math.isfinite(score.median):
        return False
    return all(score.median > value if results.task.higher_is_better else score.median < value for value in blind)


def _blind(results: Comparison) -> dict[str, float]:
    """Return the scores in length of the predictors that ignore positions."""
    scores = {name: baseline_in_length(results, line) for name, line in results.task.baselines.items()}
    return {name: score for name, score in scores.items() if score is not None}


def _not_learned(results: Comparison) -> str:
    schemes, order, blind = count(len(results.schemes), "scheme"), ranking(results, None), _blind(results)
    if not order:
        return f"Of {schemes}, not one learned the task: no score in length is finite."
    name = (max if results.task.higher_is_better else min)(blind, key=lambda name: blind[name])
    return (
        f"Of {schemes}, not one learned the task: the best score in length is {score_text(results, order[0][1])} "
        f"({scheme_name(order[0][0])}), and a predictor without positions has {score_text(results, blind[name])} "
        f"({name_text(name)}). So nothing can be concluded on longer inputs: train longer."
    )


def _best_text(results: Comparison, best: str, score: float, length: int | None) -> str:
    inside, text = results.score(best, None), score_text(results, score, unit=True)
    schemes, name, where = count(len(results.schemes), "scheme"), scheme_name(best), length_text(results, length)
    average = "median" if len(results.record.seeds) > 1 else "score"
    if inside is None or length is None:
        return f"Of {schemes}, {name} has the best {average} {where}: {text}"
    text += f" (in length {score_text(results, inside.median)})"
    if _holds(results, best, score):
        return f"Of {schemes}, {name} has the best {average} {where} and holds: {text}"
    if len(results.schemes) == 1:
        return f"{name} does not hold {where}: {text}"
    return f"No scheme holds {where}; of {schemes}, {name} has the best {average} there: {text}"


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
    """Return whether a scheme that learned the task loses at most HOLDS of its score in length."""
    inside = results.score(scheme, None)
    sign = 1 if results.task.higher_is_better else -1
    return inside is not None and learned(results, scheme) and (inside.median - score) * sign <= HOLDS
