"""A patched model says what it said before, with our input layer and positions, and can be had back."""

import copy

import pytest
import torch
from torch import Tensor, nn
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

import whatwhere as ww
from whatwhere.interop.adapters import RotaryTables
from whatwhere.interop.huggingface.families import FAMILIES
from whatwhere.interop.patching import PATCHED, TURNING

from .tiny import config_of, model_of

NAMED_IN_THE_PROMISE = ("llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3_text", "phi3", "gpt2", "bert")
TOKENS = 13


def made(model_type: str, **settings: object) -> nn.Module:
    """Make a tiny model whose attention is far from even, so that positions matter."""
    model = model_of(config_of(model_type, **settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model


def ids(tokens: int = TOKENS) -> Tensor:
    """Draw two sequences without special tokens."""
    return torch.randint(4, 30, (2, tokens))


def said(model: nn.Module, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    """Let a model read, and give what it says: logits, or hidden states where there is no head."""
    others = {"decoder_input_ids": tokens} if hasattr(model, "decoder") else {}
    if mask is not None:
        others["attention_mask"] = mask
    with torch.no_grad():
        return model(tokens, **others)[0]


def require_close(ours: Tensor, theirs: Tensor, factor: float = 1.0) -> None:
    """Compare within 1e-5 of the largest number."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=factor * 1e-5 * float(theirs.abs().max()))


@pytest.mark.parametrize("model_type", PATCHED)
def test_the_same_logits_and_back(model_type: str) -> None:
    model, tokens = made(model_type), ids()
    before, names, modules = said(model, tokens), list(model.state_dict()), dict(model.named_modules())
    with ww.patch(model) as patched:
        assert len(patched.replaced) >= 2
        require_close(said(model, tokens), before)
        assert list(model.state_dict()) == names
        assert not set(modules.values()) <= set(model.modules())
    assert torch.equal(said(model, tokens), before)
    assert dict(model.named_modules()) == modules


def test_the_promise_is_kept() -> None:
    assert {*NAMED_IN_THE_PROMISE, "bloom", "t5"} <= set(PATCHED) <= set(FAMILIES)


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "cohere", "gpt_oss", "deepseek_v2", "phi3"])
def test_the_turning_is_ours(model_type: str) -> None:
    """Without this, a patch that changed nothing would pass the test above."""
    model, tokens = made(model_type), ids()
    before = said(model, tokens)
    with ww.patch(model):
        (tables,) = (module for module in model.modules() if isinstance(module, RotaryTables))
        tables.kinds = {
            kind: ww.Rotary(scheme.head_dim, scheme.theta / 1000, rotary_dim=scheme.rotary_dim)
            for kind, scheme in tables.kinds.items()
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

    def gradients() -> dict[str, Tensor]:
        model.zero_grad()
        others = {"decoder_input_ids": tokens} if model_type == "t5" else {}
        out = model(tokens, **others)[0]
        (out * torch.linspace(-1, 1, out.shape[-1])).sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    before = gradients()
    with ww.patch(model):
        after = gradients()
    assert before.keys() == after.keys()
    for name, gradient in before.items():
        require_close(after[name], gradient, factor=3)


def test_one_module_in_two_places_is_replaced_by_one() -> None:
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
    parameters = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}
    model, tokens = made("llama", rope_parameters=parameters, max_position_embeddings=16), ids(24)
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
        twin = copy.deepcopy(model)
        assert torch.equal(said(twin, tokens), said(model, tokens))


def test_errors() -> None:
    with pytest.raises(ww.SettingError, match="patch needs a model of Hugging Face"):
        ww.patch(nn.Linear(2, 2))
    with pytest.raises(ww.CheckpointError, match=r"does not know 'opt'.*\nIt knows: afmoe, albert, "):
        ww.patch(made("opt"))
    with pytest.raises(ww.CheckpointError, match="does not know 'falcon' with a bias"):
        ww.patch(made("falcon", alibi=True))
    with pytest.raises(ww.ShapeError, match="regime_length=0"):
        ww.patch(made("llama"), regime_length=0)
    model = made("llama")
    with ww.patch(model), pytest.raises(ww.SettingError, match="patched already"):
        ww.patch(model)


def test_frequencies_changed_by_hand_are_noticed() -> None:
    model, tokens = made("llama"), ids()
    model.model.rotary_emb.inv_freq.mul_(2)
    before = said(model, tokens)
    with pytest.raises(ww.CheckpointError, match="turns otherwise than its configuration says"):
        ww.patch(model)
    assert torch.equal(said(model, tokens), before)  # nothing is left half done
    assert isinstance(model.get_input_embeddings(), nn.Embedding)


def test_a_model_whose_layers_do_not_turn_keeps_its_rotary_module() -> None:
    model, tokens = made("smollm3", no_rope_layers=[0] * 4), ids()
    before = said(model, tokens)
    with ww.patch(model) as patched:
        assert patched.replaced == ["model.embed_tokens"]
        require_close(said(model, tokens), before)


def test_every_turning_type_is_patched() -> None:
    assert set(TURNING) <= set(PATCHED)
