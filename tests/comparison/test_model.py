"""The Transformer: its equations in NumPy, its direction, its parameters, and every scheme that stands in it."""

from math import erf, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere import reference
from whatwhere.comparison.model import Transformer, build_wheres
from whatwhere.comparison.settings import Settings, make_settings
from whatwhere.comparison.train import build

VOCAB, DIM, HEADS, FEED, TOKENS = 20, 32, 4, 48, 9


def own(dim: int, num_heads: int, max_length: int) -> ww.Where:
    return ww.Where(input=ww.Sinusoidal(dim), query_key=ww.Rotary(dim // num_heads), score=ww.ALiBi(num_heads))


# Every scheme of the catalogue, mixtures by door and by layer, and one's own.
SCHEMES = [*ww.catalogue, "rotary+alibi", "learned+rotary", "rotary/none", "sinusoidal/alibi", ("own", own)]
BOTH_WAYS = [s for s in SCHEMES if s not in ww.catalogue or not ww.catalogue[s].causal_only]


def name(scheme: Any) -> str:
    return scheme if isinstance(scheme, str) else scheme[0]


def small_settings(**given: Any) -> Settings:
    sizes = {"dim": DIM, "heads": HEADS, "layers": 2, "feedforward": FEED, "init": 0.3}
    return make_settings("expressions", None, **sizes | given)


def made(scheme: Any, **given: Any) -> Transformer:
    """Build a model and draw all its parameters, norms and biases too, so that none of them is without effect."""
    settings = small_settings(**given)
    torch.manual_seed(1)
    model = Transformer(VOCAB, build_wheres(scheme, DIM, HEADS, TOKENS, settings.layers), settings)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weights in model.parameters():
            weights += 0.2 * torch.randn(weights.shape, generator=generator)
    return model.eval()


def sampled(rows: int = 3) -> Tensor:
    return torch.randint(0, VOCAB, (rows, TOKENS), generator=torch.Generator().manual_seed(3))


def norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def forward(model: Transformer, ids: Tensor, layers: list[str], causal: bool) -> np.ndarray:
    """Compute the logits of every place in float64, from the weights alone."""
    w = {n: value.detach().double().numpy() for n, value in model.state_dict().items()}
    x, positions = w["input.tokens.weight"][ids.numpy()], np.arange(TOKENS)
    if "learned" in layers[0]:
        x = x + w["input.where.input.weight"][:TOKENS]
    if "sinusoidal" in layers[0]:
        x = x + reference.sinusoid(positions, DIM)
    mask = np.tri(TOKENS, dtype=bool) if causal else None
    for n, scheme in enumerate(layers):
        y = norm(x, w[f"blocks.{n}.norm_attention.weight"], w[f"blocks.{n}.norm_attention.bias"])
        q, k, v = (y @ w[f"blocks.{n}.qkv.weight"].T).reshape(*ids.shape, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)
        if "rotary" in scheme:
            q, k = (np.stack([reference.rotary(each, positions) for each in part]) for part in (q, k))
        bias = reference.alibi_bias(positions, positions, HEADS) if "alibi" in scheme else None
        seen = np.stack([reference.attention(*each, bias, mask) for each in zip(q, k, v, strict=True)])
        seen = seen.swapaxes(1, 2).reshape(*ids.shape, DIM)
        x = x + seen @ w[f"blocks.{n}.out.weight"].T
        y = norm(x, w[f"blocks.{n}.norm_feed.weight"], w[f"blocks.{n}.norm_feed.bias"])
        y = y @ w[f"blocks.{n}.feed.0.weight"].T + w[f"blocks.{n}.feed.0.bias"]
        y = y * 0.5 * (1 + np.vectorize(erf)(y / sqrt(2)))
        x = x + y @ w[f"blocks.{n}.feed.2.weight"].T + w[f"blocks.{n}.feed.2.bias"]
    x = norm(x, w["norm.weight"], w["norm.bias"])
    return x @ w.get("lm_head.weight", w["input.tokens.weight"]).T


@pytest.mark.parametrize("direction", ["decoder", "encoder"])
@pytest.mark.parametrize(
    ("scheme", "layers"),
    [
        ("none", ["none"] * 2),
        ("sinusoidal", ["sinusoidal"] * 2),
        ("learned", ["learned"] * 2),
        ("rotary", ["rotary"] * 2),
        ("alibi", ["alibi"] * 2),
        ("learned+rotary/alibi/none", ["learned+rotary", "alibi", "none"]),
        (("own", own), ["sinusoidal+rotary+alibi"]),
        ("tied", ["alibi"] * 2),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else str(given),
)
@torch.no_grad()
def test_the_logits_are_the_equations(scheme: Any, layers: list[str], direction: str) -> None:
    tied = scheme == "tied"
    model = made("alibi" if tied else scheme, layers=len(layers), direction=direction, tied=tied)
    assert (model.lm_head is None) is tied
    expected = torch.from_numpy(forward(model, sampled(), layers, causal=direction == "decoder"))
    torch.testing.assert_close(model(sampled()).double(), expected, rtol=0, atol=1e-4)
    assert expected.std() > 0.1


@pytest.mark.every_nth(5)
@pytest.mark.parametrize(
    ("scheme", "direction"),
    [(scheme, "decoder") for scheme in SCHEMES] + [(scheme, "encoder") for scheme in BOTH_WAYS],
    ids=name,
)
@torch.no_grad()
def test_one_position_is_queried_or_every_position(scheme: Any, direction: str) -> None:
    """The last layer computes one query only, by whatever scheme, and at drawn positions too."""
    model, ids = made(scheme, direction=direction), sampled()
    scattered = ww.Positions.randomized(TOKENS, 24, batch=3, generator=torch.Generator().manual_seed(4))
    for p in (None, ww.positions(TOKENS, start=2), scattered):
        try:
            everywhere = model(ids, None, p)
        except ww.errors.PositionError:  # a table of positions ends where training did
            assert p is not None
            continue
        assert everywhere.shape == (3, TOKENS, VOCAB)
        for at in (0, 4, -1):
            torch.testing.assert_close(model(ids, at, p), everywhere[:, at], rtol=0, atol=1e-4)


BLOCK = 2 * 2 * 64 + 64 * 3 * 64 + 64 * 64 + (64 * 256 + 256) + (256 * 64 + 64)
DEMO = 20 * 64 + 2 * BLOCK + 2 * 64 + 64 * 20


@pytest.mark.parametrize(
    ("scheme", "given", "expected"),
    [
        ("none", {}, DEMO),
        ("rotary", {}, DEMO),
        ("learned", {}, DEMO + (2 * 6 + 2) * 64),  # six arguments are 14 tokens
        ("none", {"tied": True}, DEMO - 64 * 20),
        ("none", {"layers": 3}, DEMO + BLOCK),
    ],
)
def test_parameters_are_those_counted_by_hand(scheme: str, given: Any, expected: int) -> None:
    settings = make_settings("expressions", None, **given)
    model = build(scheme, 0, ww.comparison.tasks.Expressions(), settings)
    assert sum(weights.numel() for weights in model.parameters()) == expected
    assert DEMO == 102_144
