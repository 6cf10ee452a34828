"""E16: 50 epochs of an encoder, as many as the first tutorial has, with its table of 64 features and with one of 256.

Most of what it decides are claims of the tutorial on numbers after so many; nothing else is stated there.
"""

from experiments.bench import Bench, by_run
from experiments.record import Result, learning


def author(bench: Bench) -> list[Result]:
    """Train as long as the first tutorial does, in two widths."""
    results = bench.compare("author", ("sinusoidal", "sinusoidal@dim=256"), 3, task="expressions", recipe="author")
    solved = learning("E16.1", "50 epochs, as many as the first tutorial has, solve its task", "the first tutorial")
    return [bench.judge(solved, by_run(results, ["sinusoidal"], lambda run: run.in_length, learned=False))]
