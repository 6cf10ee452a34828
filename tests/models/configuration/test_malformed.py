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
from whatwhere.models.configuration.model_types import MODEL_TYPES

from ...systems import linux
from ..tiny import config_of
from .small import LLAMA, LLAMA3, SU, YARN, of

OWN = (ww.errors.SettingError, ww.errors.CheckpointError, ww.errors.ShapeError)


@cache
def saved(model_type: str) -> str:
    return config_of(model_type).to_json_string(use_diff=False)


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


@pytest.mark.every_nth(23)
@pytest.mark.parametrize("model_type", MODEL_TYPES)
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


def test_a_slip_that_repeats_what_is_read_is_harmless() -> None:
    assert ww.from_huggingface(of("llama", hidden_sizes=64, num_hidden_layer=4)) == ww.from_huggingface(LLAMA)
    switches = {"use_mrope": False, "alibi": False, "use_sliding_window": False, "v_head_dim": 8}
    assert ww.from_huggingface({**LLAMA, **switches}) == ww.from_huggingface(LLAMA)


def test_names_that_only_one_part_of_a_model_has() -> None:
    """Alone, the other name is read, as transformers does; beside its like it is not a contradiction."""
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


@pytest.mark.every_nth(23)
@pytest.mark.parametrize("model_type", MODEL_TYPES)
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
     "nystromformer", "clip_text_model", "clipseg_text_model", "mra", "yoso", "funnel", "neomme"],
)  # fmt: skip
def test_configurations_with_unknown_keys_are_not_read_as_llama(model_type: str) -> None:
    config = CONFIG_MAPPING[model_type]()
    saved = [{"model_type": model_type, **config.to_diff_dict()}] if model_type in ("funnel", "neomme") else []
    for keys in (config.to_dict(), *saved):
        with pytest.raises(OWN):
            ww.from_huggingface(keys, like="llama")


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
