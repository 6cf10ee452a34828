"""E16: the first tutorial's own training, 50 epochs of an encoder, with its table of 64 features and with one of 256.

Most of what it decides are claims of the tutorial on numbers of that very training; they are judged with the runs.
"""

from whatwhere.evidence.bench import Bench, by_run
from whatwhere.evidence.record import Result, learning


def author(bench: Bench) -> list[Result]:
    """Train as the first tutorial does, in two widths."""
    results = bench.compare("author", ("sinusoidal", "sinusoidal@dim=256"), 3, task="expressions", recipe="author")
    solved = learning("E16.1", "The first tutorial's own training solves its task", "the first tutorial")
    return [bench.judge(solved, by_run(results, ["sinusoidal"], lambda run: run.in_length, learned=False))]
