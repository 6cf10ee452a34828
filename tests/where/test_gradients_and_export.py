"""Activation checkpointing, a first use under no_grad and torch.compile change no gradient; an export has no length."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import whatwhere as ww
from whatwhere.comparison.model import Block, build_wheres
from whatwhere.where.binding import Here, Where
from whatwhere.where.catalogue import catalogue

DIM, HEADS, TOKENS, LAYERS = 32, 2, 12, 3
SCHEMES = [*catalogue, "rotary-learned+t5", "temperature+fope"]
Run = Callable[[Block, Tensor, Here], Tensor]


def applied(block: Block, x: Tensor, here: Here) -> Tensor:
    return block(x, here)


RUNS: dict[str, Run] = {
    "reentrant": lambda block, x, here: checkpoint(block, x, here, use_reentrant=True),
    "not reentrant": lambda block, x, here: checkpoint(block, x, here, use_reentrant=False),
}


class Layers(nn.Module):
    """A few blocks whose layers share a scheme."""

    def __init__(self, name: str, tokens: int = TOKENS) -> None:
        super().__init__()
        self.wheres = nn.ModuleList(build_wheres(name, DIM, HEADS, tokens, LAYERS, seed=1))
        generator = torch.Generator().manual_seed(2)
        causal = True
        self.blocks = nn.ModuleList(Block(DIM, HEADS, 2 * DIM, causal, generator) for _ in self.wheres)
        for parameter in self.wheres.parameters():  # some start at zero, where a lost gradient could hide
            nn.init.normal_(parameter, std=0.3, generator=generator)

    def heres(self, tokens: int) -> list[Here]:
        return ww.bind([where for where in self.wheres if isinstance(where, Where)], tokens)

    def forward(self, x: Tensor, run: Run = applied, heres: list[Here] | None = None) -> Tensor:
        heres = heres or self.heres(x.shape[1])
        x = heres[0].input(x)
        for block, here in zip(self.blocks, heres, strict=True):
            assert isinstance(block, Block)
            x = run(block, x, here)
        return x

    def gradients(self, call: Callable[[Tensor], Tensor], x: Tensor) -> dict[str, Tensor | None]:
        self.zero_grad(set_to_none=True)
        loss = call(x.clone().requires_grad_()).square().mean()
        loss.backward()
        grads = {name: parameter.grad for name, parameter in self.named_parameters()}
        return {"loss": loss.detach(), **grads}


def sample(tokens: int = TOKENS) -> Tensor:
    return torch.randn(2, tokens, DIM, generator=torch.Generator().manual_seed(3))


def require_equal(found: dict[str, Tensor | None], wanted: dict[str, Tensor | None]) -> None:
    assert {name for name, grad in found.items() if grad is None} == {n for n, g in wanted.items() if g is None}
    for name, grad in wanted.items():
        torch.testing.assert_close(found[name], grad, rtol=1e-5, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("kind", RUNS)
def test_a_checkpointed_layer_has_the_gradients_of_a_plain_one(name: str, kind: str) -> None:
    layers, x = Layers(name), sample()
    wanted = layers.gradients(layers, x)
    require_equal(layers.gradients(partial(layers, run=RUNS[kind]), x), wanted)


@pytest.mark.parametrize("name", ["kerple", "fire"])
@pytest.mark.parametrize("kind", RUNS)
def test_so_has_one_of_a_long_sequence(name: str, kind: str) -> None:
    layers, x = Layers(name, 600), sample(600)  # by blocks of queries
    require_equal(layers.gradients(partial(layers, run=RUNS[kind]), x), layers.gradients(layers, x))


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("name", SCHEMES)
def test_gradients_flow_after_a_first_use_without_them(name: str) -> None:
    layers, x = Layers(name), sample()
    wanted = layers.gradients(layers, x)
    with torch.no_grad():
        heres = layers.heres(TOKENS)
        layers(x, heres=heres)
    require_equal(layers.gradients(partial(layers, heres=heres), x), wanted)


@pytest.mark.compile
@pytest.mark.parametrize(
    "name",
    [name if name in ("rotary", "fire") else pytest.param(name, marks=pytest.mark.slow) for name in SCHEMES],
)
def test_a_checkpoint_within_a_compiled_model_has_the_same_gradients(name: str) -> None:
    layers, x = Layers(name), sample()
    wanted = layers.gradients(layers, x)
    compiled = torch.compile(partial(layers, run=RUNS["not reentrant"]), fullgraph=True, backend="aot_eager")
    require_equal(layers.gradients(compiled, x), wanted)


@pytest.mark.compile
@pytest.mark.parametrize(
    "name",
    [name if name in ("rotary", "alibi", "t5") else pytest.param(name, marks=pytest.mark.slow) for name in catalogue],
)
def test_an_exported_model_takes_sequences_of_other_lengths(name: str) -> None:
    layers = Layers(name, 4096).eval().requires_grad_(False)
    tokens = torch.export.Dim("tokens", min=2, max=4096)
    program = torch.export.export(layers, (sample(24),), dynamic_shapes=({1: tokens},))
    for length in (3, 700, 1100):  # the kernels of a long sequence are for eager mode
        x = sample(length)
        torch.testing.assert_close(program.module()(x), layers(x), rtol=1e-5, atol=1e-5)


@pytest.mark.compile
def test_a_sink_with_grouped_keys_is_exported() -> None:
    where = ww.Where(ww.Rotary(8), window=5, sink=ww.Sink(4))

    class Grouped(nn.Module):
        def forward(self, q: Tensor, kv: Tensor) -> Tensor:
            return where.at(q.shape[2])(q, kv, kv)

    tokens = torch.export.Dim("tokens", min=2, max=4096)
    program = torch.export.export(
        Grouped(), (torch.ones(2, 4, 24, 8), torch.ones(2, 2, 24, 8)), dynamic_shapes=({2: tokens},) * 2
    )
    for n in (2, 700):
        q, kv = torch.randn(2, 4, n, 8), torch.randn(2, 2, n, 8)
        torch.testing.assert_close(program.module()(q, kv), where.at(n)(q, kv, kv), rtol=1e-5, atol=1e-5)
    repeated = [each for each in program.graph.nodes if "repeat_interleave" in str(each.target)]
    compiled = []
    torch.compile(Grouped(), fullgraph=True, backend=lambda graph, _: compiled.append(graph) or graph)(q, kv)
    assert repeated
    assert "repeat_interleave" not in compiled[0].code, "which copies all keys at each step of decoding"


class Shared(nn.Module):
    """An input layer and blocks that hold one scheme: the same module by two paths."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.where = ww.scheme(name, dim=DIM, num_heads=HEADS, max_length=64)
        self.layer = ww.InputLayer(50, DIM, self.where.input)

    def forward(self, ids: Tensor) -> Tensor:
        return self.layer(ids, self.where.at(ids.shape[1]))


@pytest.mark.compile
@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
def test_an_input_scheme_that_two_modules_share_is_exported(name: str) -> None:
    model = Shared(name).eval().requires_grad_(False)
    tokens = torch.export.Dim("tokens", min=2, max=64)
    program = torch.export.export(model, (torch.zeros(1, 8, dtype=torch.long),), dynamic_shapes=({1: tokens},))
    ids = torch.arange(40)[None]
    torch.testing.assert_close(program.module()(ids), model(ids))
