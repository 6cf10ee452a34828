"""Kernels at their places: the library calls them on a GPU, and trains with them as it does without."""

from importlib import import_module

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import whatwhere as ww
from whatwhere.kernels import cuda, embedding
from whatwhere.what.row_adamw.gradient import sparse_tensor
from whatwhere.what.row_adamw.optimizer import RowAdamW

from ..kernels.inputs import sampled

VOCAB_SIZE, DIM, STEPS = 300, 24, 60
SETTINGS = {"betas": (0.9, 0.98), "weight_decay": 0.1}


def note_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record which kernels run."""
    seen: list[str] = []

    def launch(kernel, grid, device, *arguments, **constants):
        seen.append(kernel.fn.__name__)
        cuda.launch(kernel, grid, device, *arguments, **constants)

    for name in ("rotary", "cos_sin", "embedding", "row_adamw"):
        monkeypatch.setattr(import_module(f"whatwhere.kernels.cuda.{name}"), "launch", launch)
    return seen


def train_once(device: torch.device) -> list[Tensor]:
    """Use every kernel: an input layer, rotated queries, a step of the token table."""
    torch.manual_seed(0)
    layer = ww.InputLayer(VOCAB_SIZE, DIM, ww.Learned(DIM, max_length=16), scale="sqrt_dim").to(device)
    optimizer = RowAdamW(layer.tokens, lr=1e-2, **SETTINGS)
    rope, p = ww.Rotary(head_dim=8), ww.positions(10).to(device)
    made = []
    for step in range(3):
        ids = torch.randint(VOCAB_SIZE, (2, 10), generator=torch.Generator().manual_seed(step)).to(device)
        heads = layer(ids).unflatten(-1, (3, 8)).transpose(1, 2)
        q, k = rope(heads, heads, p)
        (q * k).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        made += [q.detach(), k.detach()]
    with torch.no_grad():
        made.append(ww.InputLayer(VOCAB_SIZE, DIM, ww.Sinusoidal(DIM)).to(device).eval()(ids).mul(0) + layer(ids))
    optimizer.flush()
    return [*made, layer.tokens.weight.detach(), layer.where.input.weight.grad]


def test_the_library_runs_the_kernels_and_equals_pytorch(as_gpu, monkeypatch):
    monkeypatch.setattr(embedding, "_WORTH_ON_GPU", 0)
    calls = note_calls(monkeypatch)
    fast = train_once(as_gpu)
    assert set(calls) == {"_rotate", "_cos_sin", "_embed", "_sum_by_row", "_catch_up", "_update"}
    calls.clear()
    with ww.pytorch_only():
        slow = train_once(as_gpu)
    assert not calls
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.cuda
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotation_has_the_gradient_of_pytorch(dtype, in_place, device):
    given = sampled(2, 3, 7, 16).to(device, dtype)
    rope, p, weight = (
        ww.Rotary(head_dim=16, rotary_dim=12),
        ww.positions(7, start=9).to(device),
        sampled(2, 3, 7, 16, seed=1),
    )
    slopes = []
    for plainly in (False, True):
        x = given.clone().requires_grad_()
        with ww.pytorch_only() if plainly else torch.enable_grad():
            q, k = rope(x * 2, x * 3, p, in_place=in_place)
            slopes.append(torch.autograd.grad(((q + k) * weight.to(q)).sum(), x)[0])
    assert torch.equal(*slopes)


def rates() -> list[float]:
    return [2e-3 * min(1, step / 10) * (1 - 0.9 * step / STEPS) for step in range(1, STEPS + 1)]


def batches() -> list[Tensor]:
    """Ids of a text: few often, many rarely."""
    weights = 1 / torch.arange(1.0, VOCAB_SIZE + 1)
    draws = torch.multinomial(weights.expand(STEPS, -1), 20, True, generator=torch.Generator().manual_seed(1))
    return list(draws)


@pytest.mark.cuda
@pytest.mark.parametrize("size", [1.0, 1e-5, 1e-8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_row_adamw_is_dense_adamw(dtype, size, device):
    """Against dense AdamW in float64; of a table of bfloat16, the master."""
    start, slopes = (0.05 * sampled(VOCAB_SIZE, DIM)).to(dtype), size * sampled(20, DIM, seed=2).to(dtype)
    table = ww.TokenEmbedding.from_weight(start.to(device, copy=True))
    dense = nn.Parameter(start.double())
    rows, all_rows = RowAdamW(table, **SETTINGS), torch.optim.AdamW([dense], **SETTINGS)
    for ids, lr in zip(batches(), rates(), strict=True):
        for optimizer, looked_up in ((rows, table(ids.to(device))), (all_rows, F.embedding(ids, dense))):
            optimizer.param_groups[0]["lr"] = lr
            (looked_up * slopes.to(looked_up)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    rows.flush()
    moved = (dense - start.double()).abs().max()
    assert moved > 0.03, "nothing was trained"
    result = table.weight if dtype == torch.float32 else rows.state[table.weight]["master"]
    apart = (result.detach().cpu().double() - dense).abs().max()
    # The gradient of a repeated token is a sum that is rounded to bfloat16 once, by 2**-9 of itself.
    assert apart < (1e-6 if dtype == torch.float32 else 2e-3 * moved)


@pytest.mark.cuda
def test_row_adamw_state_loads_into_dense_adamw_and_back(device):
    """The state moves with the table, on the device."""
    start, ids = sampled(VOCAB_SIZE, DIM), [batch.to(device) for batch in batches()[:6]]
    tables = [ww.TokenEmbedding.from_weight(start.to(device, copy=True)) for _ in range(2)]
    optimizers = [
        RowAdamW(tables[0], lr=1e-2, **SETTINGS),
        torch.optim.AdamW(tables[1].parameters(), lr=1e-2, **SETTINGS),
    ]

    def take(few: list[Tensor]) -> None:
        for batch in few:
            for table, optimizer in zip(tables, optimizers, strict=True):
                table(batch).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()

    take(ids[:3])
    states = [optimizer.state_dict() for optimizer in optimizers]
    for optimizer, state in zip(optimizers, reversed(states), strict=True):
        optimizer.load_state_dict(state)
    take(ids[3:])
    optimizers[0].flush()
    torch.testing.assert_close(tables[0].weight, tables[1].weight, rtol=0, atol=2e-6)


@pytest.mark.cuda
def test_gradients_are_clipped_and_scaled(device):
    """By PyTorch's own clip_grad_norm_ and GradScaler, beside a dense parameter."""
    pairs = []
    for kind in (RowAdamW, torch.optim.AdamW):
        table = ww.TokenEmbedding.from_weight(sampled(VOCAB_SIZE, DIM).to(device, copy=True))
        head = nn.Parameter(sampled(DIM, 4, seed=4).to(device, copy=True))
        of_table = kind(table if kind is RowAdamW else table.parameters(), lr=1e-2, **SETTINGS)
        of_head = torch.optim.AdamW([head], lr=1e-2)
        scaler = torch.amp.GradScaler(device.type, init_scale=2.0**10)
        for batch in batches()[:8]:
            loss = (table(batch.to(device)) @ head).square().mean()
            scaler.scale(loss).backward()
            for optimizer in (of_table, of_head):
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_([table.weight, head], 0.1)
            for optimizer in (of_table, of_head):
                scaler.step(optimizer)
                optimizer.zero_grad()
            scaler.update()
        if kind is RowAdamW:
            of_table.flush()
        pairs.append((table.weight.detach(), head.detach()))
    for one, other in zip(*pairs, strict=True):
        # Numbers of up to 4, whose spacing is 2.4e-7, after eight steps of at most 1e-2.
        torch.testing.assert_close(one, other, rtol=0, atol=5e-6)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_of_row_adamw_never_waits_for_the_device(dtype, device):
    if device.type == "cpu":
        pytest.skip("only a GPU can be waited for; test_launches.py counts on the CPU")
    table = ww.TokenEmbedding(VOCAB_SIZE, DIM, device=device, dtype=dtype)
    optimizer = RowAdamW(table, lr=1e-2, **SETTINGS)
    first, *others = [batch.to(device) for batch in batches()[:4]]

    def take(ids: Tensor) -> None:
        table(ids).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(table.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    take(first)  # what is made once for a device is made
    take(first)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for ids in others:
            take(ids)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
def test_rows_that_were_not_read_are_refused(device):
    """On a GPU by `flush`, which waits, or by a later step."""
    table = ww.TokenEmbedding(VOCAB_SIZE, DIM, device=device)
    optimizer = RowAdamW(table, lr=1e-2, **SETTINGS)
    for ids in batches()[:2]:
        table(ids.to(device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    rows = torch.arange(VOCAB_SIZE, device=device)
    table.weight.grad = sparse_tensor(rows[None], torch.ones(VOCAB_SIZE, DIM, device=device), (VOCAB_SIZE, DIM))
    with pytest.raises(ww.errors.SettingError, match="not read through the embedding"):  # noqa: PT012
        optimizer.step()
        optimizer.flush()
