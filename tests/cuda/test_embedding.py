"""Lookup, scale and positional sum on a GPU computes the numbers of PyTorch's operations, to the bit."""

import pytest
import torch
from torch import Tensor

from whatwhere.kernels.embedding import Rows, _in_pytorch

embedding = pytest.importorskip("whatwhere.kernels.cuda.embedding", reason="needs Triton, which is not installed here")

VOCAB_SIZE, DIM, BATCH, TOKENS = 11, 20, 3, 5
TYPES = [torch.float32, torch.bfloat16, torch.float16]


def drawn(*shape: int, like: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(like, dtype)


def drawn_ids(like: torch.device, *shape: int, dtype: torch.dtype = torch.int64, below: int = VOCAB_SIZE) -> Tensor:
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(3), dtype=dtype).to(like)


def tables(kind: str, like: torch.device, dtype: torch.dtype) -> Rows | None:
    """What may be added: nothing, a table as it is, or one that is read by an index."""
    if kind == "nothing":
        return None
    if kind.startswith("as it is"):
        rows = BATCH if "each sequence" in kind else 1
        return Rows(drawn(rows, TOKENS, DIM, like=like, dtype=dtype, seed=1))
    rows = BATCH if "each sequence" in kind else 1
    return Rows(drawn(9, DIM, like=like, dtype=dtype, seed=1), drawn_ids(like, rows, TOKENS, below=7), 2)


KINDS = ["nothing", "as it is", "as it is, for each sequence", "by an index", "by an index, for each sequence"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [None, 20**0.5])
@pytest.mark.parametrize("dtype", TYPES)
def test_gives_the_numbers_of_the_twin(dtype, scale, kind, place, equal):
    weight, ids = drawn(VOCAB_SIZE, DIM, like=place, dtype=dtype), drawn_ids(place, BATCH, TOKENS)
    rows = tables(kind, place, dtype)
    equal(embedding.embed(weight, ids, scale, rows), _in_pytorch(weight, ids, scale, rows))


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("dtype", TYPES)
def test_positions_in_float32(dtype, kind, place, equal):
    """They are added in float32, and the sum is rounded once."""
    weight, ids = drawn(VOCAB_SIZE, DIM, like=place, dtype=dtype), drawn_ids(place, BATCH, TOKENS)
    rows = tables(kind, place, torch.float32)
    equal(embedding.embed(weight, ids, None, rows), _in_pytorch(weight, ids, None, rows))


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (2, 3, 2), (0,), (2, 0)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_ids_of_any_shape_and_type(dtype, shape, place, equal):
    weight, ids = drawn(VOCAB_SIZE, DIM, like=place), drawn_ids(place, *shape, dtype=dtype)
    found = embedding.embed(weight, ids, 2.0)
    assert found.shape == (*shape, DIM)
    equal(found, _in_pytorch(weight, ids, 2.0, None))


def test_any_strides(place, equal):
    """Rows of a wider table, ids in the other order, positions spread over one table for all sequences."""
    weight = drawn(2 * VOCAB_SIZE, 2 * DIM, like=place)[::2, DIM:]
    ids = drawn_ids(place, TOKENS, BATCH).mT
    rows = Rows(drawn(1, TOKENS, DIM, like=place).expand(BATCH, -1, -1))
    equal(embedding.embed(weight, ids, 3.0, rows), _in_pytorch(weight, ids, 3.0, rows))
    rows = Rows(drawn(9, 3 * DIM, like=place)[:, DIM : 2 * DIM], drawn_ids(place, TOKENS, BATCH, below=9).mT, 0)
    equal(embedding.embed(weight, ids, 3.0, rows), _in_pytorch(weight, ids, 3.0, rows))


def test_rows_of_several_blocks(place, equal, monkeypatch):
    monkeypatch.setattr(embedding, "_NUMBERS_OF_A_PROGRAM", 16)
    monkeypatch.setattr(embedding, "_LONGEST_BLOCK", 8)
    weight, ids = drawn(VOCAB_SIZE, DIM, like=place), drawn_ids(place, BATCH, TOKENS)
    rows = tables(KINDS[-1], place, torch.float32)
    equal(embedding.embed(weight, ids, 2.0, rows), _in_pytorch(weight, ids, 2.0, rows))


@pytest.mark.parametrize("wrong", [-1, VOCAB_SIZE, 2**40])
def test_nothing_is_read_outside_the_table(wrong, place):
    """A GPU stops there; whatever stands for it, no memory beside the table is looked at."""
    if place.type == "cuda":
        pytest.skip("it would end this process: see test_what_ends_the_program.py")
    held = torch.full((3 * VOCAB_SIZE, DIM), torch.nan)
    weight = held[VOCAB_SIZE : 2 * VOCAB_SIZE].zero_()
    found = embedding.embed(weight, torch.tensor([0, wrong, 1]))
    assert not found[[0, 2]].any()


@pytest.mark.cuda
def test_more_numbers_than_32_bits_count(device):
    if device.type != "cuda" or torch.cuda.mem_get_info()[0] < 10 * 2**30:
        pytest.skip("needs 10 GB of free memory on a GPU")
    weight = torch.zeros(2**22 + 3, 1024, dtype=torch.bfloat16, device=device)
    weight[-2:] = drawn(2, 1024, like=device).bfloat16()
    ids = torch.tensor([[2**22 + 1, 0, 2**22 + 2]], device=device)
    assert torch.equal(embedding.embed(weight, ids)[0], weight[ids[0]])
