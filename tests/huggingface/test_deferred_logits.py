"""The loss of a patched causal model: that of transformers, while its logits are computed only if they are read."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.auto import modeling_auto as auto

import whatwhere as ww
from whatwhere.huggingface.patch import PATCHED
from whatwhere.huggingface.replacements import causal_loss
from whatwhere.kernels.deferred_logits import DeferredLogits

from ..models.tiny import inputs_of
from .test_patch import made

CHOSEN: dict[str, dict[str, Any]] = {
    "bloom": {},
    "cohere": {"logit_scale": 0.3},
    "gemma2": {"final_logit_softcapping": 0.2},
    "gpt2": {},
    "gptj": {},  # whose output projection has a bias
    "granite": {"logits_scaling": 3.0},
    "llama": {},
    "mixtral": {"output_router_logits": True},
}
"""Types whose logits are capped, scaled, biased, or whose loss has more terms."""
CAUSAL = sorted(
    {*PATCHED}
    & {*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES} - {*auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES} - {"git", "rwkv", "xlstm"}
)
"""Types that are trained with labels; of those that are left out transformers itself fails on such a batch."""


def batch() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(4, 30, (2, 9), generator=torch.Generator().manual_seed(1))
    labels = tokens.clone()
    labels[0, :4], labels[1, 5] = -100, -100
    return tokens, labels


def trained(model: nn.Module, **others: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return the output for a batch with labels, and the gradient of each parameter."""
    tokens, labels = batch()
    model.zero_grad()
    output = model(**inputs_of(model, tokens), labels=labels, **others)
    output.loss.backward()
    return output, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def require_the_same(model: nn.Module, **others: Any) -> tuple[Any, Any]:
    """Compare losses and gradients of a patch without the loss and with it; return the output with it, and without.

    The positions of both differ from the model's by rounding, to which some gradients are sensitive: Gemma 4's own are
    2e-4 from float64.
    """
    with ww.patch(model):
        plain, wanted = trained(model, **others)
    ww.patch(model, linear_cross_entropy=True)
    output, found = trained(model, **others)
    torch.testing.assert_close(output.loss, plain.loss, rtol=1e-5, atol=1e-5)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=3e-5 * float(gradient.abs().max()) + 1e-7)
    return output, plain


@pytest.mark.parametrize("model_type", CHOSEN)
def test_the_loss_is_the_model_s_and_the_logits_are_read_later(model_type: str) -> None:
    model = made(model_type, **CHOSEN[model_type])
    output, plain = require_the_same(model)
    logits = output.logits
    assert isinstance(logits, DeferredLogits)
    assert logits.logits is None
    assert (logits.shape, logits.dtype, logits.device) == (plain.logits.shape, torch.float32, plain.logits.device)
    torch.testing.assert_close(logits.softmax(-1), plain.logits.softmax(-1), rtol=1e-4, atol=1e-5)
    assert logits.logits is not None
    tokens, labels = batch()
    again = model(**inputs_of(model, tokens), labels=labels, return_dict=False)
    [logits] = [each for each in again if isinstance(each, DeferredLogits)]
    torch.testing.assert_close(logits.detach(), plain.logits.detach(), rtol=1e-4, atol=1e-5)
    assert type(model(**inputs_of(model, tokens)).logits) is Tensor


@pytest.mark.slow
@pytest.mark.parametrize("model_type", CAUSAL)
def test_the_loss_of_every_type_is_the_model_s(model_type: str) -> None:
    require_the_same(made(model_type))


def test_gradients_go_through_logits_that_are_read() -> None:
    model, (tokens, labels) = made("llama"), batch()
    found = []
    for patched in (False, True):
        if patched:
            ww.patch(model, linear_cross_entropy=True)
        model.zero_grad()
        output = model(tokens, labels=labels)
        (output.loss + 0.1 * output.logits[:, -1].square().mean() + output.logits.logsumexp(-1).mean()).backward()
        found.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


def test_the_number_of_items_and_shifted_labels_are_those_of_transformers() -> None:
    model = made("llama")
    require_the_same(model, num_items_in_batch=torch.tensor(7))
    tokens, labels = batch()
    shifted = F.pad(labels, (0, 1), value=-100)[:, 1:]
    one, other = (model(tokens, labels=labels, **how).loss for how in ({}, {"shift_labels": shifted}))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("model_type", ["gemma2"])
def test_training_in_bfloat16_is_as_close_as_before(model_type: str) -> None:
    """By autocast and in the model's own dtype; the loss stays float32, and nothing is computed twice."""
    model, (tokens, labels) = made(model_type, **CHOSEN[model_type]), batch()
    exact = model(tokens, labels=labels).loss
    ww.patch(model, linear_cross_entropy=True)
    with torch.autocast("cpu", torch.bfloat16):
        output = model(tokens, labels=labels)
        assert output.logits.logits is None
    assert output.loss.dtype == torch.float32
    output.loss.backward()
    torch.testing.assert_close(output.loss, exact, rtol=0.02, atol=0.02)
    assert output.logits.dtype == output.logits.computed().dtype == torch.bfloat16
    output = model.bfloat16()(tokens, labels=labels)
    torch.testing.assert_close(output.loss, exact, rtol=0.02, atol=0.02)


def test_logits_of_a_model_that_has_been_changed_are_refused() -> None:
    model, (tokens, labels) = made("llama"), batch()
    ww.patch(model, linear_cross_entropy=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    output = model(tokens, labels=labels)
    output.loss.backward()
    optimizer.step()
    with pytest.raises(ww.errors.SettingError, match="after its model has been changed"):
        output.logits.argmax(-1)


def test_what_a_trainer_does_with_logits() -> None:
    """Cast, detach, collect and store them, and read them in place of a tensor."""
    model, (tokens, labels) = made("llama"), batch()
    wanted = model(tokens).logits.detach()
    ww.patch(model, linear_cross_entropy=True)
    for read in (
        lambda x: x.float().detach().cpu(),
        lambda x: torch.cat([x, x])[:2].detach(),
        lambda x: torch.from_numpy(x.detach().numpy()),
        lambda x: copy.deepcopy(x.detach()),
    ):
        with torch.no_grad():
            logits = model(tokens, labels=labels).logits
        torch.testing.assert_close(read(logits), wanted)
    with torch.inference_mode():
        output = model(tokens, labels=labels)
        torch.testing.assert_close(output.logits.clone(), wanted)
    file = io.BytesIO()
    torch.save(model(tokens, labels=labels).logits.detach(), file)
    file.seek(0)
    torch.testing.assert_close(torch.load(file), wanted)
    assert "tensor" in repr(model(tokens, labels=labels).logits)


def test_the_patch_is_undone_and_copies_are_bound_to_themselves() -> None:
    model, (tokens, labels) = made("llama"), batch()
    plain, kinds, names = model(tokens, labels=labels), [type(m) for m in model.modules()], set(vars(model))
    patched = ww.patch(model, linear_cross_entropy=True)
    assert {"lm_head.forward", "_loss_function"} <= set(patched.replaced)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied.lm_head.weight.mul_(2)
    output = copied(tokens, labels=labels)
    torch.testing.assert_close(output.logits.detach(), 2 * plain.logits.detach())
    torch.testing.assert_close(model(tokens, labels=labels).loss, plain.loss)
    patched.undo()
    assert [type(m) for m in model.modules()] == kinds
    assert set(vars(model)) == names
    assert type(model(tokens, labels=labels).logits) is Tensor


@pytest.mark.compile
def test_a_compiled_model_computes_its_own_loss() -> None:
    model, (tokens, labels) = made("llama"), batch()
    plain = model(tokens, labels=labels)
    ww.patch(model, linear_cross_entropy=True)
    output = torch.compile(model, backend="aot_eager")(tokens, labels=labels)
    torch.testing.assert_close((output.loss, output.logits), (plain.loss, plain.logits), rtol=1e-4, atol=1e-5)


def test_a_loss_of_another_kind_is_refused_or_reads_the_logits() -> None:
    with pytest.raises(ww.errors.CheckpointError, match="cannot be made in parts"):
        ww.patch(made("bert"), linear_cross_entropy=True)
    require_the_same(made("t5"))


@pytest.mark.parametrize(
    "change",
    [lambda z: z * 3, lambda z: z / -2, lambda z: torch.tanh(1.5 * z) * 2, lambda z: (z.mul_(2), z)[1]],
    ids=["times", "divided", "softcap", "in place"],
)
def test_a_bias_is_scaled_and_what_is_written_into_logits_counts(change: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    head, hidden, labels = nn.Linear(8, 11), torch.randn(2, 9, 8), batch()[1] % 11
    logits = (head(hidden).detach(), DeferredLogits(hidden, head, torch.float32))
    torch.testing.assert_close(*(causal_loss(change(each), labels, 11).detach() for each in logits))
