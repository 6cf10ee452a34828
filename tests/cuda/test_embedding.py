"""Lookup, scale and positional sum on a GPU equal PyTorch's operations to the bit."""

from functools import partial

import pytest
import torch

from whatwhere.kernels.embedding import Rows, _in_pytorch

from ..kernels.inputs import ADDED, BATCH, THREE_DTYPES, TOKENS, VOCAB_SIZE, added, ids_below, sampled

embedding = pytest.importorskip("whatwhere.kernels.cuda.embedding", reason="needs Triton, which is not installed here")

DIM = 20


@pytest.mark.parametrize("kind", ADDED)
@pytest.mark.parametrize("scale", [None, 20**0.5])
@pytest.mark.parametrize("dtype", THREE_DTYPES)
def test_the_input_layer_equals_that_of_pytorch(dtype, scale, kind, target, equal):
    """Positions in float32 are added in float32, and the sum is rounded once."""
    weight = sampled(VOCAB_SIZE, DIM, device=target, dtype=dtype)
    ids = ids_below(VOCAB_SIZE, BATCH, TOKENS, device=target)
    for wide in {dtype, torch.float32}:
        rows = added(kind, DIM, partial(sampled, device=target, dtype=wide))
        equal(embedding.embed(weight, ids, scale, rows), _in_pytorch(weight, ids, scale, rows))


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (2, 3, 2), (0,), (2, 0)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_ids_of_any_shape_and_type(dtype, shape, target, equal):
    weight, ids = sampled(VOCAB_SIZE, DIM, device=target), ids_below(VOCAB_SIZE, *shape, dtype=dtype, device=target)
    result = embedding.embed(weight, ids, 2.0)
    assert result.shape == (*shape, DIM)
    equal(result, _in_pytorch(weight, ids, 2.0, None))


def test_any_strides(target, equal):
    """Rows of a wider table, transposed ids, and positions expanded over all sequences."""
    weight = sampled(2 * VOCAB_SIZE, 2 * DIM, device=target)[::2, DIM:]
    ids = ids_below(VOCAB_SIZE, TOKENS, BATCH, device=target).mT
    rows = Rows(sampled(1, TOKENS, DIM, device=target).expand(BATCH, -1, -1))
    equal(embedding.embed(weight, ids, 3.0, rows), _in_pytorch(weight, ids, 3.0, rows))
    rows = Rows(sampled(9, 3 * DIM, device=target)[:, DIM : 2 * DIM], ids_below(9, TOKENS, BATCH, device=target).mT, 0)
    equal(embedding.embed(weight, ids, 3.0, rows), _in_pytorch(weight, ids, 3.0, rows))


def test_rows_of_several_blocks(target, equal, monkeypatch):
    monkeypatch.setattr(embedding, "_NUMBERS_OF_A_PROGRAM", 16)
    monkeypatch.setattr(embedding, "_MAX_BLOCK", 8)
    weight, ids = sampled(VOCAB_SIZE, DIM, device=target), ids_below(VOCAB_SIZE, BATCH, TOKENS, device=target)
    rows = added(ADDED[-1], DIM, partial(sampled, device=target))
    equal(embedding.embed(weight, ids, 2.0, rows), _in_pytorch(weight, ids, 2.0, rows))


@pytest.mark.parametrize("wrong", [-1, VOCAB_SIZE, 2**40])
def test_nothing_is_read_outside_the_table(wrong, target):
    """A GPU ends the program; the interpreter must read no memory outside the table."""
    if target.type == "cuda":
        pytest.skip("it would end this process: see test_what_ends_the_program.py")
    held = torch.full((3 * VOCAB_SIZE, DIM), torch.nan)
    weight = held[VOCAB_SIZE : 2 * VOCAB_SIZE].zero_()
    result = embedding.embed(weight, torch.tensor([0, wrong, 1]))
    assert not result[[0, 2]].any()


@pytest.mark.cuda
def test_more_numbers_than_32_bits_count(device):
    if device.type != "cuda" or torch.cuda.mem_get_info()[0] < 10 * 2**30:
        pytest.skip("needs 10 GB of free memory on a GPU")
    weight = torch.zeros(2**22 + 3, 1024, dtype=torch.bfloat16, device=device)
    weight[-2:] = sampled(2, 1024, device=device).bfloat16()
    ids = torch.tensor([[2**22 + 1, 0, 2**22 + 2]], device=device)
    assert torch.equal(embedding.embed(weight, ids)[0], weight[ids[0]])


def test_more_slots_than_32_bits_count_are_counted_in_64(monkeypatch):
    """On the meta device, where nothing is read."""
    kept = []
    monkeypatch.setattr(embedding, "launch", lambda *given, **constants: kept.append(constants["MANY"]))
    weight = torch.empty(4, 2, device="meta")
    for shape in ((2**16, 2**15), (2**15, 2**15)):
        embedding.embed(weight, torch.zeros(1, 1, dtype=torch.int64, device="meta").expand(shape))
    assert kept == [True, False]
