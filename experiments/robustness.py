"""E14: whether the order of schemes beyond the trained length survives another learning rate, width and depth."""

from experiments.bench import Bench, paired, score
from experiments.length import TWICE
from experiments.record import Result, gain

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
    pairs, number = [], 0
    for change, words in CHANGES.items():
        for first, second in ORDERS:
            number += 1
            statement = gain(
                f"E14.{number}",
                f"With {words} {first} is more accurate than {second} at twice the trained length",
                "this project, E1",
                f"{first} minus {second} at {TWICE} arguments, in one seed",
            )
            pairs.append((statement, paired(results, f"{first}@{change}", f"{second}@{change}", score(TWICE))))
    return bench.judge_differences(pairs, "no pair of runs learned the task")
