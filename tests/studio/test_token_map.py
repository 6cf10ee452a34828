"""The token map: numbers of a real model beside plain NumPy, and maps that are drawn in another process."""

import multiprocessing
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree

import numpy as np
import pytest

from whatwhere.analysis.token_map import NeighborsKept, TokenMap, make_map
from whatwhere.errors import SettingError, ShapeError, TextError
from whatwhere.studio.api import JOBS, token_map
from whatwhere.studio.jobs import Report, Stopped, run_in_subprocess
from whatwhere.studio.session import Corpus, Session

from .conftest import csv_rows, quiet


def test_points_are_the_principal_components(real: Session, fresh: Session, table: np.ndarray) -> None:
    result, right = token_map.points(real, {}), make_map(table.astype(np.float32), "pca", queries=1000)
    np.testing.assert_allclose(result.coordinates, right.coordinates, rtol=1e-5, atol=1e-6)
    assert (result.kept, result.explained) == (right.kept, right.explained_variance_ratio)
    assert result.ids.tolist() == list(range(30522))
    assert (result.shown, result.not_finite) == (30522, 0)
    # Ten of nineteen neighbors would be kept by chance.
    assert token_map.points(fresh, {}).kept == make_map(fresh.table().weight, "pca", k=4).kept


def test_labels_say_what_the_vocabulary_does(real: Session, table: np.ndarray) -> None:
    result = token_map.labels(real, {})
    words, meant = result.words, result.texts
    assert words == real.words
    assert [(words[n], meant[n]) for n in (2332, 2075)] == [("king", ""), ("##ing", "ing")]
    kinds = [result.kind_names[n] for n in result.kinds]
    assert kinds == real.kinds
    assert [result.script_names[n] for n in result.scripts] == real.scripts
    np.testing.assert_allclose(result.norms, np.linalg.norm(table, axis=1), rtol=1e-6)


def test_true_neighbors_of_one_and_of_all(real: Session, fresh: Session, table: np.ndarray) -> None:
    result = token_map.near(real, {"token": "king"})
    cosines = table @ table[2332] / np.linalg.norm(table, axis=1) / np.linalg.norm(table[2332])
    cosines[2332] = -2
    assert result.ids.tolist() == np.argsort(-cosines)[:10].tolist()
    np.testing.assert_allclose(result.cosines, np.sort(cosines)[::-1][:10])
    every = token_map.neighbors(fresh, {})
    for row, number in enumerate(every.of.tolist()):
        assert every.ids[row].tolist() == token_map.near(fresh, {"token": f"#{number}"}).ids.tolist()


def test_rows_that_are_left_out_keep_the_ids_of_the_others(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((30, 5)).astype(np.float32)
    weight[4, 2] = np.inf
    np.save(tmp_path / "table.npy", weight)
    session = Session.open(tmp_path / "table.npy")
    result = token_map.points(session, {})
    assert (result.not_finite, result.rows) == (1, 30)
    assert result.ids.tolist() == [n for n in range(30) if n != 4]
    labels = token_map.labels(session, {})
    assert np.isnan(labels.norms[4])
    assert labels.words == []
    assert {labels.kind_names[n] for n in labels.kinds} == {"no token"}
    assert 4 not in token_map.neighbors(session, {}).ids


def test_a_corpus_is_counted(tmp_path: Path) -> None:
    text = tmp_path / "corpus.txt"
    text.write_text("Max First\nMax ( Max\n", encoding="utf-8")
    session = Session.open(corpus=text)
    result = token_map.frequencies(session, {})
    words, counts = session.words, result.counts
    assert (result.corpus, result.whole, result.total) == ("corpus.txt", True, int(counts.sum()))
    assert [counts[words.index(word)] for word in ("Max", "First", "(", "Last")] == [3, 1, 1, 0]
    assert token_map.frequencies(Session.open(), {}).counts is None
    text.write_bytes(b"\xff\xfe")
    with pytest.raises(TextError, match="not UTF-8"):
        Corpus(text)


def test_a_named_set_is_drawn_alone(real: Session, table: np.ndarray) -> None:
    begin = token_map.begin(real)
    assert begin["method"] == "tsne"
    result = token_map.points(real, {"tokens": begin["example"] + ", notsinglepiece"})
    assert [real.words[n] for n in result.ids[:5]] == ["cat", "dog", "kitten", "puppy", "king"]
    assert (result.shown, result.named.neighbors.stay, result.named.neighbors.compared) == (16, 16, 16)
    assert "splits it into" in result.named.missing["notsinglepiece"]
    groups = " ".join(result.named.group_names[n] for n in result.named.groups[::4])
    assert groups == "animals royalty actions places"
    alone = make_map(table[result.ids], "pca", result.kept.k)
    np.testing.assert_allclose(result.coordinates, alone.coordinates, rtol=1e-3, atol=1e-5)
    rows = table[result.ids] / np.linalg.norm(table[result.ids], axis=1, keepdims=True)
    cosines = rows @ rows.T - 2 * np.eye(16)
    np.testing.assert_allclose(result.named.neighbors.cosines, cosines.max(axis=1), atol=1e-6)
    assert result.named.neighbors.nearest.tolist() == cosines.argmax(axis=1).tolist()
    with pytest.raises(SettingError, match=r"three tokens or more, but got 1\.\nnotsinglepiece"):
        token_map.points(real, {"tokens": "king, notsinglepiece"})
    with pytest.raises(SettingError, match="more than 1,000"):
        token_map.points(real, {"tokens": "king," * 1001})


def test_large_tables_are_sampled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32))
    session = Session.open(tmp_path / "table.npy")
    monkeypatch.setattr(token_map, "rows_for_half_a_minute", lambda rows, dim: rows // 3 if dim == 4 else 0)
    result = token_map.points(session, {"method": "tsne"})
    assert (result.shown, result.rows, result.kept) == (100, 300, None)
    sent: list[np.ndarray] = []

    def made(function: Any, report: Any, *, table: np.ndarray, **settings: Any) -> TokenMap:
        sent.append(table)
        return TokenMap("tsne", table[:, :2], NeighborsKept(0.5, settings["k"], 100, 0.1), None)

    monkeypatch.setattr(token_map, "run_in_subprocess", made)
    drawn = token_map.draw(session, {"method": "tsne"}, quiet)
    np.testing.assert_array_equal(sent[0], session.table().weight[drawn.ids])
    assert drawn.ids.max() > 200


def test_a_map_of_another_process_is_kept(fresh: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    table, reports = fresh.table().weight, []
    result = run_in_subprocess(make_map, lambda share, said: reports.append(said), table=table, method="pca", k=3)
    np.testing.assert_allclose(result.coordinates, make_map(table, "pca", k=3).coordinates)
    assert reports[0] == "starting"
    with pytest.raises(ShapeError, match="at least 16 finite rows"):
        run_in_subprocess(make_map, quiet, table=table[:9], method="tsne")

    session, kept = Session.open(), TokenMap("tsne", result.coordinates, NeighborsKept(0.5, 10, 20, 0.1), None)
    monkeypatch.setattr(token_map, "run_in_subprocess", lambda work, report, **settings: kept)
    assert token_map.points(session, {"method": "tsne"}).kept is None
    assert JOBS["maps.draw"](session, {"method": "tsne"}, quiet).kept.share == 0.5
    assert token_map.points(session, {"method": "tsne"}).kept is not None
    assert token_map.points(session, {"method": "umap"}).kept is None


def test_stopping_ends_the_process(fresh: Session) -> None:
    def stop(share: float, said: str) -> None:
        assert multiprocessing.active_children()
        raise Stopped

    with pytest.raises(Stopped):
        run_in_subprocess(make_map, stop, table=fresh.table().weight, method="pca")
    assert multiprocessing.active_children() == []


def test_the_page_draws_stops_and_selects(
    look: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small table, so that a job is over as soon as the page has seen it at work."""
    rng = np.random.default_rng(5)
    np.save(tmp_path / "table.npy", rng.standard_normal((400, 12)).astype(np.float32))
    session, calls = Session.open(tmp_path / "table.npy"), []

    def draw(work: Any, report: Report, **settings: Any) -> TokenMap:
        calls.append(settings["method"])
        for step in range(40 if len(calls) == 1 else 2):
            report(step / 40, f"step {step} of 40")
            time.sleep(0.05)
        return TokenMap("tsne", rng.standard_normal((400, 2)), NeighborsKept(0.25, 10, 400, 0.025), None)

    monkeypatch.setattr(token_map, "run_in_subprocess", draw)
    monkeypatch.setattr(token_map, "find_spec", lambda name: None if name == "umap" else True)
    seen = look(session, "token_map.mjs", token=7)

    result, near = token_map.points(session, {}), token_map.near(session, {"token": "#7"})
    assert seen["folded"] == 2, "rare controls: colors and filters, only some tokens"
    assert seen["printed"][0].startswith(f"keeps {100 * result.kept.share:.1g}"[:7])
    assert seen["near"] == [f"#{n}" for n in near.ids]
    assert seen["cosines"] == [f"{cosine:.3f}" for cosine in near.cosines]
    away = np.linalg.norm(result.coordinates - result.coordinates[7], axis=1)
    away[7] = np.inf
    kept = len(set(np.argsort(away)[:10].tolist()) & set(near.ids.tolist()))
    assert f"{kept} are among the 10 nearest on this map" in seen["of"]
    assert seen["line"].startswith("#7 · #7 · no token")
    rows = csv_rows(seen["csv"])
    np.testing.assert_array_equal(
        [[float(row["x"]), float(row["y"])] for row in rows], result.coordinates.astype(float)
    )
    assert {*seen["printed"], "#7"} <= set(ElementTree.fromstring(seen["svg"]).itertext())

    none, first, before, again, nothing, clicked = seen["walked"]
    assert none == nothing == ""
    assert int(before[1:]) == (int(first[1:]) - 1) % 400
    assert again == first == clicked
    assert seen["all"] == "400 tokens in the rectangle"
    assert seen["drawn_rows"] < 100
    assert "399" in seen["last"]
    left, right, low, high = map(float, parse_qs(seen["box"].partition("?")[2])["box"][0].split(","))
    x, y = result.coordinates.T
    inside = np.flatnonzero((x >= left) & (x <= right) & (y >= low) & (y <= high))
    assert 0 < len(inside) < 400
    assert seen["half"] == f"{len(inside)} tokens in the rectangle"
    assert {int(row[1]) for row in seen["rows"] if len(row) > 1} <= set(inside.tolist())
    assert [said.strip() for said in seen["only"][:2]] == ["no token", "true"]
    assert "only=no+token" in seen["only"][2]
    ending = sum(str(number).endswith("9") for number in range(400))
    assert seen["found"] == [f"{ending} tokens", f"{ending} tokens pass the filters"]
    assert seen["reset"] == ""
    named = token_map.points(session, {"tokens": "a: #1, #2, #3; b: #4, nothing"}).named
    assert seen["named"][0].startswith(
        f"{named.neighbors.stay} of {named.neighbors.compared} tokens have their nearest neighbor"
    )
    assert seen["named"][1] == "4 named tokens by PCA"
    assert "nothing" in seen["named"][2]
    assert {"#1", "#2", "#3", "#4", "a", "b"} <= set(ElementTree.fromstring(seen["labels"]).itertext())

    assert re.fullmatch(r"drawing 400 tokens by t-SNE; until then, PCA: step \d+ of 40 …", seen["progress"])
    assert calls == ["tsne", "tsne"]
    assert seen["drawn"] == [
        "keeps 25 % of the 10 nearest tokens of the full space",
        "of 400 tokens; chance would keep 2.5 %",
    ]
    assert seen["without"] == 0
    assert 'pip install "whatwhere[umap]"' in seen["missing"]
    assert seen["title"] == "400 tokens by PCA"
