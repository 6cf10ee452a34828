"""The examples run, and do what they say."""

from pathlib import Path
from types import ModuleType

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


@pytest.mark.parametrize("scheme", ["sinusoidal", "none", "rotary", "alibi", "learned"])
def test_padding_of_the_source_changes_nothing(example, scheme):
    torch.manual_seed(0)
    model = example.EncoderDecoder(ww.scheme(scheme, dim=64, num_heads=4, max_length=16)).eval()
    source, target = torch.tensor([[5, 6, 7]]), torch.tensor([[example.BEGIN, 7, 6]])
    padded = torch.tensor([[5, 6, 7, example.PAD, example.PAD]])
    torch.testing.assert_close(
        model.decode(target, *model.encode(padded)), model.decode(target, *model.encode(source)), atol=1e-5, rtol=1e-5
    )


def test_attention_to_the_target_is_causal(example):
    torch.manual_seed(0)
    model = example.EncoderDecoder(ww.scheme("sinusoidal", dim=64, num_heads=4, max_length=16)).eval()
    memory, positions = model.encode(torch.tensor([[5, 6, 7]]))
    first = model.decode(torch.tensor([[1, 7, 6, 5]]), memory, positions)
    changed = model.decode(torch.tensor([[1, 7, 6, 9]]), memory, positions)
    torch.testing.assert_close(first[:, :3], changed[:, :3])
    assert not torch.allclose(first[:, 3], changed[:, 3])


@pytest.mark.slow
def test_encoder_decoder_learns_with_positions_only(example):
    result = example.main()
    assert result["sinusoidal"] > 0.98
    assert result["none"] < 0.2
