"""Malformed configurations: a slip in a name, a value of another kind, a size beyond reason: only our own errors."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import whatwhere as ww
from whatwhere.models.configuration.keys import misspelled_key
from whatwhere.models.configuration.model_types import MODEL_TYPES

from ...systems import linux
from ..tiny import config_of

OWN = (ww.errors.SettingError, ww.errors.CheckpointError, ww.errors.ShapeError)
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
SU = {**YARN, "rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
LLAMA3 = {**YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def of(model_type: str, **keys: Any) -> dict[str, Any]:
    """Return a small configuration with Llama's names."""
    return {**LLAMA, "model_type": model_type, **keys}


@cache
def saved(model_type: str) -> str:
    """Return a tiny configuration of a type, as it is saved."""
    return config_of(model_type).to_json_string(use_diff=False)


SOME_SLOW = [
    pytest.param(model_type, marks=[pytest.mark.slow] if n % 4 else []) for n, model_type in enumerate(MODEL_TYPES)
]
"""All model types; three of four are left to `make slow`."""


# A slip in a name


def slips(name: str) -> Iterator[str]:
    """Return the name with one letter gone, doubled, replaced, or swapped, in capitals, as a plural and a singular."""
    chance = random.Random(name)
    at = chance.randrange(1, len(name) - 1)
    yield name[:at] + name[at + 1 :]
    yield name[:at] + name[at] + name[at:]
    yield name[:at] + "x" + name[at + 1 :]
    yield name[: at - 1] + name[at] + name[at - 1] + name[at + 1 :]
    yield name.upper()
    yield name.removesuffix("s") if name.endswith("s") else name + "s"
    yield name.replace("_", "-")


@pytest.mark.parametrize("model_type", SOME_SLOW)
def test_a_misspelled_key_is_refused_or_changes_nothing(model_type: str) -> None:
    config = json.loads(saved(model_type))
    part = "encoder" if "encoder" in MODEL_TYPES[model_type].parts else None
    description = ww.from_huggingface(config, part=part)
    for key in description.used:
        for slip in slips(key):
            if key == "model_type" or "." in key or slip in config:
                continue
            changed = {slip if name == key else name: value for name, value in config.items()}
            try:
                result = ww.from_huggingface(changed, part=part)
            except OWN:
                continue
            assert result == description, f"{slip} for {key}"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (of("llama", head_dims=32), r"almost 'head_dim'.*\nDid you mean 'head_dim'"),
        (of("llama", Head_Dim=32), "Did you mean 'head_dim'"),
        (of("llama", num_key_value_head=1), "num_key_value_head=1 is no key .*almost 'num_key_value_heads'"),
        (of("cohere2", layer_type=["full_attention"] * 4), "almost 'layer_types'"),
        (of("cohere2", sliding_windows_pattern=2), "Did you mean 'sliding_window_pattern'"),
        (of("granite", attention_multiplyer=0.5), "Did you mean 'attention_multiplier'"),
        (of("falcon", new_decoder_architectur=True, num_kv_heads=2), "almost 'new_decoder_architecture'"),
        (of("roberta", pad_tokn_id=3), "almost 'pad_token_id'"),
        (of("deepseek_v3", qk_nope_head_dim=8, qk_rope_head_dim=8, rope_interleaved=False), "rope_interleaved is F"),
        (of("deberta-v2", position_biased_inputs=False), "Did you mean 'position_biased_input'"),
        (of("llama", use_rope=False), "use_rope is False, but"),
        (of("llama", rope_percentage=0), "rope_percentage=0 is no key"),
        (of("bloom", alibi=False), "alibi is False, but .* would be True"),
        (of("qwen2_vl_text", head_dim=128, use_mrope=False), "use_mrope is False"),
        ({**LLAMA, 7: 8}, "has the key 7, but keys are strings"),
        ({"model_type": "llava", "text_config": LLAMA, "tie_word_embedding": True}, "almost 'tie_word_embeddings'"),
    ],
)  # fmt: skip
def test_slips_and_false_are_named(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ww.errors.SettingError, match=message):
        ww.from_huggingface(config)


def test_similar_names_that_are_no_misspellings() -> None:
    """Keys of other matters, and of the other part of a model, have names that look like those that are read."""
    keys = ["pad_token_id", "decoder_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size"]
    others = ("bos_token_id", "num_layers", "encoder_ffn_dim", "num_experts", "qk_head_dim", "intermediate_size")
    assert [misspelled_key(name, keys) for name in others] == [None] * len(others)


def test_a_slip_that_repeats_what_is_read_is_harmless() -> None:
    assert ww.from_huggingface(of("llama", hidden_sizes=64, num_hidden_layer=4)) == ww.from_huggingface(LLAMA)
    switches = {"use_mrope": False, "alibi": False, "use_sliding_window": False, "v_head_dim": 8}
    assert ww.from_huggingface({**LLAMA, **switches}) == ww.from_huggingface(LLAMA)


# Values of another kind


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "a list for a kind": (of("llama", rope_parameters={"rope_type": ["yarn"]}), r"rope_type is \['yarn'\]"),
    "a dictionary for a kind": (of("llama", rope_scaling={"type": {"a": 1}}), r"rope_scaling\.type is \{'a': 1\}"),
    "a list for a kind of layer": (
        of("gemma3_text", rope_parameters={"full_attention": [1]}), r"rope_parameters\.full_attention is \[1\]",
    ),
    "a word for beta": (of("llama", rope_scaling={**YARN, "beta_fast": "16"}), r"rope_scaling\.beta_fast is '16'"),
    "true for beta": (of("llama", rope_scaling={**YARN, "beta_slow": True}), r"rope_scaling\.beta_slow is True"),
    "a list for beta": (of("llama", rope_scaling={**YARN, "beta_slow": [1]}), r"rope_scaling\.beta_slow is \[1\]"),
    "a word for factors": (
        of("llama", rope_scaling={**SU, "short_factor": "12345678"}), "short_factor is '12345678', but must be a list",
    ),
    "a number for factors": (of("llama", rope_scaling={**SU, "long_factor": 2}), "long_factor is 2, but must be a"),
    "words as factors": (
        of("llama", rope_scaling={**SU, "long_factor": ["1"] * 8}), r"long_factor\[0\] is '1', but must be a finite",
    ),
    "a number of sections": (
        of("qwen2_vl_text", rope_parameters={"mrope_section": 8}), "mrope_section is 8, but must be a list",
    ),
    "a word in sections": (
        of("qwen2_vl_text", rope_parameters={"mrope_section": [2, "3", 3]}), r"mrope_section\[1\] is '3'",
    ),
    "sections beyond reason": (
        of("qwen2_vl_text", rope_parameters={"mrope_section": [10**12, 0, 0]}), r"mrope_section\[0\] is 10",
    ),
    "a head beyond reason": (of("llama", head_dim=1e300), "head_dim is .*at most 1,048,576 are read"),
    "a model beyond reason": (of("llama", hidden_size=1e300), "hidden_size is .*are read"),
    "a theta beyond reason": (of("llama", rope_theta=1e300), "rope_theta is 1e.300, but only numbers from"),
    "a head that is no number": (of("llama", head_dim=float("nan")), "head_dim is nan, but must be a whole number"),
    "a theta that is no number": (of("llama", rope_theta=float("nan")), "rope_theta is nan, but must be a finite"),
    "no scaling": (of("llama", rope_scaling=False), "rope_scaling is False, but must be a dictionary or null"),
    "an empty list for parameters": (of("llama", rope_parameters=[]), r"rope_parameters is \[\], but must be a dict"),
    "one for true": (of("gptj", rotary=1, rotary_dim=8), "rotary is 1, but .* would be True"),
    "a word for tied": ({"text_config": LLAMA, "model_type": "x", "tie_word_embeddings": "no"}, "must be true or fal"),
    "a list for text": ({"text_config": [1], "model_type": "x"}, r"text_config is \[1\], but must be a dictionary"),
    "a list of words for layers": (of("lfm2", full_attn_idxs="12"), "full_attn_idxs is '12', but must be a list"),
    "a layer that is not there": (of("lfm2", full_attn_idxs=[4]), r"full_attn_idxs\[0\] is 4, but must be the number"),
    "a word of terms": (of("deberta", relative_attention=True, pos_att_type=[1]), "pos_att_type has 1"),
    "a number of terms": (of("deberta", relative_attention=True, pos_att_type=3), "pos_att_type is 3"),
    "flags in a list of layers": (of("smollm3", no_rope_layers=[True] * 4), r"no_rope_layers\[0\] is True"),
    # Parameters that the kind does not read
    "a magnitude of another kind": (
        of("phimoe", rope_scaling={"type": "linear", "factor": 2.0, "short_mscale": 1.2}), "short_mscale=1.2 is no key",
    ),
    "a magnitude of another model": (of("llama", rope_scaling={**SU, "short_mscale": 1.2}), "short_mscale=1.2 is no"),
    "alpha of another kind": (
        of("hunyuan_v1_dense", rope_scaling={"type": "linear", "factor": 2.0, "alpha": 3.0}), "alpha=3.0 is no key",
    ),
    # The words of the file
    "two factors": (
        of("llama", rope_scaling={**LLAMA3, "low_freq_factor": 4.5}),
        r"rope_scaling\.low_freq_factor=4\.5 and rope_scaling\.high_freq_factor=4\.0",
    ),
    # What transformers does not read
    "the older name in a newer model": (
        of("gemma3_text", head_dim=16, rope_scaling={"type": "linear", "factor": 8.0}), "write rope_type='linear'",
    ),
    "a theta that is not read": (of("mellum", head_dim=16, rope_theta=1e4), "rope_theta is 10000.0, but .* 500000"),
    "a scaling that is not read": (
        of("mellum", head_dim=16, rope_scaling={"rope_type": "linear", "factor": 2.0}), "reads rope_parameters only",
    ),
    "a head that is not read": (of("stablelm", head_dim=32), "head_dim is 32, but the code of 'stablelm' does not"),
    "a head of another kind": (
        of("deepseek_v3", qk_nope_head_dim=8, qk_rope_head_dim=8, head_dim=32), "8 or 16 features",
    ),
    # Two names of one thing
    "heads of an encoder": (
        {"model_type": "bart", "vocab_size": 9, "d_model": 64, "encoder_layers": 1, "encoder_attention_heads": 4,
         "num_attention_heads": 8},
        "encoder_attention_heads=4, num_attention_heads=8",
    ),
    "heads of GPT-Neo": (of("gpt_neo", num_layers=4, num_heads=2), "num_heads=2, num_attention_heads=4"),
    "features that turn": (
        of("glm4_moe_lite", qk_nope_head_dim=8, qk_rope_head_dim=8, head_dim=4), "qk_rope_head_dim=8, head_dim=4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_malformed_is_refused_by_its_key(case: str) -> None:
    config, message = MALFORMED[case]
    part = "encoder" if config["model_type"] == "bart" else None
    with pytest.raises(OWN, match=message):
        ww.from_huggingface(config, part=part)


def test_names_that_only_one_part_of_a_model_has() -> None:
    """Alone, the other name is read, as transformers does; beside its like it is no contradiction."""
    bart = {"model_type": "bart", "vocab_size": 9, "d_model": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    assert ww.from_huggingface(bart, part="encoder").num_heads == 4
    neo = of("gpt_neo", attention_types=[[["global"], 4]])
    assert ww.from_huggingface(neo).num_heads == 4
    lite = of("glm4_moe_lite", qk_nope_head_dim=8, head_dim=8)
    assert ww.from_huggingface(lite).head_dim == 16


def test_parameters_without_theta_have_that_of_transformers() -> None:
    """Ministral 3 takes 1,000,000 where there are no parameters at all, and 10,000 where theta is not among them."""
    theirs = config_of("ministral3", rope_parameters={"rope_type": "linear", "factor": 2.0})
    ours = ww.from_huggingface(of("ministral3", head_dim=16, rope_parameters={"rope_type": "linear", "factor": 2.0}))
    assert ours.query_key[0].settings["theta"] == theirs.rope_parameters["rope_theta"] == 10_000.0


# Mutations


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**70, 10**400, 0.5, -0.5, 1e300, 1e-300, float("nan"), float("inf"), "",
    "16", "linear", "full_attention", "12345678", [], [1], ["a"], [None], [[1]], [2**40, 1, 1], {}, {"a": 1},
    {"rope_type": []}, {"rope_type": "yarn"}, {"full_attention": [1]}, [["global"], 1], [[["local"], 2]],
)  # fmt: skip


def mutated(config: Any, chance: random.Random) -> Any:
    """Replace, take out or rename something, anywhere in a configuration."""
    if isinstance(config, dict) and config:
        key = chance.choice(list(config))
        if isinstance(config[key], dict | list) and config[key] and chance.random() < 0.8:
            return {**config, key: mutated(config[key], chance)}
        action = chance.random()
        if action < 0.1:
            return {name: value for name, value in config.items() if name != key}
        if action < 0.2:
            return {next(slips(name)) if name == key and len(name) > 3 else name: v for name, v in config.items()}
        return {**config, key: chance.choice(VALUES)}
    if isinstance(config, list) and config:
        at = chance.randrange(len(config))
        return [*config[:at], chance.choice(VALUES), *config[at + 1 :]]
    return chance.choice(VALUES)


ROPES: tuple[dict[str, Any], ...] = (
    {}, {"rope_theta": 1e4, "rope_scaling": YARN}, {"rope_parameters": SU}, {"rope_scaling": LLAMA3},
    {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}},
    {"rope_parameters": {"full_attention": YARN, "sliding_attention": {"rope_theta": 1e4}}},
    {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
    {"rope_scaling": {"type": "dynamic", "alpha": 1000.0, "beta_fast": 32, "mscale": 1.0}},
)  # fmt: skip


ROPED = ("rope_parameters", "rope_scaling", "layer_types", "attn_config", "no_rope_layers")


@pytest.mark.parametrize("model_type", SOME_SLOW)
def test_only_our_own_errors_come_and_what_is_read_can_be_built(model_type: str) -> None:
    """Seeded: keys are replaced, renamed and taken out, of the model and of its rope parameters."""
    chance = random.Random(f"mutations of {model_type}")
    config = json.loads(saved(model_type))
    read = 0
    for _ in range(60):
        changed = {**config, **chance.choice(ROPES)} if chance.random() < 0.5 else config
        for _ in range(chance.randint(1, 2)):
            key = chance.choice([name for name in changed if name in ROPED or chance.random() < 0.3] or ["vocab_size"])
            changed = {**changed, key: mutated(changed.get(key), chance)} if chance.random() < 0.6 else changed
            changed = mutated(changed, chance)
        try:
            description = ww.from_huggingface(changed)
        except OWN:
            continue
        read += 1
        for plan in (description.query_key[0], description.query_key[-1], description.score[0], description.input):
            if plan is not None and plan.scheme not in ("learned", "t5", "deberta"):  # tables may be of any size
                plan.build()
    assert 0 < read < 60


# A type that is read like another


@pytest.mark.parametrize(
    "model_type",
    ["jamba", "zamba", "zamba2", "big_bird", "longformer", "flint", "cohere2_moe", "jetmoe", "lfm2_moe", "rembert",
     "nystromformer", "clip_text_model", "clipseg_text_model", "mra", "yoso"],
)  # fmt: skip
def test_configurations_with_unknown_keys_are_not_read_as_llama(model_type: str) -> None:
    config = CONFIG_MAPPING[model_type]().to_dict()
    with pytest.raises(OWN):
        ww.from_huggingface(config, like="llama")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"attn_layer_period": 8}, "attn_layer_period=8: not among the keys of 'llama'"),
        ({"attention_type": "block_sparse"}, "attention_type='block_sparse'"),
        ({"type_vocab_size": 2}, "type_vocab_size=2"),
        (
            {"alibi_x": 1, "position_y": 2},
            r"alibi_x=1, position_y=2 are no keys of 'mine'(.|\n)*\('alibi_x', 'position_y'\)",
        ),
        ({"rope_theta": None}, "its theta would be invented"),
        ({"model_type": "helium"}, "'helium' is known, so like='llama' is not needed"),
    ],
)
def test_why_it_is_not_like_llama(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ww.errors.SettingError, match=message):
        ww.from_huggingface(of("mine", rope_theta=5e5) | keys, like="llama")


def test_keys_of_other_matters_do_not_hinder() -> None:
    ordinary = {
        "architectures": ["Mine"], "attention_bias": True, "bos_token_id": 1, "hidden_act": "silu",
        "intermediate_size": 128, "id2label": {0: "a"}, "num_experts_per_tok": 2, "rms_norm_eps": 1e-6,
        "router_aux_loss_coef": 0.1,
        "torch_dtype": "bfloat16", "transformers_version": "4.57.0", "use_cache": True, "auto_map": {"a": "b"},
        "initializer_range": 0.02, "attention_dropout": 0.1, "use_sliding_window": False, "mlp_only_layers": [],
    }  # fmt: skip
    config = of("mine", rope_theta=5e5)
    assert ww.from_huggingface(config | ordinary, like="llama") == ww.from_huggingface(config | {"model_type": "llama"})


# Sizes beyond reason


HUGE: tuple[dict[str, Any], ...] = (
    of("llama", head_dim=2**31),
    of("llama", hidden_size=2**32, num_attention_heads=1, num_key_value_heads=1),
    of("llama", num_attention_heads=10**9, hidden_size=10**9),
    of("qwen2_vl_text", head_dim=2**31, rope_parameters={"mrope_section": [2**29, 2**28, 2**28]}),
    of("deepseek_v3", qk_nope_head_dim=2**31, qk_rope_head_dim=2**31),
    of("minimax_m2", head_dim=16, rotary_dim=2**31),
    {"model_type": "t5", "vocab_size": 9, "d_model": 64, "num_heads": 4, "num_layers": 10**9},
    {"model_type": "bloom", "vocab_size": 9, "hidden_size": 10**8, "n_head": 10**8, "n_layer": 1},
    of("falcon", alibi=True, num_attention_heads=10**8, hidden_size=10**8),
    {"model_type": "mpt", "vocab_size": 9, "d_model": 10**8, "n_heads": 10**8, "n_layers": 1,
     "attn_config": {"alibi_bias_max": 16}},
    of("gpt_neo", attention_types=[[["global"], 10**9]]),
    {"model_type": "gptj", "vocab_size": 9, "n_embd": 2**32, "n_layer": 1, "n_head": 1, "rotary_dim": 2**31},
    of("cohere2", num_hidden_layers=10**9),
    of("roformer", hidden_size=2**32, num_attention_heads=1),
    {**LLAMA, **{f"key_{n}": n for n in range(20_000)}},
)  # fmt: skip


@linux
def test_sizes_beyond_reason_are_refused_before_anything_is_made_of_them(tmp_path: Path) -> None:
    """In a process that may hold 600 MB more than an import takes: each is refused, none needs the memory."""
    (tmp_path / "configs.json").write_text(json.dumps(HUGE))
    program = f"""
import json, resource, sys
import whatwhere as ww
configs = json.load(open({str(tmp_path / "configs.json")!r}))
ww.from_huggingface(dict(configs[0], head_dim=16))
held = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (held + 600 * 2**20,) * 2)
for number, config in enumerate(configs):
    try:
        ww.from_huggingface(config)
    except (ww.errors.SettingError, ww.errors.ShapeError) as problem:
        assert "are read" in str(problem) or "attention_types" in str(problem), problem
    else:
        sys.exit(f"{{number}} was read")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_largest_sizes_that_are_read() -> None:
    """Bounds are far beyond any model that exists."""
    assert ww.from_huggingface(of("llama", head_dim=4096, num_hidden_layers=1000)).head_dim == 4096
