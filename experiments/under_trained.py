"""E10: whether the diagnostics of a token table rank first the tokens that training never showed, in a model of bytes.

The text of the Python documentation has about 107 of the 256 bytes, so which rows no training showed is known.
"""

import numpy as np

from experiments.bench import Bench, canonical
from experiments.record import Result, Statement
from whatwhere.analysis.diagnostics import diagnostics
from whatwhere.comparison.read import AFTER, BEFORE, Comparison
from whatwhere.comparison.results import RunResult
from whatwhere.comparison.text_task import Text

VARIANTS = {
    "rotary": "with rows that start at a standard deviation of 0.15",
    "rotary@init=0.02": "with rows that start at 0.02",
    "rotary@init=0.02,tied=true": "with tied rows that start at 0.02",
}
_ALL = 0.99


def under_trained(bench: Bench) -> list[Result]:
    """Train small models of bytes, and look for the bytes that the text does not have."""
    results = bench.compare("text", list(VARIANTS), 3, task="text", lengths=(128,))
    never = np.flatnonzero(Text().training_counts().numpy() == 0)
    source = "Land and Bartolo, 2024"
    rows = []
    for number, (variant, which) in enumerate(VARIANTS.items(), 1):
        runs = [run for run in results.runs if run.scheme == canonical(variant)]
        recall = Statement(
            f"E10.{number}",
            f"The tokens that training never showed rank first by their nearness to the reference rows, {which}",
            source,
            "share of these tokens among as many rows of greatest proximity",
            "at least 99 %",
            lambda share: share >= _ALL,
        )
        rows.append(bench.judge(recall, [_recall(results, run, never) for run in runs]))
    moved = Statement(
        "E10.4",
        "Beside the table before training, every token that training never showed is known",
        "this project",
        "greatest change of a row that training never showed, over the least change of another row",
        "below 1",
        lambda ratio: ratio < 1,
        "number",
    )
    untied = [run for run in results.runs if "tied" not in run.scheme]
    return [*rows, bench.judge(moved, [_change_ratio(results, run, never) for run in untied])]


def _recall(results: Comparison, run: RunResult, never: np.ndarray) -> float:
    proximity = diagnostics(results.tables(run)[AFTER].astype(np.float32)).proximity
    first = np.argsort(-proximity, kind="stable")[: len(never)]
    return float(np.isin(never, first).mean())


def _change_ratio(results: Comparison, run: RunResult, never: np.ndarray) -> float:
    tables = results.tables(run)
    change = np.linalg.norm(tables[AFTER] - tables[BEFORE], axis=1) / np.linalg.norm(tables[BEFORE], axis=1)
    return float(change[never].max() / np.delete(change, never).min())
