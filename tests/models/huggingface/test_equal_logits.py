"""Patched models, and models with our attention, compute what they computed: of every type, in every form of a batch.

`make test` compares some types of each structure; all of them, in a few minutes:
`pytest -m slow tests/models/huggingface/test_equal_logits.py`.
"""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import WhisperForCausalLM

import whatwhere as ww
from docs.generate.models_page import read_data
from whatwhere.errors import WhatWhereError
from whatwhere.models.huggingface.attention import attention_forward, register_attention
from whatwhere.models.huggingface.attention_mask import REFUSED
from whatwhere.models.huggingface.patch import PATCHED
from whatwhere.models.probe.tiny import tiny_config, tiny_model

T, SPLIT = 13, 8
FAR = 200
"""Coordinate of the first token where positions are far; a table of positions has fewer rows."""
CHOSEN = (
    "beam", "bert", "bloom", "deepseek_v3", "gemma3_text", "gpt2", "gpt_oss", "llama4_text", "ministral3",
    "qwen2_vl_text", "smollm3", "t5",
)  # fmt: skip
"""Patched types of which `make test` compares everything: one of each structure."""
CHOSEN_ATTENTION = ("deepseek_v32", "deepseek_v4", "granite_swa", "inkling2_text", "minimax_m3_vl_text", "nllb-moe")
"""Types that pass sinks, chosen keys or masks in forms of their own to our attention."""
SETTINGS: dict[str, dict[str, Any]] = {
    "beam": {"num_hidden_layers": 6},
    "granite_swa": {"layer_rope_theta": [1e4, 500.0, 0, 500.0], "sliding_window": 5},
    "granitemoe_swa": {"layer_rope_theta": [0, 500.0, 1e4, 500.0], "sliding_window": 5},
    "ministral3": {
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 4,
        },
    },
}  # fmt: skip
"""What makes temperatures differ from 1 within so few positions, and the thetas of layers differ."""
LEAKS = {"recurrent_gemma"}
"""Types whose recurrences read the outputs of padding, which have no meaning and differ between attention functions."""
AMPLIFIES = {"gemma3n_text": 1e-3}
"""Types whose own float32 is this far from float64, in which left padding makes NaN, so that it cannot be compared."""
Mode = Callable[[nn.Module, Tensor], Tensor | None]


def built(model_type: str) -> nn.Module:
    """Return a tiny random model whose attention is far from even, without amplifying rounding errors."""
    config = tiny_config(model_type, **SETTINGS.get(model_type, {}))
    if model_type == "whisper":  # whose encoder takes sounds
        config.is_encoder_decoder = False
        model: nn.Module = WhisperForCausalLM(config).eval()
    else:
        model = tiny_model(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "sink" in name and parameter.dim() == 1:
                nn.init.normal_(parameter)
            elif parameter.dim() > 1 and parameter.requires_grad:
                parameter.mul_(0.5)
    return model


def takes(model: nn.Module) -> set[str]:
    return set(inspect.signature(model.forward).parameters)


def called(model: nn.Module, ids: Tensor, **others: Any) -> Tensor:
    """Return the last hidden states of one call without a cache."""
    names = takes(model)
    if "decoder_input_ids" in names:
        others["decoder_input_ids"] = ids
        if "attention_mask" in others:
            others["decoder_attention_mask"] = others["attention_mask"]
    if "use_cache" in names:
        others["use_cache"] = False
    return model(input_ids=ids, **others)[0]


def prefill(model: nn.Module, ids: Tensor) -> Tensor | None:
    return called(model, ids)


def far(model: nn.Module, ids: Tensor) -> Tensor | None:
    """One sequence whose positions begin late."""
    if "position_ids" not in takes(model) or model.config.is_encoder_decoder:
        return None
    start = min(FAR, 62 - T) if has_table(model) else FAR
    return called(model, ids, position_ids=torch.arange(start, start + T).expand(2, -1))


def padded(model: nn.Module, ids: Tensor) -> Tensor | None:
    """Two sequences, one padded on the left, as generation has them."""
    mask = torch.ones(2, T, dtype=torch.long)
    mask[0, :4] = 0
    ids = ids.clone()
    padding = getattr(model.config, "pad_token_id", None)
    if padding is not None and 0 <= padding < 60:
        ids[0, :4] = padding
    at = {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)} if "position_ids" in takes(model) else {}
    return called(model, ids, attention_mask=mask, **at)[mask.bool()]


def packed(model: nn.Module, ids: Tensor) -> Tensor | None:
    """Two sequences in one, known by their positions; encoders are given the blocks as a mask."""
    names = takes(model)
    if "position_ids" not in names or model.config.is_encoder_decoder:
        return None
    at = torch.tensor([[*range(7), *range(T - 7)]]).expand(2, -1)
    if "past_key_values" in names:
        return called(model, ids, position_ids=at)
    if not type(model)._can_set_attn_implementation():  # older code, which takes no mask of pairs
        return None
    segment = torch.arange(T) >= 7
    apart = (segment[:, None] != segment).float() * torch.finfo(torch.float32).min
    blocks = apart.expand(2, 1, T, T).to(next(model.parameters()).dtype)
    return called(model, ids, position_ids=at, attention_mask=blocks)


def decoding(model: nn.Module, ids: Tensor) -> Tensor | None:
    """One token after another, and several, with the model's own cache, beyond its window."""
    if "past_key_values" not in takes(model) or (hasattr(model.config, "is_decoder") and not decodes(model)):
        return None
    paired = model.config.is_encoder_decoder
    cache, out = None, []
    encoded = model.get_encoder()(ids) if paired else None
    for start, stop in ((0, SPLIT), (SPLIT, SPLIT + 1), (SPLIT + 1, T)):
        part = ids[:, start:stop]
        given = {"decoder_input_ids": part, "encoder_outputs": encoded} if paired else {"input_ids": part}
        step = model(**given, past_key_values=cache, use_cache=True)
        cache = getattr(step, "past_key_values", None)
        if cache is None:
            return None
        out.append(step[0])
    return torch.cat(out, dim=1)


def decodes(model: nn.Module) -> bool:
    """Return whether a model that could also be an encoder is a decoder."""
    return bool(model.config.is_decoder or model.config.is_encoder_decoder)


MODES: dict[str, Mode] = {"prefill": prefill, "far": far, "padded": padded, "packed": packed, "decoding": decoding}


def has_table(model: nn.Module) -> bool:
    """Return whether a model looks up positions in a table."""
    tables = ("position_embeddings.weight", "positions_embed.weight", "embed_positions.weight", "wpe.weight")
    tables += ("embed_positions", "embed_positions.weights")
    named = (*model.named_parameters(), *model.named_buffers())
    return any(name.endswith(tables) for name, _ in named)


def ids() -> Tensor:
    return torch.randint(5, 30, (2, T), generator=torch.Generator().manual_seed(0))


def computed(model: nn.Module) -> dict[str, Tensor]:
    """Return what a model computes in each form of a batch that it takes."""
    with torch.no_grad():
        found = {name: mode(model, ids()) for name, mode in MODES.items()}
    return {name: out for name, out in found.items() if out is not None}


def require_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor], model: nn.Module) -> None:
    """Compare within 2e-5, or twice the rounding error of the model's own formula where that is more."""
    assert ours.keys() == theirs.keys()
    exact: dict[str, Tensor] = {}
    for name, expected in theirs.items():
        error = float((ours[name] - expected).abs().max())
        tolerance = AMPLIFIES.get(model.config.model_type, 2e-5)
        if error > tolerance * max(1.0, float(expected.abs().max())):
            exact = exact or computed(model.double())
            assert error <= 2 * float((expected - exact[name]).abs().max()), name


def require_active(model: nn.Module) -> None:
    """Check that windows, sinks and temperatures matter in the sequences of this module."""
    description = ww.from_huggingface(model.config)
    for window in description.windows:
        assert window is None or window.size < T
    if description.sinks:
        assert any("sink" in name and bool(p.abs().max() > 0.1) for name, p in model.named_parameters())
    for curve in description.temperatures:
        assert curve is None or abs(float(curve.build().at(torch.tensor([FAR + T]))) - 1) > 1e-3


def compare(model_type: str, patches: bool) -> None:
    """Compare a model with itself patched, and with our attention if it lets one choose."""
    model = built(model_type)
    theirs = computed(model)
    if patches:
        require_active(model)
        with ww.patch(model):
            require_equal(computed(model), theirs, model)
        model.float()
    if type(model)._can_set_attn_implementation():
        compare_attention(model, theirs)


def compare_attention(model: nn.Module, theirs: dict[str, Tensor]) -> None:
    model.set_attn_implementation("whatwhere")
    if model.config.model_type in REFUSED:
        with pytest.raises(WhatWhereError, match="does not serve"):
            computed(model)
        return
    if model.config.model_type in LEAKS:
        theirs = {name: out for name, out in theirs.items() if name != "padded"}
    ours = {name: out for name, out in computed(model).items() if name in theirs}
    model.set_attn_implementation("eager")
    require_equal(ours, theirs, model)


@pytest.fixture(autouse=True, scope="module")
def registered() -> None:
    register_attention()


@pytest.mark.parametrize("model_type", CHOSEN)
def test_chosen_types(model_type: str) -> None:
    compare(model_type, patches=True)


@pytest.mark.parametrize("model_type", CHOSEN_ATTENTION)
def test_attention_of_chosen_types(model_type: str) -> None:
    compare(model_type, patches=False)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(set(PATCHED) - set(CHOSEN)))
def test_all_patched_types(model_type: str) -> None:
    compare(model_type, patches=True)


def others() -> list[str]:
    return sorted({row.text for row in read_data().types} - set(PATCHED) - set(CHOSEN_ATTENTION))


@pytest.mark.slow
@pytest.mark.parametrize("model_type", others())
def test_attention_of_all_other_types(model_type: str) -> None:
    try:
        model = built(model_type)
        theirs = computed(model)
    except Exception as problem:  # what takes images or sounds besides, or cannot be built so small
        pytest.skip(f"it does not run on token ids alone: {problem}")
    if not type(model)._can_set_attn_implementation():
        pytest.skip("it lets no attention be chosen")
    compare_attention(model, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", PATCHED)
def test_bfloat16(model_type: str) -> None:
    """The mean error against float32 is near that of the model's own formula, within a factor of 3.

    A router that chooses other experts for some token by rounding makes either error larger by chance; positions that
    are wrong by one make it about 30 times larger.
    """
    model = built(model_type)
    exact = computed(model)
    model.to(torch.bfloat16)
    own = computed(model)
    with ww.patch(model):
        ours = computed(model)
    for name, expected in exact.items():
        allowed = 3 * (own[name].float() - expected).abs().mean() + 1e-3 * expected.abs().mean()
        assert (ours[name].float() - expected).abs().mean() <= allowed, name


def test_a_tensor_that_is_not_read_is_refused() -> None:
    q, k, v = torch.randn(3, 1, 2, 3, 4)
    with pytest.raises(WhatWhereError, match="passes routing to its attention"):
        attention_forward(nn.Linear(2, 2), q, k, v, None, routing=torch.ones(1))
