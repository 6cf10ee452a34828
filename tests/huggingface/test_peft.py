"""Adapters of PEFT beside a patched model: the same training, and nothing that is lost when the patch is undone."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from whatwhere.errors import SettingError
from whatwhere.huggingface.patch import patch

NEW = 39
IDS = torch.tensor([[1, 2, NEW, 4]])
ADAPTERS: dict[str, dict[str, Any]] = {
    "attention": {"target_modules": ["q_proj", "v_proj"]},
    "new tokens": {"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [NEW]}},
    "token table": {"target_modules": ["q_proj", "embed_tokens"]},
    "whole token table": {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
}
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:peft"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # of transformers, which peft reads
]


def llama(tied: bool) -> nn.Module:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=48, tie_word_embeddings=tied,
        )
    )  # fmt: skip


def adapted(model: nn.Module, adapter: str) -> nn.Module:
    torch.manual_seed(1)
    made: nn.Module = get_peft_model(model, LoraConfig(r=4, **ADAPTERS[adapter]))
    return made


def trained(model: nn.Module) -> torch.Tensor:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(IDS, labels=IDS).loss.backward()
        optimizer.step()
    with torch.no_grad():
        logits: torch.Tensor = model(IDS).logits
    return logits


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_patched_model_trains_as_the_model_itself(adapter: str, tied: bool) -> None:
    expected = trained(adapted(llama(tied), adapter))
    first = llama(tied)
    patch(first)
    torch.testing.assert_close(trained(adapted(first, adapter)), expected, rtol=0, atol=2e-5)
    model = llama(tied)
    with_adapter = adapted(model, adapter)
    patched = patch(model)
    assert patched.replaced
    torch.testing.assert_close(trained(with_adapter), expected, rtol=0, atol=2e-5)
    patched.undo()
    with torch.no_grad():
        torch.testing.assert_close(with_adapter(IDS).logits, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("adapter", ["new tokens", "token table", "whole token table"])
def test_undoing_a_patch_does_not_drop_what_wraps_it(adapter: str) -> None:
    model = llama(tied=False)
    patched = patch(model)
    with_adapter = adapted(model, adapter)
    before = trained(with_adapter)
    with pytest.raises(SettingError, match=r"embed_tokens is [^$]*merge_and_unload"):
        patched.undo()
    with torch.no_grad():
        assert torch.equal(with_adapter(IDS).logits, before)
    if adapter == "token table":
        merged = with_adapter.merge_and_unload()
        patched.undo()
        with torch.no_grad():
            torch.testing.assert_close(merged(IDS).logits, before, rtol=0, atol=2e-5)
