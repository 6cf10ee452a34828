"""What the tutorials claim, beside what these runs measured: each verdict is computed, none is written down."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from whatwhere.comparison.measure import spread
from whatwhere.where.catalogue import catalogue

Verdict = dict[str, str]
Outcome = Literal["holds", "fails", "depends", "not measured"]
_Runs = Sequence[Mapping[str, Any]]
_UNEXPLAINED: Mapping[Outcome, str] = {
    "holds": "Not what earlier runs showed; look at each run before you believe it.",
    "fails": "Not what earlier runs showed; look at each run before you believe it.",
    "depends": "The runs disagree; more seeds, or a look at each scheme, would tell.",
    "not measured": "",
}


def verdicts(runs: _Runs, task: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Verdict]:
    """Judge the first tutorial's claims by the runs of the expressions task; none for another task.

    "Depends" is said where runs disagree with each other: their range lies on both sides of the line.
    """
    if task["name"] != "expressions":
        return []
    return [*_table_verdicts(runs), *_position_verdicts(runs, task, settings)]


def _table_verdicts(runs: _Runs) -> list[Verdict]:
    def at_end(read: Callable[[Mapping[str, Any]], float | None]) -> list[float]:
        found = [read(run["story"]["snapshots"][-1]) for run in runs if run.get("story")]
        return [value for value in found if value is not None]

    def cosine(name: str) -> list[float]:
        return at_end(lambda story: story["cosine"][name])

    starts = [run["story"]["snapshots"][0]["table"]["std"] for run in runs if run.get("story")]
    largest = at_end(lambda story: max(-story["table"]["min"], story["table"]["max"]))
    return [
        _judge(
            "Max and Min end up alike, for both choose by size",
            "similar vectors",
            cosine("Max-Min"),
            lambda value: value > 0.3,
            "cosine {}",
            "They are asked opposite questions of the same digits, and training pushes them apart.",
        ),
        _judge(
            "The digits form a cluster",
            "similar vectors",
            cosine("within digits"),
            lambda value: value > 0.3,
            "mean cosine {}",
            "The model orders the digits along a line through their mean; it does not pull them together.",
        ),
        _judge(
            "The operators form a cluster",
            "similar vectors",
            cosine("within operators"),
            lambda value: value > 0.3,
            "mean cosine {}",
            "What tells operators apart is all that they carry.",
        ),
        _judge(
            "The brackets and the comma form a cluster",
            "similar vectors",
            cosine("within syntax"),
            lambda value: value > 0.3,
            "mean cosine {}",
            "They carry the same, so they drift together, which a small start lets show and a large one hides.",
            expected="any",
        ),
        _judge(
            "The digits come to lie on a number line",
            "not claimed by the tutorial",
            at_end(lambda story: story["number_line"]),
            lambda value: value > 0.8,
            "|r| {} between 0..9 and the main direction in which the digits moved",
            "Max and Min need the order of the digits, and the table is where it is kept.",
            expected="holds",
        ),
        _judge(
            "The spread of the table grows from 0.15 to 0.8",
            "0.8 after 50 epochs",
            at_end(lambda story: story["table"]["std"]),
            lambda value: value > 0.6,
            "from " + _range(starts) + " to {}",
            "The loss is near 0 long before; what is left to gain moves the table no further.",
        ),
        _judge(
            "The values of the table reach ±2.5",
            "±2.5 after 50 epochs",
            largest,
            lambda value: value > 2.0,
            "largest value {}",
            "Growth follows the learning rate times the steps with a gradient, not a wish to use a range.",
        ),
        _judge(
            "The mean of the table stays near 0",
            "0",
            at_end(lambda story: story["table"]["mean"]),
            lambda value: abs(value) < 0.05,
            "{}",
            "Nothing in the loss asks for a common offset; what drift there is, is small beside the spread.",
            expected="holds",
        ),
    ]


def _position_verdicts(runs: _Runs, task: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Verdict]:
    lengths = [length for length in settings["lengths"] if length > max(task["trained"])]
    far = str(max(lengths)) if lengths else None

    def of(scheme: str) -> _Runs:
        return [run for run in runs if run["scheme"] == scheme]

    def beyond(scheme: str) -> list[float]:
        found = [run["scores"][far]["all"] for run in of(scheme)] if far else []
        return [value for value in found if value is not None]

    def drop(run: Mapping[str, Any]) -> float | None:
        moved = run["shift"]["1"]["score"]
        return None if moved is None else run["shift"]["0"]["score"] - moved

    def first_in_length(run: Mapping[str, Any]) -> list[float]:
        found = [found["First"] for n, found in run["scores"].items() if int(n) in task["trained"]]
        return [value for value in found if value is not None]

    rows = {name: row for name, row in catalogue.items() if row.relative and not row.follows_length}
    relative = [run for run in runs if run["scheme"] in rows]
    moves = [change for run in relative if (change := run["shift"]["60"]["largest_logit_change"]) is not None]
    drops = [change for run in of("sinusoidal") if (change := drop(run)) is not None]
    starts = [run["story"]["snapshots"][0] for run in of("sinusoidal") if run.get("story")]
    shares = [start["with_position"]["std"] / start["table"]["std"] for start in starts if start["with_position"]]
    decoder = settings["direction"] == "decoder" and settings["layers"] > 1
    at_far = f"{far} arguments" if far else "no length beyond"
    return [
        _judge(
            "Without positions, First(1,6,2) and First(6,2,1) cannot be told apart",
            "impossible",
            [min(found) for run in of("none") if (found := first_in_length(run))],
            lambda value: value < 0.7,
            "First is right in {} of the expressions of trained lengths",
            "A causal decoder of two layers finds places out by what each token can see."
            if decoder
            else "An encoder sees a set; only the causal mask tells a decoder what came first.",
            expected="fails" if decoder else "holds",
            percent=True,
        ),
        _judge(
            "Sinusoidal positions generalize to longer sequences",
            "arbitrary lengths",
            beyond("sinusoidal"),
            lambda value: value > 0.95,
            f"{{}} right at {at_far}",
            "They are defined everywhere, but the model has never seen what they say beyond the trained length.",
            percent=True,
        ),
        _judge(
            "Learned positions end with their table",
            "no longer sequences",
            [float(run["scores"][far]["all"] is None) for run in of("learned")] if far else [],
            lambda value: value == 1.0,
            f"no row for {at_far}, in {{}} of the runs",
            "There is no row to look up; a spare row would never have been trained.",
            expected="holds",
            percent=True,
        ),
        _judge(
            "Position does not dominate the token",
            "significant, but not dominating",
            shares,
            lambda value: value < 2.0,
            "adding position multiplies the spread at the start by {}",
            "A sinusoid has an RMS of 0.71; the first Transformer multiplies its tokens by sqrt(dim) for this reason.",
        ),
        _judge(
            "Absolute positions serve wherever a sequence starts",
            "implied by: one encoding for all lengths",
            drops,
            lambda value: value < 0.05,
            "moved by one position, sinusoidal loses {} of its answers",
            "What it learned belongs to the places it was trained at.",
            percent=True,
        ),
        _judge(
            "Relative schemes do not notice where a sequence starts",
            "no change",
            moves,
            lambda value: value < 1e-2,
            "largest change of a logit, moved by 60: {}",
            "Only distances enter the scores; what is left is rounding.",
            expected="holds",
        ),
    ]


def _judge(
    claim: str,
    claimed: str,
    values: Sequence[float],
    holds: Callable[[float], bool],
    words: str,
    why: str,
    *,
    expected: Outcome | Literal["any"] = "fails",
    percent: bool = False,
) -> Verdict:
    verdict: Outcome = "not measured"
    if values:
        outcomes = {holds(value) for value in values}
        verdict = "depends" if len(outcomes) > 1 else "holds" if outcomes.pop() else "fails"
    if not values or expected not in (verdict, "any"):
        # The reason was written for the outcome that is known; another one is not explained by it.
        why = _UNEXPLAINED[verdict]
    measured = words.format(_range(values, percent)) if values else "not in this comparison"
    return {"claim": claim, "claimed": claimed, "measured": measured, "verdict": verdict, "why": why}


def _range(values: Sequence[float], percent: bool = False) -> str:
    """Write median and range, as in "0.19 (0.18 to 0.20)"."""
    found = spread(values)
    if found is None:
        return "unknown"

    def show(value: float) -> str:
        shown = f"{100 * value:.1f} %" if percent else f"{value:.2g}" if abs(value) < 0.1 else f"{value:.2f}"
        return shown.replace("-", "−")

    median, low, high = (show(found[name]) for name in ("median", "min", "max"))
    return median if low == high else f"{median} ({low} to {high})"
