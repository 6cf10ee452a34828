"""Patched models, and models with our attention, compute what they computed: of every type, in every form of a batch.

`make test` compares some types of each structure; all of them, in a few minutes:
`pytest -m slow tests/huggingface/test_equal_logits.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.auto import modeling_auto as auto

import whatwhere as ww
from docs.generate.models_page import read_data
from whatwhere.errors import WhatWhereError
from whatwhere.huggingface.attention import attention_forward, register_attention
from whatwhere.huggingface.patch import PATCHED
from whatwhere.models.configuration.model_types import MODEL_TYPES

from ..models.tiny import built
from .batch_forms import FAR, FIRST_PACKED, FORMS, PADDING, TOKENS, decodes, ids

CHOSEN = (
    "beam", "bert", "bloom", "deepseek_v3", "gemma3_text", "gpt2", "gpt_oss", "llama4_text", "ministral3",
    "qwen2_vl_text", "smollm3", "t5",
)  # fmt: skip
"""Patched types of which `make test` compares everything: one of each structure."""
CHOSEN_ATTENTION: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("deepseek_v32", "deepseek_v4", "granite_swa", "inkling2_text", "minimax_m3_vl_text")},
    "gemma2": {"attn_logit_softcapping": 0.5}, "mistral": {"is_causal": False}, "modernbert": {}, "nllb-moe": {},
}  # fmt: skip
"""Types that pass sinks, chosen keys, caps or masks in forms of their own to our attention, and with which settings."""
OWN_ATTENTION = ("bloom", "falcon", "git", "gpt_neo", "longformer", "mpnet", "mpt", "roformer")
"""Types whose attention is code of their own, or a class that is looked up by the name of what was chosen."""
DECODES = sorted(
    set(PATCHED) & set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES) & set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
)
"""Patched encoders that transformers also runs as decoders."""
NOT_IN_BFLOAT16 = ("inkling2_text", "mra", "xlstm")
"""Types that transformers itself cannot run after a cast to bfloat16: they multiply it with float32."""
LEAKS = {"recurrent_gemma"}
"""Types whose recurrences read the outputs of padding, which have no meaning and differ between attention functions."""
AMPLIFIES = {"gemma3n_text": 1e-3}
"""Types whose own float32 is this far from float64, in which left padding makes NaN, so that it cannot be compared."""


def computed(model: nn.Module) -> dict[str, Tensor]:
    with torch.no_grad():
        found = {name: form(model, ids()) for name, form in FORMS.items()}
    return {name: out for name, out in found.items() if out is not None}


@contextmanager
def default_float64() -> Iterator[None]:
    """Let models whose masks have the default dtype run in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def computed_in_float64(model: nn.Module) -> dict[str, Tensor]:
    with default_float64():
        return computed(model.double())


def require_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor], model: nn.Module) -> None:
    """Compare within 2e-5, or twice the rounding error of the model's own formula where that is more."""
    assert ours.keys() == theirs.keys()
    exact: dict[str, Tensor] = {}
    for name, expected in theirs.items():
        error = float((ours[name] - expected).abs().max())
        tolerance = AMPLIFIES.get(model.config.model_type, 2e-5)
        if error > tolerance * max(1.0, float(expected.abs().max())):
            exact = exact or computed_in_float64(model)
            assert error <= 2 * float((expected - exact[name]).abs().max()), name


def require_active(model: nn.Module, forms: dict[str, Tensor]) -> None:
    """Check that windows, sinks and temperatures matter in the sequences that this model was given."""
    read, length = ww.from_huggingface(model.config), FAR + TOKENS if "far" in forms else TOKENS
    windows = [window for window in read.windows if window is not None]
    assert windows or MODEL_TYPES[read.model_type].windows is None
    assert all(window.size < TOKENS for window in windows)
    if read.sinks:
        assert any("sink" in name and bool(p.abs().max() > 0.1) for name, p in model.named_parameters())
    for curve in read.temperatures:
        assert curve is None or abs(float(curve.build().at(torch.tensor([length - 1]))) - 1) > 1e-3


def compare(model: nn.Module, patches: bool) -> None:
    theirs = computed(model)
    if patches:
        require_active(model, theirs)
        with ww.patch(model):
            ours = computed(model)
        require_equal(ours, theirs, model)  # their rounding error is that of their own formula
        model.float()
    compare_loaded(model, theirs)
    model.float()
    if type(model)._can_set_attn_implementation():
        compare_attention(model, theirs)


def compare_loaded(model: nn.Module, theirs: dict[str, Tensor]) -> nn.Module:
    """Compare with our attention, if it is chosen when the model is loaded; return that model."""
    config = deepcopy(model.config)
    loaded: nn.Module = type(model)._from_config(config, attn_implementation="whatwhere").eval()
    loaded.load_state_dict(model.state_dict())
    names = theirs.keys() & {"prefill", "padded behind"}
    with torch.no_grad():
        ours = {name: FORMS[name](loaded, ids()) for name in names}
    require_equal(ours, {name: theirs[name] for name in names}, model)
    return loaded


def compare_attention(model: nn.Module, theirs: dict[str, Tensor]) -> None:
    model.set_attn_implementation("whatwhere")
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
    compare(built(model_type), patches=True)


@pytest.mark.parametrize("model_type", CHOSEN_ATTENTION)
def test_attention_of_chosen_types(model_type: str) -> None:
    compare(built(model_type, **CHOSEN_ATTENTION[model_type]), patches=False)


@pytest.mark.parametrize("model_type", OWN_ATTENTION)
def test_attention_of_their_own_is_kept(model_type: str) -> None:
    """A model says so by its configuration: there is no table of ours that it would misread, and no foreign error."""
    model = built(model_type)
    loaded = compare_loaded(model, computed(model))
    assert loaded.config._attn_implementation in ("eager", "sdpa")
    loaded.set_attn_implementation("whatwhere")
    assert loaded.config._attn_implementation in ("eager", "sdpa")


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(set(PATCHED) - set(CHOSEN)))
def test_all_patched_types(model_type: str) -> None:
    compare(built(model_type), patches=True)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", DECODES)
def test_encoders_that_can_decode(model_type: str) -> None:
    """Encoders of BERT's kind can be decoders, with a KV cache."""
    model = built(model_type, is_decoder=True)
    assert decodes(model)
    compare(model, patches=True)


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
    compare_loaded(model, theirs)
    model.float()
    if type(model)._can_set_attn_implementation():
        compare_attention(model, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", [name for name in PATCHED if name not in NOT_IN_BFLOAT16])
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


@pytest.mark.slow
@pytest.mark.parametrize("model_type", NOT_IN_BFLOAT16)
def test_pin_models_that_do_not_run_in_bfloat16(model_type: str) -> None:
    with pytest.raises(RuntimeError, match="dtype"):
        computed(built(model_type).to(torch.bfloat16))


@pytest.mark.parametrize("model_type", ["gemma3_text", "gpt2", "llama"])
def test_forms_equal_the_sequences_alone(model_type: str) -> None:
    """Else forms that hide no padding and divide no sequences, for both alike, would pass for a proof."""
    model, tokens = built(model_type), ids()
    with torch.no_grad():
        short, first, second, whole = (
            FORMS["prefill"](model, each)
            for each in (tokens[:1, PADDING:], tokens[:, :FIRST_PACKED], tokens[:, FIRST_PACKED:], tokens)
        )
    two = torch.cat([first, second], dim=1)
    alone = {"padded": torch.cat([short[0], whole[1]]), "packed": two, "decoding": whole, "stepping": whole}
    forms = computed(model)
    for name, expected in (alone | ({} if model_type == "gemma3_text" else {"masked": two})).items():
        torch.testing.assert_close(forms[name], expected, rtol=0, atol=1e-4 * float(expected.abs().max()))


def eager_attention_forward(module: nn.Module, query: Tensor, gate: Tensor) -> None:
    """Stand for the attention function in the file of a model."""


class Gated(nn.Module):
    """A module of this file."""


def test_a_tensor_that_is_not_read_is_refused() -> None:
    """Where the model's own attention reads it, or may do so: the file of a plain layer has none."""
    q, k, v = torch.randn(3, 1, 2, 3, 4)
    for module, name in ((nn.Linear(2, 2), "routing"), (Gated(), "gate")):
        with pytest.raises(WhatWhereError, match=f"passes {name} to its attention"):
            attention_forward(module, q, k, v, None, **{name: torch.ones(1)})
    ours, _ = attention_forward(Gated(), q, k, v, None, routing=torch.ones(1))
    assert torch.equal(ours, attention_forward(Gated(), q, k, v, None)[0])
