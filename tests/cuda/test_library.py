"""The library on a GPU: what holds on the CPU holds there, and nothing waits for the device."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import whatwhere as ww

from ..laws import laws
from ..laws.cases import DIM, LEFT, Case, fixed, positional
from ..laws.cases import each as each_case
from ..laws.model import VOCAB_SIZE, Model, attend, decode, draw, model, numbers, random_ids
from .device import DEVICE, MISSING

pytestmark = pytest.mark.cuda
if MISSING:  # once for all, for there are many
    pytest.skip(MISSING, allow_module_level=True)

POSITIONS = {
    "run": ww.positions(8, start=3),
    "packed": ww.Positions.packed([2, 6]),
    "left-padded": ww.Positions.from_mask(LEFT),
}
TOLERANCE = {"rtol": 0.0, "atol": 2e-5}
"""Two devices sum in different orders, through two layers with vectors of size 1 to 4."""

REHEARSED = ("none", "sinusoidal", "learned", "rotary", "rotary-dynamic-ntk", "carope", "alibi", "t5", "fox")


def each(holds: Callable[[Case], bool] = lambda case: True) -> pytest.MarkDecorator:
    """Take all cases on a GPU; a rehearsal, in which both devices are one, shows with a few that tests are sound."""
    return each_case(lambda case: holds(case) and (DEVICE != "cpu" or case.name in REHEARSED))


def real(p: ww.Positions) -> Tensor:
    """True at tokens, False at padding, for two sequences."""
    return laws.real_tokens(p, batch=2).cpu()


def require_close(result: dict[str, Tensor | None], wanted: dict[str, Tensor | None], tolerance: float = 1e-4) -> None:
    """Gradients agree, each to a share of itself and of the largest, for one may be zero but for rounding."""
    assert set(result) == set(wanted)
    largest = max(float(slope.norm()) for slope in wanted.values() if slope is not None)
    for name, slope in wanted.items():
        if slope is not None:
            apart = float((result[name].to(slope) - slope).norm())
            assert apart <= tolerance * float(slope.norm()) + 1e-5 * largest, f"the gradient of {name}: {apart:.1e}"


def gradients(module: torch.nn.Module) -> dict[str, Tensor | None]:
    return {name: weight.grad for name, weight in module.named_parameters()}


def require_same_training(case, p: ww.Positions, engine: str, device: torch.device) -> None:
    """Vectors and gradients of a model on the device are those of the plain formula on the CPU."""
    there, ids = model(case), random_ids(2, 8)
    here = copy.deepcopy(there).to(device)
    result, wanted = here(ids.to(device), p.to(device), engine=engine), there(ids, p, engine="dense")
    torch.testing.assert_close(result.cpu()[real(p)], wanted[real(p)], **TOLERANCE)
    for y in (result, wanted):
        y[real(p).to(y.device)].square().sum().backward()
    require_close(gradients(here), gradients(there))


@each()
@pytest.mark.parametrize("positions", POSITIONS)
def test_training_is_that_of_the_cpu(positions, case, device):
    require_same_training(case, POSITIONS[positions], "auto", device)


@pytest.mark.filterwarnings("default")
@pytest.mark.compile
@each(lambda case: not case.options)
@pytest.mark.parametrize("positions", POSITIONS)
def test_training_with_flex_attention_is_that_of_the_cpu(positions, case, device):
    """The CPU refuses FlexAttention with a gradient."""
    if device.type == "cpu":
        pytest.skip("FlexAttention has no backward on the CPU")
    require_same_training(case, POSITIONS[positions], "flex", device)


@each(positional)
@pytest.mark.parametrize("start", [0, 100_000])
def test_schemes_equal_those_on_the_cpu(start, case, device):
    """Angles are float64 on both devices: they agree as well at 100,000 as at 0."""
    where, p = case.build(), ww.positions(9, start=min(start, case.row.tested_up_to - 9))
    if not case.row.any_length:
        p = ww.positions(9)
    wanted = numbers(where, p)
    result = numbers(copy.deepcopy(where).to(device), p.to(device))
    for one, other in zip(result, wanted, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-6, atol=1e-6)


@each(fixed)
def test_law_1_conversions(case, device):
    where, p = case.build().to(device), ww.positions(9).to(device)
    expected = numbers(where, p)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        inside = numbers(where, p)
    laws.require_equal(inside, expected)
    laws.require_equal(numbers(where.bfloat16(), p), expected)


@each()
@pytest.mark.parametrize("positions", POSITIONS)
def test_law_2_decoding(positions, case, device):
    small, p, ids = model(case).to(device), POSITIONS[positions].to(device), random_ids(2, 8).to(device)
    with torch.no_grad():
        steps, whole = decode(small, ids, p, first=5), small(ids, p)
    torch.testing.assert_close(steps.cpu()[real(p)], whole.cpu()[real(p)], **TOLERANCE)


@each()
def test_law_4_built_on_the_device(case, device):
    """Built there, it is what is built on the CPU and moved, once both have the same parameters."""
    with torch.device(device):
        made = Model(case).eval()
    assert {weight.device.type for weight in made.parameters()} == {device.type}
    there = model(case)
    made.load_state_dict(there.state_dict())
    ids = random_ids(2, 7)
    torch.testing.assert_close(made(ids.to(device)).cpu(), there(ids), **TOLERANCE)


@each(positional)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_attention_in_two_bytes(dtype, case, device):
    """Off from float32 by what the dtype rounds, 8 bits or 11: not by what it would make of an angle or a position."""
    where, p = case.build().to(device), ww.positions(9).to(device)
    narrow, wide = attend(where, p, dtype=dtype).float(), attend(where, p)
    assert (narrow - wide).norm() < (0.03 if dtype == torch.bfloat16 else 0.004) * wide.norm()


# The compiler warns of its own doing, each version of other things.
@pytest.mark.filterwarnings("default")
@pytest.mark.compile
@each(lambda case: not case.options)
def test_compiled_models_with_their_gradients(case, device):
    small, ids = model(case).to(device), random_ids(2, 9).to(device)
    compiled = torch.compile(small, fullgraph=True)
    result, wanted = compiled(ids), small(ids)
    torch.testing.assert_close(result, wanted, **TOLERANCE)
    slopes = []
    for y in (result, wanted):
        small.zero_grad()
        y.square().sum().backward()
        slopes.append({name: None if slope is None else slope.clone() for name, slope in gradients(small).items()})
    require_close(*slopes)


@pytest.mark.filterwarnings("default")
@pytest.mark.compile
@each(lambda case: case.row.door == "score" and not case.options)
def test_compiled_flex_attention_trains(case, device):
    """What the CPU refuses: FlexAttention with a backward, over 128 tokens."""
    if device.type == "cpu":
        pytest.skip("FlexAttention has no backward on the CPU")
    torch.manual_seed(0)
    where, p = case.build(max_length=256).to(device), ww.Positions.packed([50, 78]).to(device)
    compiled = torch.compile(attend, fullgraph=True)
    slopes = {}
    for engine, run in (("flex", compiled), ("dense", attend)):
        where.zero_grad()
        given = draw(2, p.tokens, DIM, seed=1).to(p.device).requires_grad_()  # a scheme may have no parameters
        y = run(where, p, given, engine=engine)
        y.square().sum().backward()
        slopes[engine] = {name: None if slope is None else slope.clone() for name, slope in gradients(where).items()}
        slopes[engine] |= {"vectors": given.grad, "output": y.detach()}
    require_close(slopes["flex"], slopes["dense"], tolerance=1e-3)


@each()
def test_a_forward_and_backward_never_wait_for_the_device(case, device):
    """Range checks included: they run on the device."""
    if device.type == "cpu":
        pytest.skip("only a GPU can be waited for")
    small, ids = model(case).to(device), random_ids(2, 8).to(device)
    small(ids).sum().backward()  # what is made once for a device is made
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        small(ids).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_sixteen_bit_tables_sum_gradients_in_float32(device):
    """4,096 gradients of 1 make 4,096: in bfloat16 the sum would stay at 256."""
    table = ww.TokenEmbedding(VOCAB_SIZE, DIM, device=device, dtype=torch.bfloat16)
    table(torch.full((1, 4096), 7, device=device)).sum().backward()
    assert bool((table.weight.grad[7] == 4096).all())
    assert int(table.weight.grad.count_nonzero()) == DIM


def test_compare_trains_in_bfloat16(device, tmp_path):
    names = ["none", "sinusoidal", "learned", "rotary", "alibi", "t5"]
    few = {"steps": 40, "batch": 32, "test_sequences": 32, "lengths": [8], "seeds": 1}
    report = ww.compare(names, out=tmp_path, workers=1, progress=False, device=device.type, **few)
    for run in report.runs:
        losses = [loss for _, loss in run.losses]
        assert losses[-1] < 0.9 * losses[0], f"{run.scheme} does not learn: {losses}"
        beyond = run.scores[8]["all"]
        assert (beyond is None) == (run.scheme == "learned"), f"{run.scheme}, whose table ends or does not: {beyond}"
