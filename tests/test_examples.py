"""The examples run, and do what they say."""

from pathlib import Path
from types import ModuleType

import pytest
import torch

from .running import script

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return script(EXAMPLES / "encoder_decoder.py")


def test_encoder_decoder_runs(example, capsys):
    result = example.main(steps=3)
    assert set(result) == {"sinusoidal", "none"}
    assert "words written backwards" in capsys.readouterr().out


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
