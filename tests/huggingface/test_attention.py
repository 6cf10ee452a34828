"""`attn_implementation="whatwhere"`: models of transformers compute what they compute by their own formula."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from transformers import masking_utils as masks

import whatwhere as ww
from whatwhere.errors import SettingError, ShapeError
from whatwhere.huggingface.attention import attention_forward, register_attention
from whatwhere.huggingface.attention_mask import make_mask

from ..models.tiny import built, config_of, model_of

V, T = 40, 13


@pytest.fixture(autouse=True, scope="module")
def registered() -> None:
    register_attention()


def made(name: str) -> nn.Module:
    """Return a tiny model with a head, windows of 5 tokens where it has any, and positions of ours if it is patched."""
    settings = {"decoder_start_token_id": 0} if "t5" in name else {}
    model = built(name.removeprefix("patched "), headed=True, **settings)
    if name.startswith("patched"):
        ww.patch(model)
    return model


def both(model: nn.Module, compute: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """Return what a model computes by its own formula, and with our attention."""
    results = []
    for implementation in ("eager", "whatwhere"):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            results.append(compute())
    return results[0], results[1]


def close(model: nn.Module, compute: Callable[[], Tensor]) -> None:
    expected, ours = both(model, compute)
    torch.testing.assert_close(ours, expected, rtol=0, atol=2e-5)


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


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss"])
def test_bfloat16(name: str) -> None:
    """Within the rounding that its own formula has, against float32."""
    model = made(name)
    exact, _ = both(model, lambda: model(tokens()).logits)
    half = model.to(torch.bfloat16)
    own, ours = both(half, lambda: half(tokens()).logits.float())
    assert (ours - exact).abs().max() <= 2 * (own - exact).abs().max()


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss"])
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


@pytest.mark.parametrize("name", ["t5", "bart"])
@pytest.mark.parametrize("length", [T - 1, T])
def test_a_decoder_does_not_inherit_the_padding_of_its_encoder(name: str, length: int) -> None:
    model = made(name)
    ids = torch.randint(1, V, (2, length), generator=torch.Generator().manual_seed(1))
    mask, later = torch.ones(2, T, dtype=torch.long), torch.ones(2, length, dtype=torch.long)
    mask[0, :4], later[1, -3:] = 0, 0
    inputs = {"attention_mask": mask, "decoder_input_ids": ids, "decoder_attention_mask": later}
    close(model, lambda: model(input_ids=tokens(), **inputs).logits)


GENERATED: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "no cache": {"use_cache": False},
    "static": {"cache_implementation": "static", "disable_compile": True},
    "prefill in chunks": {"prefill_chunk_size": 4},
    "beams": {"num_beams": 3},
}


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("how", GENERATED)
@pytest.mark.parametrize("name", ["gemma3_text", "llama4_text", "patched t5", "bart"])
def test_caches_of_generate(name: str, how: str) -> None:
    """Beyond windows and behind padding; the decoder passes the encoder's length, and the text its windows."""
    model = made(name)
    mask = torch.ones(2, T, dtype=torch.long)
    # Of an encoder transformers cuts the mask in chunks, and refuses or forgets the rest.
    mask[0, :4] = int(model.config.is_encoder_decoder and "chunks" in how)

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
    everything = make_mask(
        2, 3, 5, mask_function=masks.bidirectional_mask_function, attention_mask=torch.ones(2, 5).bool()
    )
    expected = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
    torch.testing.assert_close(attention_forward(nn.Module(), q, k, v, everything)[0], expected, rtol=0, atol=1e-6)
    padded = make_mask(
        2, 3, 5, mask_function=masks.bidirectional_mask_function, attention_mask=torch.zeros(2, 5).bool()
    )
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
@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
def test_compile_without_a_break(name: str) -> None:
    """With padding, which a trace cannot read, and in training."""
    model = made(name)
    model.set_attn_implementation("whatwhere")
    mask = torch.ones(2, T, dtype=torch.long)
    mask[0, :4] = 0
    others = {"attention_mask": mask, "labels": tokens(), "shift_labels": tokens(1), "use_cache": False}
    expected = model(tokens(), **others)
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
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    some = (tokens(), torch.ones(2, T, dtype=torch.long))
    program = torch.export.export(_Logits(model), some, dynamic_shapes=(sizes, sizes), strict=False).module()
    ids = torch.randint(1, V, (3, T + 4), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    torch.testing.assert_close(program(ids, mask), _Logits(model)(ids, mask), rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["t5", "umt5"])
def test_a_patched_t5_makes_no_table_of_all_pairs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the encoder, in the decoder, and between them; gradients reach the buckets."""
    model = model_of(config_of(name, vocab_size=V, decoder_start_token_id=0))
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
    model = built("mistral", headed=True, sliding_window=64, max_position_embeddings=2048)
    ids = torch.randint(1, V, (1, 1100), generator=torch.Generator().manual_seed(0))
    tables = recorded_tables(monkeypatch)
    close(model, lambda: model(ids, use_cache=False).logits)
    assert not tables


@pytest.mark.parametrize("offsets", [(0, 0, T, T), (9, 4, 2, 7), (0, 0, 8, 5)])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_mask_is_the_table_of_transformers(offsets: tuple[int, int, int, int], side: str) -> None:
    """At every query, also at padding; there may be more queries than keys, and as many, whatever they are."""
    q_offset, kv_offset, q_length, kv_length = offsets
    left = torch.tensor([2, 0])
    padding = torch.arange(kv_offset + kv_length) >= left[:, None]
    if side == "right":
        padding, left = padding.flip(1), torch.zeros(2, dtype=torch.long)
    images = masks.blockwise_overlay(torch.tensor([[-1, 0, 0, *[-1] * (T - 3)]] * 2))  # in both directions
    for rule in (
        masks.causal_mask_function,
        masks.bidirectional_mask_function,
        masks.sliding_window_causal_mask_function(3),
        masks.sliding_window_bidirectional_mask_function(3),
        masks.chunked_causal_mask_function(3, left),
        masks.or_masks(masks.causal_mask_function, images),
    ):
        sizes = (2, q_length, kv_length, q_offset, kv_offset)
        expected = masks.sdpa_mask(*sizes, rule, padding, allow_is_causal_skip=False)
        mask = make_mask(*sizes, rule, padding)
        assert torch.equal(mask[:, :, :, :], expected.expand(mask.shape))


def test_tables_are_taken_as_masks_and_as_biases() -> None:
    q, k, v = torch.randn(3, 2, 4, T, 8, generator=torch.Generator().manual_seed(0))
    allowed = torch.ones(T, T, dtype=torch.bool).tril()[None, None]
    expected = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    for mask in (allowed, torch.zeros(1, 1, T, T).masked_fill(~allowed, torch.finfo(torch.float32).min)):
        torch.testing.assert_close(attention_forward(nn.Module(), q, k, v, mask)[0], expected, rtol=0, atol=1e-6)


def test_what_is_not_computed_is_refused() -> None:
    q, k, v = torch.randn(3, 2, 4, T, 8)
    with pytest.raises(SettingError, match="output_attentions"):
        attention_forward(nn.Module(), q, k, v, None, output_attentions=True)
    with pytest.raises(SettingError, match="paged cache"):
        attention_forward(nn.Module(), q, k, v, None, cache=object())
