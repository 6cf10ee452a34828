"""The examples run, and do what they say."""

import sys
from dataclasses import make_dataclass
from inspect import signature
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

import whatwhere as ww

from .running import script

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return script(EXAMPLES / "encoder_decoder.py")


def test_encoder_decoder_runs(example, capsys):
    result = example.main(steps=3)
    assert set(result) == {"sinusoidal", "none"}
    assert "words written backwards" in capsys.readouterr().out


@pytest.mark.parametrize("scheme", ["sinusoidal", "rotary", "alibi"])
def test_a_target_sees_neither_padding_nor_what_is_later(example, scheme):
    torch.manual_seed(0)
    model = example.EncoderDecoder(ww.scheme(scheme, dim=64, num_heads=4, max_length=16)).eval()
    source, padding = torch.tensor([[5, 6, 7]]), torch.tensor([[example.PAD] * 2])
    first = model.decode(torch.tensor([[1, 7, 6, 5]]), *model.encode(source))
    padded = model.encode(torch.cat([source, padding], 1))
    torch.testing.assert_close(model.decode(torch.tensor([[1, 7, 6, 5]]), *padded), first, atol=1e-5, rtol=1e-5)
    changed = model.decode(torch.tensor([[1, 7, 6, 9]]), *model.encode(source))
    torch.testing.assert_close(first[:, :3], changed[:, :3])
    assert not torch.allclose(first[:, 3], changed[:, 3])


@pytest.mark.slow
def test_encoder_decoder_learns_with_positions_only(example):
    result = example.main()
    assert result["sinusoidal"] > 0.98
    assert result["none"] < 0.2


@pytest.fixture(scope="module")
def torchtitan_model() -> ModuleType:
    return script(EXAMPLES / "torchtitan_model.py")


@pytest.mark.parametrize("name", ["rotary", "alibi", "fire", "t5", "learned"])
def test_torchtitan_model_trains_table_and_scheme(torchtitan_model, name):
    sizes = torchtitan_model.ModelArguments(vocab_size=50, dim=32, layers=2, heads=4, max_length=16, scheme=name)
    with torch.device("meta"):
        model = torchtitan_model.Decoder(sizes)
    model.to_empty(device="cpu").init_states(buffer_device=torch.device("cpu"))
    ids = torch.randint(50, (2, 13), generator=torch.Generator().manual_seed(0))
    logits = model(ids)
    assert logits.shape == (2, 13, 50)
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())
    learned = [weight for n, weight in model.named_parameters() if ".where." in n]
    assert bool(learned) == (name in {"fire", "t5", "learned"})
    assert model.tokens.weight.grad.any()
    assert not learned or any(weight.grad.any() for weight in learned)


def test_torchtitan_model_takes_documents(torchtitan_model):
    sizes = torchtitan_model.ModelArguments(vocab_size=50, dim=32, layers=2, heads=4, max_length=16, scheme="t5")
    model, ids = torchtitan_model.Decoder(sizes).eval(), torch.arange(12)[None]
    packed = model(ids, positions=torch.arange(6).repeat(2)[None])
    torch.testing.assert_close(packed[:, 6:], model(ids[:, 6:]), atol=1e-5, rtol=1e-5)


def test_torchtitan_model_fits_the_interface(torchtitan_model, monkeypatch):
    """That of torchtitan 0.3.0: what its trainer passes by name, and the fields of what it takes."""
    protocols = ModuleType("torchtitan.protocols")
    given = [(name, object, None) for name in ("param_init", "sharding_config")]
    config = make_dataclass("Config", given, kw_only=True, slots=True)
    protocols.BaseModel = type("BaseModel", (torch.nn.Module,), {"Config": config})
    names = "name flavor model parallelize_fn pipelining_fn post_optimizer_build_fn state_dict_adapter"
    protocols.ModelSpec = make_dataclass("ModelSpec", names.split())
    monkeypatch.setitem(sys.modules, "torchtitan", ModuleType("torchtitan"))
    monkeypatch.setitem(sys.modules, "torchtitan.protocols", protocols)
    spec = torchtitan_model.model_spec(torchtitan_model.ModelArguments(max_length=16))
    passed = "model parallel_dims training parallelism compile_config ac_config dump_folder"
    assert " ".join(signature(spec.parallelize_fn).parameters) == passed
    assert isinstance(spec.model, config)
    with pytest.raises(ValueError, match="seq_len 17"):
        spec.model.update_from_config(config=SimpleNamespace(training=SimpleNamespace(seq_len=17)))
