"""E8: a model of bytes with rotary positions, extended to four times its window by each RoPE scaling, or by none."""

from experiments.bench import Bench, paired, score
from experiments.record import Result, gain

WINDOW, EXTENDED = 64, 256
SCHEMES = {
    "plain": "rotary",
    "linear": "rotary-linear",
    "NTK": "rotary-ntk",
    "YaRN": f"rotary-yarn@original_length={WINDOW}",
    "YaRN without its magnitude": f"rotary-yarn@attention_factor=1.0,original_length={WINDOW}",
    "none": "none",
}
"""Schemes by what they are called; the factor is 4, the catalogue's."""

ORDERS = (
    ("E8.1", "NTK", "linear", 0, "bloc97, 2023"),
    ("E8.2", "YaRN", "linear", 0, "Peng et al., 2023"),
    ("E8.3", "YaRN", "YaRN without its magnitude", 0, "Peng et al., 2023"),
    ("E8.4", "linear", "plain", 30, "Chen et al., 2023"),
    ("E8.5", "NTK", "plain", 30, "bloc97, 2023"),
    ("E8.6", "none", "plain", 300, "Gelberg et al., 2026 (DroPE)"),
)
"""Orders of two schemes: id, the better one, the other, after so many further steps, source."""


def context_extension(bench: Bench) -> list[Result]:
    """Train rotary on windows of 64 bytes, then go on with each scheme at 256, for 0 to 300 steps."""
    seeds = 8
    bench.compare("trained", ["rotary"], seeds, task="text", lengths=(128, EXTENDED))
    schemes = sorted({_name(SCHEMES[scheme], steps) for _, *pair, steps, _ in ORDERS for scheme in pair})
    start = f"{bench.folder / 'trained'}:rotary"
    options = {"trained": (EXTENDED,), "lengths": (2 * EXTENDED,), "batch": 6, "learning_rate": 1e-3}
    results = bench.compare("extended", schemes, seeds, task="text", start=start, **options)
    pairs = []
    for id, first, second, steps, source in ORDERS:
        after = "without further training" if steps == 0 else f"after {steps} further steps"
        statement = gain(
            id,
            f"At four times the trained window, {after}, {first} has a lower loss than {second}",
            source,
            f"loss of {second} minus loss of {first} at {EXTENDED} bytes, in one seed",
            "nats",
        )
        one, other = (_name(SCHEMES[scheme], steps) for scheme in (first, second))
        pairs.append((statement, paired(results, one, other, score(EXTENDED), learned=False)))
    return bench.judge_differences(pairs)


def _name(scheme: str, steps: int) -> str:
    return f"{scheme}{',' if '@' in scheme else '@'}steps={steps}"
