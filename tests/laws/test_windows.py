"""Windows and sinks beside every scheme: the laws of decoding, packing, padding and engines hold with them too."""

from typing import Any

import pytest
import torch

import whatwhere as ww

from . import laws
from .cases import HEADS, MAX_LENGTH, Case, each
from .model import attend, model

TOKENS = 12
LEFT = torch.arange(TOKENS) >= torch.tensor([[0], [3]])
WINDOWS = (ww.Window(3), ww.Window(4, chunked=True), ww.Window(3, first=1), ww.Window(3, by="coordinates"))
POSITIONS = {
    "run": lambda: ww.positions(TOKENS),
    "other starts": lambda: ww.positions(TOKENS, start=torch.tensor([0, 9])),
    "packed": lambda: ww.Positions.packed([2, 10]),
    "left-padded": lambda: ww.Positions.from_mask(LEFT),
    "position ids": lambda: ww.Positions.from_position_ids(torch.tensor([[*range(7), *range(5)], [*range(12)]])),
}
plain = each(lambda case: not case.options)
few = each(lambda case: case.name in ("none", "rotary", "alibi", "fox"))


class Windowed:
    """A case whose layers have a window, and sinks that are sampled: what the laws' model is built of."""

    def __init__(self, case: Case, window: ww.Window, sink: bool = True) -> None:
        self.case, self.window, self.sink, self.regime = case, window, sink, case.regime

    def build(self, max_length: int = MAX_LENGTH, **sizes: Any) -> ww.Where:
        where = self.case.build(max_length=max_length, **sizes)
        heads = sizes.get("num_heads", HEADS)
        parts = {"input": where.input, "query_key": where.query_key, "score": where.score}
        return ww.Where(**parts, window=self.window, sink=ww.Sink(heads) if self.sink else None)


def most_keys(window: ww.Window, p: ww.Positions) -> int:
    """Keys that a step of decoding needs: the window, first tokens or starts of documents, once for each start."""
    starts = 2 if p.batch > 1 or p.segment is not None else 1
    return window.size + starts * (window.first + window.chunked) + (2 if p.segment is not None else 0)


@pytest.mark.every_nth(7)
@plain
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_law_2_decoding_with_forgetting(window: ww.Window, case: Case) -> None:
    small, p = model(Windowed(case, window)), ww.positions(TOKENS)
    score = small.blocks[0].where.score
    if window.first and score is not None and score.sums_between:
        with pytest.raises(ww.errors.SettingError, match="sums over all keys between"):
            small.blocks[0].where.kept(p)
        return
    query_key = small.blocks[0].where.query_key
    if query_key is not None and query_key.by_content:
        with pytest.raises(ww.errors.SettingError, match="so none can be deleted"):
            small.blocks[0].where.kept(p)
        return
    laws.decoding_with_forgetting_equals_prefill(small, p, first=5, most=most_keys(window, p))


@pytest.mark.every_nth(7)
@few
@pytest.mark.parametrize("window", [w for w in WINDOWS if not w.first] + [ww.Window(1)], ids=str)
@pytest.mark.parametrize("positions", POSITIONS)
def test_law_2_decoding_with_forgetting_at_other_positions(positions: str, window: ww.Window, case: Case) -> None:
    p = POSITIONS[positions]()
    laws.decoding_with_forgetting_equals_prefill(
        model(Windowed(case, window)), p, first=1 if positions == "run" else 5, most=TOKENS
    )


@pytest.mark.every_nth(5)
@plain
@pytest.mark.parametrize("window", WINDOWS[:2], ids=str)
def test_law_3_packed(window: ww.Window, case: Case) -> None:
    laws.packed_equals_separate(model(Windowed(case, window)), (3, 1, 6))


@pytest.mark.every_nth(7)
@plain
def test_law_3_padded(case: Case) -> None:
    between = torch.tensor([[1, 1, 0, 1, 0, 1, 1, 1], [0, 1, 1, 0, 0, 1, 1, 0]], dtype=torch.bool)
    laws.padded_equals_unpadded(model(Windowed(case, WINDOWS[0])), between)
    laws.padded_equals_unpadded(model(Windowed(case, WINDOWS[1])), LEFT)


@pytest.mark.every_nth(3)
@few
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_law_7_gradients(window: ww.Window, case: Case) -> None:
    where = Windowed(case, window).build(dim=16, num_heads=2)
    torch.nn.init.normal_(where.sink.weight, generator=torch.Generator().manual_seed(0))
    laws.gradients_are_right(where, ww.Positions.packed([6, 3]), dim=16)


@pytest.mark.every_nth(5)
@plain
@pytest.mark.parametrize("positions", ["run", "packed"])
def test_law_12_sdpa(positions: str, case: Case) -> None:
    laws.engines_agree(model(Windowed(case, WINDOWS[0])), POSITIONS[positions](), "sdpa")


@pytest.mark.every_nth(3)
@pytest.mark.compile
@few
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_law_12_flex(window: ww.Window, case: Case) -> None:
    laws.engines_agree(model(Windowed(case, window)), POSITIONS["left-padded"](), "flex")


@pytest.mark.compile
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_law_1_compiles_at_most_twice(window: ww.Window) -> None:
    where = ww.Where(query_key=ww.Rotary(32), window=window, sink=ww.Sink(2))
    laws.compiles_at_most_twice(
        lambda n: (torch.randn(2, n, 64, generator=torch.Generator().manual_seed(n)), ww.positions(n, start=3)),
        laws.OneLayer(where),
        (5, 6, 9, 13, 31),
    )


@pytest.mark.every_nth(5)
@plain
def test_a_window_and_a_sink_matter(case: Case) -> None:
    p, how = ww.positions(TOKENS), {"regime_length": case.regime}
    without = attend(case.build(), p, **how)
    for window, sink in ((ww.Window(3), False), (ww.Window(TOKENS), True)):
        torch.manual_seed(0)
        changed = Windowed(case, window, sink).build()
        changed.load_state_dict(case.build().state_dict(), strict=False)
        assert (attend(changed, p, **how) - without).abs().max() > 1e-3
