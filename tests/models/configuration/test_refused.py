"""Configurations that are refused: each with its error, and with what the message names."""

from types import SimpleNamespace
from typing import Any

import pytest

import whatwhere as ww
from tests.refusals import require_refused, short_refusals
from whatwhere.models.configuration.model_types import MODEL_TYPES

from ..test_recent_types import GEMMA4, STEP
from ..tiny import config_of
from . import small
from .small import YARN, of
from .test_published import ALL
from .test_repeated_keys import alibi

BART = {"model_type": "bart", "vocab_size": 9, "d_model": 64, "encoder_layers": 1, "encoder_attention_heads": 4}
MPT: dict[str, Any] = {"model_type": "mpt", "vocab_size": 9, "d_model": 64, "n_layers": 1, "n_heads": 4}
MT5: dict[str, Any] = {"model_type": "mt5", "vocab_size": 9, "d_model": 64, "num_heads": 4, "num_layers": 1}
ORIGINAL = {"original_max_position_embeddings": 16}
RELATIVE = {"relative_attention": True, "pos_att_type": "c2p"}


def published(name: str, **keys: Any) -> object:
    """Read a published file with other keys, without those that are None."""
    return ww.from_huggingface({key: value for key, value in {**ALL[name].config, **keys}.items() if value is not None})


NAMES = {
    **vars(small),
    **globals(),
    "SimpleNamespace": SimpleNamespace,
    "config": ww.from_huggingface,
    "read": lambda model_type, **keys: ww.from_huggingface(of(model_type, **keys)),
    "tiny": lambda model_type, **keys: ww.from_huggingface({**config_of(model_type).to_dict(), **keys}),
    "mosaic": lambda **keys: ww.from_huggingface(alibi(**keys)),
    "like_llama": lambda **keys: ww.from_huggingface({**of("mine", rope_theta=5e5), **keys}, like="llama"),
    "yarn": lambda **keys: ww.from_huggingface(of("llama", rope_parameters={**YARN, "factor": 64.0, **keys})),
    "gemma4": lambda **keys: ww.from_huggingface({**GEMMA4, **keys}),
    "step": lambda **keys: ww.from_huggingface({"model_type": "step3p5", **STEP, **keys}),
}
REFUSALS = r"""
read("llama", head_dims=32) -> SettingError: almost 'head_dim' … Did you mean 'head_dim'
read("llama", Head_Dim=32) -> SettingError: Did you mean 'head_dim'
read("llama", use_rope=False) -> SettingError: use_rope is False, but
read("llama", rope_percentage=0) -> SettingError: rope_percentage=0 is not a key
config({**LLAMA, 7: 8}) -> SettingError: has the key 7, but keys are strings
config({"model_type": "llava", "text_config": LLAMA, "tie_word_embedding": True}) ->
    SettingError: almost 'tie_word_embeddings'
read("llama", alibi=True) -> SettingError: remove it: config.pop('alibi')
read("llama", rope_scaling={**YARN, "beta_fst": 32}) -> SettingError: Did you mean 'beta_fast'
read("llama", rope_scaling={**YARN, "low_freq_factor": 1.0}) -> SettingError: low_freq_factor
read("llama", rope_scaling={"type": "yarnn", "factor": 2.0}) -> SettingError: Did you mean 'yarn'
read("llama", rope_scaling={"type": "linear", "rope_type": "yarn", "factor": 2.0}) -> SettingError: keep one
read("llama", rope_theta=1e4, rope_parameters={"rope_theta": 2e4}) -> SettingError: keep one of them
read("llama", rope_scaling=YARN, original_max_position_embeddings=2048) ->
    SettingError: 1024 and original … s is 2048: keep one
config({**GPT2, "hidden_size": 32}) -> SettingError: n_embd=64, hidden_size=32
read("llama", rope_scaling="linear") -> SettingError: must be a dictionary or null
read("llama", rope_scaling={"type": "linear"}) -> CheckpointError: no rope_scaling.factor
read("llama", rope_scaling={"type": "linear", "factor": -2}) -> SettingError: finite number above 0
read("llama", rope_scaling={**SU, "short_factor": [1.0], "long_factor": [1.0]}) ->
    ShapeError: short_factor has 1 numbers, but 16 rotated features are 8 pairs
read("phimoe", rope_scaling={**SU, "short_mscale": 1.1, "long_mscale": 1.2}) ->
    SettingError: LongRoPE has one magnitude for both
read("mistral", partial_rotary_factor=0.5) -> SettingError: heads of 'mistral' are rotated whole
read("phi", partial_rotary_factor=1.5) -> SettingError: at most 1
read("phi", partial_rotary_factor=0.2) -> ShapeError: rotary_dim=3 of head_dim=16, but needs an even number
read("gemma3_text", rope_parameters={"rope_type": "default"}) -> SettingError: one set for each layer type
read("cohere2", layer_types=["sliding_atention"] * 4) -> SettingError: layer_types[0] is 'sliding_atention', but must be
read("cohere2", layer_types=["full_attention"]) -> SettingError: 4 layers, but has 1
read("gemma3_text", layer_types=["chunked_attention"] * 4) ->
    SettingError: 'chunked_attention', for which 'gemma3_text' has no
read("smollm3", no_rope_layers="1010") -> SettingError: list of one entry for each of 4 layers
read("smollm3", no_rope_layers=[1, 2, 0, 1]) -> SettingError: no_rope_layers[1] is 2
read("qwen2_vl", rope_scaling={"mrope_interleaved": True}) -> SettingError: 'qwen2_vl_text' has chunked ones
read("roformer", rotary_value=True) -> SettingError: rotary_value is True
config({**GPT2, "model_type": "gptj", "rotary_dim": 4, "rotary": False}) -> SettingError: rotary is False, but
config({**MPT, "attn_config": {"alibi": False}}) -> SettingError: attn_config.alibi is False
read("deberta", relative_attention=True, pos_att_type="c2p|p2p") -> SettingError: 'p2p', but whatwhere knows
read("roberta", max_position_embeddings=2) -> SettingError: of which 2 rows come before 0
read("roberta", pad_token_id=None) -> SettingError: positions start at the row after it
read("llama", max_position_embeddings=4096.5) -> SettingError: whole number of at least 1
config({**MPT, "attn_config": "flash"}) -> SettingError: attn_config is 'flash', but must be a dictionary
read("deberta", **RELATIVE, position_biased_input=False, max_position_embeddings=None) ->
    SettingError: the distance at which rows are clipped
read("llama", tie_word_embeddings="no") -> SettingError: must be true or false
read("llama", rope_scaling={"type": "dynamic", "factor": 2.0}, max_position_embeddings=None) ->
    SettingError: dynamic scaling starts beyond it
read("llama", rope_scaling={"type": "yarn", "factor": 2.0}, max_position_embeddings=None) ->
    SettingError: that was trained
read("llama", per_layer_config={0: {"head_dim": 8}}) -> SettingError: per_layer_config
read("llama", rope_parameters={"rope_type": ["yarn"]}) -> SettingError: rope_type is ['yarn']
read("llama", rope_scaling={**YARN, "beta_fast": "16"}) -> SettingError: rope_scaling.beta_fast is '16'
read("llama", rope_scaling={**SU, "short_factor": "12345678"}) ->
    SettingError: short_factor is '12345678', but must be a list
read("llama", head_dim=1e300) -> SettingError: head_dim is … at most 1,048,576 are read
read("llama", rope_theta=1e300) -> SettingError: rope_theta is 1e+300, but only numbers from
config({"text_config": [1], "model_type": "x"}) -> SettingError: text_config is [1], but must be a dictionary
read("deberta", relative_attention=True, pos_att_type=[1]) -> SettingError: pos_att_type[0] is 1
read("llama", rope_scaling={**LLAMA3, "low_freq_factor": 4.5}) ->
    SettingError: rope_scaling.low_freq_factor=4.5 and rope_scaling.high_freq_factor=4.0
read("gemma3_text", head_dim=16, rope_scaling={"type": "linear", "factor": 8.0}) ->
    SettingError: write rope_type='linear'
read("mellum", head_dim=16, rope_scaling={"rope_type": "linear", "factor": 2.0}) ->
    SettingError: reads rope_parameters only
read("stablelm", head_dim=32) -> SettingError: head_dim is 32, but the code of 'stablelm' does not
read("deepseek_v3", qk_nope_head_dim=8, qk_rope_head_dim=8, head_dim=32) -> SettingError: would be 8 or 16
config({**BART, "num_attention_heads": 8}, part="encoder") ->
    SettingError: encoder_attention_heads=4, num_attention_heads=8
read("gpt_neo", num_layers=4, num_heads=2) -> SettingError: num_heads=2, num_attention_heads=4
read("glm4_moe_lite", qk_nope_head_dim=8, qk_rope_head_dim=8, head_dim=4) ->
    SettingError: qk_rope_head_dim=8, head_dim=4
read("llama", rope_parameters={"rope_type": "yarn", "factor": 2.0, "beta_slow": 64.0, **ORIGINAL}) ->
    SettingError: beta_fast is 32.0 and beta_slow 64.0
read("llama", rope_theta=1.0, rope_scaling={"type": "yarn", "factor": 2.0, **ORIGINAL}) ->
    SettingError: rope_theta is 1.0, but YaRN needs one above 1
read("llama", rope_parameters={"rope_type": "yarn", "factor": 2.0, "attention_factor": 1e19, **ORIGINAL}) ->
    SettingError: attention_factor is 1e+19, but must be from 1e-18
read("llama", rope_parameters={"rope_type": "dynamic", "factor": 0.5}) -> SettingError: factor is 0.5, but dynamic
read("llama", head_dim=2, rope_parameters={"rope_type": "dynamic", "factor": 2.0}) -> ShapeError: more than 2 feat
read("llama", head_dim=3) -> ShapeError: rotary_dim=3 of head_dim=3
read("llama", rope_parameters={"rope_type": "proportional", "partial_rotary_factor": 0.01}) ->
    SettingError: rotates no pair
read("llama", rope_parameters={**SU, "original_max_position_embeddings": 1}) -> SettingError: must be at least 2
read("qwen3_vl_text", head_dim=16, rope_parameters={"mrope_section": [0, 0, 8]}) ->
    ShapeError: interleaved axis 2 has one pair in 3
config({**MT5, "relative_attention_num_buckets": 1}) -> SettingError: relative_attention_num_buckets is 1
config({**MT5, "relative_attention_max_distance": 16}) -> SettingError: must be above 16
read("deberta-v2", **RELATIVE, position_buckets=64, max_relative_positions=33) -> SettingError: must be above 33
config({"model_type": "ctrl", "vocab_size": 9, "n_embd": 15, "n_head": 5, "n_layer": 1}) ->
    ShapeError: 15 features cannot hold sinusoidal positions
config({**MPT, "attn_config": {"alibi_bias_max": 1e6}}) -> SettingError: slopes of 0
read("llama", num_hidden_layers=10**9) -> SettingError: num_hidden_layers is 1,000,000,000, but at most 10,000 are read
read("llama", num_attention_heads=5, num_key_value_heads=5) -> ShapeError: 64 features do not divide into 5
read("llama", num_key_value_heads=3) -> ShapeError: cannot share 3
config({}) -> CheckpointError: has no model_type
config(7) -> SettingError: has the type int
config(SimpleNamespace(config=LLAMA)) -> SettingError: Of a model pass model.config
read("llama", hidden_size=None) -> CheckpointError: has no hidden_size
config({"hiden_size" if key == "hidden_size" else key: v for key, v in LLAMA.items()}) ->
    CheckpointError: Did you mean 'hiden_size'
read("gemma2", head_dim=16, sliding_window=None, num_hidden_layers=2) ->
    SettingError: layer 0 is of the type sliding_attention, but sliding_window
read("qwen2", layer_types=["sliding_attention"] * 2, num_hidden_layers=2) -> SettingError: use_sliding_window is off
read("mistral", layer_types=["full_attention", "sliding_attention"], num_hidden_layers=2) ->
    SettingError: 'mistral' does not read it
read("mistral", sliding_window=0, num_hidden_layers=2) -> SettingError: whole number of at least 1
read("modernbert", local_attention=8, sliding_window=3, num_hidden_layers=2) ->
    SettingError: sliding_window is 3, but … with 4 only
read("gpt_neo", attention_types=[[["local"], 3]], num_hidden_layers=2) -> SettingError: needs pairs such as
read("gpt_neo", attention_types=[[["local"], 1]], num_hidden_layers=2) -> SettingError: names 1 layers, but there are 2
read("gpt_neo", attention_types=[[["local"], 2]], attention_layers=["local", "global"], num_hidden_layers=2) ->
    SettingError: keep one of them
mosaic(prefix_lm=True) -> SettingError: prefix_lm is True
mosaic(kv_n_heads=2) -> SettingError: kv_n_heads is 2, but by attn_type there are 8
mosaic(attn_type='grouped_query_attention') -> CheckpointError: no attn_config.kv_n_heads
mosaic(attn_type='grouped_query_attention', kv_n_heads=3) -> ShapeError: 8 query heads cannot share 3
like_llama(alibi_x=1, position_y=2) ->
    SettingError: alibi_x=1, position_y=2 are not keys of 'mine' … ('alibi_x', 'position_y')
like_llama(rope_theta=None) -> SettingError: its theta would be invented
like_llama(model_type='helium') -> SettingError: 'helium' is known, so like='llama' is not needed
yarn(mscale=0.5, mscale_all_dim=0.0) -> SettingError: mscale is 0.5, … mscale_all_dim is 0: … 1.20794, … 1.41589
config({"model_type": "internvl_chat", "llm_config": {"hidden_size": 8}, "rope_theta": 3.0}) ->
    SettingError: beside llm_config
published("baichuan-inc/Baichuan-7B", max_position_embeddings=None) -> SettingError: whether this Baichuan rotates
published("THUDM/chatglm3-6b-32k", _name_or_path="mine") -> SettingError: no key says which
published("internlm/internlm-7b", rotary={"base": 10000, "type": "linear"}) -> SettingError: rotary.type
published("nomic-ai/nomic-embed-text-v1", rope_theta=10000.0) -> SettingError: different values
published("deepseek-ai/DeepSeek-OCR", qk_rope_head_dim=64) -> SettingError: beside language_config
published("nomic-ai/nomic-embed-text-v1", rotary_emb_fraction=0.5) -> SettingError: rotary_emb_fraction
published("Alibaba-NLP/gte-large-en-v1.5", logn_attention_scale=True) -> SettingError: logn_attention_scale
published("Qwen/Qwen-7B-Chat", seq_length=None) -> CheckpointError: seq_length
published("Qwen/Qwen-7B-Chat", use_dynamic_ntk=1) -> SettingError: use_dynamic_ntk
published("Qwen/Qwen-7B-Chat", rope_scaling={"type": "linear", "factor": 2.0}) -> SettingError: rope_scaling
gemma4(per_layer_config={"7": {"head_dim": 32}}) ->
    SettingError: per_layer_config.7 is … must be the settings of a layer
gemma4(per_layer_config={"0": {"head_dim": 64}}) ->
    SettingError: layers that rotate alike have heads of 16 and 64 features
gemma4(use_bidirectional_attention="all") -> SettingError: use_bidirectional_attention is 'all'
step(rope_theta=[50000.0, 1000.0, 60000.0, 1000.0]) ->
    SettingError: rope_theta[2] is 60000.0, but another layer of the type full_atten
step(attention_other_setting={"head_dim": 32}) -> SettingError: attention_other_setting.head_dim is 32
step(rope_parameters={"full_attention": {"rope_theta": 5.0}}) -> SettingError: rope_scaling is given
tiny("mistral4", rope_parameters={"partial_rotary_factor": 0.5}) ->
    SettingError: factor is 0.5 of a head of 24, 12 features, but
tiny("granite_swa", layer_rope_theta=[1e4, 0, -1, 5.0]) -> SettingError: layer_rope_theta is -1, but must be
tiny("muse_glimmer_text", layer_rope_theta=[1e4] * 4) -> SettingError: layers of its type do not rotate
tiny("cohere_compass_text", rope_parameters={}) -> SettingError: no entry for layers of the type sliding_attention
tiny("xlnet", clamp_len=4) -> SettingError: clamp_len is 4
tiny("nemotron_h", layers_block_type=None, hybrid_override_pattern="M?") ->
    SettingError: hybrid_override_pattern is 'M?' … must be a text of M,
tiny("nemotron_h", layers_block_type=["moe", "sliding_attention"]) ->
    SettingError: layers_block_type[1] is 'sliding_attention', but must be one
tiny("mimo_v2_flash", swa_rope_theta=5.0) -> SettingError: swa_rope_theta is 5
tiny("eurobert", is_causal=True) -> SettingError: is_causal is True, but whatwhere reads 'eurobert' with False
tiny("falcon", is_causal=False, alibi=True) -> SettingError: is_causal is False, but the bias of 'falcon'
tiny("mpnet", relative_attention_num_buckets=64) -> SettingError: does not read the key, and uses 32 buckets
tiny("olmo3", rope_parameters={"full_attention": {**YARN, "truncate": False}}) ->
    SettingError: full_attention.truncate is false
read("qwen3", rope_scaling={"rope_type": "linear", "factor": 2.0, "attn_factor": 0.9}) -> SettingError: attn_factor
config({"model_type": "encoder-decoder"}) -> SettingError: decoder is None
config({"model_type": "llava", "text_config": LLAMA, "rope_theta": 3.0}) ->
    SettingError: rope_theta is 3.0 beside text_config, and None in it
config({"model_type": "llava", "text_config": of("gemma", use_bidirectional_attention=True)}) ->
    SettingError: use_bidirectional_attention is True, but
config({"model_type": "vision-encoder-decoder", "decoder": of("bert")}, part="encoder") ->
    SettingError: which are read: decoder
config(LLAMA, part="decoder") -> SettingError: 'llama' has one part only
config(MT5, part="both") -> SettingError: part='both' is not one of 'mt5', which has: decoder, encoder
read("my_llama", rope_theta=5e5) -> CheckpointError: 'my_llama' is not one that whatwhere reads. … Did you mean
like_llama(block_size=4, sparse=True, kernel=[1, 2]) ->
    SettingError: block_size=4, sparse=True, kernel=[1, 2]: not among … key not in ('block_size', 'sparse', 'kernel')
tiny("ministral3", rope_parameters={"rope_type": "default", "rope_theta": 1e6, "llama_4_scaling_beta": 0.1}) ->
    SettingError: original_max_position_embeddings is missing
config({"hidden_size": 8, "architectures": ["BertModel"]}) -> CheckpointError: 'model_type': 'bert'
config({"hidden_size": 8, "architectures": ["Unknown"]}) -> CheckpointError: 'model_type': '...'
tiny("bamba", rope_parameters=None, partial_rotary_factor=0.25) ->
    SettingError: partial_rotary_factor is 0.25 … would be 0.5
"""


@short_refusals(REFUSALS)
@pytest.mark.usefixtures("our_own_checks")
def test_what_is_refused(call: str, error: str, parts: str) -> None:
    require_refused(call, error, parts, NAMES)


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_type_refuses_a_key_of_position_that_it_does_not_know(model_type: str) -> None:
    config = {**config_of(model_type).to_dict(), "rope_wavelength": 7}
    with pytest.raises(ww.errors.SettingError, match="rope_wavelength=7 is not a key"):
        ww.from_huggingface(config)
