"""Per-layer embeddings: the reference, gradients, and what they refuse."""

import jaxtyping
import numpy as np
import pytest
import torch

import whatwhere as ww

V, L, D, DIM = 7, 3, 4, 5
IDS = torch.tensor([[3, 0, 3], [6, 3, 1]])


@pytest.fixture
def table() -> ww.PerLayerEmbedding:
    torch.manual_seed(0)
    table = ww.PerLayerEmbedding(V, L, D, DIM, dtype=torch.float64)
    with torch.no_grad():
        for weight in table.parameters():
            weight.copy_(torch.randn_like(weight))
    return table


def test_it_is_the_reference(table: ww.PerLayerEmbedding) -> None:
    x = torch.randn(2, 3, DIM, dtype=torch.float64)
    wanted = ww.reference.per_layer(
        table.tokens.weight.detach().numpy().reshape(V, L, D),
        IDS.numpy(),
        x.numpy(),
        table.projection.weight.detach().numpy().reshape(L, D, DIM),
        table.norm.detach().numpy(),
    )
    np.testing.assert_allclose(table(IDS, x).detach().numpy(), wanted, rtol=1e-12, atol=1e-12)


def test_gradients_are_slopes(table: ww.PerLayerEmbedding) -> None:
    x = torch.randn(2, 3, DIM, dtype=torch.float64, requires_grad=True)
    parameters = (table.tokens.weight, table.projection.weight, table.norm)

    def of(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        named = dict(zip(("tokens.weight", "projection.weight", "norm"), weights, strict=True))
        return torch.func.functional_call(table, named, (IDS, x))

    assert torch.autograd.gradcheck(of, (x, *parameters))
    table(IDS, x).sum().backward()
    assert (table.tokens.weight.grad != 0).any(-1).tolist() == [n in (0, 1, 3, 6) for n in range(V)]


def test_a_token_has_the_same_rows_everywhere_and_layers_have_their_own(table: ww.PerLayerEmbedding) -> None:
    rows = table.lookup(IDS)
    assert torch.equal(rows[0, 0], rows[1, 1])
    assert not torch.equal(rows[0, 0, 0], rows[0, 0, 1])


def test_without_ids_the_projection_alone_is_returned_and_not_scaled(table: ww.PerLayerEmbedding) -> None:
    x = torch.randn(1, 2, DIM, dtype=torch.float64)
    rms = (table(None, x) / table.norm).square().mean(-1).sqrt()
    assert torch.allclose(rms, torch.ones_like(rms), atol=1e-4)  # eps beside a mean square of about 1


def test_wrong_arguments_are_refused(table: ww.PerLayerEmbedding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    x = torch.randn(2, 3, DIM, dtype=torch.float64)
    with pytest.raises(ww.errors.TokenError, match="id 7 at"):
        table(IDS + 4, x)
    with pytest.raises(ww.errors.TokenError, match="outside=7 is not a row"):
        ww.PerLayerEmbedding(V, L, D, DIM, outside=7)
    with pytest.raises(ww.errors.ShapeError, match="an input vector for each id"):
        table(IDS, x[:, :2])
    with pytest.raises(ww.errors.ShapeError, match=r"\(\.\.\., 5\)"):
        table(IDS, x[..., :3])
    with pytest.raises(ww.errors.SettingError, match="eps"):
        ww.PerLayerEmbedding(V, L, D, DIM, eps=0.0)


def test_reset_follows_the_generator(table: ww.PerLayerEmbedding) -> None:
    first, second = (ww.PerLayerEmbedding(V, L, D, DIM) for _ in range(2))
    for each in (first, second):
        each.reset_parameters(torch.Generator().manual_seed(3))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
