"""Queries meet keys: the scores are those that attention takes, for every scheme of the catalogue."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.analysis.walkthrough import attention_scores, rotary_pairs
from whatwhere.errors import SettingError
from whatwhere.where.catalogue import random_scheme

TOKENS, DIM, HEADS = 7, 24, 2


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(TOKENS, DIM, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", [*ww.catalogue, "sinusoidal+rotary+alibi"])
def test_their_softmax_is_what_attention_gathers_by(x: torch.Tensor, name: str) -> None:
    where = random_scheme(name, DIM, HEADS, TOKENS)
    result = attention_scores(x, where, HEADS)
    here = where.at(ww.positions(TOKENS))
    with torch.no_grad():
        q = x.view(TOKENS, HEADS, -1).transpose(0, 1)[None]
        rotated = here.query_key(q, q.clone(), increments=here.increments(x[None]))
        # A value that is 1 for one key alone brings that key's weight.
        gathered = here.attention(*rotated, torch.eye(TOKENS).expand(1, HEADS, -1, -1), gates=here.gates(x[None]))
    torch.testing.assert_close(result.scores.softmax(-1), gathered[0], rtol=1e-4, atol=1e-6)


def test_rotary_and_alibi_are_the_formula_by_hand(x: torch.Tensor) -> None:
    result = attention_scores(x, random_scheme("rotary+alibi", DIM, HEADS, TOKENS), HEADS)
    size = DIM // HEADS
    speeds = 10_000.0 ** (-np.arange(0, size, 2) / size)
    for head in range(HEADS):
        part = x[:, head * size : (head + 1) * size].double().numpy()
        rotated = (part[:, : size // 2] + 1j * part[:, size // 2 :]) * np.exp(1j * np.outer(np.arange(TOKENS), speeds))
        products = (rotated[:, None] * rotated[None].conj()).real.sum(-1) / np.sqrt(size)
        bias = -(2.0 ** (-8 * (head + 1) / HEADS)) * np.abs(np.subtract.outer(np.arange(TOKENS), np.arange(TOKENS)))
        seen = np.tril(np.ones((TOKENS, TOKENS), bool))
        np.testing.assert_allclose(result.scores[head].numpy()[seen], (products + bias)[seen], rtol=1e-4, atol=1e-5)
        assert np.isneginf(result.scores[head].numpy()[~seen]).all()
        np.testing.assert_allclose(result.products[head].numpy(), part @ part.T / np.sqrt(size), rtol=1e-5, atol=1e-6)


def test_bidirectional_scores_mask_nothing_and_causal_schemes_refuse_them(x: torch.Tensor) -> None:
    assert attention_scores(x, ww.Where(), HEADS, causal=False).scores.isfinite().all()
    with pytest.raises(SettingError, match="supports causal attention only"):
        attention_scores(x, random_scheme("cope", DIM, HEADS, TOKENS), HEADS, causal=False)


def test_heads_wider_than_their_slice_wrap_around_to_the_first_features(x: torch.Tensor) -> None:
    result = attention_scores(x, ww.Where(), HEADS, head_dim=16)
    assert torch.equal(result.q[1], torch.cat([x[:, 12:], x[:, :4]], dim=1))


@pytest.mark.parametrize("name", ["rotary", "rotary-yarn", "rotary-axial", "rotary-multimodal", "xpos"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_pairs_are_the_features_that_rotate_together(name: str, interleaved: bool) -> None:
    scheme = ww.scheme(name, DIM, HEADS, TOKENS, interleaved=interleaved).query_key
    pairs = rotary_pairs(scheme)
    at = ww.positions(4)
    for number, (first, second) in enumerate(zip(*(part.tolist() for part in pairs), strict=True)):
        q = torch.zeros(1, 1, 4, DIM // HEADS)
        q[..., first] = 1
        mapped, _ = scheme(q, q, at)
        others = [n for n in range(DIM // HEADS) if n not in (first, second)]
        assert mapped[..., others].abs().max() == 0
        turn = torch.atan2(mapped[0, 0, 1, second], mapped[0, 0, 1, first]).item()
        assert turn == pytest.approx(scheme.inverse_frequencies[number].item(), abs=1e-6)


def test_other_maps_have_no_pairs() -> None:
    assert rotary_pairs(ww.scheme("pope", DIM, HEADS, TOKENS).query_key) is None
    assert rotary_pairs(None) is None
