"""E13: what silent faults about positions cost trained models, and which law of `whatwhere.testing` detects each.

A fault is in a scheme, or in the positions that a right scheme gets. Models are trained without it and used with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

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
from whatwhere.comparison.model import SchemeLike, Transformer
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
from whatwhere.where.catalogue import Build
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.scaling import YaRN
from whatwhere.where.score_bias import ScoreBias

OTHER_LAYOUT, OTHER_THETA = "pairs of the other layout", "theta of another model, 500,000"
BFLOAT16, DIVIDED = "angles in bfloat16", "slopes divided by the root of head_dim"
"""Names of faults in schemes."""
NOT_RESTARTED = "positions not restarted in a pack"

PADDING = 4
"""Padding tokens before each sequence, in the fault that attends to them."""

Fed = tuple[Tensor, Positions]
"""Ids and positions as a program feeds them to a model; the last token is the one whose logits are read."""


Change = Callable[[QueryKeyMap | ScoreBias], QueryKeyMap | ScoreBias]


@dataclass(frozen=True)
class Laws:
    """What the checks of `whatwhere.testing` find in a faulty scheme: the laws that fail, and whether decoding holds.

    Where it does, the rows of a query alone are those among others, so that cached decoding agrees with the full pass,
    and a test that compares the two finds nothing.
    """

    failed: tuple[str, ...]
    decoding: bool


@dataclass(frozen=True)
class Fault:
    """A fault of trained models: in their scheme, or in the positions that a right model is given.

    Args:
        name: in a few words; of a fault in the scheme a key of `scheme_laws`.
        scheme: that the models are trained with.
        right, faulty: what a program feeds for a batch of ids.
        change: returns the faulty scheme for a right one; None of a fault in positions.
        shift: added to all positions, of the right model too.
    """

    name: str
    scheme: str
    right: Callable[[Tensor], Fed]
    faulty: Callable[[Tensor], Fed]
    change: Change | None = None
    shift: int = 0


def scheme_faults() -> list[Fault]:
    """Return the faults in schemes, for models with heads of any size."""

    def fault(name: str, scheme: str, change: Change, shift: int = 0) -> Fault:
        def feed(ids: Tensor) -> Fed:
            return ids, positions(ids.shape[1], start=shift)

        return Fault(name, scheme, feed, feed, change, shift)

    return [
        fault(OTHER_LAYOUT, "rotary", lambda r: Rotary(_head_dim(r), interleaved=True)),
        fault(OTHER_THETA, "rotary", lambda r: other_theta(_head_dim(r))),
        *(
            fault(BFLOAT16, "rotary", lambda r: Bfloat16Rotary(_head_dim(r)), at)
            for at in (0, 4_096, 100_000, 1_000_000)
        ),
        fault(DIVIDED, "alibi", lambda _: divide_slopes(4, 16)),
    ]


def position_faults() -> list[Fault]:
    """Return the faults in positions."""
    feeds = {
        NOT_RESTARTED: (_packed, _not_restarted),
        f"{PADDING} padding tokens attended to": (_padded, _unmasked),
        "KV cache off by one": (_plain, _off_by_one),
    }
    return [
        Fault(name, scheme, right, faulty)
        for scheme in ("sinusoidal", "rotary", "alibi")
        for name, (right, faulty) in feeds.items()
    ]


@torch.no_grad()
def cost(
    fault: Fault, models: Sequence[Transformer], task: Task, settings: Settings, length: int, laws: Laws | None = None
) -> FaultRow:
    """Measure what a fault costs trained models: accuracy by length, and the largest change of a logit of each."""
    change = fault.change
    faulty = models if change is None else [with_scheme(model, change) for model in models]
    sets = {n: evaluation_set(task, n, settings) for n in (*task.tested_in_length, length)}
    right_at, faulty_at = (
        _by_length([_accuracies(model, sets, task, feed) for model in each])
        for each, feed in ((models, fault.right), (faulty, fault.faulty))
    )
    shown = sets[max(task.tested_in_length)].ids
    changes = [
        (_logits(good, *fault.right(shown)) - _logits(bad, *fault.faulty(shown))).abs().max().item()
        for good, bad in zip(models, faulty, strict=True)
    ]
    name = f"{fault.name}, from position {fault.shift:,}" if fault.shift else fault.name
    kind: Literal["scheme", "positions"] = "positions" if change is None else "scheme"
    failed, decoding = (() if laws is None else laws.failed), (None if laws is None else laws.decoding)
    return FaultRow(name, fault.scheme, kind, right_at, faulty_at, _spread(changes), failed, decoding)


def with_scheme(model: Transformer, change: Change) -> Transformer:
    """Return a model with the same weights, whose layers have another query_key scheme or score bias."""
    changed = Transformer.__new__(Transformer)
    nn.Module.__init__(changed)
    for name, module in model.named_children():
        setattr(changed, name, module)
    changed.wheres = nn.ModuleList(_changed(where, change) for where in model.layer_wheres)
    changed.lm_head = model.lm_head
    return changed.eval()


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


def _changed(where: Where, change: Change) -> Where:
    parts = [part for part in (where.query_key, where.score) if part is not None]
    return Where(where.input, *map(change, parts)) if where.input is not None else Where(*map(change, parts))


def _head_dim(scheme: QueryKeyMap | ScoreBias) -> int:
    assert isinstance(scheme, QueryKeyMap)
    return scheme.head_dim


def _laws(report: Report, decoding: str) -> Laws:
    return Laws(tuple(finding.law for finding in report.failed), report[decoding].holds)


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
    """Return what the checks find in each faulty scheme, by fault and scheme."""
    misprinted, divided = MisprintedSinusoid(64), divide_slopes(num_heads=4, head_dim=16)
    divided_report = check_bias(lambda q, k, dtype=None: divided(q, k, dtype=dtype)[0], num_heads=4, expected="alibi")
    yarn, unmagnified = (
        Rotary(HEAD_DIM, scaling=YaRN(4.0, original_length=64, attention_factor=factor)) for factor in (None, 1.0)
    )
    return {
        (MISPRINTED, "sinusoidal"): _laws(check_input_encoding(lambda p: misprinted(p)[0], dim=64), "any order"),
        (OTHER_LAYOUT, "rotary"): _rotary_laws(Rotary(HEAD_DIM, interleaved=True), Rotary(HEAD_DIM)),
        (OTHER_THETA, "rotary"): _rotary_laws(other_theta(HEAD_DIM), Rotary(HEAD_DIM)),
        (BFLOAT16, "rotary"): _rotary_laws(Bfloat16Rotary(HEAD_DIM), Rotary(HEAD_DIM)),
        ("YaRN without its magnitude", "rotary-yarn"): _rotary_laws(unmagnified, yarn),
        (DIVIDED, "alibi"): _laws(divided_report, "decoding"),
    }


def _rotary_laws(scheme: QueryKeyMap, expected: Rotary) -> Laws:
    """Check a faulty rotary scheme against the one that the weights were trained with."""
    report = check_rotary(
        lambda x, p: scheme(x, x, p)[0],
        head_dim=expected.head_dim,
        theta=expected.theta,
        interleaved=expected.interleaved,
        scaling=expected.scaling,
    )
    return _laws(report, "any positions")


def _costs(bench: Bench, laws: Mapping[tuple[str, str], Laws]) -> list[Result]:
    schemes: list[SchemeLike] = [*TRAINED, *TRAINED_WITH.values()]
    results = bench.compare("expressions", schemes, 3, task="expressions", lengths=(TWICE,))
    settings = results.record.settings
    task = make_task("expressions", settings.direction, settings.trained, [])
    models = {
        scheme: [cast("Transformer", load_model(results, run)) for run in results.runs if run.scheme == scheme]
        for scheme in TRAINED
    }
    trained = (task, settings, TWICE)
    for scheme, (name, _) in TRAINED_WITH.items():
        accuracy, known = (_accuracy(results, scheme), _accuracy(results, name), None), laws[name, scheme]
        text = f"{name}, in training too"
        bench.faults.append(FaultRow(text, scheme, "scheme", *accuracy, known.failed, known.decoding))
    bench.faults.extend(
        cost(fault, models[fault.scheme], *trained, laws[fault.name, fault.scheme]) for fault in scheme_faults()
    )
    costs = [cost(fault, models[fault.scheme], *trained) for fault in position_faults()]
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
    restarted = [each for each in costs if each.fault == NOT_RESTARTED and each.scheme in ("rotary", "alibi")]
    return [
        bench.judge(trains, by_run(results, [MISPRINTED], lambda run: run.in_length, learned=False)),
        bench.judge(unseen, [each.right["in length"].median - each.faulty["in length"].median for each in restarted]),
    ]


def _accuracy(results: Comparison, scheme: str) -> dict[str, Spread]:
    summary = results.summary[scheme]
    beyond = summary.scores[TWICE][ALL]
    assert beyond is not None  # none of these schemes ends with a table
    return {"in length": summary.in_length, f"at {TWICE}": beyond}
