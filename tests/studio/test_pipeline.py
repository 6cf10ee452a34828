"""The pipeline: a text in the loaded model, in a run, and in a layer that nothing has trained, beside plain NumPy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from whatwhere.analysis.walkthrough import walk
from whatwhere.comparison import load_model
from whatwhere.errors import SettingError, TextError, TokenError
from whatwhere.report.section import Table
from whatwhere.studio.api import QUERIES, positions
from whatwhere.studio.api import pipeline as api
from whatwhere.studio.schemes import run_name, scheme_of
from whatwhere.studio.session import Session

from .conftest import csv_rows, opened

TEXT = "The cat sat on the mat."
MODEL = {"text": TEXT, "tokens": "loaded", "scheme": "model", "causal": False}


def sampled(*shape: int) -> np.ndarray:
    return np.random.default_rng(4).standard_normal(shape).astype(np.float32)


LLAMA = {
    "model_type": "llama", "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "rope_theta": 500.0,
}  # fmt: skip


def test_a_text_in_the_real_model_is_what_its_files_say(real: Session, minilm: Path) -> None:
    result = api.walk(real, MODEL)
    tokenizer = Tokenizer.from_file(str(minilm / "tokenizer.json"))
    tokenizer.no_padding()
    encoded = tokenizer.encode(TEXT)
    tensors = load_file(minilm / "model.safetensors")
    rows = tensors["embeddings.word_embeddings.weight"][encoded.ids]
    position_rows = tensors["embeddings.position_embeddings.weight"][: len(encoded.ids)]
    assert (result.ids.tolist(), result.words) == (encoded.ids, encoded.tokens)
    np.testing.assert_array_equal(result.rows, rows)
    np.testing.assert_array_equal(result.position_rows, position_rows)
    np.testing.assert_array_equal(result.vectors, rows + position_rows)
    assert (result.num_heads, result.head_dim, result.bias, result.angles) == (12, 32, None, None)
    q = (rows + position_rows)[:, 32:64].astype(np.float64)
    second = api.walk(real, MODEL | {"head": 1})
    np.testing.assert_allclose(second.scores, q @ q.T / np.sqrt(32), rtol=1e-4, atol=1e-6)


def test_a_fresh_layer_gives_the_numbers_of_walk(fresh: Session) -> None:
    settings = {"text": TEXT, "tokens": "words", "scheme": "learned+alibi", "dim": 12, "heads": 2, "seed": 3}
    result, right = api.walk(fresh, settings), walk(TEXT, scheme="learned+alibi", dim=12, num_heads=2, seed=3)
    assert (result.words, result.ids.tolist()) == (right.tokens, right.ids)
    np.testing.assert_array_equal(result.vectors, right.vectors.numpy())
    np.testing.assert_array_equal(result.position_rows, right.position_rows.numpy())
    np.testing.assert_array_equal(result.bias[3], [-abs(3 - key) / 16 for key in range(7)])


def test_rotary_turns_as_the_configuration_says(tmp_path: Path) -> None:
    session = opened(tmp_path, LLAMA, **{"model.embed_tokens.weight": sampled(30, 16)})
    result = api.walk(session, {"text": "3 7, 7", "tokens": "loaded", "scheme": "model"})
    assert (result.ids.tolist(), result.words) == ([3, 7, 7], ["#3", "#7", "#7"])
    assert result.position_rows is None
    speeds = 500.0 ** (-np.arange(0, 8, 2) / 8)
    np.testing.assert_allclose(result.angles, np.outer(range(3), speeds), rtol=1e-6)
    first, second = result.pairs.first, result.pairs.second
    before = result.q[:, first] + 1j * result.q[:, second]
    after = result.mapped_q[:, first] + 1j * result.mapped_q[:, second]
    np.testing.assert_allclose(after, before * np.exp(1j * np.outer(range(3), speeds)), rtol=1e-4, atol=1e-6)


def test_a_model_that_multiplies_its_tokens_does_so_here(tmp_path: Path) -> None:
    config = LLAMA | {"model_type": "gemma", "head_dim": 8, "num_key_value_heads": 2}
    table = sampled(30, 16)
    session = opened(tmp_path, config, **{"model.embed_tokens.weight": table})
    result = api.walk(session, {"text": "3 7", "tokens": "loaded", "scheme": "model"})
    assert result.factor == 4
    np.testing.assert_array_equal(result.vectors, 4 * table[[3, 7]])


def test_positions_that_the_model_leaves_out_are_left_out(tmp_path: Path) -> None:
    config = {
        "model_type": "opt", "vocab_size": 9, "hidden_size": 8, "word_embed_proj_dim": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_position_embeddings": 4, "ffn_dim": 8,
    }  # fmt: skip
    position_rows = sampled(6, 8)
    tensors = {
        "model.decoder.embed_tokens.weight": sampled(9, 8),
        "model.decoder.embed_positions.weight": position_rows,
    }
    session = opened(tmp_path, config, **tensors)
    result = api.walk(session, {"text": "1 2 3 4 5 6", "tokens": "loaded", "scheme": "model"})
    np.testing.assert_array_equal(result.position_rows, position_rows[2:])  # four tokens: the table has no more
    assert api.read(session, {"text": "1 2 3 4 5 6", "tokens": "loaded"}).count == 6


@pytest.mark.parametrize("dim", [1, 3, 6, 8, 50])
def test_every_table_begins_with_a_text_and_a_scheme_that_fit_it(dim: int, tmp_path: Path) -> None:
    rows = sampled(9, dim)
    rows[1] = np.nan
    np.save(tmp_path / "table.npy", rows)
    session = Session.open(tmp_path / "table.npy")
    result = api.walk(session, api.begin(session))
    assert result.ids.tolist() == [0, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(result.rows, rows[result.ids])


def test_a_model_of_two_parts_begins_with_its_decoder(tmp_path: Path) -> None:
    config = {"model_type": "t5", "vocab_size": 9, "d_model": 8, "d_kv": 4, "num_heads": 2, "num_layers": 1}
    session = opened(tmp_path, config, **{"shared.weight": sampled(9, 8)})
    assert api.walk(session, api.begin(session)).causal


VOCABULARIES = {
    "the whole sentence": (["the", "cat", "sat", "on", "mat", "."], "the cat sat on the mat.", [0, 1, 2, 3, 0, 4, 5]),
    "some of its words": (["Cat", "cat", "."], "cat.", [1, 2]),
    "none of its words": (["</s>", "x" * 50, "chien", "a-b", "chat"], "chien chat", [2, 4]),
}


def of_words(folder: Path, words: list[str]) -> Session:
    lines = [f"{word} {' '.join(['0.5'] * 4)}" for word in words]
    (folder / "table.vec").write_text("\n".join([f"{len(words)} 4", *lines]), encoding="utf-8")
    return Session.open(folder / "table.vec")


@pytest.mark.parametrize("name", VOCABULARIES)
def test_a_list_of_words_begins_with_a_text_of_them(name: str, tmp_path: Path) -> None:
    words, text, ids = VOCABULARIES[name]
    session = of_words(tmp_path, words)
    assert api.begin(session)["text"] == text
    assert api.read(session, {"text": text, "tokens": "loaded"}).ids.tolist() == ids


def test_without_a_tokenizer_the_tokens_that_begin_words_are_looked_up(tmp_path: Path) -> None:
    session = of_words(tmp_path, ["the", "▁the", "cat", "▁cat", "s", ".", "▁."])
    result = api.walk(session, MODEL | {"scheme": "none", "text": "the cat s."})
    assert (result.words, result.ids.tolist()) == (["▁the", "▁cat", "s", "."], [1, 3, 4, 5])
    assert any("looked up whole" in note for note in result.notes)
    with pytest.raises(TextError, match=r"'cats' .*\n.*no tokenizer.json"):
        api.walk(session, MODEL | {"scheme": "none", "text": "the cats"})


def test_scores_of_a_run_are_those_of_its_first_layer(session: Session) -> None:
    for record in session.results.runs:
        model = load_model(session.results, record)
        for head in range(2):
            settings = {"text": "Max(1,2)", "tokens": "loaded", "scheme": run_name(record), "head": head}
            result = api.walk(session, settings)
            weights = model.weights(torch.from_numpy(result.ids)[None])[0][0, head].detach().numpy()
            np.testing.assert_allclose(
                np.exp(result.scores) / np.exp(result.scores).sum(1)[:, None], weights, atol=1e-6
            )
    # A scheme of the catalogue on the tokens of a run is in no trained layer: q = k = x.
    result = api.walk(session, settings | {"scheme": "rotary"})
    assert result.layer == ""
    np.testing.assert_array_equal(result.q, result.vectors[:, 8:])


def test_runs_of_a_comparison_have_tables_of_their_own(session: Session, results: Path) -> None:
    assert sorted(session.runs) == sorted(result.stem for result in (results / "models").iterdir())
    text = {"text": "Max(1,2)", "tokens": "loaded"}
    result = api.walk(session, text | {"scheme": "learned-1"})
    saved = load_file(results / "models" / "learned-1.safetensors")
    rows = len(result.ids)
    np.testing.assert_array_equal(result.rows, saved["input.tokens.weight"][result.ids])
    np.testing.assert_array_equal(result.position_rows, saved["input.where.input.weight"][:rows])
    mixed = next(run for run in session.runs if run.startswith("rotary"))
    other = api.walk(session, text | {"scheme": mixed})
    assert [door.door for door in other.doors] == ["query_key", "score"]


def test_long_texts_are_cut_and_nothing_else_of_them_changes(real: Session) -> None:
    result = api.read(real, {"text": "cat " * 100, "tokens": "loaded"})
    assert (result.count, len(result.ids), len(result.words)) == (102, api.MAX_TOKENS, api.MAX_TOKENS)
    assert len(api.walk(real, MODEL | {"text": "cat " * 100}).vectors) == api.MAX_TOKENS


def test_what_is_not_there_is_said(fresh: Session, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"positional encoding of .* is not known"):
        api.walk(fresh, MODEL | {"text": "Max(1)"})
    np.save(tmp_path / "table.npy", sampled(5, 8))
    session = Session.open(tmp_path / "table.npy")
    with pytest.raises(SettingError, match="names no tokens"):
        api.read(session, {"text": TEXT, "tokens": "loaded"})
    with pytest.raises(TokenError, match="5 rows"):
        api.walk(session, {"text": "7", "tokens": "loaded", "scheme": "none"})
    with pytest.raises(SettingError, match=r"positional encoding of .* is not known"):
        scheme_of(session, "model")


@pytest.mark.parametrize("view", [api, positions])
def test_what_a_view_begins_with_is_what_it_exports(view: Any, fresh: Session, results: Path) -> None:
    for session in (fresh, Session.open(results)):
        exported = view.exported(session)
        first = view.begin(session).items()  # the page adds the run that is chosen
        assert any(first <= settings.items() for _, settings in exported.queries)
        for name, settings in exported.queries:
            assert QUERIES[name](session, settings)
        tables = [part for section in exported.sections for part in section.parts if isinstance(part, Table)]
        assert tables
        assert all(len(row) == len(table.columns) for table in tables for row in table.rows)


def test_the_page_steps_through_a_text(look: Callable[..., dict[str, Any]], real: Session) -> None:
    result = look(real, "pipeline.mjs")
    right = api.walk(real, MODEL | {"text": "A dog", "scheme": "sinusoidal+rotary+alibi", "causal": True})
    assert result["chips"] == [f"{word}{n}" for n, word in enumerate(right.words)]
    assert result["idle"] == ["5 Queries, keys, nothing happens here", "6 Bias, nothing happens here"]
    assert result["ids"] == [str(number) for number in right.ids]
    assert result["begins"] == f"“{right.words[2]}” at 2: row, position, sum"
    assert result["steps"] == ["tokens", "rows", "positions", "sum", "rotation", "bias", "score"]
    assert "E[3899]" in result["equation"]
    assert f"bias({2 - 1})" in result["equation"]
    rows = csv_rows(result["csv"])
    assert [row["token"] for row in rows] == right.words
    for n, row in enumerate(rows):
        np.testing.assert_allclose([float(row[str(k)]) for k in range(384)], right.vectors[n], rtol=1e-7)
    weights = np.exp(np.where(np.tri(len(right.ids)) > 0, right.scores, -np.inf))
    weights /= weights.sum(1, keepdims=True)
    for row in csv_rows(result["scores"]):
        query, key = int(row["query"].split()[0]), int(row["key"].split()[0])
        assert float(row["score"]) == pytest.approx(right.scores[query, key], rel=1e-6)
        assert float(row["bias"]) == pytest.approx(right.bias[query, key], rel=1e-6)
        assert float(row["weight"]) == pytest.approx(weights[query, key], rel=1e-4)
    (angle,) = (text for text in result["turned"][4:6] if text.endswith(" rad"))
    assert float(angle.split()[0]) == pytest.approx(2 * right.pairs.frequencies[3], rel=1e-3)
    assert result["refused"] == "Type a text above."
    assert result["violations"] == []


def test_an_expression_has_the_tutorials_ids_with_nothing_open(fresh: Session) -> None:
    settings = {"text": "Max(1,6,2)", "tokens": "words"}
    assert api.read(fresh, settings).ids.tolist() == [15, 17, 3, 19, 8, 19, 4, 18]
    steps = api.walk(fresh, settings | {"scheme": "sinusoidal", "dim": 8, "heads": 2})
    assert any("expression of the first tutorial" in note for note in steps.notes)
    plain = api.walk(fresh, {"text": "Max sat.", "tokens": "words", "scheme": "sinusoidal", "dim": 8, "heads": 2})
    assert (plain.ids.tolist(), plain.notes) == ([0, 1, 2], [])
