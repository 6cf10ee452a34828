"""The probe, on tiny random models of transformers whose positions are known from their modules' formulas."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
import torch

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.models.configuration.read import from_huggingface
from whatwhere.models.probe import probe
from whatwhere.models.probe.differences import differences
from whatwhere.models.probe.tiny import model_to_probe, tiny_config, tiny_model


@cache
def of_type(model_type):
    """Probe a type once for all tests."""
    return probe(tiny_model(tiny_config(model_type)))


def probed(model_type, **settings):
    return probe(tiny_model(tiny_config(model_type, **settings))) if settings else of_type(model_type)


def test_a_difference_is_seen():
    found = probed("llama")
    wrong = from_huggingface(tiny_config("llama", rope_parameters={"rope_type": "default", "rope_theta": 10_001.0}))
    assert {each.what for each in differences(found, wrong)} == {"query frequencies", "key frequencies"}
    assert {each.what for each in differences(found, from_huggingface(tiny_config("cohere")))} >= {"query layout"}
    other = from_huggingface(tiny_config("bert"))
    assert {"input", "mask", "query map"} <= {each.what for each in differences(found, other)}


def test_frequencies_are_those_of_the_formula():
    layer = probed("llama", rope_parameters={"rope_type": "default", "rope_theta": 5e5}).layers[0]
    expected = 5e5 ** (-np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(layer.query.frequencies, expected, rtol=3e-7)
    assert layer.query.positions[-1] == 20_000


def test_dynamic_ntk_changes_the_frequencies_of_long_sequences():
    rope = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
    found = probed("llama", rope_parameters=rope).layers[0].query
    np.testing.assert_allclose(found.frequencies, 1e4 ** (-np.arange(0, 16, 2) / 16), rtol=3e-6)
    length, base = 20_001, 64
    theta = 1e4 * (2.0 * length / base - 1.0) ** (16 / 14)
    np.testing.assert_allclose(found.far_frequencies, theta ** (-np.arange(0, 16, 2) / 16), rtol=3e-5)


def test_the_temperature_of_a_layer_without_rotation_is_measured():
    layer = next(layer for layer in probed("beam").layers if layer.query.kind == "scaled")
    expected = [(1 + (position + 1) / 2048) ** 0.1 for position in layer.query.positions]
    np.testing.assert_allclose(layer.query.scales, np.array(expected) / expected[0], rtol=1e-5)
    assert layer.key.kind == "none"


def test_a_temperature_by_slot_shows_at_the_slots():
    layer = next(layer for layer in probed("llama4_text").layers if layer.query.kind == "scaled")
    expected = [1 + 0.1 * np.log(np.floor((slot + 1) / 4) + 1) for slot in layer.query.positions]
    np.testing.assert_allclose(layer.query.scales, expected, rtol=1e-5)
    assert "slot" in layer.query.reason


def test_windows_chunks_and_sinks_are_measured():
    spans = [(layer.span.before, layer.span.after, layer.sinks) for layer in probed("gpt_oss").layers]
    assert spans == [(4, 0, True), (None, 0, True)] * 2
    assert [layer.span.chunk for layer in probed("llama4_text").layers] == [5, 5, 5, None]


def test_a_projection_that_is_reordered_before_the_scores_is_seen():
    query = probed("deepseek_v3").layers[0].query
    assert (query.layout, query.projected_layout, query.start, query.rotary_dim) == ("half", "interleaved", 32, 16)


def test_the_input_is_measured():
    learned = probed("opt").input
    assert (learned.kind, learned.rows, learned.offset) == ("learned", 66, 2)
    assert probed("ctrl").input.kind == "sinusoidal"
    assert probed("gemma3_text").embedding_scale == pytest.approx(8.0)


def test_alibi_slopes_and_t5_tables_are_measured():
    bias = probed("bloom").layers[0].bias
    assert bias.kind == "linear"
    assert bias.slopes == pytest.approx([2 ** (-8 * head / 4) for head in range(1, 5)], abs=1e-5)
    found = probed("t5", relative_attention_num_buckets=8)
    encoder = found.layers[0]
    assert encoder.bias.kind == "by distance"
    assert not encoder.span.causal
    assert found.crossing == 4


def test_a_position_bias_by_content_is_no_bias_by_distance():
    assert probed("deberta", relative_attention=True, pos_att_type=["c2p", "p2c"]).layers[0].bias.kind == "by content"


def test_a_sign_error_in_a_rotation_is_seen():
    model = tiny_model(tiny_config("llama"))
    rotary = model.rotary_emb
    before = rotary.forward

    def wrong(hidden, position_ids):
        cos, sin = before(hidden, position_ids)
        return cos, -sin

    rotary.forward = wrong
    found = probe(model)
    assert found.layers[0].query.frequencies[0] == pytest.approx(-1.0)
    assert {each.what for each in differences(found, from_huggingface(model.config))} == {
        "query frequencies",
        "key frequencies",
    }


def test_models_without_attention_are_refused_and_restored():
    with pytest.raises(CheckpointError, match="no attention was seen"):
        probed("mamba")
    model = tiny_model(tiny_config("llama"))
    before = model(torch.arange(5)[None]).last_hidden_state
    probe(model)
    torch.testing.assert_close(model(torch.arange(5)[None]).last_hidden_state, before, rtol=0, atol=0)
    assert model.config._attn_implementation == "eager"


def test_a_folder_keeps_the_features_of_a_head(tmp_path):
    config = tiny_config("llama", head_dim=64, hidden_size=512, num_attention_heads=8, vocab_size=5000)
    config.save_pretrained(tmp_path)
    model, read = model_to_probe(str(tmp_path))
    assert read.hidden_size == 512
    found = probe(model)
    np.testing.assert_allclose(found.layers[0].query.frequencies, 1e4 ** (-np.arange(0, 64, 2) / 64), rtol=1e-6)


def test_weights_are_those_of_the_folder(tmp_path):
    model = tiny_model(tiny_config("opt"))
    model.save_pretrained(tmp_path)
    loaded, _ = model_to_probe(str(tmp_path), weights=True)
    name = "decoder.embed_tokens.weight"
    torch.testing.assert_close(loaded.get_parameter(name), model.get_parameter(name))


def test_remote_code_is_not_run_unless_trusted(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"model_type": "mine", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}'
    )
    (tmp_path / "own.py").write_text("raise SystemExit('ran')")
    with pytest.raises(CheckpointError, match="--trust-remote-code"):
        model_to_probe(str(tmp_path))


def test_unknown_types_are_refused():
    with pytest.raises(SettingError, match="no model type 'lama'"):
        model_to_probe("lama")
    with pytest.raises(SettingError, match="--weights"):
        model_to_probe("llama", weights=True)


def test_each_thread_gets_what_it_would_get_alone():
    names = ("llama", "opt", "bloom", "gemma3_text")
    models, alone = [tiny_model(tiny_config(name)) for name in names], [repr(probed(name)) for name in names]
    with ThreadPoolExecutor(4) as pool:
        assert [repr(found) for found in pool.map(probe, models)] == alone
