"""A patched model is bound to itself alone: copied, replicated, saved as a whole, or compiled, it computes the same."""

import copy
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import whatwhere as ww
from whatwhere.huggingface.patch import PATCHED

from ..models.tiny import inputs_of
from .test_patch import DISENTANGLED, ids, made, require_close, said

CHOSEN = (
    "bart", "bloom", "codegen", "deberta", "deberta-v2", "inkling_text", "llama", "m2m_100", "marian", "mpnet", "mpt",
    "opt", "pegasus_x", "roberta", "t5", "umt5", "whisper",
)  # fmt: skip
"""Types of each kind of replacement: `make test` copies, saves and compiles these."""
SETTINGS: dict[str, dict[str, Any]] = dict(DISENTANGLED.values())


def require_bound_to_itself(model_type: str) -> None:
    """Check that a copy of a patched model, and a whole model that is loaded, have outputs by their own parameters."""
    plain, tokens = made(model_type, **SETTINGS.get(model_type, {})), ids()
    model = copy.deepcopy(plain)
    ww.patch(model)
    before, copied = said(model, tokens), copy.deepcopy(model)
    require_close(before, said(plain, tokens), factor=5)
    for one in (copied, plain):
        for n, parameter in enumerate(p for p in one.parameters() if p.requires_grad):
            change = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(n))
            parameter.data.add_(0.05 * change)
    require_close(said(copied, tokens), said(plain, tokens), factor=5)
    assert torch.equal(said(model, tokens), before)
    file = io.BytesIO()
    torch.save(copied, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    assert torch.equal(said(loaded, tokens), said(copied, tokens))
    assert list(loaded.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize("model_type", CHOSEN)
def test_a_copy_reads_its_own_parameters(model_type: str) -> None:
    require_bound_to_itself(model_type)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(set(PATCHED) - set(CHOSEN)))
def test_a_copy_of_any_type_reads_its_own_parameters(model_type: str) -> None:
    require_bound_to_itself(model_type)


@pytest.mark.every_nth(3)
@pytest.mark.parametrize("model_type", CHOSEN)
def test_a_patch_is_undone_in_a_copy(model_type: str) -> None:
    """Where both are copied; the original stays as it is."""
    model, tokens = made(model_type, **SETTINGS.get(model_type, {})), ids()
    kinds, own = [type(module) for module in model.modules()], said(model, tokens)
    patched = ww.patch(model)
    before = said(model, tokens)
    copied, patch_of_copy = copy.deepcopy((model, patched))
    patch_of_copy.undo()
    assert [type(module) for module in copied.modules()] == kinds
    assert torch.equal(said(copied, tokens), own)
    assert torch.equal(said(model, tokens), before)
    with pytest.raises(ww.errors.SettingError, match=r"patched already.*\n.*copy\.deepcopy\(\(model, patched\)\)"):
        ww.patch(copy.deepcopy(model))
    patched.undo()
    assert torch.equal(said(model, tokens), own)


def test_a_saved_model_is_loaded_in_a_new_process(tmp_path: Path) -> None:
    model, tokens = made("t5"), ids()
    patched = ww.patch(model)
    torch.save((model, patched, inputs_of(model, tokens), said(model, tokens)), tmp_path / "model.pt")
    script = (
        "import sys, torch\n"
        "model, patched, inputs, before = torch.load(sys.argv[1], weights_only=False)\n"
        "with torch.no_grad():\n"
        "    assert torch.equal(model(**inputs)[0], before)\n"
        "    patched.undo()\n"
        "    assert (model(**inputs)[0] - before).abs().max() < 1e-4\n"
        "assert 'whatwhere' not in repr(type(model.encoder.embed_tokens))\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "model.pt")], check=True)


def test_a_replica_reads_its_own_table() -> None:
    """As DataParallel makes one on each device: a module with the attributes of another, and other tensors."""
    model = made("t5")
    ww.patch(model)
    attention = model.encoder.block[0].layer[0].SelfAttention
    replica = attention._replicate_for_data_parallel()
    replica.relative_attention_bias = nn.Embedding.from_pretrained(torch.zeros(32, 4))
    assert not replica.compute_bias(3, 3).any()
    assert attention.compute_bias(3, 3).any()


@pytest.mark.every_nth(3)
@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # of BLOOM's GELU
@pytest.mark.parametrize("model_type", CHOSEN)
def test_a_patched_model_is_one_graph(model_type: str) -> None:
    model, tokens = made(model_type, **SETTINGS.get(model_type, {})), ids()
    ww.patch(model)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with torch.no_grad():
        require_close(compiled(**inputs_of(model, tokens))[0], said(model, tokens))
