"""A patched model says what it said before, with our input layer and positions, and can be had back."""

import copy
import math
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    GlmAsrConfig,
    GlmAsrEncoderConfig,
    GlmAsrForConditionalGeneration,
    LlamaConfig,
)

import whatwhere as ww
from whatwhere.huggingface.patch import PATCHED
from whatwhere.huggingface.replacements import RotaryTables
from whatwhere.models.configuration.model_types import MODEL_TYPES

from ..models.tiny import config_of, inputs_of, model_of

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
    return torch.randint(4, 30, (2, tokens))


def said(model: nn.Module, tokens: Tensor) -> Tensor:
    """Return a model's logits, or hidden states where it has no head."""
    with torch.no_grad():
        return model(**inputs_of(model, tokens))[0]


def gradients_of(model: nn.Module, tokens: Tensor) -> dict[str, Tensor]:
    """Return the gradient of each parameter, of a sum of all outputs with weights of their own."""
    model.zero_grad()
    out = model(**inputs_of(model, tokens))[0]
    (out * torch.linspace(-1, 1, out.shape[-1])).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def require_close(ours: Tensor, theirs: Tensor, factor: float = 1.0) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=factor * 1e-5 * float(theirs.abs().max()))


def rotary_dtypes(model: nn.Module) -> dict[str, list[torch.dtype]]:
    """Return the dtypes of what rotary modules return to hidden states of each dtype."""
    layer_type = next((each for each in getattr(model.config, "layer_types", None) or [""] if each != "conv"), "")
    found: dict[str, list[torch.dtype]] = {}
    for name, module in model.named_modules():
        if type(module).__name__.endswith(("RotaryEmbedding", "RotaryTables")):
            of_type = (layer_type,) if "layer_type" in signature(module.forward).parameters else ()
            for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
                given = module(torch.zeros(1, dtype=dtype), torch.ones(1, 1, dtype=torch.long), *of_type)
                parts = given if isinstance(given, tuple) else (given,)
                found.setdefault(name, []).extend(part.dtype for part in parts)
    return found


@pytest.mark.every_nth(7)
@pytest.mark.parametrize("model_type", PATCHED)
def test_the_same_logits_and_back(model_type: str) -> None:
    model, tokens = made(model_type), ids()
    before, names, modules = said(model, tokens), list(model.state_dict()), dict(model.named_modules())
    dtypes = rotary_dtypes(model) if model_type in ROTATED else {}
    with ww.patch(model) as patched:
        assert len(patched.replaced) >= (1 if model_type in ALONE else 2)
        require_close(said(model, tokens), before, factor=5 if model_type in AMPLIFYING else 1)
        assert list(model.state_dict()) == names
        assert not set(modules.values()) <= set(model.modules())
        assert (rotary_dtypes(model) if dtypes else {}) == dtypes
    assert torch.equal(said(model, tokens), before)
    assert dict(model.named_modules()) == modules


@pytest.mark.parametrize("model_type", ["llama", "gemma", "gpt2", "t5"])
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


def turn_otherwise(model: nn.Module) -> None:
    (tables,) = (module for module in model.modules() if isinstance(module, RotaryTables))
    tables.schemes = {
        kind: ww.Rotary(scheme.head_dim, scheme.theta / 1000, rotary_dim=scheme.rotary_dim)
        for kind, scheme in tables.schemes.items()
    }


def negate_table(model: nn.Module) -> None:
    (table,) = (module for module in model.modules() if isinstance(module, ww.Learned))
    table.weight = nn.Parameter(-table.weight)


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "deepseek_v2", "gpt2", "bloom", "t5"])
def test_positions_are_those_of_whatwhere(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, a patch that changed nothing would pass the test above."""
    model, tokens = made(model_type), ids()
    before = said(model, tokens)
    with ww.patch(model):
        if model_type in ("bloom", "t5"):
            for scheme in (ww.ALiBi, ww.T5):
                bent = lambda self, device: lambda head, distance: 0.5 * distance + 0 * head  # noqa: E731
                monkeypatch.setattr(scheme, "curve", bent)
        else:
            (negate_table if model_type == "gpt2" else turn_otherwise)(model)
        assert (said(model, tokens) - before).abs().max() > 1e-3 * before.abs().max()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("model_type", ["llama", "gpt2", "bloom", "t5", "roberta"])
def test_gradients(model_type: str, padded: bool) -> None:
    """Also of padding, from which RoBERTa counts positions, and which trains none."""
    model, tokens = made(model_type), ids()
    tokens[0, -4:] = 1 if padded else tokens[0, -4:]
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


@pytest.mark.parametrize("model_type", ["gemma3_text", "gpt2", "bloom"])
def test_decoding_with_a_cache_behind_padding(model_type: str) -> None:
    model, tokens, mask = made(model_type), ids(), torch.ones(2, TOKENS, dtype=torch.long)
    mask[0, :3] = 0

    def decoded() -> Tensor:
        cache, out = None, []
        with torch.no_grad():
            for start, stop in ((0, 8), (8, 9), (9, TOKENS)):
                given = {"past_key_values": cache, "use_cache": True, "attention_mask": mask[:, :stop]}
                step = model(tokens[:, start:stop], **given)
                cache = step.past_key_values
                out.append(step.logits)
        return torch.cat(out, dim=1)[mask.bool()]

    before = decoded()
    with ww.patch(model):
        require_close(decoded(), before)


def test_parameters_are_those_of_the_model_also_when_others_are_loaded_meanwhile() -> None:
    model, other, tokens = made("gpt2"), made("gpt2"), ids()
    before = list(model.parameters())
    with ww.patch(model):
        assert all(a is b for a, b in zip(model.parameters(), before, strict=True))
        assert model.lm_head.weight is model.get_input_embeddings().weight
        assert isinstance(model.get_input_embeddings(), ww.TokenEmbedding)
        model.load_state_dict({name: t.clone() for name, t in other.state_dict().items()}, assign=True)
        model.tie_weights()
    assert torch.equal(said(model, tokens), said(other, tokens))


def test_gemma_rounds_its_scale() -> None:
    """sqrt(1024 * 3) is 55.4256, and 55.5 in bfloat16."""
    model = model_of(config_of("gemma3_text", hidden_size=3072, num_hidden_layers=1)).to(torch.bfloat16)
    tokens = ids()
    theirs = model.get_input_embeddings()(tokens)
    with ww.patch(model):
        assert torch.equal(model.get_input_embeddings()(tokens), theirs)
    layer = ww.from_huggingface(model.config).input_layer(dtype=torch.bfloat16)
    layer.tokens.weight = model.get_input_embeddings().weight
    assert torch.equal(layer(tokens), theirs)


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


def test_undo_moves_what_was_out_of_the_model() -> None:
    model = made("llama")
    patched = ww.patch(model)
    assert repr(patched) == "Patch(llama, replaced=['model.embed_tokens', 'model.rotary_emb'])"
    assert "(rotary_emb): RotaryTables(all=Rotary)" in repr(model)
    patched.undo()
    patched.undo()  # nothing left to do
    assert patched.replaced == []
    assert model.model.rotary_emb.inv_freq.device == model.lm_head.weight.device


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
OF_KINDS = ("gemma3_text", "modernbert")


def of_kinds(model_type: str, **settings: object) -> nn.Module:
    """Return a tiny model whose kinds of layers have rotary parameters of their own, the full one YaRN's."""
    plain = {"rope_type": "default", "rope_theta": 10_000.0}
    yarn = {**plain, "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, **settings}
    return made(model_type, layer_types=KINDS, rope_parameters={KINDS[0]: plain, KINDS[1]: yarn})


class Doubled(nn.Embedding):
    """Look rows up, twice as large."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class DoubledScaledEmbedding(Doubled):
    """Doubled, with a name like those of transformers."""


def negated(module: nn.Module, args: object, out: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    return -out if isinstance(out, Tensor) else tuple(-part for part in out)


def twice(module: nn.Module, method: str = "forward") -> None:
    """Override a method of a module by one that returns twice as much, as accelerate overrides a forward."""
    own = getattr(module, method)
    setattr(module, method, lambda *args, **others: negated(module, args, own(*args, **others)))


def long_phi() -> nn.Module:
    model = made("phi3", rope_parameters=dict(LONGROPE), original_max_position_embeddings=16)
    said(model, ids(24))
    return model


def grown() -> nn.Module:
    model = made("llama", rope_parameters=DYNAMIC, max_position_embeddings=32)
    model.model.rotary_emb.config = copy.deepcopy(model.config)
    return model


Make, Change = Callable[[], nn.Module], Callable[[Any], object]
YARN_MAGNITUDE = 1 + 0.1 * math.log(8)
ROTATES = "does not rotate as its configuration states"
OF_LLAMA: dict[str, tuple[Change, str]] = {
    "frequencies doubled": (lambda own: own.rotary_emb.inv_freq.mul_(2), f"LlamaRotaryEmbedding {ROTATES}"),
    "the last frequency scaled": (lambda own: own.rotary_emb.inv_freq[-1:].mul_(1.01), ROTATES),
    "frequencies rounded": (lambda own: own.rotary_emb.inv_freq.copy_(own.rotary_emb.inv_freq.bfloat16()), ROTATES),
    "frequencies that are NaN": (lambda own: own.rotary_emb.inv_freq.fill_(torch.nan), ROTATES),
    "hooks of a rotary module": (lambda own: own.rotary_emb.register_forward_hook(negated), "rotary_emb has hooks"),
    "hooks of a token table": (lambda own: own.embed_tokens.register_forward_hook(negated), "embed_tokens has hooks"),
    "hooks of gradients": (lambda own: own.embed_tokens.register_full_backward_hook(negated), "embed_tokens has hooks"),
    "a forward of a token table": (lambda own: twice(own.embed_tokens), "has a forward of its own"),
    "a forward of a rotary module": (lambda own: twice(own.rotary_emb), "has a forward of its own"),
    "max_norm": (lambda own: setattr(own.embed_tokens, "max_norm", 1.0), "embed_tokens has max_norm"),
    "scale_grad_by_freq": (lambda own: setattr(own.embed_tokens, "scale_grad_by_freq", True), "scale_grad_by_freq"),
    "sparse": (lambda own: setattr(own.embed_tokens, "sparse", True), "embed_tokens has sparse"),
    "a class": (lambda own: setattr(own, "embed_tokens", Doubled(37, 64)), "is a Doubled, which has a forward"),
    "a class that scales": (
        lambda own: setattr(own, "embed_tokens", DoubledScaledEmbedding(37, 64)), "is a DoubledScaledEmbedding, which",
    ),
    "a parametrized table": (
        lambda own: nn.utils.parametrizations.weight_norm(own.embed_tokens), "model.embed_tokens.*plain",
    ),
}  # fmt: skip
REFUSED: dict[str, tuple[Make, Change, str]] = {
    **{name: (lambda: made("llama"), lambda m, own=own: own(m.model), text) for name, (own, text) in OF_LLAMA.items()},
    "another theta": (
        lambda: made("qwen2", rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
        lambda model: model.config.rope_parameters.update(rope_theta=5e5), ROTATES,
    ),
    "frequencies beyond the trained length": (
        long_phi, lambda model: model.config.rope_parameters.update(long_factor=[3.0] * 8), f"{ROTATES}.*position 32",
    ),
    "dynamic frequencies": (
        grown, lambda model: model.model.rotary_emb.config.rope_parameters.update(factor=2.0),
        f"{ROTATES}.*at position 64 ",
    ),
    "a magnitude": (
        lambda: of_kinds("olmo3"),
        lambda model: vars(model.model.rotary_emb).update(full_attention_attention_scaling=1.001 * YARN_MAGNITUDE),
        ROTATES,
    ),
    "axes of pairs": (
        lambda: made("qwen2_vl_text"), lambda model: model.config.rope_parameters.update(mrope_section=[3, 3, 2]),
        ROTATES,
    ),
    **{
        f"frequencies of {kind} of {name}": (
            partial(of_kinds, name),
            lambda model, kind=kind: [b.mul_(2) for n, b in model.named_buffers() if n.endswith(f"{kind}_inv_freq")],
            f"{ROTATES}.*{kind}",
        )
        for name in OF_KINDS
        for kind in KINDS[:2]
    },
    "a scale that a cast has rounded": (
        lambda: made("gemma3_text", hidden_size=48), lambda model: model.to(torch.bfloat16).to(torch.float32),
        "does not scale its rows as its configuration states",
    ),
    "a bias method": (
        lambda: made("t5"), lambda model: twice(model.encoder.block[0].layer[0].SelfAttention, "compute_bias"),
        "compute_bias of its own",
    ),
    "truncation by type of layer": (
        lambda: of_kinds("olmo3", truncate=False), id, r"full_attention\.truncate is false[\s\S]*remove it",
    ),
    "a type": (lambda: made("ctrl"), id, r"does not know 'ctrl': its sinusoids.*\nIt knows: afmoe, albert, "),
    "a bias that is not found": (lambda: made("falcon", alibi=True), id, "patch found no bias of 'falcon'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_change_is_refused_and_left_as_it_was(case: str) -> None:
    make, change, match = REFUSED[case]
    model, tokens = make(), ids()
    change(model)
    modules, before = dict(model.named_modules()), said(copy.deepcopy(model), tokens)
    with pytest.raises(ww.errors.WhatWhereError, match=match):
        ww.patch(model)
    assert dict(model.named_modules()) == modules
    torch.testing.assert_close(said(model, tokens), before, rtol=0, atol=0, equal_nan=True)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config, self.table = config_of("llama"), nn.Embedding(37, 64)


def test_other_models_and_settings_are_refused() -> None:
    with pytest.raises(ww.errors.SettingError, match="patch needs a model of Hugging Face"):
        ww.patch(nn.Linear(2, 2))
    with pytest.raises(ww.errors.CheckpointError, match="patch found no part of 'llama'"):
        ww.patch(Outer())
    model = made("llama")
    with pytest.raises(ww.errors.ShapeError, match="regime_length=0"):
        ww.patch(model, regime_length=0)
    with ww.patch(model), pytest.raises(ww.errors.SettingError, match="patched already"):
        ww.patch(model)


@pytest.mark.parametrize("model_type", [*OF_KINDS, "olmo3"])
def test_pin_transformers_truncates_against_the_setting_of_each_kind(model_type: str) -> None:
    """It looks for `truncate` beside the kinds of layers, so its outputs do not change by the way out of the error."""
    model, tokens = of_kinds(model_type, truncate=False), ids()
    before = said(model, tokens)
    del model.config.rope_parameters["full_attention"]["truncate"]
    with ww.patch(model):
        require_close(said(model, tokens), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
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


def glm_asr() -> nn.Module:
    """Return a tiny model of text and sound, whose heads have 16 features here and 8 there, half of them rotating."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    text = {"vocab_size": 37, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "eos_token_id": 2}
    lengths = {"max_position_embeddings": 16, "rope_parameters": DYNAMIC}
    config = GlmAsrConfig(
        text_config=LlamaConfig(**sizes, **text, **lengths),
        audio_config=GlmAsrEncoderConfig(**sizes, num_attention_heads=4, num_mel_bins=8),
    )
    return GlmAsrForConditionalGeneration(config).eval()


def test_an_audio_tower_keeps_its_positions() -> None:
    model, tokens, sound = glm_asr(), ids(), torch.randn(1, 8, 80)

    def heard() -> Tensor:
        with torch.no_grad():
            return model.model.audio_tower(sound).last_hidden_state

    before, text = heard(), said(model.model.language_model, tokens)
    with ww.patch(model) as patched:
        assert patched.replaced == ["model.language_model.embed_tokens", "model.language_model.rotary_emb"]
        assert torch.equal(heard(), before)
        require_close(said(model.model.language_model, tokens), text)


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
