"""`attn_implementation="whatwhere"`: models of transformers compute what they compute by their own formula."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from transformers.masking_utils import bidirectional_mask_function

from whatwhere.errors import SettingError, ShapeError
from whatwhere.huggingface.attention import attention_forward, register_attention
from whatwhere.huggingface.attention_mask import BoundMask, make_mask

V, T, W = 40, 13, 5
TEXT: dict[str, Any] = {
    "vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "head_dim": 8,
}  # fmt: skip
T5: dict[str, Any] = {"vocab_size": V, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**TEXT)),
    "mistral, window": lambda: hf.MistralForCausalLM(hf.MistralConfig(**TEXT, sliding_window=W)),
    "gemma2, window and softcap": lambda: hf.Gemma2ForCausalLM(
        hf.Gemma2Config(**TEXT, sliding_window=W, attn_logit_softcapping=0.5)
    ),
    "gemma3, windows": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**TEXT, sliding_window=W)),
    "gpt_oss, window and sinks": lambda: with_sinks(
        hf.GptOssForCausalLM(hf.GptOssConfig(**TEXT, sliding_window=W, num_local_experts=2, num_experts_per_tok=1))
    ),
    "llama4, chunks": lambda: hf.Llama4ForCausalLM(
        hf.Llama4TextConfig(
            **TEXT,
            attention_chunk_size=W,
            num_local_experts=2,
            intermediate_size_mlp=48,
            floor_scale=4,
        )
    ),
    "mistral, windows to both sides": lambda: hf.MistralForCausalLM(
        hf.MistralConfig(**TEXT, sliding_window=W, is_causal=False)
    ),
    "modernbert, windows to both sides": lambda: hf.ModernBertForMaskedLM(
        hf.ModernBertConfig(
            **{k: v for k, v in TEXT.items() if k not in ("num_key_value_heads", "head_dim")}, local_attention=4
        )
    ),
}


def with_sinks(model: nn.Module) -> nn.Module:
    """Set sinks that matter."""
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):
            nn.init.normal_(parameter)
    return model


@pytest.fixture(autouse=True, scope="module")
def registered() -> None:
    register_attention()


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    for parameter in model.parameters():  # initial values make scores that hardly differ
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.3)
    return model


def both(model: nn.Module, compute: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """Return what a model computes by its own formula, and with our attention."""
    results = []
    for implementation in ("eager", "whatwhere"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            results.append(compute())
    return results[0], results[1]


def close(model: nn.Module, compute: Callable[[], Tensor], where: Tensor | None = None) -> None:
    expected, ours = both(model, compute)
    where = torch.ones(expected.shape[:2], dtype=torch.bool) if where is None else where
    torch.testing.assert_close(ours[where], expected[where], rtol=0, atol=2e-5)


def recorded_tables(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Return a list to which the shape of each table of all pairs is added from now on."""
    from whatwhere.where import pass_cache, score_bias

    shapes: list[torch.Size] = []

    def recorded(make: Callable[..., Tensor | None]) -> Callable[..., Tensor | None]:
        def call(*args: Any) -> Tensor | None:
            if (table := make(*args)) is not None:
                shapes.append(table.shape)
            return table

        return call

    monkeypatch.setattr(pass_cache, "join", recorded(pass_cache.join))
    for module in ("where.pass_cache", "where.attention", "huggingface.replacements"):
        monkeypatch.setattr(f"whatwhere.{module}.tabulate", recorded(score_bias.tabulate))
    return shapes


def tokens(seed: int = 0) -> Tensor:
    return torch.randint(1, V, (2, T), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", MODELS)
def test_padding(name: str) -> None:
    """On the left, as generation has it, and on the right, where padding sees the tokens before it, and is compared."""
    model = made(name)
    mask = torch.ones(2, T, dtype=torch.long)
    mask[0, :2] = 0
    mask[1, -2:] = 0
    seeing = torch.ones(2, T, dtype=torch.bool)
    seeing[0, :2] = "both" in name  # causal padding on the left sees nothing: zeros here, and any keys by their formula
    close(model, lambda: model(tokens(), attention_mask=mask).logits, seeing)


@pytest.mark.parametrize("name", [name for name in MODELS if "both" not in name])
@pytest.mark.parametrize("padded", [False, True])
def test_decoding_beyond_the_window(name: str, padded: bool) -> None:
    """With the cache that the model chooses, which forgets keys outside of windows."""
    model = made(name)
    mask = torch.ones(2, T, dtype=torch.long)
    if padded:
        mask[0, :4] = 0

    def logits() -> Tensor:
        out = model.generate(
            tokens(), attention_mask=mask, max_new_tokens=3 * W, min_new_tokens=3 * W, do_sample=False,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        return torch.stack(out.logits, dim=1)

    close(model, logits)


@pytest.mark.parametrize("name", ["mistral, window", "gemma2, window and softcap", "gpt_oss, window and sinks"])
def test_bfloat16(name: str) -> None:
    """Within the rounding that its own formula has, against float32."""
    model = made(name)
    exact, _ = both(model, lambda: model(tokens()).logits)
    half = model.to(torch.bfloat16)
    own, ours = both(half, lambda: half(tokens()).logits.float())
    assert (ours - exact).abs().max() <= 2 * (own - exact).abs().max()


@pytest.mark.parametrize("name", ["mistral, window", "gemma2, window and softcap", "gpt_oss, window and sinks"])
def test_gradients(name: str) -> None:
    model = made(name)
    gradients = []
    for implementation in ("eager", "whatwhere"):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        model(tokens(), labels=tokens()).loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    scale = gradients[0].abs().max()
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=float(1e-5 * scale))


BART: dict[str, Any] = {
    "vocab_size": V, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "decoder_start_token_id": 1,
}  # fmt: skip
PAIRED: dict[str, Callable[[], nn.Module]] = {
    "t5": lambda: hf.T5ForConditionalGeneration(
        hf.T5Config(**T5, decoder_start_token_id=0, pad_token_id=0, eos_token_id=None)
    ),
    "bart": lambda: hf.BartForConditionalGeneration(hf.BartConfig(**BART)),
}


def paired(name: str) -> nn.Module:
    """Return an encoder and decoder, whose positions are ours if it is patched."""
    import whatwhere as ww

    torch.manual_seed(0)
    model = PAIRED[name.removeprefix("patched ")]().eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.3)
    if name.startswith("patched"):
        ww.patch(model)
    return model


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize("length", [T - 1, T, T + 1])
def test_a_decoder_does_not_inherit_the_padding_of_its_encoder(name: str, length: int) -> None:
    model = paired(name)
    ids = torch.randint(1, V, (2, length), generator=torch.Generator().manual_seed(1))
    mask, later = torch.ones(2, T, dtype=torch.long), torch.ones(2, length, dtype=torch.long)
    mask[0, :4], later[1, -3:] = 0, 0
    inputs = {"attention_mask": mask, "decoder_input_ids": ids, "decoder_attention_mask": later}
    close(model, lambda: model(input_ids=tokens(), **inputs).logits)


GENERATED: dict[str, dict[str, Any]] = {
    "no cache": {"use_cache": False},
    "static": {"cache_implementation": "static", "disable_compile": True},
    "prefill in chunks": {"prefill_chunk_size": 4},
    "prefill in chunks, static": {
        "prefill_chunk_size": 4, "cache_implementation": "static", "disable_compile": True,
    },
    "beams": {"num_beams": 3},
}  # fmt: skip


@pytest.mark.parametrize("how", GENERATED)
@pytest.mark.parametrize("name", ["gemma3, windows", "llama4, chunks", "t5", "patched t5", "bart"])
def test_caches_of_generate(name: str, how: str) -> None:
    """The decoder passes the encoder's length, and the text its windows."""
    model = made(name) if name in MODELS else paired(name)
    mask = torch.ones(2, T, dtype=torch.long)
    mask[0, :4] = 0
    if name not in MODELS and "chunks" in how:
        mask = torch.ones_like(mask)  # transformers cuts the encoder's mask there, and refuses or forgets the rest

    def logits() -> Tensor:
        out = model.generate(
            tokens(), attention_mask=mask, max_new_tokens=T + 2, min_new_tokens=T + 2, do_sample=False,
            output_logits=True, return_dict_in_generate=True, **GENERATED[how],
        )  # fmt: skip
        return torch.stack(out.logits, dim=1)

    close(model, logits)


def test_a_mask_of_other_keys_is_refused_where_it_hides_some() -> None:
    """generate() with chunks of a prompt cuts the mask of an encoder, whose keys are all there."""
    q, k, v = torch.randn(2, 4, 3, 8), *torch.randn(2, 2, 4, T, 8)
    everything = make_mask(2, 3, 5, mask_function=bidirectional_mask_function, attention_mask=torch.ones(2, 5).bool())
    expected = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
    torch.testing.assert_close(attention_forward(nn.Module(), q, k, v, everything)[0], expected, rtol=0, atol=1e-6)
    padded = make_mask(2, 3, 5, mask_function=bidirectional_mask_function, attention_mask=torch.zeros(2, 5).bool())
    with pytest.raises(ShapeError, match="for 3 queries and 5 keys, but there are 3 and 13"):
        attention_forward(nn.Module(), q, k, v, padded)


def test_training_takes_what_the_loss_and_collators_pass() -> None:
    """Packed documents by the collator of flattened ones, their own labels, and types of tokens that Llama has not."""
    model = made("llama").train()
    collate = hf.DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
    batch = dict(collate([{"input_ids": list(range(3, 10))}, {"input_ids": list(range(12, 17))}]))
    batch["shift_labels"] = nn.functional.pad(batch["labels"][:, 1:], (0, 1), value=-100)
    batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
    model.activation_checkpointing_enable()
    expected, ours = both(model, lambda: model(**batch, use_cache=False).loss)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)
    alone = torch.cat([model(batch["input_ids"][:, at]).logits for at in (slice(0, 7), slice(7, 12))], dim=1)
    close(model, lambda: model(**batch, use_cache=False).logits - alone)


@pytest.mark.compile
@pytest.mark.parametrize("name", ["llama", "gemma3, windows"])
def test_compile_without_a_break(name: str) -> None:
    """With padding, which a trace cannot read, and in training."""
    model = made(name)
    model.set_attn_implementation("whatwhere")
    mask = torch.ones(2, T, dtype=torch.long)
    mask[0, :4] = 0
    others = {"attention_mask": mask, "labels": tokens(), "shift_labels": tokens(1), "use_cache": False}
    expected = model(tokens(), **others)
    torch._dynamo.reset()
    ours = torch.compile(model, fullgraph=True, backend="aot_eager")(tokens(), **others)
    torch.testing.assert_close(ours.logits, expected.logits, rtol=0, atol=2e-5)
    torch.testing.assert_close(ours.loss, expected.loss, rtol=0, atol=1e-5)


class _Logits(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        out: Tensor = self.model(ids, attention_mask=mask, use_cache=False).logits
        return out


@pytest.mark.compile
def test_export_for_any_batch_and_length() -> None:
    model = made("llama")
    model.set_attn_implementation("whatwhere")
    some = (tokens(), torch.ones(2, T, dtype=torch.long))
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    program = torch.export.export(_Logits(model), some, dynamic_shapes=(sizes, sizes), strict=False).module()
    ids = torch.randint(1, V, (3, T + 4), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    for each in (some, (ids, mask)):
        torch.testing.assert_close(program(*each), _Logits(model)(*each), rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["T5", "MT5", "UMT5"])
def test_a_patched_t5_makes_no_table_of_all_pairs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the encoder, in the decoder, and between them; gradients reach the buckets."""
    import whatwhere as ww

    torch.manual_seed(0)
    config = getattr(hf, f"{name}Config")(**T5, decoder_start_token_id=0, pad_token_id=0)
    model = getattr(hf, f"{name}ForConditionalGeneration")(config).eval()
    ids = torch.randint(1, V, (1, 700), generator=torch.Generator().manual_seed(0))

    def gradients() -> list[Tensor]:
        model.zero_grad()
        model(input_ids=ids, labels=ids[:, :600]).loss.backward()
        return [p.grad for n, p in model.named_parameters() if "relative_attention_bias" in n and p.grad is not None]

    model.set_attn_implementation("eager")
    expected = gradients()
    ww.patch(model)
    model.set_attn_implementation("whatwhere")
    tables = recorded_tables(monkeypatch)
    ours = gradients()
    assert not tables
    assert len(ours) == len(expected) >= 2
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_long_sequences_take_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 512 tokens on, a window is computed by blocks: no table of all pairs, and equal to the model's formula."""
    config = hf.MistralConfig(**{**TEXT, "max_position_embeddings": 2048}, sliding_window=64)
    torch.manual_seed(0)
    model = hf.MistralForCausalLM(config).eval()
    ids = torch.randint(1, V, (1, 1100), generator=torch.Generator().manual_seed(0))
    tables = recorded_tables(monkeypatch)
    close(model, lambda: model(ids, use_cache=False).logits)
    assert not tables


def test_an_unknown_mask_becomes_a_table() -> None:
    """Of images, tokens see each other in both directions."""
    groups = torch.tensor([[-1, -1, 0, 0, 0, -1]])
    from transformers.masking_utils import blockwise_overlay, causal_mask_function, or_masks

    mask = make_mask(1, 6, 6, mask_function=or_masks(causal_mask_function, blockwise_overlay(groups)))
    assert isinstance(mask, Tensor)
    assert mask[0, 0].int().tolist()[2] == [1, 1, 1, 1, 1, 0]


@pytest.mark.parametrize("offsets", [(0, 0, T, T), (7, 0, 1, 8), (9, 4, 2, 7), (0, 0, 5, 8), (0, 0, 8, 5)])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_mask_is_the_table_of_transformers(offsets: tuple[int, int, int, int], side: str) -> None:
    """At every query, also at padding; there may be more queries than keys, and as many, whatever they are."""
    from transformers import masking_utils as masks

    q_offset, kv_offset, q_length, kv_length = offsets
    left = torch.tensor([2, 0])
    padding = torch.arange(kv_offset + kv_length) >= left[:, None]
    if side == "right":
        padding, left = padding.flip(1), torch.zeros(2, dtype=torch.long)
    for rule in (
        masks.causal_mask_function,
        masks.bidirectional_mask_function,
        masks.sliding_window_causal_mask_function(3),
        masks.sliding_window_bidirectional_mask_function(3),
        masks.chunked_causal_mask_function(3, left),
        masks.sliding_window_overlay(3),
    ):
        sizes = (2, q_length, kv_length, q_offset, kv_offset)
        expected = masks.sdpa_mask(*sizes, rule, padding, allow_is_causal_skip=False)
        mask = make_mask(*sizes, rule, padding)
        assert isinstance(mask, BoundMask) or rule.__name__ == "inner_mask"
        assert torch.equal(mask[:, :, :, :], expected.expand(mask.shape))


def test_tables_are_taken_as_masks_and_as_biases() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, T, 8)
    module = nn.Module()
    allowed = torch.ones(T, T, dtype=torch.bool).tril()[None, None]
    expected = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    added = torch.zeros(1, 1, T, T).masked_fill(~allowed, torch.finfo(torch.float32).min)
    for mask in (None, allowed, added, make_mask(2, T, T)):
        torch.testing.assert_close(attention_forward(module, q, k, v, mask)[0], expected, rtol=0, atol=1e-6)


def test_what_is_not_computed_is_refused() -> None:
    q, k, v = torch.randn(3, 2, 4, T, 8)
    with pytest.raises(SettingError, match="output_attentions"):
        attention_forward(nn.Module(), q, k, v, None, output_attentions=True)
    with pytest.raises(SettingError, match="paged cache"):
        attention_forward(nn.Module(), q, k, v, None, cache=object())
