"""The spectrum of a rotary against transformers' frequencies and rotated vectors; ranges of biases by formula."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from whatwhere import ALiBi, Rotary, Where
from whatwhere.analysis.biases import biases, effective_range
from whatwhere.analysis.rotary import rotary_spectrum
from whatwhere.analysis.subject import Subject
from whatwhere.where.scaling import Llama3
from whatwhere.where.score_bias import DistanceBias

LLAMA3: dict[str, Any] = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


def theirs(parameters: dict[str, Any], head_dim: int = 128) -> np.ndarray:
    config = LlamaConfig(
        hidden_size=head_dim, num_attention_heads=1, max_position_embeddings=131_072, rope_parameters=parameters
    )
    result, _ = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, torch.device("cpu"))
    return result.double().numpy()


def unscaled(head_dim: int = 128, theta: float = 500_000.0) -> np.ndarray:
    return np.array([theta ** (-2 * i / head_dim) for i in range(head_dim // 2)])


def test_llama_3_1_against_transformers() -> None:
    """29 pairs of 64 never finish a turn in 8,192 tokens; 15 exceed 131,072 unscaled, and 25 scaled."""
    frequencies = theirs(LLAMA3)
    result = rotary_spectrum(frequencies, unscaled(), 8192, 131_072)
    ours = Rotary(128, 500_000.0, scaling=Llama3()).inverse_frequencies.numpy()
    assert np.allclose(ours, frequencies, rtol=1e-6)
    assert np.allclose(result.wavelengths, 2 * np.pi / frequencies)
    assert (int(result.partial.sum()), int((result.wavelengths > 131_072).sum())) == (29, 25)
    assert int((result.unscaled > 131_072).sum()) == 15
    assert result.slowdown[0] == pytest.approx(1.0)
    assert result.slowdown[-1] == pytest.approx(8.0)
    assert np.allclose(result.rotations_trained * result.unscaled, 8192)
    assert np.allclose(result.rotations_claimed * result.wavelengths, 131_072)
    # 131,072 is sixteen times 8,192, and the slow pairs are slowed eight times.
    assert np.array_equal(result.unseen, result.partial)


def test_a_factor_that_compensates_the_length_has_no_new_angles() -> None:
    plain = unscaled()
    result = rotary_spectrum(plain / 4, plain, 2048, 8192)
    assert result.partial.any()
    assert not result.unseen.any()
    assert np.array_equal(rotary_spectrum(plain, plain, 2048, 8192).unseen, result.partial)


# The effective range of biases


@pytest.mark.parametrize("heads", [4, 12])
def test_the_range_of_alibi_follows_from_its_slope(heads: int) -> None:
    slopes = ALiBi(heads).slopes.double().numpy()
    result = effective_range(-slopes[:, None] * np.arange(4096))
    # exp(-m d) < 1 / 100  <=>  d > ln(100) / m
    assert result.distance.tolist() == [int(np.floor(np.log(100) / slope)) + 1 for slope in slopes]
    assert result.half.tolist() == [int(np.floor(np.log(2) / slope)) + 1 for slope in slopes]
    assert result.peak.tolist() == [0] * heads
    # The mean of a geometric distribution is q / (1 - q), cut at 4,096 tokens where little is left.
    ratio = np.exp(-slopes)
    assert result.mean == pytest.approx(ratio / (1 - ratio), rel=1e-3)


def test_a_curve_that_rises_again_ends_after_its_last_fall() -> None:
    bias = np.log(np.array([[0.001, 1.0, 0.001, 0.5, 0.02, 0.001, 0.001]]))
    result = effective_range(bias)
    assert (result.distance[0], result.half[0], result.peak[0]) == (5, 4, 1)
    assert effective_range(bias, share=0.1).distance[0] == 4


def test_a_curve_that_does_not_fall_has_no_end() -> None:
    result = effective_range(np.zeros((1, 5)))
    assert (result.distance[0], result.half[0], result.mean[0]) == (-1, -1, 2.0)


def test_what_is_seen_at_no_other_distance() -> None:
    result = effective_range(np.array([[0.0, -np.inf, -np.inf]]))
    assert (result.distance[0], result.mean[0]) == (1, 0.0)


def test_a_curve_of_ones_own_that_reads_no_head_is_that_of_each() -> None:
    class Falling(DistanceBias):
        num_heads = 3

        def curve(self, device: torch.device) -> Any:
            return lambda head, distance: -distance

    run = SimpleNamespace(where=Where(Falling()), notes=(), title="own")
    subject = object.__new__(Subject)  # of a run whose model was not written
    vars(subject).update(checkpoint=SimpleNamespace(format="run"), run=(run, 64))
    (group,) = biases(subject).groups
    assert group.curves.past.distance.tolist() == [5, 5, 5], "the first distances above ln(100)"
