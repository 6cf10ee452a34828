"""Sinks: the reference, transformers' own eager attention of gpt-oss, every engine, and gradients."""

import numpy as np
import pytest
import torch
from torch import Tensor

import whatwhere as ww
from tests.gradients import require_gradients
from whatwhere import reference

HEADS, KEY_HEADS, TOKENS = 4, 2, 9
POSITIONS = {
    "run": lambda: ww.positions(TOKENS),
    "packed": lambda: ww.Positions.packed([4, 5]),
    "left padding": lambda: ww.Positions.from_mask(torch.arange(TOKENS) >= torch.tensor([[0], [3]])),
}


def inputs(tokens: int = TOKENS, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, n, tokens, 8, generator=generator).to(dtype) for n in (HEADS, KEY_HEADS, KEY_HEADS)]


def with_sink(score: ww.ScoreBias | None = None, window: int | None = None, seed: int = 1) -> ww.Where:
    where = ww.Where(score=score, window=window, sink=ww.Sink(HEADS))
    torch.nn.init.normal_(where.sink.weight, generator=torch.Generator().manual_seed(seed))
    return where.double()


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("score", [None, "alibi", "t5"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_attention_and_gradients_are_the_references(positions: str, score: str | None, causal: bool) -> None:
    p = POSITIONS[positions]()
    if score == "alibi" and not causal:
        return
    scheme = {
        None: lambda: None,
        "alibi": lambda: ww.ALiBi(HEADS),
        "t5": lambda: ww.T5(HEADS, bidirectional=not causal, scale=None),
    }[score]()
    where = with_sink(scheme, window=5)
    q, k, v = (x.requires_grad_() for x in inputs())
    g = torch.randn(2, HEADS, TOKENS, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    bias = (
        torch.zeros(1, HEADS, TOKENS, TOKENS)
        if scheme is None
        else scheme(p, causal=causal).masked_fill(~p.mask(causal=causal), 0)
    )
    mask = p.mask(causal=causal) & ww.Window(5).mask(p)
    k_all, v_all = (x.detach().repeat_interleave(HEADS // KEY_HEADS, 1).numpy() for x in (k, v))
    biases, masks = bias.detach().double().numpy(), mask.numpy()

    def by_reference(q: np.ndarray, sink: np.ndarray) -> np.ndarray:
        rows = [(q[b], k_all[b], v_all[b], biases[b % len(biases)], masks[b % len(masks), 0]) for b in range(2)]
        return np.stack([reference.attention(*row, sink=sink) for row in rows])

    for engine in ("dense", "sdpa"):
        y = where.at(p).attention(q, k, v, causal=causal, engine=engine)
        expected = by_reference(q.detach().numpy(), where.sink.weight.detach().numpy())
        torch.testing.assert_close(y, torch.from_numpy(expected))
        actual = torch.autograd.grad(y, [q, k, v, where.sink.weight], g)
        require_gradients((actual[0], actual[3]), by_reference, (q, where.sink.weight), g)


@pytest.mark.parametrize("tokens", [TOKENS, 520])
@pytest.mark.parametrize("engine", ["dense", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_low_precision_and_long(dtype: torch.dtype, engine: str, tokens: int) -> None:
    """Beside float64, with a window and a bias; above 512 tokens by blocks."""
    p = ww.positions(tokens)
    results = []
    for wide, how in ((torch.float64, "dense"), (dtype, engine)):
        where = with_sink(ww.ALiBi(HEADS), window=100)
        q, k, v = (x.to(dtype).to(wide).requires_grad_() for x in inputs(tokens))
        y = where.at(p).attention(q, k, v, engine=how)
        assert y.dtype == wide
        y.double().square().sum().backward()
        results.append([x.double() for x in (y, q.grad, k.grad, v.grad, where.sink.weight.grad)])
    for actual, expected in zip(results[1], results[0], strict=True):
        error = (actual - expected).norm() / expected.norm()
        assert error < 6 * torch.finfo(dtype).eps


def test_transforms_use_the_formula() -> None:
    where, p = with_sink(), ww.positions(TOKENS)
    q, k, v = inputs()
    each = torch.vmap(lambda one: where.at(p).attention(one, k, v))(torch.stack([q, 2 * q]))
    torch.testing.assert_close(each[1], where.at(p).attention(2 * q, k, v, engine="dense"))


@pytest.mark.parametrize("by", ["q", "k", "v", "sink.weight", "score.weight"])
def test_long_attention_has_no_second_derivative(by: str) -> None:
    """Which is an error, not zero, also where it is one of several terms, and only one tensor's gradient is wanted."""
    where = with_sink(ww.T5(HEADS), window=50)
    leaves = dict(zip("qkv", (x.requires_grad_() for x in inputs(520)), strict=True)) | dict(where.named_parameters())
    y = where.at(ww.positions(520)).attention(*(leaves[name] for name in "qkv"))
    for gradient in torch.autograd.grad(y.square().sum(), list(leaves.values()), create_graph=True):
        with pytest.raises(ww.errors.SettingError, match=r"no second derivative\.\n.*engine='dense'"):
            torch.autograd.grad(gradient.square().sum() + leaves[by].sum(), leaves[by], retain_graph=True)


def test_dropout_drops_weights_of_keys_at_its_rate() -> None:
    where = ww.Where(sink=ww.Sink(1))
    q, v = torch.zeros(1, 1, 300, 4), torch.eye(300)[None, None]
    torch.manual_seed(0)
    for engine in ("dense", "sdpa"):
        weights = where.at(ww.positions(300)).attention(q, q, v, causal=False, dropout=0.25, engine=engine)[0, 0] * 301
        torch.testing.assert_close(weights[weights != 0], torch.tensor(4 / 3).expand(int((weights != 0).sum())))
        assert abs(float((weights == 0).float().mean()) - 0.25) < 0.01  # five standard deviations of 90,000 draws


def test_state_and_settings() -> None:
    where = ww.Where(sink=ww.Sink(HEADS))
    assert list(where.state_dict()) == ["sink.weight"]
    torch.nn.init.normal_(where.sink.weight)
    where.reset_parameters()
    assert not where.sink.weight.any()
    assert repr(where) == "Where(sink=Sink(num_heads=4))"


def test_a_sink_of_minus_infinity_is_none() -> None:
    """Also for queries without keys."""
    where, p = with_sink(), POSITIONS["left padding"]()
    torch.nn.init.constant_(where.sink.weight, -torch.inf)
    with torch.no_grad():
        wanted = ww.Where().at(p).attention(*inputs())
        for engine in ("dense", "sdpa", "flex"):
            torch.testing.assert_close(where.at(p).attention(*inputs(), engine=engine), wanted)
