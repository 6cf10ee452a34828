"""E3, E8, E10 and E17: small models of bytes, trained on the Python documentation in windows of 64."""

import numpy as np

from experiments.bench import Bench, Pair, better, canonical, score
from experiments.record import Result, Statement
from whatwhere.analysis.diagnostics import diagnostics
from whatwhere.comparison.read import AFTER, BEFORE, Comparison
from whatwhere.comparison.results import ALL, RunResult
from whatwhere.comparison.tasks import Text

WINDOW = 64
"""Bytes, in training."""

SCHEMES = ("none", "sinusoidal", "rotary", "rotary/none", "alibi", "t5", "kerple", "rotary@randomized")
FREQUENCIES = ("rotary@rotary_dim=4", "rotary@theta=500000")
"""Rotate a quarter of the 16 features of a head; slower frequencies."""
LAST = "last quarter"
"""Of each window, which a sliding window with a stride of a quarter scores: each byte has three quarters before it.

Windows that do not overlap score all bytes of a window, the first of which have little context."""

LOWER_LOSSES = (
    ("E3.1", "rotary", "alibi", 64, "Su et al., 2021"),
    ("E3.2", "rotary", "none", 64, "this project"),
    ("E3.3", "alibi", "rotary", 256, "Press et al., 2022"),
    ("E3.4", "alibi", "t5", 256, "Press et al., 2022"),
    ("E3.5", "kerple", "alibi", 512, "Chi et al., 2022"),
    ("E3.6", "rotary@randomized", "rotary", 256, "Ruoss et al., 2023"),
    ("E3.7", "rotary/none", "rotary", 256, "Yang et al., 2025"),
    ("E3.8", "rotary@rotary_dim=4", "rotary", 64, "Barbero et al., 2024"),
    ("E3.9", "rotary@theta=500000", "rotary", 256, "Xiong et al., 2023"),
)
"""Orders of two schemes: id, the better one, the other, the window, source."""
_AT = {
    64: "Within the trained window",
    256: "At four times the trained window",
    512: "At eight times the trained window",
}

EXTENDED = 256
"""Bytes of a window that a trained model is extended to."""
SCALINGS = {
    "plain": "rotary",
    "linear": "rotary-linear",
    "NTK": "rotary-ntk",
    "YaRN": f"rotary-yarn@original_length={WINDOW}",
    "YaRN without its magnitude": f"rotary-yarn@attention_factor=1.0,original_length={WINDOW}",
    "none": "none",
}
"""Schemes by what they are called; the factor is 4, the catalogue's."""
EXTENSIONS = (
    ("E8.1", "NTK", "linear", 0, "bloc97, 2023"),
    ("E8.2", "YaRN", "linear", 0, "Peng et al., 2023"),
    ("E8.3", "YaRN", "YaRN without its magnitude", 0, "Peng et al., 2023"),
    ("E8.4", "linear", "plain", 30, "Chen et al., 2023"),
    ("E8.5", "NTK", "plain", 30, "bloc97, 2023"),
    ("E8.6", "none", "plain", 300, "Gelberg et al., 2026 (DroPE)"),
)
"""Orders of two schemes: id, the better one, the other, after so many further steps, source."""

STARTS = {
    "rotary": "with rows that start at a standard deviation of 0.15",
    "rotary@init=0.02": "with rows that start at 0.02",
    "rotary@init=0.02,tied=true": "with tied rows that start at 0.02",
}

LAYOUTS = (
    "rotary",
    "rotary@16",
    "rotary@16*3/rotary",
    "rotary@16*3/none",
    "rotary@16*3/none+temperature",
    "rotary@16,sink*3/rotary@sink",
)
"""Rotary everywhere; in a window alone (Mistral's first); and three of four layers in a window, the other global with
rotary positions (Gemma 3), without (Command A), with a temperature besides (Llama 4), or all with sinks (gpt-oss). A
window is a quarter of the trained length."""
LAYOUTS_ON_TEXT = (
    ("E17.1", "rotary@16*3/none", "rotary", 256, "Yang et al., 2025"),
    ("E17.2", "rotary@16*3/none+temperature", "rotary@16*3/none", 256, "Llama 4"),
    ("E17.3", "rotary@16*3/rotary", "rotary", 64, "Gemma 3"),
    ("E17.4", "rotary@16,sink*3/rotary@sink", "rotary@16*3/rotary", 64, "gpt-oss"),
    ("E17.5", "rotary@16", "rotary", 256, "this project"),
)
"""Orders on text: id, the layout with the lower loss, the other, the window that is tested, source."""
LAYOUTS_ON_RECALL = (
    ("E17.6", "rotary@16*3/none", "rotary@16", 12, "this project"),
    ("E17.7", "rotary@16*3/none", "rotary", 16, "Yang et al., 2025"),
)
"""Orders on recall: id, the more accurate layout, the other, the pairs that are tested, source."""


def text(bench: Bench) -> list[Result]:
    """E3: compare schemes in windows of 64 bytes to 512, in two protocols."""
    results = bench.compare("text", (*SCHEMES, *FREQUENCIES), 9, task="text", lengths=(128, 256, 512))
    pairs = [
        _lower_loss(results, id, _AT[length], (first, second), length, source)
        for id, first, second, length, source in LOWER_LOSSES
    ]

    def rise(scheme: str, length: int, group: str) -> list[float | None]:
        return [_rise(run, length, group) for run in results.runs if run.scheme == scheme]

    flat = Statement(
        "E3.10",
        "ALiBi keeps its loss at four times the trained window",
        "Press et al., 2022",
        f"loss at 256 minus loss at {WINDOW}, all bytes",
        "below 0.03",
        "nats",
    )
    late = Statement(
        "E3.11",
        "ALiBi does not lower its loss with a longer context: what it gains is the early bytes'",
        "Press et al., 2022, appendix B",
        "loss at 256 minus loss at the trained window, last quarter of each",
        "above −0.03",
        "nats",
    )
    lost = Statement(
        "E3.12",
        "Rotary and sinusoids lose half a nat and more at twice the trained window",
        "Press et al., 2022",
        f"loss at 128 minus loss at {WINDOW}, all bytes",
        "above 0.5",
        "nats",
    )
    return [
        *bench.judge_differences(pairs),
        bench.judge(flat, rise("alibi", 256, ALL)),
        bench.judge(late, rise("alibi", 256, LAST)),
        bench.judge(lost, [each for scheme in ("rotary", "sinusoidal") for each in rise(scheme, 128, ALL)]),
    ]


def context_extension(bench: Bench) -> list[Result]:
    """E8: train rotary on windows of 64 bytes, then go on with each RoPE scaling at 256, for 0 to 300 steps."""
    seeds = 8
    bench.compare("trained", ["rotary"], seeds, task="text", lengths=(128, EXTENDED))
    schemes = sorted({_further(scheme, steps) for _, *pair, steps, _ in EXTENSIONS for scheme in pair})
    start = f"{bench.folder / 'trained'}:rotary"
    options = {"trained": (EXTENDED,), "lengths": (2 * EXTENDED,), "batch": 6, "learning_rate": 1e-3}
    results = bench.compare("extended", schemes, seeds, task="text", start=start, **options)
    pairs = []
    for id, first, second, steps, source in EXTENSIONS:
        after = "without further training" if steps == 0 else f"after {steps} further steps"
        names = _further(first, steps), _further(second, steps)
        when = f"At four times the trained window, {after},"
        pairs.append(_lower_loss(results, id, when, (first, second), EXTENDED, source, names))
    return bench.judge_differences(pairs)


def under_trained(bench: Bench) -> list[Result]:
    """E10: whether the diagnostics of a token table rank first the tokens that training never showed.

    The text has about 107 of the 256 bytes, so which rows no training showed is known.
    """
    results = bench.compare("text", list(STARTS), 3, task="text", lengths=(128,))
    never = np.flatnonzero(Text().training_counts().numpy() == 0)
    rows = []
    for number, (variant, which) in enumerate(STARTS.items(), 1):
        runs = [run for run in results.runs if run.scheme == canonical(variant)]
        recall = Statement(
            f"E10.{number}",
            f"The tokens that training never showed rank first by their nearness to the reference rows, {which}",
            "Land and Bartolo, 2024",
            "share of these tokens among as many rows of greatest proximity",
            "at least 99 %",
        )
        rows.append(bench.judge(recall, [_recall(results, run, never) for run in runs]))
    moved = Statement(
        "E10.4",
        "Beside the table before training, every token that training never showed is known",
        "this project",
        "greatest change of a row that training never showed, over the least change of another row",
        "below 1",
        "number",
    )
    untied = [run for run in results.runs if "tied" not in run.scheme]
    return [*rows, bench.judge(moved, [_change_ratio(results, run, never) for run in untied])]


def layouts(bench: Bench) -> list[Result]:
    """E17: compare six layouts of today's models, where layers differ, on text and on recall."""
    text = bench.compare("text", LAYOUTS, 9, task="text", lengths=(128, 256), layers=4, steps=1000)
    recall = bench.compare("recall", LAYOUTS, 9, task="recall", lengths=(12, 16, 20), layers=4)
    pairs = [
        _lower_loss(text, id, f"At {length} bytes, trained on {WINDOW},", (first, second), length, source)
        for id, first, second, length, source in LAYOUTS_ON_TEXT
    ]
    for id, first, second, length, source in LAYOUTS_ON_RECALL:
        says = f"On recall of {length} pairs {first} is more accurate than {second}"
        quantity = f"accuracy of {first} minus that of {second} at {length} pairs, in one seed"
        pairs.append(better(recall, id, says, source, quantity, (first, second), length, learned=False))
    return bench.judge_differences(pairs)


def _lower_loss(
    results: Comparison,
    id: str,
    when: str,
    pair: tuple[str, str],
    length: int,
    source: str,
    schemes: tuple[str, str] | None = None,
) -> Pair:
    """Return the statement that the first of two schemes has the lower loss; `schemes` are their names in results."""
    first, second = pair
    says = f"{when} {first} has a lower loss than {second}"
    quantity = f"loss of {second} minus loss of {first} at {length} bytes, in one seed"
    return better(results, id, says, source, quantity, schemes or pair, length, learned=False)


def _rise(run: RunResult, length: int, group: str) -> float | None:
    there, inside = score(length, group)(run), score(WINDOW, group)(run)
    return None if there is None or inside is None else there - inside


def _further(scaling: str, steps: int) -> str:
    """Return the name of a scheme that is trained for further steps."""
    scheme = SCALINGS[scaling]
    return f"{scheme}{',' if '@' in scheme else '@'}steps={steps}"


def _recall(results: Comparison, run: RunResult, never: np.ndarray) -> float:
    proximity = diagnostics(results.tables(run)[AFTER].astype(np.float32)).proximity
    first = np.argsort(-proximity, kind="stable")[: len(never)]
    return float(np.isin(never, first).mean())


def _change_ratio(results: Comparison, run: RunResult, never: np.ndarray) -> float:
    tables = results.tables(run)
    change = np.linalg.norm(tables[AFTER] - tables[BEFORE], axis=1) / np.linalg.norm(tables[BEFORE], axis=1)
    return float(change[never].max() / np.delete(change, never).min())
