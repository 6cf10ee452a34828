"""Experiments on the expressions: E1, E2, E4, E14 and E16.

E1 and E2 are on accuracy beyond the trained length and under a shift, at plain and at randomized positions; E4 on what
the token table must hold; E14 on whether the order of schemes survives another learning rate, width and depth; E16 on
50 epochs of an encoder, as many as the first tutorial has, for claims on numbers after so many.
"""

from collections.abc import Callable, Sequence
from itertools import product

from experiments.bench import Bench, Pair, better, by_run, largest_logit_change, score, shifted
from experiments.record import Result, Statement, learning
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
        "number",
    )
    broken = Statement(
        "E1.3",
        "Sinusoids and learned positions break at a shift of one position",
        "this project",
        "accuracy at a shift of 1",
        "below 90 %",
    )
    last = Statement(
        "E1.4",
        "Last is what fails first beyond the trained length",
        "this project",
        "accuracy of Last minus accuracy of all, at 12 arguments",
        "below 0",
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
    pairs = [
        better(
            results,
            f"E2.{number}",
            f"Randomized positions raise the accuracy of {scheme} at twice the trained length",
            "Ruoss et al., 2023",
            f"{scheme} at randomized positions minus at plain ones, at {TWICE} arguments, in one seed",
            (f"{scheme}@randomized", scheme),
            TWICE,
            learned=False,
        )
        for number, scheme in enumerate(RANDOMIZED, 1)
    ]
    return bench.judge_differences(pairs)


def _lead(results: Comparison, id: str, first: str, second: str, source: str) -> Pair:
    says = f"At twice the trained length {first} is more accurate than {second}"
    quantity = f"{first} minus {second} at {TWICE} arguments, in one seed"
    return better(results, id, says, source, quantity, (first, second), TWICE)


def _lag_of_last(run: RunResult) -> float | None:
    last, every = score(TWICE, "Last")(run), score(TWICE)(run)
    return None if last is None or every is None else last - every


TABLES = ("learned", "frozen", "onehot", "rank2", "rank1", "ids")
DIMS = (16, 64, 256)
STEPS = 2500
"""800 suffice for a trained table, and are too few for others: one-hot rows then reach 93 % in the median."""


def table_contents(bench: Bench) -> list[Result]:
    """Compare token tables, widths of the model, and initial scales, with sinusoidal positions."""
    kinds = [f"sinusoidal@table={kind}" for kind in TABLES if kind != "learned"]
    widths = [f"sinusoidal@dim={dim}" for dim in DIMS if dim != 64]
    scales = ["sinusoidal@init=15.0", "sinusoidal@init=1.5"]
    schemes = ["sinusoidal", *kinds, *widths, *scales]
    results = bench.compare("expressions", schemes, 3, task="expressions", steps=STEPS)

    def solves(id: str, says: str, source: str, scheme: str, *, expected: bool = True) -> Result:
        return bench.judge(learning(id, says, source, expected=expected), _in_length(results, scheme))

    first = "the first tutorial says the opposite"
    return [
        solves("E4.1", "Random rows without training solve the expressions", first, "sinusoidal@table=frozen"),
        solves("E4.2", "One-hot rows without training solve the expressions", first, "sinusoidal@table=onehot"),
        solves("E4.3", "A table of rank 2 solves the expressions", first, "sinusoidal@table=rank2"),
        solves("E4.4", "A table of rank 1 does not", "this project", "sinusoidal@table=rank1", expected=False),
        solves("E4.5", "Raw ids as input do not", "the fifth tutorial", "sinusoidal@table=ids", expected=False),
        solves("E4.6", "16 features solve the expressions", first, "sinusoidal@dim=16"),
        solves("E4.7", "256 features do not overfit", first, "sinusoidal@dim=256"),
        bench.judge(
            Statement(
                "E4.8",
                "Token rows a hundred times as long drown the position: First, Second and Last fail",
                "this project",
                "accuracy of First in length",
                "below 70 %",
            ),
            by_run(results, ["sinusoidal@init=15.0"], lambda run: run.scores[6].get("First"), learned=False),
        ),
    ]


def _in_length(results: Comparison, scheme: str) -> list[float | None]:
    return by_run(results, [scheme], lambda run: run.in_length, learned=False)


SCHEMES = ("none", "sinusoidal", "rotary", "alibi", "t5", "kerple")
CHANGES = {
    "learning_rate=0.00067": "a third of the learning rate",
    "dim=128": "twice the width",
    "layers=3": "three layers",
}
ORDERS = (("alibi", "sinusoidal"), ("none", "rotary"))


def robustness(bench: Bench) -> list[Result]:
    """Repeat the length experiment with one setting changed at a time."""
    variants = [f"{scheme}@{change}" for change in CHANGES for scheme in SCHEMES]
    results = bench.compare("expressions", variants, 8, task="expressions", lengths=(8, TWICE, 16))
    pairs = [
        better(
            results,
            f"E14.{number}",
            f"With {CHANGES[change]} {first} is more accurate than {second} at twice the trained length",
            "this project, E1",
            f"{first} minus {second} at {TWICE} arguments, in one seed",
            (f"{first}@{change}", f"{second}@{change}"),
            TWICE,
        )
        for number, (change, (first, second)) in enumerate(product(CHANGES, ORDERS), 1)
    ]
    return bench.judge_differences(pairs, "no pair of runs learned the task")


def author(bench: Bench) -> list[Result]:
    """Train as long as the first tutorial does, in two widths."""
    results = bench.compare("author", ("sinusoidal", "sinusoidal@dim=256"), 3, task="expressions", recipe="author")
    solved = learning("E16.1", "50 epochs, as many as the first tutorial has, solve its task", "the first tutorial")
    return [bench.judge(solved, by_run(results, ["sinusoidal"], lambda run: run.in_length, learned=False))]
