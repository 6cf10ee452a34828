"""The token card: numbers of a real model, beside plain NumPy."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from whatwhere.analysis.nearest_neighbors import Rule
from whatwhere.analysis.token_neighbors import analogy
from whatwhere.errors import TokenError
from whatwhere.studio.api import about
from whatwhere.studio.api import tokens as api
from whatwhere.studio.session import Session

from .conftest import opened


@pytest.fixture(scope="module")
def words(minilm: Path) -> list[str]:
    tokenizer = Tokenizer.from_file(str(minilm / "tokenizer.json"))
    return [tokenizer.id_to_token(n) for n in range(tokenizer.get_vocab_size())]


def cosines(table: np.ndarray, row: int) -> np.ndarray:
    result = table @ table[row] / np.linalg.norm(table, axis=1) / np.linalg.norm(table[row])
    result[row] = -2
    return result


def test_the_card_says_what_the_files_say(real: Session, table: np.ndarray, words: list[str]) -> None:
    result = api.card(real, {"token": "king"})
    assert result.id == words.index("king")
    assert (result.word, result.text, result.kind, result.script) == ("king", "king", "word start", "Latin")
    assert bytes(result.bytes) == b"king"
    assert result.characters[0] == ("U+006B", "LATIN SMALL LETTER K")
    assert result.reachable is True
    row = result.tables["input"]
    norms = np.linalg.norm(table, axis=1)
    assert row.norm == pytest.approx(norms[result.id], rel=1e-12)
    assert row.percentile == pytest.approx(100 * np.mean(norms < norms[result.id]))
    assert row.median == pytest.approx(np.median(norms))
    assert row.counts.sum() == len(table)
    np.testing.assert_array_equal(row.row, table[result.id].astype(np.float32))


def test_pieces_and_unreachable_tokens(real: Session, words: list[str]) -> None:
    piece = api.card(real, {"token": "##ing"})
    assert (piece.word, piece.text, piece.kind) == ("##ing", "ing", "continuation")
    # BERT sets each ideograph apart, so that none ever continues a word.
    assert api.card(real, {"token": f"#{words.index('##戦')}"}).reachable is False


@pytest.mark.parametrize("token", ["king", "##ing", "1999", "#100"])
def test_neighbors_are_those_of_the_full_space(real: Session, table: np.ndarray, words: list[str], token: str) -> None:
    result = api.neighbors(real, {"token": token, "k": 7})
    assert [(each.table, each.centered) for each in result.lists] == [("input", False), ("input", True)]
    for each in result.lists:
        seen = cosines(table - table.mean(axis=0) * each.centered, result.id)
        right = np.argsort(-seen, kind="stable")[:7]
        assert each.ids.tolist() == right.tolist()
        np.testing.assert_allclose(each.cosines, seen[right], rtol=1e-9)
        np.testing.assert_allclose(each.norms, np.linalg.norm(table[right], axis=1))
        assert each.words == [words[n] for n in right]
        np.testing.assert_array_equal(each.rows, table[[result.id, *right]])
    assert result.mean["input"] == pytest.approx(np.linalg.norm(table.mean(axis=0)))


def test_the_output_projection_has_lists_of_its_own_where_it_is_another_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    tensors = {name: rng.standard_normal((9, 4)) for name in ("embed_tokens.weight", "lm_head.weight")}
    session = opened(tmp_path, {"model_type": "llama", "vocab_size": 9}, **tensors)
    result = api.neighbors(session, {"token": "#2", "k": 3})
    assert [each.table for each in result.lists] == ["input", "input", "output", "output"]
    right = np.argsort(-cosines(tensors["lm_head.weight"].astype(np.float32).astype(np.float64), 2))[:3]
    assert result.lists[2].ids.tolist() == right.tolist()
    card = api.card(session, {"token": "#2"})
    assert (card.word, card.reachable, set(card.tables)) == ("#2", None, {"input", "output"})


@pytest.mark.parametrize("rule", ["add", "multiply"])
def test_analogies_are_those_of_the_library(real: Session, rule: Rule) -> None:
    result = api.analogy(real, {"a": "man", "b": "woman", "c": "king", "k": 3, "rule": rule})
    assert result == analogy(real.checkpoint, "man", "woman", "king", k=3, rule=rule)
    assert result.without_inputs[0].token == "queen"


def test_tokens_are_found_by_any_part_equal_ones_first(real: Session, words: list[str]) -> None:
    result = api.find(real, {"text": "King", "most": 5})
    assert result.words[0] == "king"
    assert result.count == sum("king" in word.removeprefix("##").lower() for word in words)
    assert all("king" in word for word in result.words)
    assert api.find(real, {"text": "ki"}).words[:2] == ["ki", "##ki"]
    assert api.find(real, {"text": "#2332"}).words == ["king"]
    assert api.find(real, {"text": "#99999999"}).count == api.find(real, {"text": " "}).count == 0


def test_what_is_open_is_told(real: Session, fresh: Session) -> None:
    result = about(real, {})
    assert (result.kind, result.model, result.positions) == ("checkpoint", "bert", (512, 384))
    assert result.tables["input"].rows == 30522
    assert result.analogy == ["man", "woman", "king"]
    assert {"king", "paris", "##ing"} <= set(result.examples)
    assert (about(fresh, {}).kind, about(fresh, {}).examples) == ("fresh", ["Max", "First", "("])


def test_rows_that_are_not_finite_are_said_to_be(tmp_path: Path) -> None:
    table = np.eye(4, dtype=np.float32)
    table[2, 1] = np.nan
    np.save(tmp_path / "table.npy", table)
    session = Session.open(tmp_path / "table.npy")
    row = api.card(session, {"token": "#2"}).tables["input"]
    assert (row.norm, row.percentile, row.row) == (None, None, None)
    with pytest.raises(TokenError, match="not finite"):
        api.neighbors(session, {"token": "#2"})
    assert api.neighbors(session, {"token": "#0"}).lists[0].ids.tolist() == [1, 3]


def test_examples_without_tokens_are_rows_that_are_not_zero(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.diag([0.0, 1, 2, 3]).astype(np.float32))
    assert api.examples(Session.open(tmp_path / "table.npy")) == ["#1", "#2", "#3"]
