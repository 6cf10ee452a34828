"""neighbors, analogy and similarity: what the functions of arrays find, by the text of tokens."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import whatwhere as ww
from whatwhere.analysis.nearest_neighbors import Nearest
from whatwhere.models.checkpoint import Checkpoint

from ..models.checkpoint import samples
from ..models.checkpoint.forms import WORDS
from ..running import error_of, json_of, whatwhere
from .conftest import Saved


def named(row: int) -> str:
    """Name a row of a tiny model: it has two more than tokens."""
    return WORDS[row] if row < len(WORDS) else f"#{row}"


def same(result: list[dict[str, Any]], right: Nearest, sign: int = 1) -> None:
    assert [answer["id"] for answer in result] == right.ids[0].tolist()
    assert [answer["token"] for answer in result] == [named(row) for row in right.ids[0]]
    assert [answer["score"] for answer in result] == pytest.approx(sign * right.scores[0], abs=1e-9)


# Every model, in every form


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_neighbors(saved: Saved, metric: str) -> None:
    result = json_of("neighbors", saved.path, "w3", "#36", "-k", "4", "--metric", metric)
    assert (result["rows"], result["dim"], result["not_finite"]) == (37, 64, [])
    assert [(token["token"], token["id"]) for token in result["tokens"]] == [("w3", 3), ("#36", 36)]
    for token, row in zip(result["tokens"], (3, 36), strict=True):
        right = ww.analysis.neighbors(saved.table, [row], k=4, metric=metric)
        same(token["neighbors"], right, -1 if metric == "euclidean" else 1)  # distances are printed


def test_neighbors_among_what_logits_are_read_out_with(saved: Saved) -> None:
    result = json_of("neighbors", saved.path, "w3", "-k", "4", "--table", "output")
    head = saved.table if saved.lm_head is None else saved.lm_head
    same(result["tokens"][0]["neighbors"], ww.analysis.neighbors(head, [3], k=4))
    assert json_of("neighbors", saved.path, "w3", "--table", result["table"])["tokens"][0]["neighbors"]


def test_similarity_of_two_tokens(saved: Saved) -> None:
    result = json_of("similarity", saved.path, "w3", "w7")
    one, other = (saved.table[n].astype(np.float64) for n in (3, 7))
    assert result["cosine"] == pytest.approx(one @ other / np.linalg.norm(one) / np.linalg.norm(other), abs=1e-12)
    assert f"cosine of w3 and w7: {result['cosine']:.4f}\n" in whatwhere("similarity", saved.path, "w3", "w7").out
    assert whatwhere("similarity", saved.path, "w3").status == 2


def test_people_read_what_machines_read(saved: Saved) -> None:
    result, shown = json_of("neighbors", saved.path, "w3"), whatwhere("neighbors", saved.path, "w3").out
    lines = [line.split() for line in shown.splitlines()]
    assert lines[0] == ["w3", "(#3)"]
    assert lines[2:] == [[n["token"], str(n["id"]), f"{n['score']:.4f}"] for n in result["tokens"][0]["neighbors"]]
    both = json_of("analogy", saved.path, "w2", "w3", "w4", "-k", "3")
    shown = whatwhere("analogy", saved.path, "w2", "w3", "w4", "-k", "3").out
    rows = [line.split() for line in shown.splitlines()[2:]]
    answers = zip(both["without_inputs"], both["with_inputs"], strict=True)
    assert rows == [
        [cell for n in pair for cell in (n["token"], str(n["id"]), f"{n['score']:.4f}")] for pair in answers
    ]


# A real model


def test_numbers_alone_need_no_torch(minilm: Path, tmp_path: Path) -> None:
    commands = [
        ["neighbors", minilm, "king"],
        ["analogy", minilm, "man", "woman", "king"],
        ["similarity", minilm, "king", "queen"],
        ["map", minilm, "--rows", "500", "--out", tmp_path / "map.svg"],
        ["inspect", minilm, "--sections", "sizes,norms,spectrum,diagnostics,positions"],
    ]
    code = (
        "import sys, json\nfrom whatwhere.cli import main\nfor words in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['whatwhere', *words]\n    try: main()\n    except SystemExit as end: assert not end.code\n"
        "print(*(name for name in ('torch', 'matplotlib', 'transformers') if name in sys.modules))"
    )
    words = json.dumps([[str(word) for word in command] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", code, words], capture_output=True, text=True, check=False, timeout=120, env=os.environ
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == ""
    assert "cosine of king and queen: 0.6" in done.stdout


# What is not well, and what is not to be


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    text = "5 2\nking 1 0\nnan nan 0\nqueen 0.9 0.1\nfar inf 1\nmat -1 0.5\n"
    (tmp_path / "broken.vec").write_text(text)
    return tmp_path / "broken.vec"


def test_rows_that_are_not_finite_are_omitted_and_reported(broken: Path) -> None:
    result = json_of("neighbors", broken, "king", "-k", "9")
    assert result["not_finite"] == [{"token": "nan", "id": 1, "text": "nan"}, {"token": "far", "id": 3, "text": "far"}]
    assert [(n["token"], n["id"]) for n in result["tokens"][0]["neighbors"]] == [("queen", 2), ("mat", 4)]
    for words in (["neighbors", broken, "king"], ["similarity", broken, "king", "mat"]):
        assert "Excluded, because they contain NaN or infinity: nan (#1), far (#3)." in whatwhere(*words).out
    said = whatwhere("neighbors", broken, "far")
    assert said.status == 1
    assert "the row of 'far' (#3) holds numbers that are not finite" in said.err


def test_pickles_are_read_where_they_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(samples.pickled())
    refused = whatwhere("neighbors", tmp_path / "model.pt", "#2")
    assert refused.status == 1
    assert "allow" in refused.err
    result = json_of("neighbors", tmp_path / "model.pt", "#2", "--allow-pickle", "-k", "1")
    right = ww.analysis.neighbors(samples.WEIGHT, [2], k=1)
    assert result["tokens"][0]["neighbors"][0]["id"] == right.ids[0, 0]


# Results of a comparison: each run has a table of its own


def test_each_run_answers_by_its_own_table_and_none_unasked(results: Path, tmp_path: Path) -> None:
    runs = ("learned-0", "learned-1", "rotary+alibi-0")
    asked = {
        "neighbors": ("1", "-k", "2"), "similarity": ("1", "2"), "analogy": ("1", "2", "3", "-k", "2"),
        "map": ("--out", tmp_path / "map.json"),
    }  # fmt: skip
    for command, rest in asked.items():
        assert "has 4 runs, each with tables of its own" in (said := error_of(command, results, *rest))
        assert "--run learned-0" in said
        answers = []
        for run in runs:
            result = json_of(command, results, *rest, "--run", run)
            answers.append({name: value for name, value in result.items() if name != "path"})
            assert result["path"].startswith(str(results / run.partition("+")[0]))
        assert len({json.dumps(answer) for answer in answers}) == 3
    assert "Pass the file of one: models/learned-0.safetensors" in error_of("repair", results, tmp_path / "out")
    table = Checkpoint.open(results).array("learned-1/input.tokens.weight").astype(np.float64)
    one, other = table[[Checkpoint.open(results).words.index(word) for word in ("1", "2")]]  # type: ignore[union-attr]
    cosine = float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
    assert json_of("similarity", results, "1", "2", "--run", "learned-1")["cosine"] == pytest.approx(cosine, abs=1e-6)
    by_name = json_of("similarity", results, "1", "2", "--table", "learned-1/input.tokens.weight")
    assert by_name["cosine"] == pytest.approx(cosine, abs=1e-6)
    assert ww.neighbors(results, "1", k=1, run="learned-1").table == "input.tokens.weight"
    with pytest.raises(ww.errors.SettingError, match="Name one, as in --run learned-0, or run='learned-0'"):
        ww.neighbors(results, "1")
    with pytest.raises(ww.errors.SettingError, match="has 4 runs"):
        ww.analogy(results, "1", "2", "3")
    assert "models/learned-0.safetensors" in error_of("diff", results, results)
    assert "has 4 runs" in error_of("convert", results, tmp_path / "tsv", "--format", "projector")


def test_a_file_of_several_models_names_the_table_that_was_searched(tmp_path: Path) -> None:
    """Two text encoders in one file, as in checkpoints of SDXL."""
    tables = [
        "conditioner.embedders.0.transformer.text_model.embeddings.token_embedding.weight",
        "conditioner.embedders.1.model.token_embedding.weight",
    ]
    random = np.random.default_rng(0)
    save_file(
        {name: random.standard_normal((9, n + 4)) for n, name in enumerate(tables)}, tmp_path / "sdxl.safetensors"
    )
    for words in (["neighbors", "#1"], ["similarity", "#1", "#2"], ["analogy", "#1", "#2", "#3"], ["map"]):
        out = ["--out", str(tmp_path / "map.svg")] if words == ["map"] else []
        said = whatwhere(words[0], tmp_path / "sdxl.safetensors", *words[1:], *out)
        assert f"This is of {tables[1]}; --table takes" in said.out, said.err
        assert tables[0] in said.out
        assert (
            "This is of"
            not in whatwhere(
                words[0], tmp_path / "sdxl.safetensors", *words[1:], *out, "--run", "conditioner.embedders.0"
            ).out
        )
