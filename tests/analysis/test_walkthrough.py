"""A walk through the input layer: nothing is lost on the way, and every step is the formula's."""

import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import whatwhere as ww
from whatwhere.analysis.walkthrough import attention_scores, rotary_pairs, walk
from whatwhere.errors import SettingError
from whatwhere.what.expressions import expression_tokenizer
from whatwhere.where.catalogue import random_scheme

from ..running import script

TEXT = "The cat sat on the mat."


def test_every_character_becomes_a_token_and_a_repeated_word_shares_its_row() -> None:
    result = walk("the cat and the dog.")
    assert result.tokens == ["the", "cat", "and", "the", "dog", "."]
    assert result.ids == [0, 1, 2, 0, 3, 4]
    assert torch.equal(result.rows[0], result.rows[3])
    assert not torch.equal(result.vectors[0], result.vectors[3])


def test_the_vectors_are_the_same_rows_plus_the_positions_of_the_scheme() -> None:
    rows = walk(TEXT).rows
    for name in [*ww.catalogue, "learned+rotary", "sinusoidal+alibi"]:
        result = walk(TEXT, scheme=name)
        assert (result.position_rows is None) == (ww.scheme(name, 8, 2, 16).input is None)
        assert torch.equal(result.rows, rows)
        assert torch.equal(result.vectors, rows if result.position_rows is None else rows + result.position_rows)


def test_ids_skip_the_tokenizer() -> None:
    result = walk(ids=[105, 6587, 105])
    assert result.tokens is None
    assert result.ids == [105, 6587, 105]
    assert torch.equal(result.rows[0], result.rows[2])
    # The table has a row for the largest id, and for every id below it.
    assert torch.equal(result.rows, walk(ids=[105, 6587, 105], vocab_size=6588).rows)


def test_a_given_tokenizer_encodes_the_text_and_names_ids() -> None:
    assert walk("Max(1,6,2)", tokenizer=expression_tokenizer()).ids == [15, 17, 3, 19, 8, 19, 4, 18]
    assert walk(ids=[15, 17, 3, 18], tokenizer=expression_tokenizer()).tokens == ["Max", "(", "1", ")"]


def test_a_saved_walkthrough_contains_what_was_shown(tmp_path: Path) -> None:
    result = walk(TEXT, scheme="rotary+alibi")
    result.save(tmp_path / "walk.safetensors")
    tensors = load_file(tmp_path / "walk.safetensors")
    assert set(tensors) == {"ids", "rows", "vectors", "angles", "bias"}
    assert tensors["ids"].tolist() == result.ids
    for name in ("rows", "vectors", "angles", "bias"):
        assert torch.equal(tensors[name], getattr(result, name))
    with safe_open(tmp_path / "walk.safetensors", "pt") as opened:
        assert opened.metadata() == {"scheme": "rotary+alibi"}


# Queries meet keys: the scores are those that attention takes, for every scheme of the catalogue


TOKENS, DIM, HEADS = 7, 24, 2


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(TOKENS, DIM, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", [*ww.catalogue, "sinusoidal+rotary+alibi"])
def test_their_softmax_is_what_attention_gathers_by(x: torch.Tensor, name: str) -> None:
    where = random_scheme(name, DIM, HEADS, TOKENS)
    if name == "alibi":
        where.window, where.sink = ww.Window(3), ww.Sink(HEADS)
        torch.nn.init.ones_(where.sink.weight)
    result = attention_scores(x, where, HEADS)
    here = where.at(ww.positions(TOKENS))
    with torch.no_grad():
        q = x.view(TOKENS, HEADS, -1).transpose(0, 1)[None]
        rotated = here.query_key(q, q.clone(), increments=here.increments(x[None]))
        # A value that is 1 for one key alone brings that key's weight.
        gathered = here.attention(*rotated, torch.eye(TOKENS).expand(1, HEADS, -1, -1), gates=here.gates(x[None]))
    torch.testing.assert_close(result.weights, gathered[0], rtol=1e-4, atol=1e-6)
    scale = (DIM // HEADS) ** -0.5 if where.scale is None else where.scale
    torch.testing.assert_close(result.products, scale * (q @ q.mT)[0])


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


# docs/minilm.md: its commands print what it says that they print


ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")


@pytest.mark.usefixtures("minilm")
def test_the_walk_is_up_to_date() -> None:
    """Words are equal; numbers may differ in the last digit, as libraries of matrices do."""
    module = script(ROOT / "docs" / "minilm.py")
    texts = (module.page(), module.PAGE.read_text(encoding="utf-8"))
    now, written = (re.sub(r"[█▉▊▋▌▍▎▏]+", "", text) for text in texts)
    assert words(now) == words(written), "run make docs"
    assert numbers(now) == pytest.approx(numbers(written), rel=0.02, abs=0.002), "run make docs"


def words(text: str) -> str:
    return " ".join(NUMBER.sub("0", text).split())


def numbers(text: str) -> list[float]:
    return [float(result.replace(",", "").rstrip(".")) for result in NUMBER.findall(text)]
