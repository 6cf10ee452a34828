"""The token table: how it is drawn, what it looks up, and where its gradient goes."""

from math import sqrt

import pytest
import torch
from torch.nn import functional as F

import whatwhere as ww
from whatwhere.what.embedding import INITS, lookup

V, D = 600, 200
# Standard deviation and largest value of each initialization, by its formula; a normal has no largest value.
SPREADS = {
    "normal": (0.02, None),
    "glorot_normal": (sqrt(2 / (V + D)), None),
    "torch": (1.0, None),
    "glorot_uniform": (sqrt(6 / (V + D)) / sqrt(3), sqrt(6 / (V + D))),
    "fan_in_uniform": (sqrt(1 / D) / sqrt(3), sqrt(1 / D)),
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("init", INITS)
def test_each_init_has_the_spread_of_its_formula(init):
    std, largest = SPREADS[init]
    weight = ww.TokenEmbedding(V, D, init=init).weight.detach()
    # 120,000 values: the sample's deviation is within 0.2 % and its mean within 0.003 deviations (one sigma).
    assert abs(float(weight.std()) / std - 1) < 0.01
    assert abs(float(weight.mean())) < 0.015 * std
    if largest is None:
        assert float(weight.abs().max()) > 3.5 * std
    else:
        assert 0.999 * largest < float(weight.abs().max()) <= largest


def test_a_number_is_the_deviation_of_a_normal():
    weight = ww.TokenEmbedding(V, D, init=0.15).weight.detach()
    assert abs(float(weight.std()) / 0.15 - 1) < 0.01


def test_reset_draws_anew_and_keeps_the_padding_row_zero():
    table = ww.TokenEmbedding(10, 4, padding_id=3)
    before = table.weight.detach().clone()
    table.reset_parameters()
    changed = (table.weight != before).any(-1)
    assert changed.tolist() == [n != 3 for n in range(10)]
    assert bool((table.weight[3] == 0).all())


def test_lookup_is_the_product_of_a_one_hot_row_with_the_table():
    table = ww.TokenEmbedding(7, 3)
    ids = torch.tensor([[0, 6, 2], [2, 2, 5]])
    one_hot = F.one_hot(ids, 7).float()
    assert torch.equal(table(ids), one_hot @ table.weight)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_ids_have_any_shape(shape, dtype):
    table = ww.TokenEmbedding(7, 3)
    assert table(torch.zeros(shape, dtype=dtype)).shape == (*shape, 3)


@pytest.mark.parametrize(("scale", "factor"), [(None, 1.0), ("sqrt_dim", 4.0), (2.5, 2.5)])
def test_scale_multiplies_rows_and_not_the_readout(scale, factor):
    table = ww.TokenEmbedding(5, 16, scale=scale)
    assert torch.allclose(table(torch.tensor([1, 4])), factor * table.weight[[1, 4]])
    hidden = torch.randn(2, 16)
    assert torch.allclose(table.readout(hidden), hidden @ table.weight.T, atol=1e-6)


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float32, 55.42562484741211), (torch.bfloat16, 55.5)])
def test_a_rounded_scale_follows_the_type_of_the_table(dtype, factor):
    """sqrt(3072) as Gemma multiplies by it, also after the module was cast."""
    table = ww.TokenEmbedding(5, 3072, scale="sqrt_dim_rounded").to(dtype)
    ids = torch.arange(5)
    assert torch.equal(table(ids), table.weight * torch.tensor(factor, dtype=dtype))
    assert "scale=55.4256 rounded" in repr(table)


def test_lookup_and_readout_share_one_weight():
    table = ww.TokenEmbedding(5, 4)
    assert [name for name, _ in table.named_parameters()] == ["weight"]
    with torch.no_grad():
        table.weight.copy_(torch.eye(5, 4))
    assert table.readout(table(torch.tensor([2]))).tolist() == [[0, 0, 1, 0, 0]]
    table.readout(table(torch.tensor([2]))).sum().backward()
    # d/dE of sum_v <E_2, E_v> is E_2 for every row, and the sum of all rows once more for row 2.
    expected = torch.eye(5, 4)[2].expand(5, 4).clone()
    expected[2] += torch.eye(5, 4).sum(0)
    assert torch.equal(table.weight.grad, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_padding_row_is_zero_and_stays_out_of_every_gradient(dtype):
    table = ww.TokenEmbedding(6, 4, padding_id=0, dtype=dtype)
    x = table(torch.tensor([[0, 0, 3]]))
    assert bool((x[0, :2] == 0).all())
    logits = table.readout(x + 1)
    assert bool((logits[..., 0] == 0).all())
    # Through the readout, the cross-entropy pushes every row; the padding row alone must not move.
    F.cross_entropy(logits.float().flatten(0, 1), torch.tensor([0, 1, 2])).backward()
    assert bool((table.weight.grad[0] == 0).all())
    assert bool((table.weight.grad[1:] != 0).any(-1).all())


def test_training_with_decay_and_momentum_leaves_the_padding_row_zero():
    table = ww.TokenEmbedding(6, 4, padding_id=2)
    optimizer = torch.optim.AdamW(table.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(table.readout(table(torch.tensor([2, 1, 5])) + 1), torch.tensor([2, 3, 4])).backward()
        optimizer.step()
    assert table.weight[2].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_repeated_tokens_are_summed_in_float32(dtype):
    ids = torch.zeros(4096, dtype=torch.int64)
    table = ww.TokenEmbedding(2, 1, dtype=dtype)
    table(ids).sum().backward()
    assert table.weight.grad.tolist() == [[4096], [0]]


def test_pytorch_sums_them_in_bfloat16():
    # The reason for our own backward: should this fail, PyTorch has mended it.
    weight = torch.ones(2, 1, dtype=torch.bfloat16, requires_grad=True)
    F.embedding(torch.zeros(4096, dtype=torch.int64), weight).sum().backward()
    assert weight.grad.tolist() == [[256], [0]]


def test_the_gradient_is_the_sum_over_all_places_of_a_token():
    table = ww.TokenEmbedding(4, 3, dtype=torch.float64)
    ids = torch.tensor([[1, 3, 1], [1, 0, 3]])
    upstream = torch.randn(2, 3, 3, dtype=torch.float64)
    table(ids).backward(upstream)
    expected = torch.zeros(4, 3, dtype=torch.float64)
    for b in range(2):
        for t in range(3):
            expected[ids[b, t]] += upstream[b, t]
    assert torch.allclose(table.weight.grad, expected, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_low_precision_lookup_gives_the_rows_as_they_are(dtype):
    weight = torch.randn(5, 3).to(dtype)
    index = torch.tensor([[4, 0], [0, 2]])
    assert torch.equal(lookup(weight, index), weight[index])


def test_the_low_precision_lookup_passes_a_gradient_per_sample():
    def loss(weight, index):
        return lookup(weight, index).float().sum()

    weight = torch.ones(3, 2, dtype=torch.bfloat16)
    index = torch.tensor([[0, 0], [1, 2]])
    gradients = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, index)
    assert gradients[..., 0].tolist() == [[2, 0, 0], [0, 1, 1]]


def test_from_weight_holds_the_given_values_and_shares_them():
    weight = torch.tensor([[0.1, 0.2], [0.4, 0.5], [0.7, 0.8]])
    table = ww.TokenEmbedding.from_weight(weight)
    assert torch.equal(table(torch.tensor([2, 0])), weight[[2, 0]])
    assert (table.vocab_size, table.dim, table.weight.requires_grad) == (3, 2, True)
    weight[1, 0] = 9
    assert table.weight[1, 0].item() == 9


def test_from_weight_with_padding_leaves_the_given_tensor_alone():
    weight = torch.ones(3, 2)
    table = ww.TokenEmbedding.from_weight(weight, padding_id=1)
    assert table.weight.tolist() == [[1, 1], [0, 0], [1, 1]]
    assert weight.tolist() == [[1, 1], [1, 1], [1, 1]]


def test_a_frozen_table_is_kept_from_training():
    table = ww.TokenEmbedding.from_weight(torch.ones(3, 2, dtype=torch.bfloat16), freeze=True)
    assert not table.weight.requires_grad
    assert table.weight.dtype == torch.bfloat16
    assert not table(torch.tensor([1])).requires_grad


def test_device_and_dtype():
    table = ww.TokenEmbedding(5, 2, device="meta", dtype=torch.float16)
    assert (table.weight.device.type, table.weight.dtype) == ("meta", torch.float16)
    assert table(torch.zeros(1, 3, dtype=torch.int64, device="meta")).shape == (1, 3, 2)


def test_the_table_travels_as_a_state_dict():
    table, other = (ww.TokenEmbedding(5, 2, padding_id=0) for _ in range(2))
    other.load_state_dict(table.state_dict())
    assert torch.equal(other.weight, table.weight)
    assert list(table.state_dict()) == ["weight"]


def test_extra_repr_shows_the_settings():
    assert repr(ww.TokenEmbedding(5, 16)) == "TokenEmbedding(vocab_size=5, dim=16, init='normal')"
    assert repr(ww.TokenEmbedding(5, 16, init="torch", scale="sqrt_dim", padding_id=0)) == (
        "TokenEmbedding(vocab_size=5, dim=16, init='torch', scale=4, padding_id=0)"
    )


@pytest.mark.parametrize(("bad", "place"), [(7, (0, 2)), (-1, (1, 0))])
def test_the_error_names_the_id_its_place_and_the_vocabulary(bad, place):
    ids = torch.zeros(2, 3, dtype=torch.int64)
    ids[place] = bad
    with pytest.raises(ww.TokenError) as caught:
        ww.TokenEmbedding(7, 2)(ids)
    assert str(caught.value) == (
        f"id {bad} at {place} is outside the vocabulary, which has 7 tokens (0..6).\n"
        "Check that the tokenizer belongs to this table, or make the table larger."
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint16, torch.int32])
def test_narrow_ids_are_looked_up(dtype: torch.dtype) -> None:
    table = ww.TokenEmbedding(5, 3)
    ids = torch.tensor([[4, 0, 1]])
    assert torch.equal(table(ids.to(dtype)), table(ids))


def test_lookup_under_vmap() -> None:
    table = ww.TokenEmbedding(5, 3)
    ids = torch.tensor([[4, 0, 1], [2, 2, 3]])
    assert torch.equal(torch.vmap(table)(ids), table(ids))
