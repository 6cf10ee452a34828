"""How much a device is given to do, and that nothing waits for it: counted in a rehearsal on the CPU.

RowAdamW runs its kernels in Triton's interpreter. The layers are tried on the meta device, where nothing runs.
"""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import whatwhere as ww
from whatwhere import RowAdamW, TokenEmbedding
from whatwhere.errors import SettingError
from whatwhere.kernels import embedding
from whatwhere.what.row_adamw.gradient import sparse_tensor

from .counting import Count, counted

pytest.importorskip("triton", reason="needs Triton, which is not installed here")

ROWS, DIM = 20, 8
SETTINGS: dict[str, Any] = {"lr": 1e-2, "betas": (0.9, 0.98), "weight_decay": 0.1}


@pytest.fixture
def rehearsed(as_gpu: torch.device) -> torch.device:
    """The CPU, in the role of a GPU."""
    if as_gpu.type == "cuda":
        pytest.skip("the rehearsal is for the CPU")
    return as_gpu


def table(dtype: torch.dtype = torch.float32, **options: Any) -> TokenEmbedding:
    start = 0.1 * torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(0))
    return TokenEmbedding.from_weight(start.to(dtype), **options)


def batches(count: int) -> list[Tensor]:
    """Ids, some of which come back after a step or more."""
    return list(torch.randint(ROWS, (count, 2, 3), generator=torch.Generator().manual_seed(1)))


def take(embedding: nn.Module, optimizer: RowAdamW, ids: Tensor, clip: bool = False, lookups: int = 1) -> None:
    for part in ids.chunk(lookups):
        rows = embedding(part)
        rows.backward(torch.ones_like(rows) * (1 + part[..., None] % 3))
    if clip:
        torch.nn.utils.clip_grad_norm_([embedding.weight], 0.5)
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_of_row_adamw_is_six_launches_and_no_wait(dtype, rehearsed):
    """A step that is not the first one."""
    embedding, upstream = table(dtype), torch.ones(2, 3, DIM, dtype=dtype)
    optimizer = RowAdamW(embedding, **SETTINGS)
    for batch in batches(3):
        take(embedding, optimizer, batch)
    flag = optimizer._tables[embedding.weight].moments.flag
    with counted(flag, optimizer.state[embedding.weight]["step"]) as count:
        embedding(torch.tensor([[1, 3, 1], [7, 19, 3]])).backward(upstream)
        optimizer.step()
        optimizer.zero_grad()
    assert not count.waits
    assert count.launches == ["sort", "copy_", "_catch_up", "embedding", "_sum_by_row", "_update"]


@pytest.mark.parametrize("what", ["clipped", "accumulated", "some rows", "float64"])
def test_no_step_waits(what, rehearsed):
    """But for a table of float64, which has no kernels: that shows that waits are noted."""
    embedding = table(torch.float64 if what == "float64" else torch.float32)
    optimizer = RowAdamW(embedding, **SETTINGS, rows=range(8) if what == "some rows" else None)
    how = {"clip": what == "clipped", "lookups": 1 + (what == "accumulated")}
    for batch in batches(3):
        take(embedding, optimizer, batch, **how)
    own = optimizer._tables[embedding.weight]
    with counted(own.moments.flag, optimizer.state[embedding.weight]["step"]) as count:
        take(embedding, optimizer, batches(4)[3], **how)
    assert bool(count.waits) == (what == "float64"), count.waits


@pytest.mark.every_nth(3)
@pytest.mark.parametrize(
    "how",
    [{}, {"clip": True}, {"lookups": 3}, {"padding_idx": 3}, {"rows": range(8)}],
    ids=lambda how: next(iter(how), "plain"),
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_rehearsed_gpu_trains_as_the_cpu_does(dtype, how, rehearsed, monkeypatch):
    options = {name: how[name] for name in how.keys() & {"padding_idx"}}
    chosen = {name: how[name] for name in how.keys() & {"rows"}}
    steps = {name: how[name] for name in how.keys() & {"clip", "lookups"}}
    results = []
    for plainly in (False, True):
        if plainly:
            monkeypatch.undo()
        embedding = table(dtype, **options)
        optimizer = RowAdamW(embedding, **SETTINGS, **chosen)
        for batch in batches(5):  # as few as the CPU adds up one by one, too: the same bits
            take(embedding, optimizer, batch, **steps)
        results.append([*optimizer.state_dict()["state"][0].values(), embedding.weight.detach()])
    for one, other in zip(*results, strict=True):
        # Each vector of clipping's norm is summed by PyTorch, in an order that depends on how many there are.
        torch.testing.assert_close(one, other, rtol=2e-6 if "clip" in how else 0, atol=1e-7 if "clip" in how else 0)


@pytest.mark.parametrize("when", ["next step", "flush"])
@pytest.mark.parametrize("wrong", ["not read", "not finite"])
def test_what_a_gpu_refuses_is_raised_later(wrong, when, rehearsed):
    embedding = table()
    optimizer = RowAdamW(embedding, **SETTINGS)
    for batch in batches(2):
        take(embedding, optimizer, batch)
    if wrong == "not read":
        embedding.weight.grad = sparse_tensor(torch.arange(ROWS)[None], torch.ones(ROWS, DIM), (ROWS, DIM))
    else:
        embedding(batches(1)[0]).sum().backward()
        embedding.weight.grad.mul_(torch.tensor(torch.nan))
    optimizer.step()
    optimizer.zero_grad()
    words = "not read through the embedding" if wrong == "not read" else "scaled by NaN"
    if when == "next step":
        embedding(batches(1)[0]).sum().backward()
    with pytest.raises(SettingError, match=words):
        optimizer.step() if when == "next step" else optimizer.flush()
    assert embedding.weight.isfinite().all()
    optimizer.zero_grad()
    take(embedding, optimizer, batches(1)[0])  # told once


# Layers: on the meta device there are no numbers, and reading one is an error.


def on_meta(run: Any, monkeypatch: pytest.MonkeyPatch) -> Count:
    monkeypatch.setattr(Tensor, "is_cuda", property(lambda x: True))
    monkeypatch.setattr(embedding, "_WORTH_ON_GPU", 0)  # few vectors are looked up by PyTorch
    with torch.no_grad(), counted() as count:
        run()
    return count


LAYERS = 3


def test_a_step_of_decoding_does_not_wait(monkeypatch):
    """Positions are counted on, bound once for all layers, and the rotation of each layer is a launch."""
    before = ww.positions(8, device="meta")
    q, k = torch.empty(1, 4, 1, 16, device="meta"), torch.empty(1, 2, 1, 16, device="meta")
    keys = torch.empty(1, 2, 9, 16, device="meta")
    rope = ww.Rotary(head_dim=16)

    def step(layers: int) -> None:
        now = before.next()
        for here in ww.bind([ww.Where(rope)] * layers, now, before.append(now)):
            rotated, _ = here.query_key(q, k)
            here.attention(rotated, keys, keys)

    one, more = (on_meta(partial(step, n), monkeypatch) for n in (1, LAYERS))
    assert not one.waits
    assert not more.waits
    of_a_layer = (len(more.launches) - len(one.launches)) / (LAYERS - 1)
    assert more.launches.count("_rotate") == LAYERS
    assert of_a_layer <= 3, more.launches
    assert len(one.launches) <= 15, one.launches
