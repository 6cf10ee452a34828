"""inspect of a configuration, of one run of a comparison, of random tables, and of what is not a model."""

import json
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models

import whatwhere as ww
from whatwhere.analysis.added_positions import variance_split
from whatwhere.analysis.inspection import inspect
from whatwhere.comparison import compare
from whatwhere.models.checkpoint import read
from whatwhere.report.diagnostics import diagnostics as written
from whatwhere.report.inspection import headline, sections

from ..comparison.own_decoder import Decoder
from ..models.tiny import config_of, model_of
from ..running import error_of, json_of, whatwhere

CONFIG = {
    "model_type": "llama", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 64, "tie_word_embeddings": False, "initializer_range": 0.02,
}  # fmt: skip


def test_a_configuration_without_weights_has_sizes_and_positions(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for path in (tmp_path, tmp_path / "config.json"):
        found = json_of("inspect", path)
        assert found["format"] == "configuration"
        assert found["shape"] == [100, 16]
        assert [(part["part"], part["parameters"]) for part in found["sizes"]["parts"]] == [
            ("token table", 1600),
            ("output projection", 1600),
        ]
        assert found["rotary"]["groups"][0]["head_dim"] == 8
        assert found["norms"] is None  # of weights that are not there
    assert "a configuration has no weights" in str(json_of("inspect", tmp_path, "--sections", "norms")["norms"])
    assert "--report" in error_of("inspect", tmp_path, "--report", tmp_path / "page.html")


@pytest.mark.parametrize(
    ("changed", "of_layers", "found", "said"),
    [
        ({"model_type": "mistral", "sliding_window": 16}, "windows",
         [{"layers": [0, 1], "size": 16, "chunked": False, "causal": True}],
         "All 2 layers: attention within a sliding window of 16 tokens."),
        ({"model_type": "modernbert", "local_attention": 8, "global_attn_every_n_layers": 2}, "windows",
         [{"layers": [1], "size": 5, "chunked": False, "causal": False}],
         "Layer 1 of 2: attention within a sliding window of 5 tokens to each side, that of the query among them."),
        ({"model_type": "gpt_oss", "head_dim": 8}, "sinks", [0, 1], "each head has a learned sink"),
    ],
)  # fmt: skip
def test_windows_and_sinks_are_said(
    changed: dict[str, Any], of_layers: str, found: list[Any], said: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"num_key_value_heads": 2} | changed))
    assert json_of("inspect", tmp_path)["rotary"][of_layers] == found
    printed = whatwhere("inspect", tmp_path).out
    assert said in printed
    assert ("learned sink" in printed) == (of_layers == "sinks")


def test_temperatures_are_said(tmp_path: Path) -> None:
    config = CONFIG | {"model_type": "llama4_text", "num_key_value_heads": 2, "head_dim": 8}
    config |= {"no_rope_layers": [1, 0], "attn_temperature_tuning": True, "floor_scale": 8, "attn_scale": 0.5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (found,) = json_of("inspect", tmp_path)["rotary"]["temperatures"]
    assert found["layers"] == [1]
    assert found["curve"] == "SteppedLog(alpha=0.5, period=8, offset=1)"
    of = dict(zip(found["positions"], found["factors"], strict=True))
    assert of[0] == 1.0
    assert of[10] == pytest.approx(1 + 0.5 * log(2), rel=1e-5)
    assert max(of) == config["max_position_embeddings"] - 1
    assert "Layer 1 of 2: queries are multiplied by a function of their position" in whatwhere("inspect", tmp_path).out


def test_a_model_without_attention_is_inspected(tmp_path: Path) -> None:
    config = {"model_type": "mamba", "vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    printed = whatwhere("inspect", tmp_path, "--sections", "rotary,biases").out
    assert printed.count("No layer of this model has attention") == 2


def test_a_run_of_a_comparison_is_inspected_by_itself(results: Path) -> None:
    found = json_of("inspect", results, "--run", "learned-1", "--sections", "sizes,positions")
    names = {part["tensor"] for part in found["sizes"]["parts"]} - {None}
    assert names == {"input.tokens.weight", "lm_head.weight", "input.where.input.weight"}
    stored = load_file(results / "models" / "learned-1.safetensors")
    norms = np.linalg.norm(stored["input.where.input.weight"], axis=1)
    assert found["positions"]["median_norm"] == pytest.approx(float(np.median(norms)), rel=1e-5)
    assert "Name one, as in --run" in error_of("inspect", results)
    rotary = ww.inspect(results, ["positions", "rotary", "biases"], run="rotary+alibi-0")
    assert [group.scheme for group in rotary.biases.groups] == ["ALiBi"]
    assert "positions enter its attention, by ALiBi and Rotary" in str(rotary.positions)
    assert "this one's scheme is rotary+alibi" in str(rotary.rotary)


@pytest.mark.parametrize("changed", [{}, {"table": "rank2"}, {"table": "frozen"}, {"tied": True}, {"model": Decoder}])
def test_a_run_has_as_many_parameters_as_it_learned(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Its file also holds the table before training and at other steps, and a copy of a table under the usual name."""
    small: dict[str, Any] = {"dim": 8, "heads": 2, "layers": 1, "test_sequences": 10}
    out = tmp_path / "results"
    small |= {"progress": False, "workers": 1, **changed}
    results = compare(["learned"], seeds=1, steps=5, lengths=[8], out=out, **small)
    expected = results.runs[0].parameters
    names = load_file(out / "models" / "learned-0.safetensors")
    assert {name.partition("@")[2] for name in names} == {"", "0", "20"}
    found = ww.inspect(out, ["sizes"], run="learned-0").sizes
    parts = {part.part: part.parameters for part in found.parts}
    assert (found.parameters, parts["token table"]) == (expected.total, expected.tokens)
    assert sum(parts.values()) == found.parameters
    if not changed:
        assert found.parameters == sum(tensor.size for name, tensor in names.items() if "@" not in name)
        assert found.bytes == 4 * found.parameters


def test_constants_and_copies_are_no_parameters(tmp_path: Path) -> None:
    """Files of GPT-2 and GPT-NeoX from before 2023 hold causal masks, a number for them, and inverse frequencies."""
    made = model_of(config_of("gpt2"))
    made.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    masks = {f"transformer.h.{n}.attn.bias": np.ones((1, 1, 64, 64), np.float32) for n in range(2)}
    constants = {
        "transformer.h.0.attn.masked_bias": np.float32([-1e4]),
        "x.rotary_emb.inv_freq": np.ones(4, np.float32),
    }
    table = {"lm_head.weight": tensors["transformer.wte.weight"]}
    save_file(tensors | masks | constants | table, tmp_path / "model.safetensors")
    found = ww.inspect(tmp_path, ["sizes"]).sizes
    assert found.tied
    assert found.parameters == sum(parameter.numel() for parameter in made.parameters())
    output = next(part for part in found.parts if part.part == "output projection")
    assert (output.parameters, output.bytes) == (0, table["lm_head.weight"].nbytes)
    assert "h.0.attn.c_attn.bias" in str(sorted(tensors)), "biases of layers are parameters"


def test_positions_of_a_run_are_those_of_its_scheme(tmp_path: Path) -> None:
    out = tmp_path / "results"
    compare(["sinusoidal"], seeds=1, steps=1, lengths=[8], dim=8, heads=2, layers=1, test_sequences=10, out=out,
            progress=False, workers=1)  # fmt: skip
    found = ww.inspect(out, ["variance"], run="sinusoidal-0").variance
    stored = load_file(out / "models" / "sinusoidal-0.safetensors")
    gain, shift = (stored[f"blocks.0.norm_attention.{part}"] for part in ("weight", "bias"))
    angles = np.arange(14)[:, None] / 10_000 ** (np.arange(0, 8, 2) / 8)  # six arguments are 14 tokens
    added = np.stack((np.sin(angles), np.cos(angles)), -1).reshape(14, 8)
    expected = variance_split(stored["input.tokens.weight"], added, gain=gain, shift=shift)
    assert (found.token, found.position) == pytest.approx((expected.token, expected.position), abs=1e-5)
    assert (found.tokens, found.positions) == (20, 14)


def test_rows_that_training_did_not_move_are_named(results: Path) -> None:
    found = ww.inspect(results, ["diagnostics"], run="learned-0").diagnostics
    start, end = (
        load_file(results / "models" / "learned-0.safetensors")[f"input.tokens.weight{at}"] for at in ("@0", "")
    )
    cosines = (start * end).sum(1) / np.linalg.norm(start, axis=1) / np.linalg.norm(end, axis=1)
    assert found.unmoved.ids.tolist() == np.flatnonzero(cosines > 1 - 1e-7).tolist()
    assert [row.token for row in found.unmoved.examples[:2]] == ["[PAD]", "[EOS]"]
    assert all(0.99 < row.factor <= 1 for row in found.unmoved.examples)
    assert "([PAD], [EOS]), but for weight decay" in next(written(found))  # type: ignore[operator]


def test_a_random_table_is_called_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    table = 0.02 * rng.standard_normal((100, 16))
    texts = []
    for scale in (np.ones(100), np.exp(rng.standard_normal(100))):  # rows of all norms are as training leaves them
        rows = table * scale[:, None] / np.sqrt((scale**2).mean())
        save_file({"model.embed_tokens.weight": rows.astype(np.float32)}, tmp_path / "model.safetensors")
        inspection = ww.inspect(tmp_path, ["sizes"])
        assert inspection.sizes.initial_scale.rule == "the configuration's initializer_range"
        texts.append(headline(inspection) + str(sections(inspection)))
    assert "look like random samples" in texts[0]
    assert "neither spread nor norms show training" in texts[0]
    assert "random samples" not in texts[1]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("tokenizer.json", '{"model": {}, "added_tokens": []}', "whatwhere encode TEXT --tokenizer"),
        ("other.json", '{"a": 1}', "no configuration with a model_type"),
        ("passwd", "root:x:0:0:root:/root:/bin/sh\nnone:x:1:1\n", "its format is not known"),
    ],
)
def test_what_is_no_model_is_named(name: str, content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert says in error_of("inspect", tmp_path / name)


def test_names_of_models_are_looked_up_in_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert "hf download someone/model" in error_of("inspect", "someone/model")
    assert "hf download" not in error_of("inspect", "model.safetensors")
    commit, repository = "0" * 40, tmp_path / "models--someone--model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    folder = repository / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    assert json_of("inspect", "someone/model")["format"] == "configuration"
    save_file({"model.embed_tokens.weight": np.ones((100, 16), np.float32)}, folder / "model.safetensors")
    checkpoint = read("someone/model")
    assert checkpoint.path == folder
    assert str(folder) in whatwhere("inspect", "someone/model", "--sections", "sizes").out
    (repository / "refs" / "main").write_text("../../..")
    assert "hf download" in error_of("inspect", "someone/model")


@pytest.mark.parametrize("alone", [False, True])
def test_tokens_without_a_row_are_counted(tmp_path: Path, alone: bool) -> None:
    words = {f"w{n}": n for n in range(29) if n != 27}
    Tokenizer(models.WordLevel(words, unk_token="w0")).save(str(tmp_path / "tokenizer.json"))
    config = {"model_type": "llama", "vocab_size": 26, "hidden_size": 8, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_attention_heads": 2}))
    if not alone:
        table = np.random.default_rng(0).standard_normal((26, 8)).astype(np.float32)
        save_file({"model.embed_tokens.weight": table}, tmp_path / "model.safetensors")
    inspection = inspect(tmp_path)
    assert (inspection.sizes.tokens, inspection.sizes.without_row) == (29, 2)
    (section,) = (one for one in sections(inspection) if one.name == "sizes")
    assert "2 tokens of the tokenizer have no row in the table, whose last is #25: w26 (#26), w28 (#28). A text" in str(
        section.parts
    )
    Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    assert "no row in the table" not in str(sections(inspect(tmp_path)))
