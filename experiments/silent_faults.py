"""E13: what silent faults about positions cost trained models, and which law of `whatwhere.testing` detects each.

A fault is in a scheme, or in the positions that a right scheme gets. Models are trained without it and used with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from experiments.bench import Bench, by_run
from experiments.expressions import TWICE
from experiments.faulty_schemes import (
    Bfloat16Rotary,
    MisprintedSinusoid,
    divide_slopes,
    divided_alibi,
    misprinted_sinusoid,
    other_theta,
)
from experiments.record import FaultRow, Result, Statement, learning
from whatwhere.comparison.measure import evaluation_set
from whatwhere.comparison.model import Build, SchemeLike, Transformer
from whatwhere.comparison.plan import make_task
from whatwhere.comparison.read import Comparison
from whatwhere.comparison.results import ALL, Spread, spread
from whatwhere.comparison.saved_model import load_model
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Batch, Task
from whatwhere.position.positions import Positions, positions
from whatwhere.testing import check_bias, check_input_encoding, check_rotary
from whatwhere.testing.report import Report
from whatwhere.where.base import QueryKeyMap
from whatwhere.where.binding import Where
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.scaling import YaRN
from whatwhere.where.score_bias import ScoreBias

OTHER_LAYOUT, OTHER_THETA = "pairs of the other layout", "theta of another model, 500,000"
BFLOAT16, DIVIDED = "angles in bfloat16", "slopes divided by the root of head_dim"
"""Names of faults in schemes."""

PADDING = 4
"""Padding tokens before each sequence, in the fault that attends to them."""

Fed = tuple[Tensor, Positions]
"""Ids and positions as a program feeds them to a model; the last token is the one whose logits are read."""


@dataclass(frozen=True)
class Laws:
    """What the checks of `whatwhere.testing` find in a faulty scheme.

    Args:
        check: the name of the check.
        failed: the laws that fail.
        decoding: whether the rows of a query alone are those among others, so that cached decoding agrees with the
            full pass, and a test that compares the two finds nothing.
    """

    check: str
    failed: tuple[str, ...]
    decoding: bool


def misprinted_sinusoid_laws() -> Laws:
    """Check the misprinted sinusoid."""
    encoding = MisprintedSinusoid(64)
    return _laws(check_input_encoding(lambda p: encoding(p)[0], dim=64), "any order")


def divided_alibi_laws() -> Laws:
    """Check ALiBi whose slopes are divided by the root of head_dim."""
    bias = divide_slopes(num_heads=4, head_dim=16)
    report = check_bias(lambda q, k, dtype=None: bias(q, k, dtype=dtype)[0], num_heads=4, expected="alibi")
    return _laws(report, "decoding")


def rotary_laws(scheme: QueryKeyMap, expected: Rotary) -> Laws:
    """Check a faulty rotary scheme against the one that the weights were trained with."""
    report = check_rotary(
        lambda x, p: scheme(x, x, p)[0],
        head_dim=expected.head_dim,
        theta=expected.theta,
        interleaved=expected.interleaved,
        scaling=expected.scaling,
    )
    return _laws(report, "any positions")


@dataclass(frozen=True)
class FaultyScheme:
    """A fault in the scheme of a trained model.

    Args:
        fault: in a few words, a key of `scheme_laws`.
        scheme: that the models are trained with.
        replace: returns the faulty scheme for a right one.
        shift: added to all positions, of the right model too.
    """

    fault: str
    scheme: str
    replace: Callable[[QueryKeyMap | ScoreBias], QueryKeyMap | ScoreBias]
    shift: int = 0

    @property
    def name(self) -> str:
        """The fault, with the position from which sequences begin, where that is not 0."""
        return f"{self.fault}, from position {self.shift:,}" if self.shift else self.fault


@dataclass(frozen=True)
class FaultyPositions:
    """A fault in the positions that a right model is given.

    Args:
        name: in a few words.
        scheme: that the models are trained with.
        right, faulty: what a program feeds for a batch of ids.
    """

    name: str
    scheme: str
    right: Callable[[Tensor], Fed]
    faulty: Callable[[Tensor], Fed]


def scheme_faults() -> list[FaultyScheme]:
    """Return the faults in schemes, for models with heads of any size."""
    rotaries: list[FaultyScheme] = [
        FaultyScheme(OTHER_LAYOUT, "rotary", lambda r: Rotary(_head_dim(r), interleaved=True)),
        FaultyScheme(OTHER_THETA, "rotary", lambda r: other_theta(_head_dim(r))),
    ]
    rotaries += [
        FaultyScheme(BFLOAT16, "rotary", lambda r: Bfloat16Rotary(_head_dim(r)), at)
        for at in (0, 4_096, 100_000, 1_000_000)
    ]
    return [*rotaries, FaultyScheme(DIVIDED, "alibi", lambda _: divide_slopes(4, 16))]


def position_faults() -> list[FaultyPositions]:
    """Return the faults in positions."""
    faults: list[FaultyPositions] = []
    for scheme in ("sinusoidal", "rotary", "alibi"):
        faults += [
            FaultyPositions("positions not restarted in a pack", scheme, _packed, _not_restarted),
            FaultyPositions(f"{PADDING} padding tokens attended to", scheme, _padded, _unmasked),
            FaultyPositions("KV cache off by one", scheme, _plain, _off_by_one),
        ]
    return faults


@torch.no_grad()
def cost_of_scheme(
    fault: FaultyScheme, laws: Laws, models: Sequence[Transformer], task: Task, settings: Settings, length: int
) -> FaultRow:
    """Measure what a fault in the scheme costs trained models."""

    def at_shift(ids: Tensor) -> Fed:
        return ids, positions(ids.shape[1], start=fault.shift)

    faulty = [with_scheme(model, fault.replace) for model in models]
    cost = _cost((models, at_shift), (faulty, at_shift), task, settings, length)
    return FaultRow(fault.name, fault.scheme, "scheme", *cost, laws.failed, laws.decoding)


@torch.no_grad()
def cost_of_positions(
    fault: FaultyPositions, models: Sequence[Transformer], task: Task, settings: Settings, length: int
) -> FaultRow:
    """Measure what a fault in positions costs trained models."""
    cost = _cost((models, fault.right), (models, fault.faulty), task, settings, length)
    return FaultRow(fault.name, fault.scheme, "positions", *cost, (), None)


def with_scheme(
    model: Transformer, change: Callable[[QueryKeyMap | ScoreBias], QueryKeyMap | ScoreBias]
) -> Transformer:
    """Return a model with the same weights, whose layers have another query_key scheme or score bias."""
    changed = Transformer.__new__(Transformer)
    nn.Module.__init__(changed)
    for name, module in model.named_children():
        setattr(changed, name, module)
    changed.wheres = nn.ModuleList(_changed(where, change) for where in model.layer_wheres)
    changed.lm_head = model.lm_head
    return changed.eval()


Used = tuple[Sequence[Transformer], Callable[[Tensor], Fed]]
"""Models, and what a program feeds them for a batch of ids."""


def _cost(
    right: Used, faulty: Used, task: Task, settings: Settings, length: int
) -> tuple[dict[str, Spread], dict[str, Spread], Spread]:
    """Return accuracy by length, right and faulty, and the largest change of a logit of each model."""
    sets = {n: evaluation_set(task, n, settings) for n in (*task.tested_in_length, length)}
    one, other = ([_accuracies(model, sets, task, feed) for model in models] for models, feed in (right, faulty))
    shown = sets[max(task.tested_in_length)]
    changes = [
        (_logits(good, *right[1](shown.ids)) - _logits(bad, *faulty[1](shown.ids))).abs().max().item()
        for good, bad in zip(right[0], faulty[0], strict=True)
    ]
    return _by_length(one), _by_length(other), _spread(changes)


def _accuracies(
    model: Transformer, sets: Mapping[int, Batch], task: Task, feed: Callable[[Tensor], Fed]
) -> dict[str, float]:
    share = {
        n: (_logits(model, *feed(each.ids)).argmax(-1) == each.targets).float().mean().item()
        for n, each in sets.items()
    }
    inside = [share[n] for n in task.tested_in_length]
    beyond = max(sets)
    return {"in length": sum(inside) / len(inside), f"at {beyond}": share[beyond]}


def _logits(model: Transformer, ids: Tensor, p: Positions) -> Float[Tensor, "batch vocab_size"]:
    logits: Tensor = model.eval()(ids, -1, p)
    return logits


def _by_length(accuracies: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    return {name: _spread([each[name] for each in accuracies]) for name in accuracies[0]}


def _spread(values: Sequence[float]) -> Spread:
    found = spread(values)
    assert found is not None  # every model has a number
    return found


def _changed(where: Where, change: Callable[[QueryKeyMap | ScoreBias], QueryKeyMap | ScoreBias]) -> Where:
    parts = [part for part in (where.query_key, where.score) if part is not None]
    return Where(where.input, *map(change, parts)) if where.input is not None else Where(*map(change, parts))


def _head_dim(scheme: QueryKeyMap | ScoreBias) -> int:
    assert isinstance(scheme, QueryKeyMap)
    return scheme.head_dim


def _laws(report: Report, decoding: str) -> Laws:
    return Laws(report.check, tuple(finding.law for finding in report.failed), report[decoding].holds)


def _plain(ids: Tensor) -> Fed:
    return ids, positions(ids.shape[1])


def _off_by_one(ids: Tensor) -> Fed:
    """Feed what cached decoding at the next position amounts to: no earlier token attends to the last one."""
    p = positions(ids.shape[1])
    skipped = p.index.clone()
    skipped[..., -1] += 1
    return ids, replace(p, index=skipped, run=False, max_length=None)


def _packed(ids: Tensor) -> Fed:
    """Feed each sequence after another one of the batch, as two documents."""
    return torch.cat([ids.roll(1, 0), ids], dim=1), Positions.packed([ids.shape[1]] * 2)


def _not_restarted(ids: Tensor) -> Fed:
    pair, p = _packed(ids)
    return pair, replace(p, index=torch.arange(pair.shape[1])[None, None], max_length=None)


def _padded(ids: Tensor) -> Fed:
    pads = torch.zeros(len(ids), PADDING, dtype=ids.dtype)
    padded = torch.cat([pads, ids], dim=1)
    mask = torch.ones_like(padded)
    mask[:, :PADDING] = 0
    return padded, Positions.from_mask(mask)


def _unmasked(ids: Tensor) -> Fed:
    padded, _ = _padded(ids)
    return padded, positions(padded.shape[1])


# The experiment

TRAINED = ("sinusoidal", "rotary", "alibi")
MISPRINTED = "misprinted sinusoid"
TRAINED_WITH: Mapping[str, tuple[str, Build]] = {
    "sinusoidal": (MISPRINTED, misprinted_sinusoid),
    "alibi": (DIVIDED, divided_alibi),
}
"""Schemes with a fault that models are trained with too: by the right scheme, the fault and what builds it."""
HEAD_DIM = 16


def silent_fault_costs(bench: Bench) -> list[Result]:
    """Check faulty schemes by the laws; in the full scope also train, and measure what each fault costs."""
    laws = scheme_laws()
    detected = Statement(
        "E13.1",
        "The laws detect every faulty scheme",
        "this project",
        "laws that fail, for each of the faulty schemes",
        "at least 1",
        "count",
    )
    decoding = Statement(
        "E13.2",
        "A test of cached decoding against the full pass finds none of the faulty schemes",
        "this project",
        "whether the law of decoding passes, for each of the faulty schemes",
        "1",
        "count",
    )
    results = [
        bench.judge(detected, [float(len(checked.failed)) for checked in laws.values()]),
        bench.judge(decoding, [float(checked.decoding) for checked in laws.values()]),
    ]
    costs = [] if bench.quick else _costs(bench, laws)
    bench.faults.extend(
        FaultRow(fault, scheme, "scheme", {}, {}, None, checked.failed, checked.decoding)
        for (fault, scheme), checked in laws.items()
        if not any(row.fault.startswith(fault) for row in bench.faults)
    )
    return [*results, *costs]


def scheme_laws() -> dict[tuple[str, str], Laws]:
    """Check each faulty scheme.

    Returns:
        What the checks find, by fault and scheme.
    """
    rotary = Rotary(HEAD_DIM)
    yarn = YaRN(4.0, original_length=64)
    unmagnified = Rotary(HEAD_DIM, scaling=YaRN(4.0, original_length=64, attention_factor=1.0))
    return {
        (MISPRINTED, "sinusoidal"): misprinted_sinusoid_laws(),
        (OTHER_LAYOUT, "rotary"): rotary_laws(Rotary(HEAD_DIM, interleaved=True), rotary),
        (OTHER_THETA, "rotary"): rotary_laws(other_theta(HEAD_DIM), rotary),
        (BFLOAT16, "rotary"): rotary_laws(Bfloat16Rotary(HEAD_DIM), rotary),
        ("YaRN without its magnitude", "rotary-yarn"): rotary_laws(unmagnified, Rotary(HEAD_DIM, scaling=yarn)),
        (DIVIDED, "alibi"): divided_alibi_laws(),
    }


def _costs(bench: Bench, laws: Mapping[tuple[str, str], Laws]) -> list[Result]:
    schemes: list[SchemeLike] = [*TRAINED, *TRAINED_WITH.values()]
    results = bench.compare("expressions", schemes, 3, task="expressions", lengths=(TWICE,))
    settings = results.record.settings
    task = make_task("expressions", settings.direction, settings.trained, [])
    models = {scheme: [load_model(results, run) for run in results.runs if run.scheme == scheme] for scheme in TRAINED}
    trained = (task, settings, TWICE)
    for scheme, (name, _) in TRAINED_WITH.items():
        accuracy, known = (_accuracy(results, scheme), _accuracy(results, name), None), laws[name, scheme]
        text = f"{name}, in training too"
        bench.faults.append(FaultRow(text, scheme, "scheme", *accuracy, known.failed, known.decoding))
    bench.faults.extend(
        cost_of_scheme(fault, laws[fault.fault, fault.scheme], models[fault.scheme], *trained)
        for fault in scheme_faults()
    )
    costs = [cost_of_positions(each, models[each.scheme], *trained) for each in position_faults()]
    bench.faults.extend(costs)
    trains = learning(
        "E13.3",
        "A wrong formula trains to full accuracy: the misprinted sinusoid solves the expressions",
        "this project",
    )
    unseen = Statement(
        "E13.4",
        "Positions that are not restarted in a pack cost relative schemes nothing",
        "the schemes' formulas",
        "accuracy lost in length, for rotary and ALiBi",
        "0",
    )
    restarted = [c for c in costs if c.fault == "positions not restarted in a pack" and c.scheme in ("rotary", "alibi")]
    return [
        bench.judge(trains, by_run(results, [MISPRINTED], lambda run: run.in_length, learned=False)),
        bench.judge(unseen, [c.right["in length"].median - c.faulty["in length"].median for c in restarted]),
    ]


def _accuracy(results: Comparison, scheme: str) -> dict[str, Spread]:
    summary = results.summary[scheme]
    beyond = summary.scores[TWICE][ALL]
    assert beyond is not None  # none of these schemes ends with a table
    return {"in length": summary.in_length, f"at {TWICE}": beyond}
