"""check: each contradiction is found and named, and nothing in sound models, tiny, published and real."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

import whatwhere as ww
from docs.generate.published_table import read_published
from whatwhere.analysis.lint import RULES, CheckedModel
from whatwhere.report.lint import WORDS, headline, line

from ..models.checkpoint.samples import write_gguf
from ..running import error_of, json_of, whatwhere

ROOT = Path(__file__).parents[2]
LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 40, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 4096, "rope_theta": 10_000.0, "tie_word_embeddings": False,
}  # fmt: skip
GPT2: dict[str, Any] = {"model_type": "gpt2", "vocab_size": 40, "n_embd": 64, "n_layer": 2, "n_head": 4}
SHORT, LONG = [1.0] * 8, [2.0] * 8


def rules(checked: CheckedModel, *severities: str) -> list[str]:
    """Return the rules of the findings, of all severities unless some are named."""
    return [found.rule for found in checked.findings if not severities or found.severity in severities]


def write(folder: Path, config: Mapping[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder / "config.json"


def scaled(claimed: int, original: int | None, factor: float | None, kind: str = "yarn", **more: Any) -> dict[str, Any]:
    """Return what a configuration states of a scaling."""
    given = {"rope_type": kind, "factor": factor, "original_max_position_embeddings": original, **more}
    scaling = {key: value for key, value in given.items() if value is not None}
    return {"max_position_embeddings": claimed, "rope_scaling": scaling}


BANDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LISTS = {"short_factor": SHORT, "long_factor": LONG}
CONTRADICTORY: list[tuple[dict[str, Any], str]] = [
    (scaled(8192, 4096, 4.0), "length-factor"),
    (scaled(16384, 4096, 2.0), "length-factor"),
    (scaled(16384, 4096, 1.0), "length-factor"),
    (scaled(5000, 4096, 4.0), "length-factor"),
    (scaled(4096, 4096, 4.0), "scaled-below-original"),
    (scaled(4096, None, 4.0), "scaled-below-original"),
    (scaled(2048, 4096, 2.0), "scaled-below-original"),
    (scaled(2048, 4096, 0.5), "small-factor"),
    (scaled(2048, 4096, 0.5), "original-length"),
    (scaled(131072, 4096, 16.0, "longrope", **LISTS), "length-factor"),
    (scaled(4096, 8192, None, "longrope", **LISTS), "original-length"),
    (scaled(8192, 8192, 8.0, "llama3", **BANDS), "original-length"),
    (scaled(4096, 4096, 0.5, "llama3", **BANDS), "small-factor"),
    (scaled(16384, 4096, 2.0, "linear"), "length-factor"),
    (scaled(4096, 4096, 4.0, "linear"), "length-factor"),
    (scaled(4096, None, 0.25, "linear"), "small-factor"),
    (scaled(16384, 4096, 4.0, "dynamic"), "dynamic-length"),
    (scaled(4096, 16384, 4.0, "dynamic"), "dynamic-length"),
    (scaled(4096, 4096, 4.0) | {"original_max_position_embeddings": 2048}, "configuration"),
    ({"rope_parameters": scaled(0, 1024, 2.0)["rope_scaling"]}, "length-factor"),
    ({"rope_theta": 5.0, "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, "configuration"),
    ({"rope_scaling": {"factor": 4.0, "facter": 2.0, "rope_type": "linear"}}, "configuration"),
    ({"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 4.0}}, "configuration"),
    ({"num_attention_heads": 5}, "configuration"),
    ({"eos_token_id": [2, 41]}, "special-ids"),
    ({"bos_token_id": -7}, "special-ids"),
    ({"pad_token_id": 10**30}, "configuration"),
]  # fmt: skip
SOUND: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"pad_token_id": -1, "eos_token_id": [1, 39], "bos_token_id": None}, []),
    (scaled(16384, 4096, 4.0), ["static-scaling"]),
    (scaled(10923, 4096, 2.6667), ["static-scaling"]),
    (scaled(4096, 4096, 1.0), []),
    (scaled(16384, None, 4.0, "linear"), []),
    (scaled(16384, 4096, 4.0, "linear"), []),
    (scaled(4096, None, 4.0, "dynamic"), ["cached-keys"]),
    (scaled(4096, 4096, 4.0, "dynamic"), ["cached-keys"]),
    (scaled(131072, 8192, 8.0, "llama3", **BANDS), []),
    (scaled(131072, 4096, None, "longrope", **LISTS), ["cached-keys"]),
    (scaled(131072, 4096, 32.0, "longrope", **LISTS), ["cached-keys"]),
    (scaled(131072, 4096, None, "longrope", short_factor=LONG, long_factor=LONG), []),
    (scaled(4096, 4096, None, "longrope", **LISTS), []),
    (GPT2, []),
]


def test_every_contradiction_is_found(tmp_path: Path) -> None:
    for changed, rule in CONTRADICTORY:
        checked = ww.check(write(tmp_path, LLAMA | changed))
        assert rule in rules(checked, "warning", "error"), changed
        assert checked.failed()
        assert all(line(found).startswith(f"{found.severity} {found.rule}: ") for found in checked.findings)
        assert not any(
            "\n" in line(found) or "{" in line(found) for found in checked.findings if rule != "configuration"
        )


def test_nothing_is_found_in_what_is_sound(tmp_path: Path) -> None:
    for changed, notes in SOUND:
        checked = ww.check(write(tmp_path, changed if "model_type" in changed else LLAMA | changed))
        assert rules(checked) == notes, changed
        assert not checked.failed()
        assert checked.failed(strict=True) == bool(notes)


LENGTHS_THAT_DIFFER = {"arcee-ai/AFM-4.5B": 81920, "Qwen/QwQ-32B, with YaRN": 131072}
"""Published files whose claimed length is not the product, which transformers remarks too -> the product."""


def test_published_files_have_no_false_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import CONFIG_MAPPING

    said: list[str] = []
    monkeypatch.setattr(utils.logger, "warning_once", said.append)
    found, remarked = {}, set()
    for each in (one for one in read_published() if one.refused is None):
        checked = ww.check(write(tmp_path, each.config))
        assert set(rules(checked, "note")) <= {"static-scaling", "cached-keys"}, each.name
        if rules(checked, "warning", "error"):
            (one,) = (one for one in checked.findings if one.severity != "note")
            found[each.name] = (one.rule, one.values["product"])
        text = each.config.get("text_config", each.config)
        if each.source is None and "yarn" in str(text.get("rope_scaling")) and text["model_type"] in CONFIG_MAPPING:
            said.clear()
            CONFIG_MAPPING[text["model_type"]].from_dict(dict(text))
            remarked |= {each.name for one in said if "does not match" in one}
    assert found == {name: ("length-factor", product) for name, product in LENGTHS_THAT_DIFFER.items()}
    assert remarked == set(LENGTHS_THAT_DIFFER) - {each.name for each in read_published() if each.source is not None}


# Models


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 16, **LISTS}
MODELS: dict[str, tuple[dict[str, Any], list[str]]] = {
    # LUKE's configuration states a tie that its code does not make; UltraBERT's output projection has its own name.
    **dict.fromkeys(("llama", "qwen2", "gpt2", "bert", "roberta", "opt", "t5", "bloom", "luke", "pop2piano"), ({}, [])),
    "ultrabert": ({}, []),
    "phi3": (
        {"rope_parameters": LONGROPE, "original_max_position_embeddings": 16, "max_position_embeddings": 64},
        ["cached-keys"],
    ),
    "deepseek_v3": ({"rope_parameters": YARN, "max_position_embeddings": 64}, ["static-scaling"]),
}


def save(folder: Path, model_type: str, **settings: Any) -> Path:
    """Save a tiny random model with as many tokens as its table has rows."""
    from ..models.tiny import config_of, model_of

    torch.manual_seed(0)
    model_of(config_of(model_type, **settings)).save_pretrained(folder)
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    tokenizer(folder, rows)
    return folder


def tokenizer(folder: Path, words: int) -> None:
    Tokenizer(models.WordLevel({f"w{n}": n for n in range(words)})).save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("model_type", MODELS)
def test_nothing_is_found_in_models_of_transformers(model_type: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    settings, notes = MODELS[model_type]
    checked = ww.check(save(tmp_path / "model", model_type, **settings))
    assert rules(checked) == notes
    assert checked.unchecked == {}
    assert "nothing found" in headline(checked) or notes


def test_a_real_model_is_sound(minilm: Path) -> None:
    checked = ww.check(minilm)
    assert rules(checked) == []
    assert checked.unchecked == {}
    assert whatwhere("check", minilm, "--strict").status == 0


Table = dict[str, torch.Tensor]


def change_config(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        write(folder, {**json.loads((folder / "config.json").read_text()), **values})

    return change


def drop_layer_types(folder: Path) -> None:
    """Write the configuration as published files have it, which is without what transformers derives."""
    config = json.loads((folder / "config.json").read_text())
    write(folder, {key: value for key, value in config.items() if key != "layer_types"})


def change_table(change: Callable[[Table], Any]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file({name: each.contiguous() for name, each in tensors.items()}, folder / "model.safetensors")

    return changed


TOKENS, HEAD = "model.embed_tokens.weight", "lm_head.weight"
EQUAL, DIFFERENT = "equal to the token table", "different from the token table"
DAMAGED: list[tuple[str, str, Callable[[Path], object], dict[str, Any]]] = [
    ("llama", "non-finite-rows", change_table(lambda t: t[TOKENS][3].fill_(torch.nan)), {"ids": [3], "count": 1}),
    ("llama", "non-finite-rows", change_table(lambda t: t[HEAD][5, :1].fill_(torch.inf)), {"table": HEAD, "ids": [5]}),
    ("llama", "near-zero-rows", change_table(lambda t: t[TOKENS][7:9].zero_()), {"ids": [7, 8]}),
    ("llama", "near-zero-rows", change_table(lambda t: t[TOKENS][7].mul_(1e-4)), {"ids": [7]}),
    ("llama", "duplicate-rows", change_table(lambda t: t[TOKENS][7].copy_(t[TOKENS][21])), {"ids": [7, 21]}),
    ("llama", "near-zero-rows", change_table(lambda t: t[HEAD][6].zero_()), {"table": HEAD, "ids": [6]}),
    ("gpt2", "non-finite-rows", change_table(lambda t: t["transformer.wpe.weight"][2].fill_(torch.nan)), {"ids": [2]}),
    ("llama", "tied-tables", change_table(lambda t: t.update({HEAD: t[TOKENS].clone()})), {"stored": EQUAL}),
    ("llama", "tied-tables", change_table(lambda t: t.pop(HEAD)), {"stored": "missing", "described": False}),
    ("llama", "tied-tables", change_config(tie_word_embeddings=True), {"stored": DIFFERENT, "described": True}),
    ("llama", "table-rows", change_config(vocab_size=38), {"rows": 37, "needed": 38}),
    ("llama", "wrong-shape", change_config(hidden_size=32), {"axis": "features", "stored": 64, "needed": 32}),
    ("llama", "wrong-shape", change_config(num_attention_heads=8), {"stored": 64, "needed": 128}),
    ("llama", "wrong-shape", change_config(num_key_value_heads=2), {"stored": 64, "needed": 32}),
    ("llama", "wrong-shape", change_config(head_dim=None, num_key_value_heads=2),
     {"needed": 32, "keys": "num_key_value_heads and hidden_size / num_attention_heads"}),
    ("llama", "wrong-shape", change_config(num_hidden_layers=5), {"axis": "layers", "stored": 4, "needed": 5}),
    ("gpt2", "table-rows", change_config(n_positions=65), {"rows": 64, "needed": 65}),
    ("llama", "special-ids", change_config(eos_token_id=37), {"ids": [37], "file": "config.json"}),
    ("llama", "tokens-without-row", lambda folder: tokenizer(folder, 40), {"count": 3, "token": "w37", "id": 37}),
    ("llama", "padded-rows", lambda folder: tokenizer(folder, 30), {"count": 7, "first": 30, "last": 36}),
    ("llama", "special-ids",
     lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": [1, 99]}'),
     {"ids": [99], "file": "generation_config.json"}),
    ("llama", "quantized-table",
     change_table(lambda t: t.update({TOKENS: t[TOKENS].to(torch.float8_e4m3fn)})), {"bits": 8.0}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(DAMAGED)))
def test_what_is_damaged_is_found_and_nothing_else(number: int, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model_type, rule, damage, values = DAMAGED[number]
    folder = save(tmp_path / "model", model_type)
    damage(folder)
    checked = ww.check(folder)
    assert rules(checked) == [rule]
    (found,) = checked.findings
    assert found.severity == RULES[rule]
    assert {name: found.values[name] for name in values} == values
    assert "{" not in line(found)


QUERY = "bert.encoder.layer.0.attention.self.query.weight"
MEDUSA = {TOKENS: torch.ones(37, 64), "medusa_head.2.0.linear.weight": torch.ones(64, 64)}
SOUND_SHAPES: list[tuple[str, Callable[[Path], object]]] = [
    *((name, drop_layer_types) for name in (
        "qwen3_next", "kimi_linear", "olmo_hybrid", "qwen3_5_text", "qwen3_5_moe_text", "glm5_next_text",
    )),
    ("llama", change_table(lambda t: t.update({TOKENS: torch.ones(37, 8, dtype=torch.uint32)}))),
    ("llama", change_table(lambda t: t.update({TOKENS: torch.ones(37 * 32, 1, dtype=torch.uint8)}))),
    ("llama", change_table(lambda t: (t.clear(), t.update(MEDUSA)))),
    ("llama", change_table(lambda t: t.update({"model.perceiver.layers.0.self_attn.q_proj.weight": torch.ones(8, 8)}))),
    ("bert", lambda folder: (change_table(lambda t: t.update({QUERY: t[QUERY][16:]}))(folder),
                             change_config(pruned_heads={"0": [0]})(folder))),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SOUND_SHAPES)))
def test_shapes_of_other_projections_and_packed_tables_are_no_contradiction(number: int, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model_type, change = SOUND_SHAPES[number]
    change(save(tmp_path / "model", model_type))
    assert "wrong-shape" not in rules(ww.check(tmp_path / "model"))


def test_a_shard_may_have_some_of_the_layers(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    folder = save(tmp_path / "model", "llama")
    change_config(num_hidden_layers=5)(folder)
    shard = (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    assert rules(ww.check(shard)) == []


def test_rows_of_padding_of_special_tokens_and_of_none_may_be_zero(tmp_path: Path) -> None:
    write(tmp_path, LLAMA | {"pad_token_id": 4, "tie_word_embeddings": True})
    words = {"<s>": 0, **{f"w{n}": n for n in range(1, 36)}}
    Tokenizer(models.WordLevel(words)).save(str(tmp_path / "tokenizer.json"))
    rows = torch.randn(40, 64, generator=torch.Generator().manual_seed(0))
    rows[[0, 4, 36, 39]] = 0
    save_file({TOKENS: rows}, tmp_path / "model.safetensors")
    assert rules(ww.check(tmp_path)) == ["padded-rows"]
    rows[11] = 0
    save_file({TOKENS: rows}, tmp_path / "model.safetensors")
    assert [found.values["ids"] for found in ww.check(tmp_path).findings if found.rule == "near-zero-rows"] == [[11]]


@pytest.mark.parametrize(("eos", "quantized"), [(39, False), (40, False), (39, True)])
def test_a_header_of_gguf_is_checked(eos: int, quantized: bool, tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "embedding_length": 64, "block_count": 1, "attention.head_count": 4, "context_length": 64,
        "attention.head_count_kv": 2, "rope.dimension_count": 16, "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"w{n}" for n in range(40)], "tokenizer.ggml.eos_token_id": eos,
    }  # fmt: skip
    table = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    stored = (gguf.quantize(table, kind), kind) if quantized else table
    write_gguf(tmp_path / "model.gguf", "llama", keys, {"token_embd.weight": stored})
    expected = ["special-ids"] * (eos > 39) + ["quantized-table"] * quantized
    checked = ww.check(tmp_path / "model.gguf")
    assert rules(checked) == expected
    assert checked.failed() == (eos > 39)


def test_an_adapter_says_what_it_lacks(tmp_path: Path) -> None:
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "base_model_name_or_path": "someone/base"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings))
    own = {f"base_model.model.model.layers.0.self_attn.q_proj.lora_{part}.weight": torch.ones(2, 2) for part in "AB"}
    save_file(own, tmp_path / "adapter_model.safetensors")
    checked = ww.check(tmp_path)
    assert rules(checked) == []
    assert "an adapter of 'someone/base'" in checked.unchecked["rows"]
    table = "base_model.model.model.embed_tokens"
    rows = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    rows[2, 0] = torch.nan
    save_file({**own, f"{table}.weight": rows}, tmp_path / "adapter_model.safetensors")
    assert rules(ww.check(tmp_path)) == ["non-finite-rows"]


# In the terminal


def test_one_line_for_each_finding_and_an_exit_status(tmp_path: Path) -> None:
    path = write(tmp_path, LLAMA | scaled(8192, 4096, 4.0) | {"eos_token_id": 40})
    status, out, err = whatwhere("check", path)
    assert (status, err) == (1, "")
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith(("error", "warning", "note"))] == [
        "error special-ids", "warning length-factor", "note static-scaling",
    ]  # fmt: skip
    assert "is for 16,384 positions, but 8,192 are claimed, 2 times the original." in lines[1]
    assert lines[0].endswith(
        "40 rows. Correct config.json. A token from #40 on may be meant to be added: whatwhere resize --add-token."
    )
    assert "not checked, rows: a configuration has no weights." in lines
    assert lines[-1] == f"{path}: 1 error, 1 warning, 1 note."
    done = whatwhere("check", path, "--json")
    assert done.status == 1
    assert [found["rule"] for found in json.loads(done.out)["findings"]] == [
        "special-ids", "length-factor", "static-scaling",
    ]  # fmt: skip
    sound = write(tmp_path, LLAMA | scaled(16384, 4096, 4.0))
    assert json_of("check", sound)["headline"] == "1 note"
    assert whatwhere("check", sound, "--strict").status == 1


HOSTILE: list[dict[str, Any]] = [
    {"pad_token_id": [1], "eos_token_id": {"a": 1}, "bos_token_id": "x"},
    {"rope_scaling": 3},
    {"rope_scaling": {"rope_type": ["yarn"], "factor": "4"}},
    scaled(4096, 10**400, 4.0, "dynamic"),
    scaled(4096, 0, 4.0, "linear"),
    {"max_position_embeddings": 10**400},
    {"eos_token_id": 10**400, "suppress_tokens": [10**400, -(10**400)]},
    {"model_type": "no such type"},
    {"architectures": [[]], "tie_word_embeddings": "yes"},
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_values_end_without_a_traceback(number: int, tmp_path: Path) -> None:
    path = write(tmp_path, LLAMA | HOSTILE[number])
    status, out, err = whatwhere("check", path)
    assert status in (0, 1)
    assert (out + err).strip()
    assert "Traceback" not in out + err
    save_file({TOKENS: torch.ones(3, 64)}, tmp_path / "model.safetensors")
    assert "Traceback" not in "".join(map(str, whatwhere("check", tmp_path)))


def test_what_is_no_model_is_refused_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    assert "is not JSON" in error_of("check", tmp_path)
    assert "cannot be read" in error_of("check", tmp_path / "none.safetensors")


def test_a_type_that_is_not_known_is_not_a_finding(tmp_path: Path) -> None:
    checked = ww.check(write(tmp_path, LLAMA | {"model_type": "lama"}))
    assert rules(checked) == []
    assert "not one that whatwhere reads" in checked.unchecked["lengths"]


def test_a_run_of_a_comparison_is_checked(results: Path) -> None:
    assert not ww.check(results, run="learned-0").failed()
    assert "--run" in error_of("check", results)


def test_every_rule_has_words_and_a_row_in_the_guide() -> None:
    assert WORDS.keys() == RULES.keys()
    guide = (ROOT / "docs/how-to/check-a-model.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `([a-z-]+)` \| (\w+) \|", guide, re.MULTILINE)) == RULES
