"""What mistakes about positions cost that raise no error: accuracy with and without each, and the law that detects it.

A fault is in a scheme, or in the positions that a right scheme gets. Models are trained without it and used with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from experiments.faulty_schemes import Bfloat16Rotary, MisprintedSinusoid, divide_slopes, other_theta
from whatwhere.comparison.measure import evaluation_set
from whatwhere.comparison.model import Transformer
from whatwhere.comparison.results import Spread, spread
from whatwhere.comparison.settings import Settings
from whatwhere.comparison.tasks import Batch, Task
from whatwhere.position.positions import Positions, positions
from whatwhere.testing import check_bias, check_input_encoding, check_rotary
from whatwhere.testing.report import Report
from whatwhere.where.base import QueryKeyMap
from whatwhere.where.binding import Where
from whatwhere.where.query_key.rotary import Rotary
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


@dataclass(frozen=True)
class Cost:
    """What a fault costs.

    Args:
        fault: in a few words.
        scheme: of the models.
        right: median and range over the models of accuracy without the fault, by length; "in length" is the mean over
            the trained ones.
        faulty: likewise, with the fault.
        logit_change: the largest difference of a logit, of each model.
    """

    fault: str
    scheme: str
    right: Mapping[str, Spread]
    faulty: Mapping[str, Spread]
    logit_change: Spread


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
    fault: FaultyScheme, models: Sequence[Transformer], task: Task, settings: Settings, length: int
) -> Cost:
    """Measure what a fault in the scheme costs trained models."""

    def at_shift(ids: Tensor) -> Fed:
        return ids, positions(ids.shape[1], start=fault.shift)

    faulty = [with_scheme(model, fault.replace) for model in models]
    return _cost(fault.name, fault.scheme, (models, at_shift), (faulty, at_shift), task, settings, length)


@torch.no_grad()
def cost_of_positions(
    fault: FaultyPositions, models: Sequence[Transformer], task: Task, settings: Settings, length: int
) -> Cost:
    """Measure what a fault in positions costs trained models."""
    right, faulty = (models, fault.right), (models, fault.faulty)
    return _cost(fault.name, fault.scheme, right, faulty, task, settings, length)


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


def _cost(
    name: str,
    scheme: str,
    right: tuple[Sequence[Transformer], Callable[[Tensor], Fed]],
    faulty: tuple[Sequence[Transformer], Callable[[Tensor], Fed]],
    task: Task,
    settings: Settings,
    length: int,
) -> Cost:
    sets = {n: evaluation_set(task, n, settings) for n in (*task.tested_in_length, length)}
    one, other = ([_accuracies(model, sets, task, feed) for model in models] for models, feed in (right, faulty))
    shown = sets[max(task.tested_in_length)]
    changes = [
        (_logits(good, *right[1](shown.ids)) - _logits(bad, *faulty[1](shown.ids))).abs().max().item()
        for good, bad in zip(right[0], faulty[0], strict=True)
    ]
    return Cost(name, scheme, _by_length(one), _by_length(other), _spread(changes))


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
