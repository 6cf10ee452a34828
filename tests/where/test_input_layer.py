"""The input layer: the sum of what and where."""

import pytest
import torch

import whatwhere as ww

IDS = torch.tensor([[4, 2, 7], [0, 0, 1]])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("scheme", [ww.Sinusoidal(8), ww.Learned(8, 5)], ids=["sinusoidal", "learned"])
def test_it_adds_the_position_to_the_token(scheme):
    layer = ww.InputLayer(10, 8, input=scheme)
    x = layer(IDS)
    assert x.shape == (2, 3, 8)
    assert torch.equal(x, layer.tokens.weight[IDS] + scheme(ww.positions(3)))


def test_scale_multiplies_the_token_and_not_the_position():
    scheme = ww.Sinusoidal(16)
    layer = ww.InputLayer(10, 16, input=scheme, scale="sqrt_dim")
    assert torch.allclose(layer(IDS), 4 * layer.tokens.weight[IDS] + scheme(ww.positions(3)))


def test_a_here_bound_by_the_model_is_accepted():
    scheme = ww.Sinusoidal(8)
    layer = ww.InputLayer(10, 8)
    here = ww.Where(input=scheme, score=ww.ALiBi(2)).at(ww.positions(3, start=9))
    assert torch.equal(layer(IDS, here), layer.tokens.weight[IDS] + scheme(ww.positions(3, start=9)))


def test_a_here_of_the_same_input_scheme_is_accepted():
    scheme = ww.Learned(8, 16)
    layer = ww.InputLayer(10, 8, input=scheme)
    for where in (layer.where, ww.Where(input=scheme, query_key=ww.Rotary(4))):
        assert torch.equal(layer(IDS, where.at(ww.positions(3))), layer(IDS))


def test_both_tables_are_parameters_and_get_gradients():
    layer = ww.InputLayer(10, 8, input=ww.Learned(8, 5), padding_idx=0)
    assert sorted(name for name, _ in layer.named_parameters()) == ["tokens.weight", "where.input.weight"]
    layer(IDS).sum().backward()
    # Tokens count their slots (the padding id 0 none), positions their sequences, rows that do not occur none.
    assert layer.tokens.weight.grad[:, 0].tolist() == [0, 1, 1, 0, 1, 0, 0, 1, 0, 0]
    assert layer.where.input.weight.grad[:, 0].tolist() == [2, 2, 2, 0, 0]


def test_reset_initializes_both_tables():
    layer = ww.InputLayer(10, 8, input=ww.Learned(8, 5), padding_idx=3)
    before = {name: value.detach().clone() for name, value in layer.named_parameters()}
    layer.reset_parameters()
    moved = {name: (value != before[name]).any(-1).tolist() for name, value in layer.named_parameters()}
    assert moved["tokens.weight"] == [n != 3 for n in range(10)]
    assert moved["where.input.weight"] == [True] * 5


def test_settings_are_passed_to_the_token_table():
    layer = ww.InputLayer(10, 8, init="torch", scale=2.0, padding_idx=1, device="meta", dtype=torch.float64)
    table = layer.tokens
    assert (table.init, table.scale, table.padding_idx) == ("torch", 2.0, 1)
    assert (table.weight.device.type, table.weight.dtype) == ("meta", torch.float64)


def test_a_bfloat16_table_returns_bfloat16_vectors():
    layer = ww.InputLayer(10, 8, input=ww.Sinusoidal(8), dtype=torch.bfloat16)
    x = layer(IDS)
    exact = layer.tokens.weight[IDS].float() + layer.where.input(ww.positions(3))
    assert x.dtype == torch.bfloat16
    assert torch.equal(x, exact.bfloat16())


def test_an_empty_sequence_has_no_vectors():
    layer = ww.InputLayer(10, 8, input=ww.Learned(8, 5))
    assert layer(torch.zeros(2, 0, dtype=torch.int64)).shape == (2, 0, 8)


@pytest.mark.compile
def test_the_layer_is_exported_with_positions_as_an_argument():
    layer = ww.InputLayer(10, 8, input=ww.Learned(8, 16))
    program = torch.export.export(layer, (IDS, ww.positions(3)))
    other, later = torch.tensor([[1, 9, 0], [3, 3, 8]]), ww.positions(3)
    assert torch.equal(program.module()(other, later), layer(other, later))


def test_a_number_of_positions_lies_on_the_device_of_the_ids():
    layer = ww.InputLayer(10, 8, input=ww.Learned(8, 16, device="meta"), device="meta")
    assert layer(IDS.to("meta"), 3).device.type == "meta"
