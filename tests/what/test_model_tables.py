"""Factorized tables, value and per-layer embeddings: the reference, gradients, and what they refuse."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from tests.refusals import require_refused, short_refusals

IDS = torch.tensor([[3, 0, 3], [6, 3, 1]])


@pytest.fixture
def factorized() -> ww.FactorizedEmbedding:
    torch.manual_seed(0)
    return ww.FactorizedEmbedding(7, 3, 5, init=1.0, dtype=torch.float64)


def values(mixed_layers: int | None = None) -> ww.ValueEmbedding:
    torch.manual_seed(0)
    table = ww.ValueEmbedding(7, 2, 4, mixed_layers=mixed_layers, dtype=torch.float64)
    with torch.no_grad():
        for weight in table.parameters():
            weight.copy_(torch.randn_like(weight))
    return table


def test_a_factorized_table_is_the_reference(factorized: ww.FactorizedEmbedding) -> None:
    a, b = factorized.tokens.weight.detach().numpy(), factorized.projection.weight.detach().numpy().T
    wanted = ww.reference.factorized(a, b, IDS.numpy())
    np.testing.assert_allclose(factorized(IDS).detach().numpy(), wanted, rtol=1e-12, atol=1e-12)
    hidden = torch.randn(2, 5, dtype=torch.float64)
    logits = ww.reference.factorized_readout(hidden.numpy(), a, b)
    np.testing.assert_allclose(factorized.readout(hidden).detach().numpy(), logits, rtol=1e-12, atol=1e-12)


def test_both_factors_get_gradients_from_both_uses(factorized: ww.FactorizedEmbedding) -> None:
    both = (factorized.tokens.weight, factorized.projection.weight)
    assert torch.autograd.gradcheck(lambda *_: factorized.readout(factorized(IDS)), both)


def test_a_padding_row_is_projected_to_zero_and_scored_zero() -> None:
    table = ww.FactorizedEmbedding(7, 3, 5, padding_idx=2)
    assert bool((table(torch.tensor([2])) == 0).all())
    assert table.readout(torch.randn(1, 5))[0, 2].item() == 0


@pytest.mark.parametrize("layer", [None, 1])
def test_value_embeddings_are_the_reference(layer: int | None) -> None:
    table = values(None if layer is None else 2)
    v = torch.randn(2, 2, 3, 4, dtype=torch.float64)
    got = table.add(v, IDS, layer).detach().numpy()
    mix = (1.0, 1.0) if layer is None else table.mix[layer].tolist()
    weight = table.tokens.weight.detach().numpy().reshape(7, 2, 4)
    for b in range(2):
        wanted = ww.reference.mixed_values(v[b].numpy(), weight, IDS[b].numpy(), *mix)
        np.testing.assert_allclose(got[b], wanted, rtol=1e-12, atol=1e-12)


def test_values_start_unchanged_and_the_zero_table_gets_gradients() -> None:
    table = ww.ValueEmbedding(7, 2, 4, mixed_layers=1)
    v = torch.randn(2, 2, 3, 4)
    out = table.add(v, IDS, 0)
    assert torch.equal(out, v)
    out.sum().backward()
    counts = torch.bincount(IDS.flatten(), minlength=7).float()
    assert torch.equal(table.tokens.weight.grad, counts[:, None].expand(7, 8))
    assert float(table.mix.grad[0, 0]) == pytest.approx(float(v.sum()), rel=1e-5)


def test_decoding_gets_the_values_of_the_full_pass() -> None:
    table, v = values(), torch.randn(2, 2, 3, 4, dtype=torch.float64)
    assert torch.equal(table.add(v[:, :, 2:], IDS[:, 2:]), table.add(v, IDS)[:, :, 2:])


# Per-layer embeddings

V, L, D, DIM = 7, 3, 4, 5


@pytest.fixture
def layers() -> ww.PerLayerEmbedding:
    torch.manual_seed(0)
    layers = ww.PerLayerEmbedding(V, L, D, DIM, dtype=torch.float64)
    with torch.no_grad():
        for weight in layers.parameters():
            weight.copy_(torch.randn_like(weight))
    return layers


def test_per_layer_embeddings_are_the_reference(layers: ww.PerLayerEmbedding) -> None:
    x = torch.randn(2, 3, DIM, dtype=torch.float64)
    wanted = ww.reference.per_layer(
        layers.tokens.weight.detach().numpy().reshape(V, L, D),
        IDS.numpy(),
        x.numpy(),
        layers.projection.weight.detach().numpy().reshape(L, D, DIM),
        layers.norm.detach().numpy(),
    )
    np.testing.assert_allclose(layers(IDS, x).detach().numpy(), wanted, rtol=1e-12, atol=1e-12)


def test_gradients_are_slopes(layers: ww.PerLayerEmbedding) -> None:
    x = torch.randn(2, 3, DIM, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *_: layers(IDS, x), (x, *layers.parameters()))
    layers(IDS, x).sum().backward()
    assert (layers.tokens.weight.grad != 0).any(-1).tolist() == [n in (0, 1, 3, 6) for n in range(V)]


def test_without_ids_the_projection_alone_is_returned_and_not_scaled(layers: ww.PerLayerEmbedding) -> None:
    x = torch.randn(1, 2, DIM, dtype=torch.float64)
    rms = (layers(None, x) / layers.norm).square().mean(-1).sqrt()
    assert torch.allclose(rms, torch.ones_like(rms), atol=1e-4)  # eps beside a mean square of about 1


@short_refusals(
    r"""
factorized.readout(torch.randn(2, 3)) -> ShapeError: (..., 5)
factorized(IDS + 4) -> TokenError: id 7 at
values().add(v.transpose(1, 2), IDS) -> ShapeError: values of these tokens
values().add(v, IDS, 0) -> SettingError: learned mix
values(2).add(v, IDS, None) -> SettingError: learned mix
values(2).add(v, IDS, 2) -> SettingError: learned mix
values(2).add(v, IDS, -1) -> SettingError: learned mix
layers(IDS + 4, x) -> TokenError: id 7 at
layers(IDS, x[:, :2]) -> ShapeError: an input vector for each id
layers(IDS, x[..., :3]) -> ShapeError: (..., 5)
ww.PerLayerEmbedding(V, L, D, DIM, outside=7) -> TokenError: outside=7 is not a row
ww.PerLayerEmbedding(V, L, D, DIM, eps=0.0) -> SettingError: eps
"""
)
@pytest.mark.usefixtures("our_own_checks")
def test_wrong_arguments_are_refused(
    call: str, error: str, parts: str, factorized: ww.FactorizedEmbedding, layers: ww.PerLayerEmbedding
) -> None:
    v, x = torch.randn(2, 2, 3, 4, dtype=torch.float64), torch.randn(2, 3, DIM, dtype=torch.float64)
    require_refused(call, error, parts, {**globals(), "factorized": factorized, "layers": layers, "v": v, "x": x})
