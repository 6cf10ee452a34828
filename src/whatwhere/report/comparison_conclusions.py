"""What can be concluded from a comparison: its first sentences, and which schemes differ, seed by seed."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from whatwhere.comparison.read import Comparison, Scored
from whatwhere.comparison.results import TaskDescription
from whatwhere.comparison.statistics import Difference, PairedDifferences
from whatwhere.records import Missing
from whatwhere.report.comparison_sentences import (
    HOLDS,
    blind_scores,
    learned,
    length_text,
    name_text,
    ranking,
    scheme_name,
    score_text,
)
from whatwhere.report.section import Part, Table
from whatwhere.report.text import NARROW, capital, count, decimals, listed, number, percent

ABSENT = "–"
COLUMNS = ("better in the mean", "than", "by", "95 % interval", "better in", "effect", "p", "p (Holm)", "conclusion")
_CONCLUSIONS = {"better": "better", "not separated": "not separated by these seeds", "too few seeds": "too few seeds"}
_ELSEWHERE = {
    "expressions": " The repository of whatwhere has the same schemes on text and other tasks, docs/evidence.md, and "
    "what tutorials claim of them beside what was measured, docs/errata.md."
}
"""Where the same schemes are measured on other tasks, beside the task of the demo."""
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def headline(results: Comparison, found: PairedDifferences | Missing) -> str:
    """Return the best and worst median at the longest length, and which differences the seeds show.

    Nothing is said of lengths beyond the trained ones where no scheme learned the task.
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
    holding, until = results.schemes, 0  # those that hold up to a length, as far as any does
    for length in results.beyond:
        lasting = [s for s, score in ranking(results, length) if s in holding and _holds(results, s, score)]
        if not lasting:
            held = listed([scheme_name(scheme) for scheme in holding])
            text += f". Longest to hold: {held}, to {until}" if until else f". Not one holds even at {length}"
            break
        holding, until = lasting, length
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
    if (own := results.record.model) is not None:
        read = [text for name, text in zip(("layers", "dim", "heads"), model, strict=False) if name in own.reads]
        model = [f"your own, {name_text(own.name)}", *read, model[-1]]
    return (
        f"These runs show one task ({name_text(results.task.name)}) and {'one model' if one else 'models of one kind'} "
        f"({', '.join(model)}). Another task, size or learning rate can order the schemes otherwise; it was not tested "
        f"here.{_ELSEWHERE.get(results.task.name, '')}{_tokenizer_sentence(results.task)}"
    )


def _tokenizer_sentence(task: TaskDescription) -> str:
    if (text := task.tokenized) is None:
        return ""
    unknown = f", {text.unknown:.2%} of them unknown" if text.unknown else ""
    name = name_text("/".join(PurePath(text.tokenizer).parts[-2:]))
    size = task.bytes_per_token.get(task.trained[0])
    tested = "" if size is None else f" ({size:.2f} in the part that is tested in length)"
    bits = "" if size is None else ", but bits per byte do, of nearly the same tested part"
    return (
        f" The text has {text.tokens:,} tokens of {name}{unknown}, of {text.bytes_per_token:.2f} bytes in the "
        f"mean{tested}: losses per token of another tokenizer do not compare with these{bits}."
    )


def last_length(results: Scored) -> int | None:
    """Return the longest tested length beyond the trained ones; None, which is in length, where there is none."""
    return results.beyond[-1] if results.beyond else None


def conclusions(results: Comparison, found: PairedDifferences | Missing) -> Iterator[Part]:
    """Return which schemes the seeds separate, how that was tested, and the table of differences."""
    yield conclusion(results, found)
    yield method_sentence(results, found)
    if isinstance(found, PairedDifferences) and found.pairs:
        yield table(results, found)


def conclusion(results: Comparison, found: PairedDifferences | Missing) -> str:
    """State which schemes the seeds show to be better, or why they show none; "" where there is nothing to compare."""
    if isinstance(found, Missing):
        return f"Which scheme is better was not tested: {found.missing}."
    if not found.pairs:
        return ""
    if not found.enough_seeds:
        return _too_few(found)
    best = next(scheme for scheme, _ in ranking(results, found.length) if scheme not in found.left_out)
    own = [pair for pair in found.pairs if best in (pair.first, pair.second)]
    parts = [*_about(results, own, best)]
    if others := [pair.outcome == "better" for pair in found.pairs if pair not in own]:
        several = f"{sum(others)} of {len(others)} other pairs" if len(others) > 1 else "the other pair"
        separated = several if any(others) else "no other pair"
        parts.append(f"{separated} {'is' if sum(others) < 2 else 'are'} separated")
    return f"{capital('; '.join(parts))}."


def method_sentence(results: Comparison, found: PairedDifferences | Missing) -> str:
    """Describe the test, its correction and the intervals; "" where there are no differences."""
    if isinstance(found, Missing) or not found.pairs:
        return ""
    varied = any(run.varied for run in results.runs)
    shared = "test sets and what their settings leave equal" if varied else "initial tokens, batches and test sets"
    pairs = "every pair of schemes" if found.against is None else f"every scheme against {scheme_name(found.against)}"
    return (
        f"Runs of one seed share {shared}, so {pairs} is compared seed by seed. p: exact "
        f"two-sided sign-flip permutation test of the mean difference; p (Holm): corrected for {_family(found)}; a "
        f"difference is claimed up to {decimals(found.level, 2)}. Intervals are 95{NARROW}% intervals of Student's t "
        "for the mean of one pair, without that correction, from five seeds on; of very skewed differences they are "
        "too narrow. Effect: Hedges' g of the paired differences."
    )


def table(results: Scored, found: PairedDifferences, rows: int | None = None) -> Table:
    """Return the table of differences: at most so many rows of pairs, those with the best scheme first."""
    best = next((scheme for scheme, _ in ranking(results, found.length) if scheme not in found.left_out), None)
    pairs = sorted(found.pairs, key=lambda pair: best not in (pair.first, pair.second))
    unit = "points" if results.percent else name_text(results.task.measure)
    caption = (
        f"Paired differences {length_text(results, found.length)}: by how much the first scheme is better, mean over "
        f"{count(len(found.seeds), 'seed')}, {unit}"
    )
    return Table(caption, COLUMNS, [_cells(results, pair) for pair in pairs[:rows]], range(2, 8), len(pairs))


def _cells(results: Scored, pair: Difference) -> list[str]:
    """Return the cells of a pair, under COLUMNS."""
    ahead, effect = f"{pair.ahead} of {len(pair.gains)}", ABSENT if pair.effect is None else decimals(pair.effect, 2)
    tested = number(pair.p, 2), number(pair.p_holm, 2), _CONCLUSIONS[pair.outcome]
    gain = _amount(results, pair.mean), _interval(results, pair) or ABSENT
    return [name_text(pair.first), name_text(pair.second), *gain, ahead, effect, *tested]


def _interval(results: Scored, pair: Difference) -> str:
    ends = pair.interval
    return "" if ends is None else f"{_amount(results, ends.low)} to {_amount(results, ends.high)}"


def _values(values: Iterable[int | float]) -> str:
    return listed([f"{value:g}" for value in sorted(values)])


def _not_learned(results: Comparison) -> str:
    schemes, order, blind = count(len(results.schemes), "scheme"), ranking(results, None), blind_scores(results)
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
    alone = len(results.schemes) == 1
    if inside is None or length is None:
        return f"{name}: {text} {where}" if alone else f"Of {schemes}, {name} has the best {average} {where}: {text}"
    text += f" (in length {score_text(results, inside.median)})"
    if alone:
        return f"{name} {'holds' if _holds(results, best, score) else 'does not hold'} {where}: {text}"
    if _holds(results, best, score):
        return f"Of {schemes}, {name} has the best {average} {where} and holds: {text}"
    return f"No scheme holds {where}; of {schemes}, {name} has the best {average} there: {text}"


def _holds(results: Comparison, scheme: str, score: float) -> bool:
    """Return whether a scheme that learned the task loses at most HOLDS of its score in length."""
    inside = results.score(scheme, None)
    sign = 1 if results.task.higher_is_better else -1
    return inside is not None and learned(results, scheme) and (inside.median - score) * sign <= HOLDS


def _too_few(found: PairedDifferences) -> str:
    seeds, many = len(found.seeds), _family(found)
    written = _NUMBERS[seeds - 1] if seeds <= len(_NUMBERS) else str(seeds)
    return (
        f"{capital(written)} {'seed' if seeds == 1 else 'seeds'} cannot show any difference at the "
        f"{percent(found.level, 0)} level: {many} {'needs' if found.family == 1 else 'need'} at least "
        f"{found.seeds_needed} seeds. Treat the order of schemes as a hint."
    )


def _family(found: PairedDifferences) -> str:
    return count(found.family, "pair of schemes", "pairs of schemes")


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
            unit = "points" if results.percent else name_text(results.task.measure)
            shown += f" by {_amount(results, pair.mean)} {unit}, the mean of the paired differences"
            tested = f"{ends and f'95{NARROW}% interval {ends}; '}p = {number(pair.p_holm, 2)}, Holm"
        yield f"{shown} ({tested})"
    if lost:
        yield f"yet in the mean {listed(lost)} {'is' if len(lost) == 1 else 'are'} better than {name}"
    if open_:
        yield f"these seeds do not separate {name} from {listed(open_, 'or')}"


def _amount(results: Scored, value: float) -> str:
    return decimals(100 * value, 1) if results.percent else decimals(value, 3)
