"""Say what scores by length show, all together and by group, and what moving every position costs."""

import math
from collections.abc import Sequence

from whatwhere.comparison.reading import Results
from whatwhere.comparison.telling.answer import ranking
from whatwhere.comparison.telling.wording import listed, named, scheme_named, score_text, spread_of, unit_of
from whatwhere.page.wording import capital

_STILL = 1e-3  # logits are of order 1 to 10 in float32: rounding moves them by 1e-5, a moved position by 0.1 and more
_APART = 0.05


def scores_seen(results: Results) -> str:
    """Say between which scores the schemes lie, and where seeds disagree most."""
    parts: list[str] = []
    if inside := ranking(results, None):
        low, high = (score_text(results, end) for end in sorted((inside[0][1], inside[-1][1])))
        between = f"the medians lie between {low} and {high}" if low != high else f"every median is {low}"
        parts.append(f"In length {between}")
    if results.beyond and (outside := ranking(results, results.beyond[-1])):
        least, most = sorted((outside[0], outside[-1]), key=lambda pair: pair[1])
        ends = [f"{score_text(results, score)} ({scheme_named(scheme)})" for scheme, score in (least, most)]
        at = f"{'at' if parts else 'At'} {results.beyond[-1]} {unit_of(results)}"
        parts.append(f"{at} between {ends[0]} and {ends[1]}" if len(outside) > 1 else f"{at} it is {ends[0]}")
    parts += _widest(results)
    return f"{'; '.join(parts)}." if parts else "No score is finite."


def _widest(results: Results) -> list[str]:
    """Say where seeds disagree most: one seed would have told another story there."""
    places = [
        (scheme, length, results.score(scheme, length)) for scheme in results.schemes for length in results.beyond
    ]
    found = [(s[2] - s[1], scheme, length, s) for scheme, length, s in places if s and math.isfinite(s[2] - s[1])]
    if not found or max(found)[0] == 0:
        return []
    _, scheme, length, (_, least, greatest) = max(found)
    between = f"{score_text(results, least)} to {score_text(results, greatest)}"
    return [f"seeds differ most for {scheme_named(scheme)} at {length}: {between}"]


def groups_seen(results: Results) -> str:
    """Say which group breaks first; nothing where there is none."""
    groups = [str(group) for group in results.task["groups"]]
    if not groups or not results.beyond:
        return ""
    sign = 1.0 if results.higher else -1.0
    for length in results.beyond:
        found = {group: s[0] for group in groups if (s := spread_of(_medians(results, group, length))) is not None}
        order = sorted(found, key=lambda group: sign * found[group])
        if len(found) > 1 and abs(found[order[0]] - found[order[-1]]) >= _APART:
            first, last = (score_text(results, found[order[end]]) for end in (0, -1))
            at = f"at {length} {unit_of(results)} the median over all schemes is {first}"
            return f"{capital(named(order[0]))} breaks first: {at}, against {last} for {named(order[-1])}."
    if len(groups) == 1:
        return f"The same scores for a part of each input: {named(groups[0])}."
    close = "5 points" if results.percent else f"0.05 {named(str(results.task['measure']))}"
    return f"None breaks before the others: their medians over all schemes stay within {close}."


def _medians(results: Results, group: str, length: int) -> list[float]:
    found = [results.score(scheme, length, group) for scheme in results.schemes]
    return [s[0] for s in found if s is not None and math.isfinite(s[0])]


def shift_seen(results: Results) -> str:
    """Say which schemes stay still when every position moves, and what the move costs others."""
    if not results.shifts:
        return "This run has no shift test."
    still, kept, moved, absent = [], [], [], []
    first = next((s for s in results.shifts if s > 0), 0)
    for scheme in results.schemes:
        changes = [results.shift(scheme, s, "largest_logit_change") for s in results.shifts]
        before, after = results.shift(scheme, 0, "score"), results.shift(scheme, first, "score")
        if all(c is not None and c[2] < _STILL for c in changes):
            still.append(scheme_named(scheme))
        elif before is None or after is None:
            absent.append(scheme_named(scheme))
        elif abs(before[0] - after[0]) < 0.005:
            kept.append(scheme_named(scheme))
        else:
            moved.append(
                f"{scheme_named(scheme)} from {score_text(results, before[0])} to {score_text(results, after[0])}"
            )
    parts = [
        *_told(still, "does", "do", "not change when every position moves"),
        *([f"a move of {first} takes {listed(moved)}"] if moved else []),
        *_told(kept, "keeps its score", "keep their scores", f"at {first}"),
        *_told(absent, "has", "have", "no row to move to"),
    ]
    said = "; ".join(parts)
    return f"{said}." if said.startswith(tuple(still + kept + absent)) else f"{capital(said)}."


def _told(names: Sequence[str], one: str, several: str, rest: str) -> list[str]:
    return [f"{listed(names)} {one if len(names) == 1 else several} {rest}"] if names else []
