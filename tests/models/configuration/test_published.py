"""Files as they are published, with the keys of older versions, of training, and of other matters: docs/published.json.

What is read is what transformers makes of the same file, or was worked out by hand from the code of the authors.
"""

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from math import ceil, log
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import whatwhere as ww
from docs.generate.published_table import read_published
from whatwhere.models.configuration.description import Description, Plan
from whatwhere.models.configuration.model_types import DATA, MODEL_TYPES, READ_TYPES, TEXT_KEYS, TEXT_TYPES

ALL = {each.name: each for each in read_published()}
READ = {name: each for name, each in ALL.items() if each.refused is None}
BY_HAND = {name: each for name, each in READ.items() if each.source is not None}


def test_there_are_many_of_many_types() -> None:
    assert len(READ) >= 60
    assert len({each.config["model_type"] for each in READ.values()}) >= 60


OF_OTHERS = ("model_type", "vision_config", "audio_config", "quantization_config", "mm_newline_position")
"""Keys of other parts than the text, with which transformers cannot make a configuration of every file."""
TIED = ("mistral3", "mt5", "t5", "umt5")
"""Types whose configurations tie the output projection whatever the file has, but their models not."""


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of names of older files
@pytest.mark.parametrize("name", sorted(name for name in READ if name not in BY_HAND or READ[name].like))
def test_files_are_read_as_what_transformers_makes_of_them(name: str) -> None:
    """The models of which a probe measures, type by type: see tests/models/test_models.py."""
    config, model_type = READ[name].config, READ[name].like or READ[name].config["model_type"]
    values = deepcopy({key: value for key, value in config.items() if key not in OF_OTHERS})  # they are changed
    made = CONFIG_MAPPING[model_type].from_dict(values)
    for part in MODEL_TYPES[ww.from_huggingface(made).model_type].parts or (None,):
        ours, theirs = (ww.from_huggingface(each, part=part) for each in (config, made))
        theirs = replace(theirs, model_type=ours.model_type)
        assert ours == (replace(theirs, tied=ours.tied) if model_type in TIED else theirs)


@pytest.mark.parametrize("name", BY_HAND)
def test_files_are_read_as_the_code_of_their_authors_computes(name: str) -> None:
    description, facts = ww.from_huggingface(BY_HAND[name].config), BY_HAND[name].facts
    plan = next(plan for plan in (*description.query_key, *description.score, description.input, SILENT) if plan)
    for fact, value in facts.items():
        if fact not in ("theta", "divided_by"):
            close = fact in ("magnitude", "slopes")
            assert stated(description, plan, fact, value) == (pytest.approx(value, rel=1e-6) if close else value), fact
    if "theta" in facts and plan.name in ("rotary", "rotary-linear", "rotary-dynamic-ntk"):  # of a text of one token
        scheme: Any = plan.build()
        exponents = np.arange(0, facts["rotary_dim"], 2) / facts["rotary_dim"]
        wanted = float(facts["theta"]) ** -exponents / facts.get("divided_by", 1.0)
        found = scheme.frequencies(torch.tensor(1)) if scheme.follows_length else scheme.frequencies()
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)
        assert scheme.magnitude == 1


SILENT = Plan("")
"""The plan of a model without any, such as GPT-Neo's, which has its table alone."""


def stated(description: Description, plan: Plan, fact: str, wanted: Any) -> object:
    """Return what was read, by the name of a field or of a setting; of a scaling those that are wanted."""
    built: Any = plan.build() if fact in ("magnitude", "slopes") else None
    match fact:
        case "scheme" | "rotary_dim":
            return plan.name if fact == "scheme" else plan.rotary_dim
        case "interleaved":
            return plan.settings[fact]
        case "scaling":
            return plan.scaling and {name: plan.scaling.settings[name] for name in wanted}
        case "slopes":
            return [built.slopes.flatten().tolist()[n] for n in (0, -1)]
        case "windows":
            return dict(Counter(str(window.size) for window in description.windows if window is not None))
        case "magnitude":
            return float(built.magnitude)
    return getattr(description, fact)


@pytest.mark.parametrize("name", sorted(ALL.keys() - READ.keys()))
def test_what_is_not_read_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ww.errors.WhatWhereError) as problem:
        ww.from_huggingface(ALL[name].config)
    assert str(ALL[name].refused) in " ".join(str(problem.value).split())


# Texts in files of models of text and images


def text_of(name: str) -> Any:
    """Return the type of the text of a composite type in transformers, if its text has none of its own."""
    spec = CONFIG_MAPPING[name].sub_configs_defaults.get("text_config")
    return spec and spec.model_type


def test_every_text_without_a_type_has_that_of_transformers() -> None:
    others = {"grounding-dino", "mm-grounding-dino", "vision-text-dual-encoder"}  # of pairs of encoders
    composite = {name: text_of(name) for name in CONFIG_MAPPING if name not in others}
    assert {name: TEXT_TYPES.get(name) for name, text in composite.items() if text in READ_TYPES} == {
        name: text for name, text in composite.items() if text in READ_TYPES
    }


@pytest.mark.parametrize("key", TEXT_KEYS)
@pytest.mark.parametrize("name", ["gemma3", "llava", "internvl", "kimi_k25", "blip-2", "paligemma"])
def test_a_text_is_read_under_each_key_with_its_type_or_without(name: str, key: str) -> None:
    text = CONFIG_MAPPING[text_of(name)]().to_dict()
    read = ww.from_huggingface({"model_type": name, "text_config": text})
    untyped = {kept: value for kept, value in text.items() if kept != "model_type"}
    assert ww.from_huggingface({"model_type": name, key: text}) == read
    assert ww.from_huggingface({"model_type": name, key: untyped}) == read
    assert f"{key}.vocab_size" in ww.from_huggingface({"model_type": name, key: untyped}).used


@pytest.mark.parametrize("name", sorted(DATA.inner.keys() - {"canary", "qwen3_omni_moe"}))
def test_a_part_without_a_type_has_that_of_transformers(name: str) -> None:
    """That of Canary is not read, and heads of the default of Qwen3-Omni do not divide its features."""
    (part, path), *_ = DATA.inner[name].items()
    spec = CONFIG_MAPPING[name].sub_configs_defaults[path[0]]
    text = CONFIG_MAPPING[spec.model_type]().to_dict()
    untyped = {kept: value for kept, value in text.items() if kept != "model_type"}
    read = [ww.from_huggingface({"model_type": name, path[0]: each}, part=part or None) for each in (text, untyped)]
    assert read[0] == read[1]


# Sizes that nested texts leave out


NESTED = {name for name, kind in MODEL_TYPES.items() if kind.nested}


@pytest.mark.parametrize("model_type", sorted(NESTED))
def test_sizes_of_nested_files_are_those_of_the_classes(model_type: str) -> None:
    full, sizes = CONFIG_MAPPING[model_type]().to_dict(), MODEL_TYPES[model_type].nested
    assert sizes == {key: full[key] for key in sizes}
    names = MODEL_TYPES[model_type].names
    needed = {names[size][0] for size in ("vocab_size", "dim", "layers", "num_heads")}
    assert set(sizes) == {*needed, *(MODEL_TYPES[model_type].head_dim_parts or ())}


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3"])
def test_other_defaults_of_nested_files_are_those_of_the_classes(model_type: str) -> None:
    """A text of which nothing is written but its type has all sizes of its class."""
    outer = {"model_type": "llava", "text_config": {"model_type": model_type}}
    assert ww.from_huggingface(outer) == ww.from_huggingface(CONFIG_MAPPING[model_type]())


# Temperature


SCOUT = ALL["meta-llama/Llama-4-Scout-17B-16E"].config["text_config"]
MINISTRAL = ALL["mistralai/Ministral-3-3B-Instruct-2512"].config["text_config"]


def test_temperatures_of_published_files() -> None:
    """The curves are those of their modules: see tests/models/test_golden.py."""
    scout, ministral = (ww.from_huggingface(text) for text in (SCOUT, MINISTRAL))
    curve = Plan("stepped", {"alpha": 0.1, "period": 8192, "offset": 1})
    assert scout.temperatures[:4] == (None, None, None, curve)
    assert scout.query_key[3] is None
    assert set(map(repr, ministral.temperatures)) == {"SteppedLog(alpha=0.1, period=16384, offset=0)"}
    assert all(ministral.query_key)


def test_layers_share_one_temperature() -> None:
    wheres = ww.from_huggingface({"model_type": "llama4", "text_config": SCOUT}).wheres()
    assert wheres[3].query_key is wheres[7].query_key
    assert wheres[0].query_key is wheres[1].query_key is not wheres[3].query_key


def test_flags_of_a_temperature() -> None:
    """The first files have a number as the flag."""
    assert ww.from_huggingface({**SCOUT, "attn_temperature_tuning": 4}) == ww.from_huggingface(SCOUT)
    for off in ({"attn_temperature_tuning": 0}, {"attn_scale": 0.0}):
        assert not any(ww.from_huggingface({**SCOUT, **off}).temperatures)


# The first Qwen: theta and queries follow the length, as the code beside its files computes them

QWEN = ALL["Qwen/Qwen-7B-Chat"].config | {
    "hidden_size": 16, "kv_channels": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "seq_length": 6,
}  # fmt: skip


@pytest.mark.parametrize("changed", [{"use_dynamic_ntk": False}, {"use_logn_attn": False}, {"rotary_pct": 0.5}])
def test_flags_and_the_fraction_of_qwen_are_read(changed: dict[str, Any]) -> None:
    assert ww.from_huggingface(QWEN | changed) != ww.from_huggingface(QWEN)


@pytest.mark.parametrize("length", [1, 6, 7, 13, 40])
def test_scores_of_qwen_are_those_of_its_formulas(length: int) -> None:
    """Theta times alpha ** (d / (d - 2)), alpha of whole powers of two; queries times log n to the base of 6."""
    (where,) = ww.from_huggingface(QWEN).wheres()
    alpha = max(2 ** ceil(log(length / 6, 2) + 1) - 1, 1)
    theta = 10_000 * alpha ** (8 / 6)
    angles = np.arange(length)[:, None] * theta ** (-np.arange(0, 8, 2) / 8)
    logs = np.array([log(n, 6) if n > 6 else 1 for n in range(1, length + 1)])
    q, k = torch.randn(2, 1, 2, length, 8, generator=torch.Generator().manual_seed(length), dtype=torch.float64)
    complexes = [(x[..., :4].numpy() + 1j * x[..., 4:].numpy()) * np.exp(1j * angles) for x in (q, k)]
    wanted = np.einsum("bhic,bhjc,i->bhij", complexes[0], complexes[1].conj(), logs).real
    made_q, made_k = where.at(length).query_key(q, k)
    np.testing.assert_allclose((made_q @ made_k.mT).numpy(), wanted, rtol=0, atol=1e-5)  # tables are float32
