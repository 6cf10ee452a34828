"""A patched model says what it said before, with our input layer and positions, and can be had back."""

import copy
from collections.abc import Callable
from inspect import signature
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    GlmAsrConfig,
    GlmAsrEncoderConfig,
    GlmAsrForConditionalGeneration,
    LlamaConfig,
    ModernBertConfig,
    PeAudioConfig,
    PeAudioModel,
)

import whatwhere as ww
from whatwhere.models.configuration.model_types import MODEL_TYPES
from whatwhere.models.huggingface.patch import PATCHED
from whatwhere.models.huggingface.patch_modules import RotaryTables

from ..tiny import config_of, inputs_of, model_of

NAMED_IN_THE_PROMISE = ("llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3_text", "phi3", "gpt2", "bert")
TOKENS = 13
ROTATED = [name for name in PATCHED if any(rule.name in ("rope", "falcon") for rule in MODEL_TYPES[name].positions)]
ALONE = (
    "falcon_mamba", "glm5_next_text", "jamba", "kimi_linear", "mamba", "mamba2", "nemotron_h", "rwkv", "xlstm", "zamba",
    "zamba2",
)  # fmt: skip
"""Types without positions, of which the token table alone is replaced."""
AMPLIFYING = ("diffusion_gemma_text", "gemma4_unified_text", "muse_spark_text")
"""Types whose large scores amplify the rounding of cosines, with weights as large as here, on some processors."""


def made(model_type: str, **settings: object) -> nn.Module:
    """Make a tiny model whose attention is far from even, so that positions matter."""
    model = model_of(config_of(model_type, **settings))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.mul_(2)
    return model


def ids(tokens: int = TOKENS) -> Tensor:
    """Sample two sequences without special tokens."""
    return torch.randint(4, 30, (2, tokens))


def said(model: nn.Module, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return a model's logits, or hidden states where it has no head."""
    others = {} if mask is None else {"attention_mask": mask}
    with torch.no_grad():
        return model(**inputs_of(model, tokens), **others)[0]


def gradients_of(model: nn.Module, tokens: Tensor) -> dict[str, Tensor]:
    """Return the gradient of each parameter, of a sum of all outputs with weights of their own."""
    model.zero_grad()
    out = model(**inputs_of(model, tokens))[0]
    (out * torch.linspace(-1, 1, out.shape[-1])).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def require_close(ours: Tensor, theirs: Tensor, factor: float = 1.0) -> None:
    """Compare within 1e-5 of the largest number."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=factor * 1e-5 * float(theirs.abs().max()))


@pytest.mark.parametrize("model_type", PATCHED)
def test_the_same_logits_and_back(model_type: str) -> None:
    model, tokens = made(model_type), ids()
    before, names, modules = said(model, tokens), list(model.state_dict()), dict(model.named_modules())
    with ww.patch(model) as patched:
        assert len(patched.replaced) >= (1 if model_type in ALONE else 2)
        require_close(said(model, tokens), before, factor=5 if model_type in AMPLIFYING else 1)
        assert list(model.state_dict()) == names
        assert not set(modules.values()) <= set(model.modules())
    assert torch.equal(said(model, tokens), before)
    assert dict(model.named_modules()) == modules


@pytest.mark.parametrize("model_type", ["llama", "gemma", "gpt2", "bert", "t5", "gemma3_text"])
@pytest.mark.parametrize("rows", [40, 31])
def test_transformers_resizes_a_patched_model(model_type: str, rows: int) -> None:
    """As it does one that is not patched; both ways out of the patch have the new rows."""
    model = made(model_type)
    other, tokens = copy.deepcopy(model), torch.randint(4, rows, (2, TOKENS))
    patched = ww.patch(model)
    for one in (model, other):
        torch.manual_seed(1)
        one.resize_token_embeddings(rows)
    table = model.get_input_embeddings()
    assert (type(table), table.num_embeddings) == (ww.TokenEmbedding, rows)
    wanted = said(other, tokens)
    require_close(said(model, tokens), wanted)
    patched.undo()
    assert model.get_input_embeddings().num_embeddings == rows
    assert torch.equal(said(model, tokens), wanted)


def test_a_patched_model_has_the_same_outputs() -> None:
    assert {*NAMED_IN_THE_PROMISE, "bloom", "t5"} <= set(PATCHED) <= set(MODEL_TYPES)


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "cohere", "gpt_oss", "deepseek_v2", "phi3"])
def test_the_rotation_is_that_of_whatwhere(model_type: str) -> None:
    """Without this, a patch that changed nothing would pass the test above."""
    model, tokens = made(model_type), ids()
    before = said(model, tokens)
    with ww.patch(model):
        (tables,) = (module for module in model.modules() if isinstance(module, RotaryTables))
        tables.schemes = {
            kind: ww.Rotary(scheme.head_dim, scheme.theta / 1000, rotary_dim=scheme.rotary_dim)
            for kind, scheme in tables.schemes.items()
        }
        assert (said(model, tokens) - before).abs().max() > 1e-3 * before.abs().max()


@pytest.mark.parametrize("model_type", ["gpt2", "bert"])
def test_the_table_is_ours(model_type: str) -> None:
    model, tokens = made(model_type), ids()
    before = said(model, tokens)
    with ww.patch(model):
        (table,) = (module for module in model.modules() if isinstance(module, ww.Learned))
        table.weight = nn.Parameter(-table.weight)
        assert (said(model, tokens) - before).abs().max() > 1e-2 * before.abs().max()


@pytest.mark.parametrize(("model_type", "scheme"), [("bloom", ww.ALiBi), ("t5", ww.T5)])
def test_the_bias_is_ours(model_type: str, scheme: type[nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = made(model_type), ids()
    before = said(model, tokens)
    with ww.patch(model):
        monkeypatch.setattr(scheme, "curve", lambda self, device: lambda head, distance: 0.5 * distance + 0 * head)
        assert (said(model, tokens) - before).abs().max() > 1e-2 * before.abs().max()


@pytest.mark.parametrize("model_type", [*NAMED_IN_THE_PROMISE, "bloom"])
def test_padding(model_type: str) -> None:
    model, tokens, mask = made(model_type), ids(), torch.ones(2, TOKENS, dtype=torch.long)
    mask[0, :4] = 0
    before = said(model, tokens, mask)
    with ww.patch(model):
        require_close(said(model, tokens, mask)[mask.bool()], before[mask.bool()])


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "phi3", "gpt2", "bloom", "qwen3"])
@pytest.mark.parametrize("padded", [False, True])
def test_decoding_with_a_cache(model_type: str, padded: bool) -> None:
    model, tokens = made(model_type), ids()
    mask = torch.ones(2, TOKENS, dtype=torch.long)
    mask[0, : 3 * padded] = 0

    def decoded() -> Tensor:
        cache, out = None, []
        with torch.no_grad():
            for start, stop in ((0, 8), (8, 9), (9, TOKENS)):
                given = {"attention_mask": mask[:, :stop]} if padded else {}
                step = model(tokens[:, start:stop], past_key_values=cache, use_cache=True, **given)
                cache = step.past_key_values
                out.append(step.logits)
        return torch.cat(out, dim=1)

    before = decoded()
    with ww.patch(model):
        require_close(decoded()[mask.bool()], before[mask.bool()])


@pytest.mark.parametrize("model_type", ["t5", "umt5"])
def test_t5_decoding_with_a_cache(model_type: str) -> None:
    model, tokens = made(model_type), ids()

    def decoded() -> Tensor:
        encoded, cache, out = model.encoder(tokens), None, []
        for start, stop in ((0, 8), (8, 9), (9, TOKENS)):
            given = {"encoder_outputs": encoded, "past_key_values": cache, "use_cache": True}
            step = model(decoder_input_ids=tokens[:, start:stop], **given)
            cache = step.past_key_values
            out.append(step.logits)
        return torch.cat(out, dim=1)

    with torch.no_grad():
        before = decoded()
        with ww.patch(model):
            require_close(decoded(), before)


@pytest.mark.parametrize("model_type", ["llama", "gemma2", "gpt2", "bert", "bloom", "t5"])
def test_gradients(model_type: str) -> None:
    model, tokens = made(model_type), ids()
    before = gradients_of(model, tokens)
    with ww.patch(model):
        after = gradients_of(model, tokens)
    assert before.keys() == after.keys()
    for name, gradient in before.items():
        require_close(after[name], gradient, factor=3)


_V2 = {"relative_attention": True, "max_relative_positions": 12, "position_buckets": 8, "pos_att_type": ["c2p", "p2c"]}
DISENTANGLED: dict[str, tuple[str, dict[str, Any]]] = {
    "the first": ("deberta", {key: value for key, value in _V2.items() if key != "position_buckets"}),
    "v3": ("deberta-v2", {**_V2, "share_att_key": True, "norm_rel_ebd": "layer_norm"}),
    "v2, with projections of its own": ("deberta-v2", _V2),
    "one term, without buckets": ("deberta-v2", {**_V2, "position_buckets": -1, "pos_att_type": ["p2c"]}),
}


@pytest.mark.parametrize("case", DISENTANGLED)
def test_the_bias_of_deberta_is_ours(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and gradients are the model's; with other rows they are not."""
    name, settings = DISENTANGLED[case]
    model, tokens = made(name, **settings), ids(11)
    with torch.no_grad():
        model.get_parameter(f"{name.partition('-')[0]}.encoder.rel_embeddings.weight").normal_()
    before, gradients = said(model, tokens), gradients_of(model, tokens)
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    with ww.patch(model) as patched:
        assert sum("disentangled" in each for each in patched.replaced) == model.config.num_hidden_layers
        require_close(said(model, tokens), before)
        for each, gradient in gradients_of(model, tokens).items():
            torch.testing.assert_close(gradient, gradients[each], rtol=0, atol=3e-5 * largest)
        monkeypatch.setattr(ww.DeBERTa, "rows", lambda self, distance: 0 * distance)
        assert (said(model, tokens) - before).abs().max() > 1e-2 * before.abs().max()


def test_a_shared_module_is_replaced_by_one() -> None:
    """As transformers 4 has T5's token table."""
    model, tokens = made("t5"), ids()
    model.encoder.embed_tokens = model.decoder.embed_tokens = model.shared
    before = said(model, tokens)
    with ww.patch(model):
        assert isinstance(model.shared, ww.TokenEmbedding)
        assert model.encoder.embed_tokens is model.decoder.embed_tokens is model.shared
        require_close(said(model, tokens), before)
    assert model.encoder.embed_tokens is model.shared
    assert isinstance(model.shared, nn.Embedding)


def test_parameters_are_the_same_ones() -> None:
    model = made("gpt2")
    before = list(model.parameters())
    with ww.patch(model):
        assert all(a is b for a, b in zip(model.parameters(), before, strict=True))
        assert model.lm_head.weight is model.get_input_embeddings().weight
        assert isinstance(model.get_input_embeddings(), ww.TokenEmbedding)


def test_what_is_loaded_meanwhile_stays() -> None:
    model, other, tokens = made("gpt2"), made("gpt2"), ids()
    with ww.patch(model):
        model.load_state_dict({name: t.clone() for name, t in other.state_dict().items()}, assign=True)
        model.tie_weights()
    assert torch.equal(said(model, tokens), said(other, tokens))


@pytest.mark.parametrize("model_type", ["gemma", "gemma2", "gemma3_text"])
def test_gemma_rounds_its_scale(model_type: str) -> None:
    """sqrt(1024 * 3) is 55.4256, and 55.5 in bfloat16."""
    model = model_of(config_of(model_type, hidden_size=3072, num_hidden_layers=1)).to(torch.bfloat16)
    tokens = ids()
    theirs = model.get_input_embeddings()(tokens)
    with ww.patch(model):
        assert torch.equal(model.get_input_embeddings()(tokens), theirs)
    layer = ww.from_huggingface(model.config).input_layer(dtype=torch.bfloat16)
    layer.tokens.weight = model.get_input_embeddings().weight
    assert torch.equal(layer(tokens), theirs)


def test_pin_a_cast_rounds_their_frequencies_and_not_ours() -> None:
    """A Llama cast to bfloat16 turns by rounded frequencies, which 4096 positions carry far."""
    model = made("llama", max_position_embeddings=4096).to(torch.bfloat16)
    at = torch.arange(4096)[None]
    exact = ww.frequencies.angles(at[0], ww.frequencies.inverse_frequencies(16)).cos()
    theirs = model.model.rotary_emb(torch.zeros(1), at)[0][0, :, :8]
    with ww.patch(model):
        model.to(torch.float16)
        ours = model.model.rotary_emb(torch.zeros(1), at)[0][0, :, :8]
    assert (theirs - exact).abs().max() > 0.5
    assert (ours - exact).abs().max() < 1e-7


def test_pin_bloom_loses_neighbors_in_bfloat16() -> None:
    """Its bias is slope * position: near 3000 neighboring keys share one, and logits move by more than ours do."""
    model = made("bloom").double()
    tokens = torch.randint(4, 30, (1, 1500))
    exact = said(model, tokens)
    model.to(torch.bfloat16)
    theirs = (said(model, tokens).double() - exact)[:, -100:].abs().mean()
    with ww.patch(model):
        ours = (said(model, tokens).double() - exact)[:, -100:].abs().mean()
    assert ours < 0.5 * theirs


def test_a_stated_regime() -> None:
    """Theirs changes the frequencies when a sequence grows beyond the trained length; a stated one does not."""
    model, tokens = made("llama", rope_parameters=DYNAMIC, max_position_embeddings=16), ids(24)
    before = said(model, tokens)
    with ww.patch(model):
        require_close(said(model, tokens), before)
    with ww.patch(model, regime_length=24), torch.no_grad():
        require_close(said(model, tokens), before)
        first = model(tokens[:, :8], use_cache=True)
        rest = model(tokens[:, 8:], past_key_values=first.past_key_values).logits
        require_close(torch.cat([first.logits, rest], dim=1), before)


def test_a_model_of_text_and_images() -> None:
    text = config_of("gemma3_text").to_dict()
    vision = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    vision["image_size"] = 28
    model = Gemma3ForConditionalGeneration(Gemma3Config(text_config=text, vision_config=vision)).eval()
    tokens = ids()
    before = said(model, tokens)
    with ww.patch(model) as patched:
        assert not [name for name in patched.replaced if "vision" in name]
        require_close(said(model, tokens), before)


def test_undo_moves_what_was_out_of_the_model() -> None:
    model = made("llama")
    patched = ww.patch(model)
    assert repr(patched) == "Patch(llama, replaced=['model.embed_tokens', 'model.rotary_emb'])"
    assert "(rotary_emb): RotaryTables(all=Rotary)" in repr(model)
    patched.undo()
    patched.undo()  # nothing left to do
    assert patched.replaced == []
    assert model.model.rotary_emb.inv_freq.device == model.lm_head.weight.device


def test_a_patched_model_can_be_copied() -> None:
    model, tokens = made("llama"), ids()
    with ww.patch(model):
        copied = copy.deepcopy(model)
        assert torch.equal(said(copied, tokens), said(model, tokens))


def test_errors() -> None:
    with pytest.raises(ww.errors.SettingError, match="patch needs a model of Hugging Face"):
        ww.patch(nn.Linear(2, 2))
    with pytest.raises(
        ww.errors.CheckpointError, match=r"does not know 'ctrl': its sinusoids.*\nIt knows: afmoe, albert, "
    ):
        ww.patch(made("ctrl"))
    with pytest.raises(ww.errors.CheckpointError, match="patch found no bias of 'falcon'"):
        ww.patch(made("falcon", alibi=True))
    with pytest.raises(ww.errors.ShapeError, match="regime_length=0"):
        ww.patch(made("llama"), regime_length=0)
    model = made("llama")
    with ww.patch(model), pytest.raises(ww.errors.SettingError, match="patched already"):
        ww.patch(model)


DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": [4.0] * 8,
    "factor": 4.0,
    "rope_theta": 10_000.0,
    "original_max_position_embeddings": 16,
}
KINDS = ["sliding_attention", "full_attention"] * 2
OF_KINDS = ("gemma3_text", "gemma3n_text", "mellum", "modernbert", "modernbert-decoder", "olmo3")


def of_kinds(model_type: str, **settings: object) -> nn.Module:
    """Return a tiny model whose kinds of layers have rotary parameters of their own, the full one YaRN's."""
    plain = {"rope_type": "default", "rope_theta": 10_000.0}
    yarn = {**plain, "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, **settings}
    return made(model_type, layer_types=KINDS, rope_parameters={KINDS[0]: plain, KINDS[1]: yarn})


def require_refused(model: nn.Module, match: str, error: type[Exception] = ww.errors.CheckpointError) -> None:
    """Check that a model is refused, and left as it was to the bit."""
    tokens, modules = ids(), dict(model.named_modules())
    before = said(copy.deepcopy(model), tokens)
    with pytest.raises(error, match=match):
        ww.patch(model)
    assert dict(model.named_modules()) == modules
    torch.testing.assert_close(said(model, tokens), before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda own: own.mul_(2),
        lambda own: own.neg_(),
        lambda own: own[4:].div_(4),
        lambda own: own[-1:].mul_(1.01),
        lambda own: own.copy_(own.bfloat16()),
        lambda own: own.fill_(torch.nan),
    ],
)
def test_frequencies_changed_by_hand_are_refused(change: Callable[[Tensor], Tensor]) -> None:
    model = made("llama")
    change(model.model.rotary_emb.inv_freq)
    require_refused(model, "LlamaRotaryEmbedding does not rotate as its configuration states.*position")


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("model_type", OF_KINDS)
def test_each_kind_of_layer_is_compared(model_type: str, kind: str) -> None:
    model = of_kinds(model_type)
    for name, buffer in model.named_buffers():
        if name.endswith(f"{kind}_inv_freq"):
            buffer.mul_(2)
    require_refused(model, f"does not rotate as its configuration states.*{kind}")


def test_a_theta_changed_after_loading_is_refused() -> None:
    model = made("qwen2", rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    model.config.rope_parameters["rope_theta"] = 5e5
    require_refused(model, "does not rotate as its configuration states")


def test_frequencies_beyond_the_trained_length_are_compared() -> None:
    longer = made("phi3", rope_parameters=LONGROPE, original_max_position_embeddings=16)
    said(longer, ids(24))  # now it keeps its long frequencies
    longer.config.rope_parameters["long_factor"] = [3.0] * 8
    require_refused(longer, "does not rotate as its configuration states.*at position 32")
    grown = made("llama", rope_parameters=DYNAMIC, max_position_embeddings=32)
    grown.model.rotary_emb.config = copy.deepcopy(grown.config)
    grown.model.rotary_emb.config.rope_parameters["factor"] = 2.0
    require_refused(grown, "does not rotate as its configuration states.*at position 64 ")


def test_a_magnitude_changed_by_hand_is_refused() -> None:
    model = of_kinds("olmo3")
    model.model.rotary_emb.full_attention_attention_scaling *= 1.001
    require_refused(model, "does not rotate as its configuration states")


def test_axes_of_pairs_are_compared() -> None:
    """Sections changed after loading: text alone would never show them."""
    model = made("qwen2_vl_text")
    model.config.rope_parameters["mrope_section"] = [3, 3, 2]
    require_refused(model, "does not rotate as its configuration states")


@pytest.mark.parametrize("model_type", OF_KINDS)
def test_pin_transformers_truncates_against_the_setting_of_each_kind(model_type: str) -> None:
    """It looks for `truncate` beside the kinds of layers; its outputs could not stay the same."""
    model = of_kinds(model_type, truncate=False)
    require_refused(model, r"full_attention\.truncate is false[\s\S]*remove it", ww.errors.SettingError)
    del model.config.rope_parameters["full_attention"]["truncate"]  # the way out that the message names
    tokens = ids()
    before = said(model, tokens)
    with ww.patch(model):
        require_close(said(model, tokens), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("rope", [None, DYNAMIC, LONGROPE])
def test_a_cast_is_no_change_by_hand(dtype: torch.dtype, rope: dict[str, object] | None) -> None:
    types = {"dynamic": ("llama",), "longrope": ("phi3",)}
    for model_type in ("phi3", "olmo3", "glm4v_text") if rope is None else types[rope["rope_type"]]:
        settings = {} if rope is None else {"rope_parameters": dict(rope)}
        model = made(model_type, **settings).to(dtype)
        with ww.patch(model) as patched:
            assert len(patched.replaced) == 2


def test_dynamic_frequencies_keep_their_state() -> None:
    """Theirs remembers the longest call: neither looking at it nor taking it out may change that."""
    model = made("llama", rope_parameters=DYNAMIC, max_position_embeddings=16)
    said(model, ids(40))
    copied, tokens = copy.deepcopy(model), ids(24)
    ww.patch(model).undo()
    for (name, ours), (_, theirs) in zip(model.named_buffers(), copied.named_buffers(), strict=True):
        assert torch.equal(ours, theirs), name
    assert torch.equal(said(model, tokens), said(copied, tokens))


def glm_asr(rope: dict[str, object]) -> nn.Module:
    """Return a tiny model of text and sound, whose heads have 16 features here and 8 there, half of them rotating."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    text = {"vocab_size": 37, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "eos_token_id": 2}
    lengths = {"max_position_embeddings": 16, "rope_parameters": rope}
    config = GlmAsrConfig(
        text_config=LlamaConfig(**sizes, **text, **lengths),
        audio_config=GlmAsrEncoderConfig(**sizes, num_attention_heads=4, num_mel_bins=8),
    )
    return GlmAsrForConditionalGeneration(config).eval()


@pytest.mark.parametrize("rope", [{"rope_type": "default", "rope_theta": 10_000.0}, DYNAMIC])
def test_an_audio_tower_keeps_its_positions(rope: dict[str, object]) -> None:
    model, tokens, sound = glm_asr(rope), ids(), torch.randn(1, 8, 80)

    def heard() -> Tensor:
        with torch.no_grad():
            return model.model.audio_tower(sound).last_hidden_state

    before, text = heard(), said(model.model.language_model, tokens)
    with ww.patch(model) as patched:
        assert patched.replaced == ["model.language_model.embed_tokens", "model.language_model.rotary_emb"]
        assert torch.equal(heard(), before)
        require_close(said(model.model.language_model, tokens), text)


def test_a_text_tower_with_an_audio_tower() -> None:
    text = config_of("modernbert").to_dict()
    sound = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    dac = {"encoder_hidden_size": 4, "codebook_dim": 4, "hidden_size": 8, "downsampling_ratios": [2], "n_codebooks": 1}
    config = PeAudioConfig(
        text_config=ModernBertConfig(**text), audio_config={**sound, "head_dim": 32, "dac_config": dac}
    )
    model, tokens = PeAudioModel(config).eval(), ids()
    before = said(model.text_model, tokens)
    with ww.patch(model) as patched:
        assert patched.replaced == ["text_model.embeddings.tok_embeddings", "text_model.rotary_emb"]
        require_close(said(model.text_model, tokens), before)


def test_a_model_without_known_parts_is_refused() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config, self.table = config_of("llama"), nn.Embedding(37, 64)

    with pytest.raises(ww.errors.CheckpointError, match="patch found no part of 'llama'"):
        ww.patch(Outer())


def negated(module: nn.Module, args: object, out: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    """Return the output of a module with its sign changed, as a hook may."""
    return -out if isinstance(out, Tensor) else tuple(-part for part in out)


class Doubled(nn.Embedding):
    """Look rows up, twice as large."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows."""
        return 2 * super().forward(input)


class DoubledScaledEmbedding(Doubled):
    """Doubled, with a name like those of transformers."""


@pytest.mark.parametrize("part", ["transformer.wte", "transformer.wpe"])
def test_hooks_on_tables_are_refused(part: str) -> None:
    for register in ("register_forward_hook", "register_full_backward_hook"):
        model = made("gpt2")
        handle = getattr(model.get_submodule(part), register)(negated)
        require_refused(model, f"{part} has hooks", ww.errors.SettingError)
        handle.remove()
        ww.patch(model).undo()


def test_hooks_on_a_rotary_module_are_refused() -> None:
    model = made("llama")
    model.model.rotary_emb.register_forward_hook(negated)
    require_refused(model, "model.rotary_emb has hooks", ww.errors.SettingError)


@pytest.mark.parametrize("part", ["model.embed_tokens", "model.rotary_emb"])
def test_a_custom_forward_is_refused(part: str) -> None:
    """As accelerate puts it on a module."""
    model = made("llama")
    module = model.get_submodule(part)
    own = module.forward
    module.forward = lambda *args, **others: negated(module, args, own(*args, **others))
    require_refused(model, f"{part} has a forward of its own", ww.errors.SettingError)


@pytest.mark.parametrize("name", ["max_norm", "scale_grad_by_freq", "sparse"])
def test_options_of_a_table_are_refused(name: str) -> None:
    model = made("llama")
    setattr(model.model.embed_tokens, name, 1.0 if name == "max_norm" else True)
    require_refused(model, f"model.embed_tokens has {name}", ww.errors.SettingError)


@pytest.mark.parametrize("kind", [Doubled, DoubledScaledEmbedding])
def test_a_class_with_a_custom_forward_is_refused(kind: type[nn.Embedding]) -> None:
    model = made("llama")
    model.model.embed_tokens = kind(37, 64)
    require_refused(
        model, f"model.embed_tokens is a {kind.__name__}, which has a forward of its own", ww.errors.SettingError
    )


def test_a_parametrized_table_is_refused() -> None:
    model = made("llama")
    nn.utils.parametrizations.weight_norm(model.model.embed_tokens)
    require_refused(model, "model.embed_tokens.*plain", ww.errors.SettingError)


def test_a_scale_other_than_the_configurations_is_refused() -> None:
    """A cast to bfloat16 and back leaves 8 as it is and makes 55.4256 another number."""
    model = made("gemma3_text", hidden_size=48)
    model.to(torch.bfloat16).to(torch.float32)
    require_refused(model, "does not scale its rows as its configuration states")


def test_a_custom_bias_method_is_refused() -> None:
    model = made("t5")
    attention = model.encoder.block[0].layer[0].SelfAttention
    own = attention.compute_bias
    attention.compute_bias = lambda *args, **others: 2 * own(*args, **others)
    require_refused(model, "compute_bias of its own", ww.errors.SettingError)


@pytest.mark.parametrize("model_type", ["roberta", "camembert", "xlm-roberta"])
def test_padding_trains_no_position(model_type: str) -> None:
    model, tokens = made(model_type), ids()
    tokens[0, -4:] = 1
    before = gradients_of(model, tokens)
    with ww.patch(model):
        after = gradients_of(model, tokens)
    for name, gradient in before.items():
        require_close(after[name], gradient, factor=3)


@pytest.mark.parametrize(
    "model_type", ["olmo", "olmo2", "olmo3", "olmo_hybrid", "flex_olmo", "ernie4_5", "ernie4_5_moe", "llama"]
)
def test_tables_that_stay_in_float32(model_type: str) -> None:
    model = made(model_type)
    module, at, x = model.model.rotary_emb, torch.arange(600)[None], torch.zeros(1, dtype=torch.bfloat16)
    kind = ("full_attention",) if model_type == "olmo3" else ()
    theirs = module(x, at, *kind)
    assert (theirs[0].dtype == torch.float32) is (model_type != "llama")
    with ww.patch(model):
        ours = model.model.rotary_emb(x, at, *kind)
    for own, other in zip(ours, theirs, strict=True):
        assert own.dtype == other.dtype
        torch.testing.assert_close(own, other, rtol=0, atol=1e-4 if own.dtype == torch.float32 else 4e-3)


def dtypes_of(module: nn.Module, dtype: torch.dtype, kind: str) -> list[torch.dtype]:
    """Return the dtypes of what a rotary module returns to hidden states of a dtype."""
    of_kind = (kind,) if "layer_type" in signature(module.forward).parameters else ()
    given = module(torch.zeros(1, dtype=dtype), torch.ones(1, 1, dtype=torch.long), *of_kind)
    return [part.dtype for part in (given if isinstance(given, tuple) else (given,))]


@pytest.mark.parametrize("model_type", ROTATED)
def test_the_dtypes_are_theirs(model_type: str) -> None:
    model = made(model_type)
    kind = next((kind for kind in getattr(model.config, "layer_types", None) or [""] if kind != "conv"), "")
    names = [name for name, module in model.named_modules() if type(module).__name__.endswith("RotaryEmbedding")]

    def dtypes() -> dict[str, list[list[torch.dtype]]]:
        asked = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
        return {part: [dtypes_of(model.get_submodule(part), dtype, kind) for dtype in asked] for part in names}

    before = dtypes()
    with ww.patch(model):
        assert dtypes() == before


@pytest.mark.parametrize(("position", "most"), [(10**8, 5e-8), (10**9, 2e-7)])
def test_exact_up_to_a_billion(position: int, most: float) -> None:
    """As the docstring of `patch` has it, against the formula in 60 digits."""
    model = made("llama", head_dim=64, max_position_embeddings=2 * 10**9)
    at = position - torch.arange(40)[None]
    with ww.patch(model):
        cos, sin = model.model.rotary_emb(torch.zeros(1), at)
    with mpmath.workdps(60):
        frequencies = [mpmath.mpf(10_000) ** (-mpmath.mpf(2 * pair) / 64) for pair in range(32)]
        angles = [[int(p) * frequency for frequency in frequencies] for p in at[0]]
        for ours, function in ((cos, mpmath.cos), (sin, mpmath.sin)):
            exact = torch.tensor([[float(function(angle)) for angle in row] for row in angles], dtype=torch.float64)
            assert float((ours[0, :, :32] - exact).abs().max()) < most


def test_a_model_without_rotary_layers_keeps_its_rotary_module() -> None:
    model, tokens = made("smollm3", no_rope_layers=[0] * 4), ids()
    before = said(model, tokens)
    with ww.patch(model) as patched:
        assert patched.replaced == ["model.embed_tokens"]
        require_close(said(model, tokens), before)
