"""E4: what the token table of the expressions must hold: trained rows or random ones, one-hot, of which rank."""

from experiments.bench import Bench, by_run
from experiments.record import Result, Statement, learning
from whatwhere.comparison.read import Comparison

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
                lambda share: share < 0.7,
            ),
            by_run(results, ["sinusoidal@init=15.0"], lambda run: run.scores[6].get("First"), learned=False),
        ),
    ]


def _in_length(results: Comparison, scheme: str) -> list[float | None]:
    return by_run(results, [scheme], lambda run: run.in_length, learned=False)
