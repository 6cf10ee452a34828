"""Neighbors and analogies by the text of tokens, from Python; and the words of a map."""

import json
from pathlib import Path

import numpy as np
import pytest

import whatwhere as ww
from whatwhere.analysis.token_map import FOUR_GROUPS
from whatwhere.analysis.token_neighbors import neighbors, token_similarity
from whatwhere.errors import CheckpointError
from whatwhere.where.catalogue import ALIASES, canonical_name, catalogue

from ..running import error_of, json_of, whatwhere


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    rows = {"cat": (9, 1), "dog": (9, 2), "kitten": (9, 0), "king": (1, 9), "queen": (2, 9), "prince": (0, 9)}
    lines = [f"{word} {x} {y} 0" for word, (x, y) in rows.items()]
    (tmp_path / "pets.vec").write_text("\n".join(["7 3", *lines, "of -5 -5 5", ""]))
    return tmp_path / "pets.vec"


def test_neighbors_of_words_from_python(pets: Path) -> None:
    checkpoint = ww.read(pets)
    found = ww.neighbors(checkpoint, ["king", "#0"], k=2)
    assert [[row.token for row in token.neighbors] for token in found.tokens] == [
        ["queen", "prince"],
        ["dog", "kitten"],
    ]
    ids = ww.analysis.neighbors(checkpoint.array("vectors"), [3], k=2).ids[0].tolist()
    assert [row.id for row in found.tokens[0].neighbors] == ids
    assert ww.neighbors(pets, "king", k=1).tokens[0].neighbors[0].token == "queen"
    with pytest.raises(ww.errors.TokenError, match="no token of"):
        ww.neighbors(checkpoint, ["emperor"])


def test_distances_are_not_negative_and_a_row_of_zeros_has_no_direction(pets: Path) -> None:
    said = whatwhere("neighbors", pets, "king", "--metric", "euclidean", "-k", "1").out
    assert "distance" in said
    assert said.split()[-3:] == ["queen", "4", "1.0000"]  # (1, 9) and (2, 9)
    pets.write_text(pets.read_text().replace("of -5 -5 5", "of 0 0 0"))
    for command in (["neighbors", "of"], ["similarity", "of", "king"], ["analogy", "cat", "of", "king"]):
        assert "no direction" in error_of(command[0], pets, *command[1:])
    assert "queen" in whatwhere("neighbors", pets, "of", "--centered").out
    assert json_of("neighbors", pets, "of", "--metric", "euclidean", "-k", "1")["tokens"][0]["neighbors"][0]["id"] >= 0


def test_an_analogy_as_an_equation_is_that_of_three_words(pets: Path) -> None:
    three = ww.analogy(pets, "cat", "dog", "king", k=2)
    for equation in ("dog - cat + king", "king + dog - cat", "king - cat + dog"):
        assert [row.token for row in ww.analogy(pets, equation, k=2).with_inputs] == [
            row.token for row in three.with_inputs
        ]
    by_words = json_of("analogy", pets, "cat", "dog", "king", "-k", "2")
    assert json_of("analogy", pets, "dog", "-", "cat", "+", "king", "-k", "2")["question"] == by_words["question"]
    for wrong in ("dog cat", "dog + cat + king", "a - b - c"):
        assert "an analogy takes three tokens" in error_of("analogy", pets, *wrong.split())


def test_a_map_of_named_tokens_counts_neighbors_in_their_group(pets: Path, tmp_path: Path) -> None:
    out = tmp_path / "map.json"
    groups = "animals: cat, dog, kitten; king, queen, prince"
    facts = json_of("map", pets, "--tokens", groups, "--out", out)
    assert (facts["shown"], facts["kept"]["k"]) == (6, 1)
    assert [point["type"] for point in json.loads(out.read_text())["points"]] == 3 * ["animals"] + 3 * ["2"]
    assert (facts["groups"]["stay"], facts["groups"]["compared"]) == (6, 6)
    assert (
        "6 of 6 tokens have their nearest of the other 5"
        in whatwhere("map", pets, "--tokens", groups, "--out", out).out
    )
    mixed = json_of("map", pets, "--tokens", "cat, king, queen; dog, kitten, prince", "--out", out)
    assert mixed["groups"]["stay"] < 6
    assert "twice" in error_of("map", pets, "--tokens", "cat,#0,dog", "--out", out)
    assert "--rows" in error_of("map", pets, "--tokens", "cat,dog,king", "--rows", "3", "--out", out)


def test_the_fifth_tutorials_words_stay_in_their_groups_in_a_real_model(minilm: Path, tmp_path: Path) -> None:
    groups = "; ".join(f"{name}: {','.join(words)}" for name, words in FOUR_GROUPS.items())
    assert groups.replace("; ", ";").replace(": ", ":") in "".join(whatwhere("map", "-h").out.split()).replace(
        "; ", ";"
    ).replace(": ", ":")
    facts = json_of("map", minilm, "--tokens", groups, "--out", tmp_path / "map.svg")["groups"]
    assert (facts["stay"], facts["compared"]) == (16, 16)


def test_aliases_are_other_names_of_entries() -> None:
    assert set(ALIASES.values()) <= set(catalogue)
    assert not set(ALIASES) & set(catalogue)
    assert canonical_name(" RoPE + alibi / nope") == " rotary + alibi / none"
    assert repr(ww.scheme("rope+alibi", 16, 2, 8)) == repr(ww.scheme("rotary+alibi", 16, 2, 8))
    assert json_of("encode", "a b", "--scheme", "yarn")["scheme"] == "rotary-yarn"
    with pytest.raises(ww.errors.UnknownScheme, match="Did you mean rotary"):
        ww.scheme("ropee", 16, 2, 8)


def test_the_shell_completes_schemes() -> None:
    from whatwhere.cli.app import complete_scheme

    assert complete_scheme("rotary-ax") == ["rotary-axial"]
    assert complete_scheme("none/rotary+al") == ["none/rotary+alibi"]
    assert set(complete_scheme("ro")) >= {"rope", "rotary"}


def test_what_training_changed_is_a_table_of_a_run(results: Path, tmp_path: Path) -> None:
    run = ww.read(results).run("learned-0")
    change = run.array(run.token_table) - run.array(f"{run.token_table}@0")
    words = run.words or []
    one, other = (change[words.index(word)] for word in ("Max", "Min"))
    cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
    found = token_similarity(results, ("Max", "Min"), run="learned-0", table="change")
    assert found.cosine == pytest.approx(cosine, abs=1e-6)
    assert found.table == f"{run.token_table} - {run.token_table}@0"
    assert abs(found.cosine - token_similarity(results, ("Max", "Min"), run="learned-0").cosine) > 0.01
    near = neighbors(results, "6", k=1, run="learned-0", table="change", metric="euclidean").tokens[0]
    distances = np.linalg.norm(change - change[near.id], axis=1)
    assert near.neighbors[0].score == pytest.approx(np.sort(distances)[1], rel=1e-5)
    path = tmp_path / "two.vec"
    path.write_text("2 2\na 1 2\nb 2 1\n")
    with pytest.raises(CheckpointError, match="no token table from before training"):
        neighbors(path, "a", table="change")
    for command in (["neighbors", "6"], ["analogy", "1", "2", "3"], ["similarity", "Max", "Min"], ["map"]):
        more = ["--run", "learned-0", "--table", "change", *(["--out", tmp_path / "map.svg"] * (command == ["map"]))]
        assert json_of(command[0], results, *command[1:], *more)["table"] == found.table
