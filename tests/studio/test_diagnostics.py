"""Diagnostics: what the view receives, of a table that was spoiled on purpose and of a real model."""

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from whatwhere.analysis import subject
from whatwhere.errors import SettingError
from whatwhere.studio.api import JOBS
from whatwhere.studio.api.diagnostics import SuspiciousTokens
from whatwhere.studio.session import Session


def examined(session: Session) -> SuspiciousTokens:
    """Run the job at once."""
    return JOBS["diagnostics.examine"](session, {}, lambda share, said: None)


def test_what_was_spoiled_is_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((2000, 256)).astype(np.float32)
    table[40:60] = 0.1 + 0.01 * rng.standard_normal((20, 256))
    table[7] = 0
    table[9] = table[11] = table[8]
    table[12, 3] = np.nan
    table[13, :2] = np.inf
    table[14], table[15] = table[14] / 50, table[15] * 50
    np.save(tmp_path / "table.npy", table)
    result = examined(Session.open(tmp_path / "table.npy"))
    lists = result.lists
    assert sorted(lists.under_trained.ids.tolist()) == list(range(40, 60))
    assert lists.under_trained.also_unreachable is None
    assert (lists.far.ids.tolist(), lists.far.why) == ([14, 15], ["low norm", "high norm"])
    assert (result.lowest.ids[0], result.farthest.ids[0], result.farthest.why[:2]) == (14, 15, ["high norm", ""])
    sound = np.delete(table, [7, 12, 13, 14, 15, *range(40, 60)], axis=0).astype(np.float64)
    np.testing.assert_allclose(lists.far.distances, np.linalg.norm(table[14:16] - sound.mean(axis=0), axis=1))
    assert lists.zero.ids.tolist() == [7]
    assert (lists.duplicates.groups, lists.duplicates.ids.tolist()) == (1, [8, 9, 11])
    assert lists.duplicates.group.tolist() == [0, 0, 0]
    assert (lists.not_finite.ids.tolist(), lists.not_finite.nan, lists.not_finite.infinite) == (
        [12, 13],
        [1, 0],
        [0, 2],
    )
    assert "tokenizer" in lists.unreachable.missing
    everyone = result.norms.groups[0]
    assert (everyone.name, everyone.counts.sum()) == ("all rows", 1997)  # less the zero and the broken ones
    assert result.cosines.groups[1].counts.sum() == 20


@pytest.fixture(scope="module")
def sampled(minilm: Path) -> Iterator[Session]:
    """Open the real model with few sampled rows in the search for hubs; the session keeps its diagnostics."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subject, "HUB_QUERIES", 64)
        yield Session.open(minilm)


def test_a_real_model(sampled: Session, minilm: Path) -> None:
    reports: list[tuple[float, str]] = []
    result = JOBS["diagnostics.examine"](sampled, {}, lambda share, said: reports.append((share, said)))
    assert [share for share, _ in reports] == sorted(share for share, _ in reports)
    lists = result.lists
    table = load_file(minilm / "model.safetensors")["embeddings.word_embeddings.weight"].astype(np.float64)
    never = lists.under_trained
    np.testing.assert_allclose(never.norms, np.linalg.norm(table[never.ids], axis=1))
    assert never.count == len(never.ids)
    unused = [n for n, word in enumerate(sampled.words) if word.startswith("[unused")]
    assert np.isin(unused, never.ids).mean() > 0.98
    tokenizer = Tokenizer.from_file(str(minilm / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    lost = lists.unreachable
    for tried, read in zip(lost.texts_tried, lost.read_as, strict=True):
        assert tokenizer.encode(tried, add_special_tokens=False).tokens[:8] == read
    out_of_reach = sampled.unreachable()
    assert out_of_reach is not None
    assert lost.ids.tolist() == out_of_reach.tolist()
    np.testing.assert_array_equal(never.unreachable, np.isin(never.ids, out_of_reach))
    assert never.also_unreachable == never.unreachable.sum()


def test_long_lists_are_cut_and_padding_is_found(tmp_path: Path) -> None:
    save_file(
        {"embed_tokens.weight": np.zeros((6000, 4), np.float32) + np.eye(6000, 4, dtype=np.float32)},
        tmp_path / "model.safetensors",
    )
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": 6000}', encoding="utf-8")
    zero = examined(Session.open(tmp_path)).lists.zero
    assert (zero.count, len(zero.ids), len(zero.words)) == (5996, 5000, 5000)


def test_with_nothing_loaded_all_is_well(fresh: Session) -> None:
    result = examined(fresh)
    assert result.lists.unreachable.missing is None
    assert {name: each.count for name, each in vars(result.lists).items() if name != "unreachable"} == dict.fromkeys(
        ("under_trained", "far", "duplicates", "hubs", "zero", "not_finite", "beyond_vocabulary"), 0
    )
    with pytest.raises(SettingError, match="no setting"):
        JOBS["diagnostics.examine"](fresh, {"list": "zero"}, lambda share, said: None)


def test_the_page_shows_the_evidence(look: Callable[..., dict[str, Any]], sampled: Session) -> None:
    seen, lists = look(sampled, "diagnostics.mjs"), examined(sampled).lists
    names = ("under_trained", "far", "unreachable", "duplicates", "hubs", "zero", "not_finite", "beyond_vocabulary")
    assert [count for _, count in seen["counts"]] == [f"{getattr(lists, name).count:,}" for name in names]
    for n, row in enumerate(seen["unreachable"]):
        assert int(row[1]) == lists.unreachable.ids[n]
        assert row[4:6] == [lists.unreachable.texts_tried[n], " · ".join(lists.unreachable.read_as[n])]
    for n, row in enumerate(seen["underTrained"]):
        assert int(row[1]) == lists.under_trained.ids[n]
        assert row[4:6] == [f"{getattr(lists.under_trained, name)[n]:.3f}" for name in ("cosines", "proximity")]
    rows = list(csv.DictReader(io.StringIO(seen["csv"].removeprefix("\ufeff"))))
    assert [int(row["id"]) for row in rows] == lists.under_trained.ids.tolist()
    assert [float(row["norm"]) for row in rows] == lists.under_trained.norms.tolist()
    assert seen["hash"] == "#/diagnostics?list=under_trained"
    assert "suspected above 0.581" in seen["chart"]
    first = int(lists.under_trained.ids[0])
    assert (seen["card"], seen["big"], seen["map"]) == (
        f"#/tokens?token=%23{first}",
        str(first),
        f"#/map?token=%23{first}",
    )
    assert seen["light"] == seen["small"]["violations"] == seen["complaints"] == seen["small"]["complaints"] == []
    assert seen["small"]["overflow"] <= 0
