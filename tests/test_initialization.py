"""Initial values: from the seed alone whatever other threads draw, and equal to those of PyTorch's one random state."""

import copy
import dataclasses
from collections.abc import Callable
from functools import wraps
from threading import Event, Thread, current_thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import whatwhere as ww
from tests.laws.cases import variants
from tests.what.row_adamw.race import train
from whatwhere.analysis.walkthrough import random_embedding
from whatwhere.comparison.folder import Folder
from whatwhere.comparison.model import name_of
from whatwhere.comparison.run import Job
from whatwhere.comparison.settings import make_settings
from whatwhere.comparison.tasks import Expressions
from whatwhere.comparison.train import build
from whatwhere.position.positions import as_positions
from whatwhere.tensor_checks import require_generator
from whatwhere.what.embedding import INITS, TokenEmbedding
from whatwhere.what.row_adamw.optimizer import RowAdamW
from whatwhere.where.catalogue import random_scheme

TASK = Expressions(trained=(2, 3))
SETTINGS = make_settings("expressions", [4], dim=16, heads=2, feedforward=16, batch=8, device="cpu")
_LONG = 10.0
_MOMENT = 0.3
"""Seconds that a thread is given to come in between; where a lock keeps it out, the wait ends without it."""


def own(dim: int, num_heads: int, max_length: int) -> ww.Where:
    """Build a scheme that draws from PyTorch's one random state, as a scheme of a user's own does."""
    return ww.Where(input=ww.Learned(dim, max_length), score=ww.KERPLE(num_heads))


def built(scheme: Any = "learned", seed: int = 3) -> list[Tensor]:
    return [weight.detach() for weight in build(scheme, seed, TASK, SETTINGS).parameters()]


DRAWS: dict[str, Callable[[], list[Tensor]]] = {
    "build": built,
    "build of one's own": lambda: built(("own", own)),
    "random_embedding": lambda: [random_embedding(9, 4, seed=5).weight.detach()],
    "random_scheme": lambda: list(random_scheme("learned", 8, 2, 9, seed=6).input.state_dict().values()),
}


def identity(tmp_path: Any) -> None:
    schemes = ["learned", ("own", own)]
    Folder(tmp_path / "results", TASK, SETTINGS, [Job(scheme, 0, TASK, SETTINGS) for scheme in schemes])


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("other", [*DRAWS, "identity"])
@pytest.mark.parametrize("name", DRAWS)
def test_the_seed_alone_decides_whatever_another_thread_samples(
    name: str, other: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Just before its first table is drawn, another thread draws one, and goes on only after it."""
    expected = DRAWS[name]()
    before = torch.get_rng_state()
    first, has_begun, may_end = Event(), Event(), Event()

    def in_between() -> None:
        identity(tmp_path) if other == "identity" else DRAWS[other]()

    thread = Thread(target=in_between, daemon=True)
    for kind in (TokenEmbedding, ww.Learned):

        @wraps(kind.reset_parameters)
        def draws(module: Any, *given: Any, draw: Any = kind.reset_parameters, **named: Any) -> None:
            if current_thread() is not thread and not first.is_set() and not module.weight.is_meta:
                first.set()
                thread.start()
                has_begun.wait(_MOMENT)
            draw(module, *given, **named)
            if current_thread() is thread and not module.weight.is_meta:
                has_begun.set()
                may_end.wait(_LONG)

        monkeypatch.setattr(kind, "reset_parameters", draws)
    try:
        result = DRAWS[name]()
    finally:
        may_end.set()
        thread.join(_LONG)
    assert first.is_set()
    assert not thread.is_alive()
    assert all(map(torch.equal, result, expected))
    assert torch.equal(torch.get_rng_state(), before), "the caller's random state stays"


# Equal to the one random state, in the same order.


SCHEMES = [(row.name, options) for row in ww.catalogue.values() if row.learned for options in variants(row)]
SCHEMES += [("ssmax", {"then": "rotary-mixed"}), ("learned+kerple", {}), ("fourier+fope+t5", {})]


@pytest.mark.parametrize(("name", "options"), SCHEMES, ids=str)
def test_a_scheme_from_a_generator_is_the_one_from_the_global_state(name: str, options: dict[str, Any]) -> None:
    torch.manual_seed(2_000_004)
    global_state = ww.scheme(name, 48, 2, 40, **options).state_dict()
    before = torch.get_rng_state()
    expected = random_scheme(name, 48, 2, 40, seed=1, **options).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(expected, global_state, rtol=0, atol=0)
    with torch.device("meta"):
        later = ww.scheme(name, 48, 2, 40, **options)
    for where in (ww.scheme(name, 48, 2, 40, **options), later.to_empty(device="cpu")):
        where.reset_parameters(torch.Generator().manual_seed(2_000_004))
        torch.testing.assert_close(where.state_dict(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("init", [*INITS, 0.3])
def test_a_table_from_a_generator_is_the_one_from_the_global_state(init: Any) -> None:
    torch.manual_seed(8)
    expected = TokenEmbedding(20, 6, init=init, padding_idx=2)
    table = TokenEmbedding(20, 6, init=init, padding_idx=2, device="meta").to_empty(device="cpu")
    table.reset_parameters(torch.Generator().manual_seed(8))
    assert torch.equal(table.weight, expected.weight)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("scheme", ["learned", "rotary/t5", ("own", own)], ids=name_of)
def test_a_run_starts_as_pytorchs_own_layers_do(scheme: Any, tied: bool) -> None:
    settings = dataclasses.replace(SETTINGS, tied=tied)
    torch.manual_seed(2_000_003 + 3)
    if isinstance(scheme, str):
        parts = [ww.scheme(part, 16, 2, TASK.token_count(3)) for part in scheme.split("/")]
    else:
        parts = [own(16, 2, TASK.token_count(3))]
    torch.manual_seed(3)
    expected = [TokenEmbedding(TASK.vocab_size, 16, init=settings.init).weight]
    for _ in range(settings.layers):
        layers = [nn.Linear(16, 48, bias=False), nn.Linear(16, 16, bias=False), nn.Linear(16, 16), nn.Linear(16, 16)]
        expected += [weight for layer in layers for weight in layer.parameters()]
    expected += [] if tied else [nn.Linear(16, TASK.vocab_size, bias=False).weight]
    model = build(scheme, 3, TASK, settings)
    norms = {id(w) for part in model.modules() if isinstance(part, nn.LayerNorm) for w in part.parameters()}
    learned = {id(w) for w in model.wheres.parameters()}
    result = [weight for weight in model.parameters() if id(weight) not in norms | learned]
    assert len(result) == len(expected)
    assert all(map(torch.equal, result, expected))
    by_schemes = [weight for part in parts for weight in part.parameters()]
    assert all(map(torch.equal, model.wheres.parameters(), by_schemes))


# Modules of a user's own.


class Foreign(ww.InputEncoding):
    """An input scheme whose network draws from the global state alone."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim, self.network = dim, nn.Linear(1, dim)

    def forward(self, positions: Any) -> Tensor:
        return self.network(as_positions(positions).index[0, ..., None].float())


def test_a_part_that_takes_no_generator_samples_from_the_state_that_it_seeds() -> None:
    before = torch.get_rng_state()
    layers = [ww.InputLayer(9, 4, Foreign(4)) for _ in range(2)]
    after = torch.get_rng_state()
    assert not torch.equal(before, after)
    for layer in layers:
        layer.reset_parameters(torch.Generator().manual_seed(2))
    assert torch.equal(torch.get_rng_state(), after)
    first, second = (layer.where.input.network.weight for layer in layers)
    assert torch.equal(first, second)
    layers[1].reset_parameters(torch.Generator().manual_seed(3))
    assert not torch.equal(first, second)


def test_a_part_that_cannot_be_initialized_is_refused() -> None:
    scheme = Foreign(4)
    scheme.shift = nn.Parameter(torch.zeros(4))
    with pytest.raises(
        ww.errors.SettingError, match=r"Foreign has parameters, but no reset_parameters(.|\n)*Write one"
    ):
        ww.Where(input=scheme).reset_parameters()


def test_a_generator_of_another_device_is_refused() -> None:
    with FakeTensorMode():
        weight = torch.empty(2, device="cuda")
    with pytest.raises(
        ww.errors.SettingError, match=r"on cuda:0, but got a generator on cpu(.|\n)*torch.Generator\('cuda'\)"
    ):
        require_generator("Learned", torch.Generator(), weight)
    require_generator("Learned", torch.Generator(), torch.empty(2, device="meta"))


# A table that is shared.


class Model(nn.Module):
    """Tokens, and a projection to logits that has their weight."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.layer = ww.InputLayer(11, 4, ww.Learned(4, 8, device=device), device=device)
        self.head = nn.Linear(4, 11, bias=False, device=device)
        self.head.weight = self.layer.tokens.weight

    def tied(self) -> bool:
        return self.head.weight is self.layer.tokens.weight


def test_a_tied_projection_survives_to_empty() -> None:
    direct, late = Model(), Model("meta").to_empty(device="cpu")
    assert late.tied()
    late.layer.reset_parameters(torch.Generator().manual_seed(0))
    direct.layer.tokens.reset_parameters(torch.Generator().manual_seed(0))
    assert torch.equal(late.head.weight, direct.head.weight)
    assert [name for name, _ in late.named_parameters()] == [name for name, _ in direct.named_parameters()]
    late.head(late.layer(torch.tensor([[1, 2]]))).sum().backward()
    assert (late.layer.tokens.weight.grad != 0).any(-1).all(), "the projection's gradient reaches the table"
    assert late.to_empty(device="cpu").tied()
    assert late.bfloat16().tied()
    assert late.head.weight.dtype == torch.bfloat16
    half = Model("meta").bfloat16()
    assert half.tied()
    assert (half.head.weight.is_meta, half.head.weight.dtype) == (True, torch.bfloat16)
    assert not Model("meta").requires_grad_(False).to_empty(device="cpu").head.weight.requires_grad


def stepped(model: Model, optimizer: torch.optim.Optimizer) -> None:
    train(model.layer, optimizer, map(torch.tensor, ([[1, 2]], [[2, 3]], [[2, 4]])))


def test_a_tied_projection_survives_a_copy_under_row_adamw() -> None:
    model, dense = Model(), Model()
    dense.load_state_dict(model.state_dict())
    stepped(model, RowAdamW(model.layer.tokens, lr=0.1))
    stepped(dense, torch.optim.AdamW([dense.head.weight], lr=0.1))
    assert not torch.allclose(model.head.weight, dense.head.weight, rtol=0, atol=1e-3), "some rows are behind"
    for given in (nn.ModuleDict({"head": model.head, "layer": model.layer}), model):
        copied: Any = copy.deepcopy(given)
        assert copied.head.weight is copied.layer.tokens.weight
        assert copied.layer.tokens.keeper is None
        torch.testing.assert_close(copied.head.weight, dense.head.weight, rtol=0, atol=1e-5)


def test_a_table_of_row_adamw_is_the_reset_one() -> None:
    model = Model().to(torch.bfloat16)
    optimizer = RowAdamW(model.layer.tokens, lr=0.1)
    for empties in (False, True):
        stepped(model, optimizer)
        if empties:
            model.to_empty(device="cpu")
            assert model.tied()
        model.layer.reset_parameters(torch.Generator().manual_seed(5))
        expected = TokenEmbedding(11, 4, dtype=torch.bfloat16)
        expected.reset_parameters(torch.Generator().manual_seed(5))
        ids = torch.arange(11)
        assert torch.equal(model.layer.tokens(ids), expected(ids))
        optimizer.flush()
        assert torch.equal(model.head.weight, expected.weight)
