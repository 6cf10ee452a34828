"""Models that the catalogue names as users of a scheme: each can be read, or is a paper's and no model type."""

import whatwhere as ww
from whatwhere.models.configuration.model_types import READ_TYPES, TEXT_TYPES

TYPES = {
    "BERT": "bert", "BLOOM": "bloom", "Beam": "beam", "DeBERTa": "deberta", "DeBERTa-v3": "deberta-v2",
    "DeepSeek-Coder": "llama", "DeepSeek-V3": "deepseek_v3", "GLM-4V": "glm4v", "GPT-2": "gpt2", "GPT-NeoX": "gpt_neox",
    "Gemma 3": "gemma3", "Hunyuan": "hunyuan_v1_dense", "Inkling": "inkling_text",
    "InternLM2": "internlm2", "LFM3": "lfm3", "Llama": "llama",
    "Llama 3.1": "llama", "Llama 3.2": "llama", "Llama 3.3": "llama", "Llama 4": "llama4_text", "MPT": "mpt",
    "MusicGen": "musicgen_decoder", "Qwen 1": "qwen",
    "Ministral 3": "ministral3", "Mistral": "mistral",
    "Mistral Large 4": "mistral_large4_text", "OPT": "opt", "Phi-3": "phi3", "Phi-4-mini": "phi3",
    "Qwen": "qwen3", "Qwen2-VL": "qwen2_vl", "Qwen2.5 beyond 32k": "qwen2", "Qwen2.5-VL": "qwen2_5_vl",
    "Qwen3-VL": "qwen3_vl", "T5": "t5", "UMT5": "umt5", "Vicuna 16k": "llama", "XLNet": "xlnet", "gpt-oss": "gpt_oss",
    "mT5": "mt5", "some layers of Llama 4, SmolLM3": "smollm3",
}  # fmt: skip
PAPERS = (
    "Transformer-XL", "fairseq", "its authors' models", "the Image Transformer", "the original Transformer",
    "the paper's image models", "the paper's language models", "the paper's translation models",
)  # fmt: skip
"""Published code or experiments, which are not a model type of transformers."""


def users() -> dict[str, list[str]]:
    """Return each name of a model with the schemes that it uses."""
    named: dict[str, list[str]] = {}
    for name in ww.catalogue:
        for user in ww.catalogue[name].used_by:
            named.setdefault(user, []).append(name)
    return named


def test_every_user_of_a_scheme_can_be_read() -> None:
    named = users()
    assert set(named) == {*TYPES, *PAPERS}
    for user in set(named) & set(TYPES):
        model_type = TYPES[user]
        assert TEXT_TYPES.get(model_type, model_type) in READ_TYPES
