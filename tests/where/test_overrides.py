"""What a subclass of a scheme overrides counts, whichever way attention is computed, or is refused."""

import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.errors import SettingError
from whatwhere.where.score_bias import DistanceBias

LONG = 520  # by blocks
X = 2 * torch.randn(3, 1, 2, LONG, 8, generator=torch.Generator().manual_seed(0))


class Own(DistanceBias):
    num_heads = 2

    def curve(self, device):
        return lambda head, distance: -0.1 * (1 + head) * distance.abs()


def fading(base: type) -> type:
    """Return a subclass whose bias is a hundredth."""

    class Fading(base):
        def bind(self, queries, keys, **content):
            element = super().bind(queries, keys, **content)
            return lambda b, h, i, j: 0.01 * element(b, h, i, j)

    return Fading


def flat(base: type) -> type:
    class Flat(base):
        def curve(self, device):
            return lambda head, distance: 0.5 * (distance.abs() > 3)

    return Flat


@pytest.mark.parametrize("change", [fading, flat, lambda base: flat(fading(base)), lambda base: fading(flat(base))])
@pytest.mark.parametrize("base", [Own, ww.ALiBi, ww.T5, ww.KERPLE])
def test_a_bias_is_that_of_the_subclass(base: type, change) -> None:
    changed = change(base)
    schemes = [kind() if base is Own else kind(2) for kind in (base, changed)]
    for weight in schemes[1].parameters():
        torch.nn.init.normal_(weight, std=3.0)
    schemes[0].load_state_dict(schemes[1].state_dict())
    plain, chosen, wanted = (
        ww.Where(scheme).at(LONG).attention(*X, engine=engine)
        for scheme, engine in ((schemes[0], "dense"), (schemes[1], "auto"), (schemes[1], "dense"))
    )
    torch.testing.assert_close(chosen, wanted, rtol=0, atol=1e-4)
    assert not torch.allclose(chosen, plain, atol=1e-2)
    positions = ww.positions(7)
    line = changed.by_distance(schemes[1], 6, torch.device("cpu"))  # as the kernel flash reads it
    if "Fading" in {kind.__name__ for kind in changed.__mro__}:
        assert line is None
    elif line.kind == "rows":
        table = schemes[1](positions, positions, causal=True)[0, :, 6]
        torch.testing.assert_close(line.numbers[:, line.rows].flip(1)[:, :7], table)


def test_a_scheme_without_overrides_keeps_its_faster_ways() -> None:
    class Default(ww.ALiBi):
        def __init__(self) -> None:
            super().__init__(2)

    class Longer(ww.Rotary):
        def bind(self, positions, lengths=None):
            return super().bind(positions, lengths)

    assert (Default.by_blocks, Default.by_distance) == (DistanceBias.by_blocks, ww.ALiBi.by_distance)
    assert Longer.map_both is ww.Rotary.map_both


MAPS = {
    "rotary": (ww.Rotary, lambda kind: kind(8)),
    "xpos": (ww.XPos, lambda kind: kind(8)),
    "axial": (ww.AxialRotary, lambda kind: kind(8)),
    "learned": (ww.LearnedRotary, lambda kind: kind(8)),
    "mixed": (ww.MixedRotary, lambda kind: kind(8)),
    "multimodal": (ww.MultimodalRotary, lambda kind: kind(8, (2, 1, 1))),
    "PoPE": (ww.PoPE, lambda kind: kind(8, 2)),
}


@pytest.mark.parametrize("name", MAPS)
def test_queries_and_keys_are_mapped_as_the_subclass_maps_them(name: str) -> None:
    base, make = MAPS[name]

    class Doubled(base):
        def map_query(self, q: Tensor, bound) -> Tensor:
            return 2 * super().map_query(q, bound)

    class Tripled(base):
        def map_key(self, k: Tensor, bound) -> Tensor:
            return 3 * super().map_key(k, bound)

    plain, doubled, tripled = (make(kind) for kind in (base, Doubled, Tripled))
    for each in (doubled, tripled):
        each.load_state_dict(plain.state_dict())
    x = X[0, :, :, :5]
    (q, k), (twice, same), (alike, thrice) = (
        ww.Where(each).at(5).query_key(x, x) for each in (plain, doubled, tripled)
    )
    torch.testing.assert_close([twice, same, alike, thrice], [2 * q, k, q, 3 * k])
    bound = tripled.bind(ww.positions(5))
    with pytest.raises(SettingError, match="has no rerotate"):
        tripled.rerotate(thrice, bound, bound)
    if name in ("rotary", "learned", "multimodal"):
        with pytest.raises(SettingError, match="Override rotate_back"):
            tripled.rotate_back(thrice, bound)

        class Undone(Tripled):
            def rotate_back(self, y: Tensor, bound) -> Tensor:
                return super().rotate_back(y, bound) / 3

        undone = make(Undone)
        undone.load_state_dict(plain.state_dict())
        torch.testing.assert_close(undone.rotate_back(thrice, bound), x)


def test_vectors_of_positions_are_those_of_the_subclass() -> None:
    class Doubled(ww.Learned):
        def forward(self, positions) -> Tensor:
            return 2 * super().forward(positions)

    tokens, learned, ids = ww.TokenEmbedding(9, 8), Doubled(8, 16), torch.arange(5)[None]
    wanted = tokens(ids) + 2 * learned.weight[:5]
    torch.testing.assert_close(ww.Where(learned).at(5).embed(tokens, ids), wanted)


@pytest.mark.parametrize(
    ("base", "name"),
    [
        *((kind, name) for kind in (ww.Rotary, ww.LearnedRotary) for name in ("frequencies", "inverse_frequencies")),
        (ww.MultimodalRotary, "frequencies"), (ww.AxialRotary, "inverse_frequencies"), (ww.XPos, "decay"),
        (ww.PoPE, "phases"), (ww.FoPE, "kept_frequencies"), (ww.ALiBi, "slopes"), (ww.ALiBi, "forward"),
        (ww.ALiBi, "score_mod"), (ww.Rotary, "forward"), (ww.QueryKeyMap, "forward"), (ww.ScoreBias, "forward"),
    ],
)  # fmt: skip
def test_an_override_that_nothing_reads_is_refused(base: type, name: str) -> None:
    with pytest.raises(SettingError, match=f"Changed overrides {name} of .*, which attention does not read"):
        type("Changed", (base,), {name: lambda self: None})
    mixin = type("Mixin", (), {name: lambda self: None})
    with pytest.raises(SettingError, match=f"overrides {name}"):
        type("Mixed", (mixin, base), {})


@pytest.mark.parametrize("doors", [(ww.QueryKeyMap, ww.InputEncoding), (ww.InputEncoding, ww.QueryKeyMap)])
def test_a_scheme_of_two_doors_has_the_forward_of_the_one_that_needs_it(doors: tuple[type, ...]) -> None:
    class Both(*doors):
        dim = head_dim = 8

        def forward(self, positions) -> Tensor:
            return torch.ones(1, ww.Where().at(positions).queries.tokens, 8)

        def bind(self, positions, lengths=None):
            return ()

        def map_query(self, q: Tensor, bound) -> Tensor:
            return 2 * q

        map_key = map_query

    both, x = Both(), X[0, :, :, :5]
    here = ww.Where(input=both, query_key=both).at(5)
    assert torch.equal(here.input(x[:, 0]), x[:, 0] + 1)
    assert torch.equal(here.query_key(x, x)[0], 2 * x)
