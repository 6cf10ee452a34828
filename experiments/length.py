"""E1 and E2: accuracy beyond the trained length, and when all positions are shifted; plain and randomized positions."""

from collections.abc import Callable, Sequence

from experiments.bench import Bench, by_run, largest_logit_change, paired, score, shifted
from experiments.record import Result, Statement, gain, learning
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import RunResult

QUICK = ("none", "sinusoidal", "learned", "rotary", "alibi")
FULL = (*QUICK, "t5", "kerple", "fire", "shaw", "cope", "fox", "ssmax", "xpos")
RANDOMIZED = ("sinusoidal", "rotary", "alibi")
TWICE = 12
"""Arguments: twice the trained length."""

LEADS = (
    ("E1.5", "alibi", "sinusoidal", "Press et al., 2022"),
    ("E1.6", "none", "rotary", "Kazemnejad et al., 2023"),
    ("E1.7", "none", "sinusoidal", "Kazemnejad et al., 2023"),
    ("E1.8", "t5", "rotary", "Kazemnejad et al., 2023"),
    ("E1.9", "kerple", "alibi", "Chi et al., 2022"),
    ("E1.10", "fire", "t5", "Li et al., 2024"),
)
"""Orders of two schemes that papers report: id, the better one, the other, source."""

Read = Callable[[RunResult], float | None]

RELATIVE = ("rotary", "alibi", "t5", "kerple")
ABSOLUTE = ("sinusoidal", "learned")


def length(bench: Bench) -> list[Result]:
    """Compare schemes on expressions of 1 to 6 arguments, tested to 32."""
    schemes, seeds = (QUICK, 8) if bench.quick else (FULL, 10)
    results = bench.compare("expressions", schemes, seeds, task="expressions")
    names = results.schemes

    def each(statement: Statement, schemes: Sequence[str], read: Read) -> Result:
        return bench.judge(statement, by_run(results, schemes, read), "no run learned the task")

    in_length = learning(
        "E1.1",
        "Within the trained length all schemes solve the task",
        "Vaswani et al., 2017, of sinusoids and learned positions",
    )
    unmoved = Statement(
        "E1.2",
        "Rotary, ALiBi, T5 and KERPLE do not notice a shift of all positions",
        "the schemes' formulas",
        "largest change of a logit at a shift of 60",
        "below 0.01",
        lambda change: change < 0.01,
        "number",
    )
    broken = Statement(
        "E1.3",
        "Sinusoids and learned positions break at a shift of one position",
        "this project",
        "accuracy at a shift of 1",
        "below 90 %",
        lambda accuracy: accuracy < 0.9,
    )
    last = Statement(
        "E1.4",
        "Last is what fails first beyond the trained length",
        "this project",
        "accuracy of Last minus accuracy of all, at 12 arguments",
        "below 0",
        lambda difference: difference < 0,
    )
    leads = bench.judge_differences(
        [_lead(results, *lead) for lead in LEADS if {lead[1], lead[2]} <= set(names)],
        "no pair of runs learned the task",
    )
    return [
        bench.judge(in_length, by_run(results, names, lambda run: run.in_length, learned=False)),
        each(unmoved, RELATIVE, largest_logit_change),
        each(broken, ABSOLUTE, shifted(1)),
        each(last, names, _lag_of_last),
        *leads,
    ]


def randomized(bench: Bench) -> list[Result]:
    """Compare plain with randomized positions."""
    schemes = [name for scheme in RANDOMIZED for name in (scheme, f"{scheme}@randomized")]
    results = bench.compare("expressions", schemes, 10, task="expressions")
    pairs = []
    for number, scheme in enumerate(RANDOMIZED, 1):
        statement = gain(
            f"E2.{number}",
            f"Randomized positions raise the accuracy of {scheme} at twice the trained length",
            "Ruoss et al., 2023",
            f"{scheme} at randomized positions minus at plain ones, at {TWICE} arguments, in one seed",
        )
        pairs.append((statement, paired(results, f"{scheme}@randomized", scheme, score(TWICE), learned=False)))
    return bench.judge_differences(pairs)


def _lead(
    results: Comparison, id: str, first: str, second: str, source: str
) -> tuple[Statement, Sequence[float | None]]:
    says = f"At twice the trained length {first} is more accurate than {second}"
    quantity = f"{first} minus {second} at {TWICE} arguments, in one seed"
    statement = gain(id, says, source, quantity)
    return statement, paired(results, first, second, score(TWICE))


def _lag_of_last(run: RunResult) -> float | None:
    last, every = score(TWICE, "Last")(run), score(TWICE)(run)
    return None if last is None or every is None else last - every
