"""E3: a language model of bytes, trained on short windows and tested on longer ones, in two protocols.

Windows that do not overlap score all bytes of a window, the first of which have little context. The last quarter of
each window is what a sliding window with a stride of a quarter scores: each byte has three quarters of a window before.
"""

from experiments.bench import Bench, paired, score
from experiments.record import Result, Statement, gain
from whatwhere.comparison.results import ALL, RunResult

WINDOW = 64
LENGTHS = (128, 256, 512)
SCHEMES = ("none", "sinusoidal", "rotary", "rotary/none", "alibi", "t5", "kerple", "rotary@randomized")
FREQUENCIES = ("rotary@rotary_dim=4", "rotary@theta=500000")
"""Rotate a quarter of the 16 features of a head; slower frequencies."""
LAST = "last quarter"

ORDERS = (
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


def text(bench: Bench) -> list[Result]:
    """Compare schemes on the Python documentation, in windows of 64 bytes to 512."""
    results = bench.compare("text", (*SCHEMES, *FREQUENCIES), 9, task="text", lengths=LENGTHS)
    pairs = [(_order(*order), paired(results, order[1], order[2], score(order[3]), learned=False)) for order in ORDERS]

    def rise(scheme: str, length: int, group: str) -> list[float | None]:
        return [_rise(run, length, group) for run in results.runs if run.scheme == scheme]

    flat = Statement(
        "E3.10",
        "ALiBi keeps its loss at four times the trained window",
        "Press et al., 2022",
        f"loss at 256 minus loss at {WINDOW}, all bytes",
        "below 0.03",
        lambda rise: rise < 0.03,
        "nats",
    )
    late = Statement(
        "E3.11",
        "ALiBi does not lower its loss with a longer context: what it gains is the early bytes'",
        "Press et al., 2022, appendix B",
        "loss at 256 minus loss at the trained window, last quarter of each",
        "above −0.03",
        lambda rise: rise > -0.03,
        "nats",
    )
    lost = Statement(
        "E3.12",
        "Rotary and sinusoids lose half a nat and more at twice the trained window",
        "Press et al., 2022",
        f"loss at 128 minus loss at {WINDOW}, all bytes",
        "above 0.5",
        lambda rise: rise > 0.5,
        "nats",
    )
    return [
        *bench.judge_differences(pairs),
        bench.judge(flat, rise("alibi", 256, ALL)),
        bench.judge(late, rise("alibi", 256, LAST)),
        bench.judge(lost, [each for scheme in ("rotary", "sinusoidal") for each in rise(scheme, 128, ALL)]),
    ]


def _order(id: str, first: str, second: str, length: int, source: str) -> Statement:
    says = f"{_AT[length]} {first} has a lower loss than {second}"
    quantity = f"loss of {second} minus loss of {first} at {length} bytes, in one seed"
    return gain(id, says, source, quantity, "nats")


def _rise(run: RunResult, length: int, group: str) -> float | None:
    there, inside = score(length, group)(run), score(WINDOW, group)(run)
    return None if there is None or inside is None else there - inside
