"""E17: the layouts of today's models, where layers differ: rotary in a window, no positions or a temperature elsewhere.

Four layers, with windows of a quarter of the trained length, on text and on recall.
"""

from experiments.bench import Bench, paired, score
from experiments.record import Result, gain

LAYOUTS = (
    "rotary",
    "rotary@16",
    "rotary@16*3/rotary",
    "rotary@16*3/none",
    "rotary@16*3/none+temperature",
    "rotary@16,sink*3/rotary@sink",
)
"""Rotary everywhere; in a window alone (Mistral's first); and three of four layers in a window, the other global with
rotary positions (Gemma 3), without (Command A), with a temperature besides (Llama 4), or all with sinks (gpt-oss)."""
TEXT_LENGTHS, RECALL_LENGTHS = (128, 256), (12, 16, 20)

_TEXT = (
    ("E17.1", "rotary@16*3/none", "rotary", 256, "Yang et al., 2025"),
    ("E17.2", "rotary@16*3/none+temperature", "rotary@16*3/none", 256, "Llama 4"),
    ("E17.3", "rotary@16*3/rotary", "rotary", 64, "Gemma 3"),
    ("E17.4", "rotary@16,sink*3/rotary@sink", "rotary@16*3/rotary", 64, "gpt-oss"),
    ("E17.5", "rotary@16", "rotary", 256, "this project"),
)
"""Orders on text: id, the layout with the lower loss, the other, the window that is tested, source."""
_RECALL = (
    ("E17.6", "rotary@16*3/none", "rotary@16", 12, "this project"),
    ("E17.7", "rotary@16*3/none", "rotary", 16, "Yang et al., 2025"),
)
"""Orders on recall: id, the more accurate layout, the other, the pairs that are tested, source."""


def layouts(bench: Bench) -> list[Result]:
    """Compare six layouts on text, train short and test long, and on recall."""
    text = bench.compare("text", LAYOUTS, 9, task="text", lengths=TEXT_LENGTHS, layers=4, steps=1000)
    recall = bench.compare("recall", LAYOUTS, 9, task="recall", lengths=RECALL_LENGTHS, layers=4)
    pairs = []
    for id, first, second, length, source in _TEXT:
        says = f"At {length} bytes, trained on 64, {first} has a lower loss than {second}"
        statement = gain(
            id, says, source, f"loss of {second} minus loss of {first} at {length} bytes, in one seed", "nats"
        )
        pairs.append((statement, paired(text, first, second, score(length), learned=False)))
    for id, first, second, length, source in _RECALL:
        says = f"On recall of {length} pairs {first} is more accurate than {second}"
        statement = gain(id, says, source, f"accuracy of {first} minus that of {second} at {length} pairs, in one seed")
        pairs.append((statement, paired(recall, first, second, score(length), learned=False)))
    return bench.judge_differences(pairs)
