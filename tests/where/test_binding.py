"""Where and bind: doors, shared work, gated and content-dependent schemes, and positions of other places."""

import pytest
import torch

import whatwhere as ww
from whatwhere.where.base import QueryKeyMap
from whatwhere.where.score_bias import ScoreBias

# FlexAttention compiles what it is given, also on the CPU.
ENGINES = ["dense", "sdpa", pytest.param("flex", marks=pytest.mark.compile)]


def draw(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


class Unscaled(QueryKeyMap):
    """A map that changes nothing and asks for a softmax scale."""

    def __init__(self, head_dim, scale):
        super().__init__()
        self.head_dim, self.scale = head_dim, scale
        self.bound = []

    def bind(self, positions):
        self.bound.append(positions)
        return ()

    def map_query(self, q, bound):
        return q

    def map_key(self, k, bound):
        return k


class Counted(ScoreBias):
    """ALiBi's formula, counting how often it is bound."""

    def __init__(self, num_heads, scale=None):
        super().__init__()
        self.num_heads, self.scale, self.times = num_heads, scale, 0

    def bind(self, queries, keys, *, q=None, k=None, gates=None, causal=True):
        self.times += 1
        at_query, at_key = queries.single_axis("Counted"), keys.single_axis("Counted")

        def element(b, h, i, j):
            return -(at_query[b % len(at_query), i] - at_key[b % len(at_key), j]).abs().float() / (h + 1)

        return element


def test_nothing_at_a_door_changes_nothing():
    x, q, k = draw((2, 3, 8), (2, 2, 3, 4), (2, 2, 3, 4))
    here = ww.Where().at(ww.positions(3))
    assert here.input(x) is x
    assert here.query_key(q, k) == (q, k)
    assert here.gates(x) is None
    assert here.scale is None


PADDED = ww.Positions.from_mask(torch.tensor([[0, 1, 1], [1, 1, 1]]))
IDS = torch.tensor([[4, 5, 6], [0, 1, 2]])
LATER = ww.positions(3, start=5)


@pytest.mark.parametrize(
    ("at", "at_queries", "at_keys"),
    [
        ((PADDED,), PADDED, PADDED),
        ((IDS,), IDS, IDS),
        ((LATER, ww.positions(3)), LATER, ww.positions(3)),
        ((ww.positions(8)[5:], ww.positions(8)), LATER, LATER),
    ],
    ids=["padded", "numbers", "keys of a different sequence", "new rows of a cache"],
)
def test_queries_and_keys_rotate_by_their_own_positions(at, at_queries, at_keys):
    rope = ww.Rotary(4)
    tokens = [p.shape[-1] if isinstance(p, torch.Tensor) else p.tokens for p in (at_queries, at_keys)]
    q, k = draw((2, 4, tokens[0], 4), (2, 2, tokens[1], 4))
    rotated = ww.Where(query_key=rope).at(*at).query_key(q, k)
    assert torch.equal(rotated[0], rope(q, q, at_queries)[0])
    assert torch.equal(rotated[1], rope(k, k, at_keys)[1])


def test_each_distinct_scheme_is_bound_once_for_all_layers():
    shared, own = Counted(2), Counted(2)
    mapped = Unscaled(4, None)
    first, second = ww.Where(query_key=mapped, score=shared), ww.Where(query_key=mapped, score=own)
    (q,) = draw((1, 2, 5, 4))
    for here in ww.bind([first, first, second, first], ww.positions(5)):
        here.query_key(q, q)
        here.attention(q, q, q, engine="dense")
        here.attention(q, q, q, engine="sdpa")
    assert (shared.times, own.times, len(mapped.bound)) == (1, 1, 1)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_scale_of_a_scheme_is_the_softmax_scale(engine):
    where = ww.Where(query_key=Unscaled(4, 1.0))
    q, k, v = draw((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4))
    here = where.at(ww.positions(3))
    assert here.scale == 1.0
    expected = (q @ k.mT).masked_fill(~torch.ones(3, 3).tril().bool(), -torch.inf).softmax(-1) @ v
    assert torch.allclose(here(q, k, v, engine=engine), expected, atol=1e-6)


def test_a_model_may_have_a_scale_of_its_own():
    q, k, v = draw((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4))
    here = ww.Where(query_key=Unscaled(4, None), scale=0.7).at(ww.positions(3))
    assert here.scale == 0.7
    expected = (0.7 * (q @ k.mT)).masked_fill(~torch.ones(3, 3).tril().bool(), -torch.inf).softmax(-1) @ v
    assert torch.allclose(here(q, k, v), expected, atol=1e-6)
    assert ww.Where(query_key=Unscaled(4, 2.0), score=Counted(2, scale=2.0), scale=2.0).scale == 2.0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_scheme_that_depends_on_content_gets_each_layers_own(engine):
    where = ww.Where(score=ww.CoPE(4, 2, 3, std=0.5)).requires_grad_(False)
    for seed, here in enumerate(ww.bind([where] * 2, 4)):
        q, k, v = draw((2, 2, 4, 4), (2, 2, 4, 4), (2, 2, 4, 4), seed=seed)
        alone = where.at(4).attention(q, k, v, engine="dense")
        assert torch.allclose(here.attention(q, k, v, engine=engine), alone, atol=1e-5)


LEARNED, ROTARY, ALIBI = ww.Learned(4, 8), ww.Rotary(4), ww.ALiBi(2)


@pytest.mark.parametrize("schemes", [(LEARNED, ROTARY, ALIBI), (ALIBI, LEARNED, ROTARY), (ROTARY, ALIBI, LEARNED)])
def test_schemes_are_sorted_into_their_doors_by_type(schemes):
    where = ww.Where(*schemes)
    assert (where.input, where.query_key, where.score) == (LEARNED, ROTARY, ALIBI)
    mixed = ww.Where(ALIBI, query_key=ROTARY)
    assert (mixed.input, mixed.query_key, mixed.score) == (None, ROTARY, ALIBI)


class Both(ww.InputEncoding, ww.ScoreBias):
    """A scheme of two doors."""

    def __init__(self):
        super().__init__()
        self.dim, self.num_heads = 4, 2

    def forward(self, positions):
        raise AssertionError("not to be reached")

    bind = forward


def test_a_scheme_of_two_doors_needs_a_name():
    scheme = Both()
    with pytest.raises(ww.errors.DoorError, match=r"Both, a scheme of several doors: input, score\.\nName the door"):
        ww.Where(scheme)
    assert ww.Where(score=scheme).score is scheme


def test_an_integer_is_a_number_of_positions_everywhere():
    q, k, v = draw((1, 2, 9, 4), (1, 2, 9, 4), (1, 2, 9, 4))
    p, where = ww.positions(9), ww.Where(ROTARY, ALIBI)
    here, same = where.at(p), where.at(9)
    expected = here.attention(*here.query_key(q, k), v)
    assert torch.equal(same.attention(*same.query_key(q, k), v), expected)
    assert all(torch.equal(a, b) for a, b in zip(ROTARY(q, k, 9), ROTARY(q, k, p), strict=True))
    assert torch.equal(ALIBI(9), ALIBI(p))
    assert torch.equal(ww.Sinusoidal(4)(9), ww.Sinusoidal(4)(p))


def test_a_number_lies_on_the_device_of_what_is_learned():
    where = ww.Where(ww.Learned(4, 9, device="meta"))
    assert where.at(3).queries.device.type == "meta"
    assert where.input(3).device.type == "meta"


def test_a_map_without_positions_counts_from_zero():
    q, k = draw((2, 4, 9, 4), (2, 2, 9, 4))
    assert all(torch.equal(a, b) for a, b in zip(ROTARY(q, k), ROTARY(q, k, ww.positions(9)), strict=True))
    assert ROTARY(q.to("meta"), k.to("meta"))[0].device.type == "meta"


@pytest.mark.parametrize(
    "code",
    [
        "Where().at(positions(9))",
        "Where(query_key=Rotary(head_dim=4, theta=9.0, interleaved=False, rotary_dim=4), scale=0.5).at(positions(3))",
        "Where(score=ALiBi(num_heads=2)).at(positions(1, start=8), positions(9))",
        "Where(score=ALiBi(num_heads=2)).at(Positions.packed([3, 2]), regime_length=9)",
    ],
)
def test_repr_of_a_here_is_code(code):
    assert repr(eval(code, {"torch": torch, **{name: getattr(ww, name) for name in ww.__all__}})) == code


def test_repr_shows_a_scale_only_where_no_scheme_has_it():
    assert repr(ww.Where(Unscaled(4, 2.0), scale=2.0)) == "Where(query_key=Unscaled())"
    assert repr(ww.Where(scale=2.0)) == "Where(scale=2.0)"


def test_a_here_is_called_for_both_steps():
    x, q, k, v = draw((2, 9, 8), (2, 2, 9, 4), (2, 1, 9, 4), (2, 1, 9, 4))
    mask = torch.eye(9, dtype=torch.bool)[None, None]
    for schemes in ((ROTARY, ALIBI), (ww.CARoPE(8, 4, 2), ww.FoX(8, 2)), ()):
        here = ww.Where(*schemes).at(ww.Positions.packed([4, 5]))
        of_tokens = {"increments": here.increments(x), "gates": here.gates(x)}
        mapped = here.query_key(q, k, increments=of_tokens["increments"])
        for how in ({}, {"mask": mask, "engine": "dense"}):
            wanted = here.attention(*mapped, v, gates=of_tokens["gates"], **how)
            assert torch.equal(here(q, k, v, **of_tokens, **how), wanted)


def test_a_here_does_not_map_the_keys_of_a_cache_again():
    p, (q, k, v) = ww.positions(8), draw((1, 2, 1, 4), (1, 2, 9, 4), (1, 2, 9, 4))
    step = p.next()
    with pytest.raises(ww.errors.SettingError, match=r"mapped already\.\nMap what is new"):
        ww.Where(ROTARY).at(step, p.append(step))(q, k, v)
    here = ww.Where(ALIBI).at(step, p.append(step))  # which maps no keys
    assert torch.equal(here(q, k, v), here.attention(q, k, v))


def test_a_kept_here_follows_its_parameters() -> None:
    """After a change in place, unfreezing, or a first use under inference_mode or a transform it computes anew."""
    q, k, v = torch.randn(3, 1, 2, 20, 8, generator=torch.Generator().manual_seed(0))
    where = ww.Where(ww.T5(2), ww.LearnedRotary(8))
    here = where.at(20)
    with torch.inference_mode():
        here(q, k, v)
    optimizer = torch.optim.AdamW(where.parameters(), lr=0.5)
    here(q, k, v).square().sum().backward()  # not a tensor of inference_mode
    other = ww.Where(ww.T5(2, std=2.0), where.query_key).state_dict()
    for change in (optimizer.step, lambda: where.load_state_dict(other)):
        with torch.no_grad():
            before = here(q, k, v)
            change()
            after = here(q, k, v)
            assert not torch.allclose(before, after, atol=1e-3)
            assert torch.equal(after, where.at(20)(q, k, v))
    where.requires_grad_(False)
    assert not here(q, k, v).requires_grad
    where.requires_grad_(True)
    assert here(q, k, v).requires_grad
    kept = ww.Where(ww.ALiBi(2)).at(20)
    gradient = torch.func.grad(lambda x: kept(x, k, v).square().sum())
    torch.testing.assert_close(torch.func.vjp(gradient, q)[1](v), torch.func.vjp(gradient, q)[1](v))


def test_a_kept_here_follows_which_parameters_there_are() -> None:
    class Slopes(ScoreBias):
        num_heads = 2

        def __init__(self) -> None:
            super().__init__()
            self.slope = torch.nn.Parameter(torch.ones(2))
            self.register_parameter("shift", None)

        def bind(self, queries, keys, **content):
            slope = torch.zeros(2) if self.slope is None else self.slope
            shift = torch.zeros(2) if self.shift is None else self.shift
            return lambda b, h, i, j: (j - i) * slope[h] + shift[h] * (j > 2)

    q, k, v = draw(*[(1, 2, 20, 8)] * 3)
    own, table = Slopes(), ww.T5(2, std=2.0)
    parametrize = torch.nn.utils.parametrize.register_parametrization
    changes = (
        (own, lambda: setattr(own, "shift", torch.nn.Parameter(torch.ones(2)))),
        (own, lambda: setattr(own, "slope", None)),
        (table, lambda: parametrize(table, "weight", torch.nn.Tanh())),
    )
    with torch.no_grad():
        for scheme, change in changes:
            here = ww.Where(scheme).at(20)
            before = here(q, k, v)
            change()
            after = here(q, k, v)
            assert not torch.allclose(before, after, atol=1e-3)
            assert torch.equal(after, ww.Where(scheme).at(20)(q, k, v))
