"""What `auto` takes on a GPU, tried on the CPU: only the question where tensors are is answered otherwise.

FlexAttention itself is replaced by the same computation from its arguments, a formula and a mask by element.
"""

import logging

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported
from torch._dynamo.testing import CompileCounter

import whatwhere as ww
from whatwhere.errors import SettingError
from whatwhere.where import attention as module
from whatwhere.where import gpu_attention, pass_cache
from whatwhere.where.score_bias import tabulate

HEADS, KEY_HEADS, TOKENS, HEAD_DIM = 4, 2, 24, 16
SCHEMES = [name for name, row in ww.catalogue.items() if row.door == "score"]


def heads(tokens: int = TOKENS, head_dim: int = HEAD_DIM, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(2, n, tokens, head_dim, generator=g).to(dtype) for n in (HEADS, KEY_HEADS, KEY_HEADS)]


class Flex:
    """Stand in for compiled FlexAttention, and count its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails = False

    def __call__(self, q, k, v, element, mask, *, scale, softcap, lse):
        self.calls += 1
        if self.fails:
            raise Unsupported("a formula that does not compile\nand a trace")
        sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2], q.device)
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
        scores = scores if softcap is None else (scores / softcap).tanh() * softcap
        scores = scores if element is None else scores + tabulate(element, *sizes)
        seen = torch.ones_like(scores, dtype=torch.bool) if mask is None else tabulate(mask.mask_mod, *sizes)
        empty = ~seen.any(-1, keepdim=True)
        scores = scores.masked_fill(~seen, -torch.inf).masked_fill(empty, 0)
        logs = scores.logsumexp(-1).masked_fill(empty[..., 0], -torch.inf)
        return scores.softmax(-1).masked_fill(empty, 0) @ v, logs if lse else None


@pytest.fixture
def flex(monkeypatch) -> Flex:
    """On a GPU, as far as attention knows; 24 tokens are many, and a table of all pairs is an error."""
    made = Flex()

    def refuse(*given):
        raise AssertionError("a table of all pairs")

    monkeypatch.setattr(gpu_attention, "is_on_gpu", lambda q: True)
    monkeypatch.setattr(module, "_MIN_BLOCKWISE", TOKENS)
    monkeypatch.setattr(module, "_MIN_ROWS_ON_GPU", TOKENS // 2)
    monkeypatch.setattr(module, "_CHUNK", 7 * TOKENS * HEADS)
    monkeypatch.setattr(module, "_for_cpu", lambda *given: False)  # it is for the CPU
    monkeypatch.setattr(gpu_attention, "attend", made)
    monkeypatch.setattr(gpu_attention, "_refused", set())
    monkeypatch.setattr(pass_cache.PassCache, "added", refuse)
    return made


def both(where: ww.Where, p: ww.Positions, given: list[Tensor], **how) -> tuple[Tensor, Tensor]:
    """Attention by `auto`, and by the formula with the mask and the bias of all pairs."""
    here = where.at(p)
    gates = here.gates(torch.randn(2, p.tokens, HEADS * HEAD_DIM, generator=torch.Generator().manual_seed(1)))
    q, k, v = given
    y = here.attention(q, k, v, gates=gates, **how)
    scores = here._cache.scores(where.score, where.window, q, k, True, how.get("mask"), gates)
    sizes = (2, HEADS, q.shape[2], k.shape[2], q.device)
    logits = q.double() @ k.double().repeat_interleave(HEADS // KEY_HEADS, 1).mT
    logits = logits * (q.shape[-1] ** -0.5 if where.scale is None else where.scale)
    logits = logits if scores.element is None else logits + tabulate(scores.element, *sizes)
    seen = tabulate(scores.allowed, *sizes)
    logits = logits.masked_fill(~seen, -torch.inf)
    if where.sink is not None:
        logits = torch.cat([logits, where.sink.weight.double()[:, None, None].expand(2, -1, q.shape[2], 1)], -1)
    weights = logits.softmax(-1).nan_to_num(0)[..., : k.shape[2]]
    return y, weights @ v.double().repeat_interleave(HEADS // KEY_HEADS, 1)


def scheme_of(name: str) -> ww.Where:
    where = ww.scheme(name, dim=HEADS * HEAD_DIM, num_heads=HEADS, max_length=TOKENS)
    for weight in where.parameters():
        nn.init.normal_(weight, generator=torch.Generator().manual_seed(2))
    return where


PACKED = ww.Positions.packed([9, 15])
SERVED = {
    "window": (lambda: ww.Where(window=5), ww.positions(TOKENS)),
    "window and sink": (lambda: ww.Where(ww.ALiBi(HEADS), window=5, sink=ww.Sink(HEADS)), ww.positions(TOKENS)),
    "chunks": (lambda: ww.Where(chunk=7), ww.positions(TOKENS)),
    "documents": (lambda: ww.Where(), PACKED),
    "padding": (lambda: ww.Where(ww.KERPLE(HEADS)), ww.Positions.from_mask(torch.arange(TOKENS) >= 5)),
}


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("p", [ww.positions(TOKENS), PACKED], ids=["run", "packed"])
def test_every_formula_of_positions_is_flex_attentions(name, p, flex):
    """Biases by content are computed in chunks, and neither makes a table."""
    where = scheme_of(name)
    y, expected = both(where, p, heads())
    assert flex.calls == (not where.score.by_content)
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", SERVED)
def test_masks_and_sinks_are_too(name, flex):
    make, p = SERVED[name]
    y, expected = both(make(), p, heads())
    assert flex.calls == 1
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("case", "given", "how"),
    [
        ("float64", heads(dtype=torch.float64), {}),
        ("a small head", heads(head_dim=8), {}),
        ("a large head", heads(head_dim=272), {}),
        ("a mask", heads(), {"mask": torch.ones(1, 1, TOKENS, TOKENS, dtype=torch.bool).triu(-4)}),
        ("no compiler", heads(), {}),
        ("deterministic algorithms", heads(), {}),
    ],
)
def test_what_it_does_not_take_is_computed_in_chunks(case, given, how, flex, caplog):
    flex.fails = case == "no compiler"
    torch.use_deterministic_algorithms(case == "deterministic algorithms")
    try:
        with caplog.at_level(logging.WARNING, "whatwhere"):
            for _ in range(2):
                y, expected = both(ww.Where(ww.ALiBi(HEADS)), ww.positions(TOKENS), given, **how)
                torch.testing.assert_close(y.double(), expected, rtol=0, atol=2e-6)
    finally:
        torch.use_deterministic_algorithms(False)
    assert flex.calls == flex.fails, "what failed is not tried again"
    said = [("ALiBi.curve" in line, "does not compile" in line) for line in caplog.messages]
    assert said == [(True, True)] * flex.fails


def test_gradients_and_autocast(flex):
    where, given = ww.Where(ww.T5(HEADS)), [x.requires_grad_() for x in heads()]
    with torch.autocast("cpu", torch.bfloat16):
        y = where.at(TOKENS).attention(*given)
    assert (y.dtype, flex.calls) == (torch.bfloat16, 1)
    y.float().sum().backward()
    assert where.score.weight.grad.count_nonzero() > HEADS


def test_layers_share_one_block_mask(flex, monkeypatch):
    made, real = [], pass_cache.visible_tiles
    monkeypatch.setattr(pass_cache, "visible_tiles", lambda *given: made.append(given) or real(*given))
    layers = [ww.Where(score, window=9) for score in (ww.ALiBi(HEADS), ww.T5(HEADS))] + [ww.Where(ww.FIRE(HEADS))]
    for here in ww.bind([*layers, *layers], PACKED):
        here.attention(*heads())
    assert (flex.calls, len(made)) == (6, 2), "one for each mask: with a window, and without"


def test_the_first_call_says_what_it_compiles(monkeypatch, caplog):
    """Once for a formula and a mask, whatever the lengths; another formula is another program."""
    compiled = []

    def fake(function, fullgraph):
        assert fullgraph
        compiled.append(function.__code__)
        return lambda q, *given, **how: (q, None)

    monkeypatch.setattr(torch, "compile", fake)
    gpu_attention._compiled.cache_clear()
    monkeypatch.setattr(gpu_attention, "is_on_gpu", lambda q: True)
    q = torch.empty(1, HEADS, 600, HEAD_DIM, device="meta")
    with caplog.at_level(logging.WARNING):
        for scheme in (ww.ALiBi(HEADS), ww.ALiBi(HEADS), ww.KERPLE(HEADS)):
            for tokens in (600, 700):
                p = ww.positions(tokens)
                element = scheme.bind(p, p)
                gpu_attention.attend(q, q, q, element, None, scale=None, softcap=None, lse=False)
    gpu_attention._compiled.cache_clear()
    assert [("ALiBi" in line, "KERPLE" in line) for line in caplog.messages] == [(True, False), (False, True)]
    assert len({id(code) for code in compiled}) == 2


@pytest.mark.compile
def test_passes_share_a_program(monkeypatch):
    """Each makes its functions anew; a second length makes the program one for all."""
    counter, real = CompileCounter(), torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, fullgraph: real(f, backend=counter, fullgraph=fullgraph))
    monkeypatch.setattr(gpu_attention, "is_on_gpu", lambda q: True)
    monkeypatch.setattr(module, "_MIN_BLOCKWISE", 128)
    gpu_attention._compiled.cache_clear()
    programs = []
    for tokens in (130, 130, 150, 170, 290, 420, 560):
        where, given = ww.Where(ww.ALiBi(HEADS), window=100), heads(tokens)
        with torch.no_grad():
            y, expected = both(where, ww.positions(tokens), given)
        torch.testing.assert_close(y.double(), expected, rtol=0, atol=2e-6)
        programs.append(counter.frame_count)
    gpu_attention._compiled.cache_clear()
    assert programs == [1, 1, 2, 2, 3, 3, 3], "a second number of tiles makes that one for all, too"


@pytest.mark.parametrize(
    ("given", "how", "reason"),
    [
        (heads(), {}, "float32"),
        (heads(dtype=torch.bfloat16), {}, "NVIDIA GPU"),
        (heads(head_dim=8, dtype=torch.bfloat16), {}, "16 to 256"),
        (heads(dtype=torch.bfloat16), {"dropout": 0.5}, "dropout"),
    ],
)
def test_the_kernel_says_why_it_cannot(given, how, reason):
    with pytest.raises(SettingError, match=f"engine='flash' cannot .*{reason}[^\n]*\n.*engine='auto'"):
        ww.Where(ww.ALiBi(HEADS)).at(TOKENS).attention(*given, engine="flash", **how)
