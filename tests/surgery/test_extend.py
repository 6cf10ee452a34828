"""extend: the configuration is scaled in both forms, and nothing else changes; a probe measures what was changed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import whatwhere as ww
from whatwhere.models.configuration.read import from_huggingface
from whatwhere.records import Missing
from whatwhere.surgery import Report, extend_checkpoint
from whatwhere.surgery.report import Extended

from ..running import whatwhere
from .conftest import Save, json_of, require_others_unchanged

SCALINGS: dict[str, Any] = {
    "linear": ww.scaling.Linear(factor=4.0),
    "dynamic": ww.scaling.DynamicNTK(factor=4.0, original_length=64),
    "yarn": ww.scaling.YaRN(factor=4.0, original_length=64),
    "llama3": ww.scaling.Llama3(factor=4.0, original_length=64),
}


def extended(report: Report) -> Extended:
    assert isinstance(report.measured, Extended)
    return report.measured


@pytest.mark.every_nth(5)
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("model_type", ["llama", "qwen2", "gpt_neox", "phi", "deepseek_v3", "gemma3_text"])
def test_both_forms_are_written_and_nothing_else_changes(
    model_type: str, scaling: str, save: Save, tmp_path: Path
) -> None:
    from transformers import AutoConfig

    types = {"layer_types": ["sliding_attention", "full_attention"] * 2} if model_type == "gemma3_text" else {}
    folder, _ = save(model_type, **types)
    out = tmp_path / "out"
    report = extend_checkpoint(folder, out, to=256, scaling=scaling)
    require_others_unchanged(folder, out, report)
    config = json_of(out)
    both = from_huggingface(config)
    assert both.max_length == (64 if scaling == "dynamic" else 256)
    built = next(plan.scaling.build() for plan in both.query_key if plan is not None and plan.scaling is not None)
    assert built == SCALINGS[scaling]
    for form in ("rope_parameters", "rope_scaling"):  # a program that reads one of them reads the same
        if form in config and "rope_parameters" in config and "rope_scaling" in config:
            assert from_huggingface({key: value for key, value in config.items() if key != form}) == both
    theirs = AutoConfig.from_pretrained(out)
    assert scaling in str(theirs.rope_parameters)
    checked = ww.check(out)
    assert not checked.failed(), checked.findings
    found = extended(report)
    assert (found.trained, found.length, found.factor) == (64, 256, 4.0)
    assert not isinstance(found.before, Missing)
    assert not isinstance(found.after, Missing)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_probe_measures_the_scaling(scaling: str, save: Save, tmp_path: Path) -> None:
    folder, _ = save("llama")
    found = extended(extend_checkpoint(folder, tmp_path / "out", to=256, scaling=scaling))
    assert not isinstance(found.before, Missing)
    assert not isinstance(found.after, Missing)
    (before,), (after,) = found.before, found.after
    plan = from_huggingface(json_of(folder)).query_key[0]
    assert plan is not None
    dim, theta = plan.settings["head_dim"], plan.settings["theta"]
    plain = ww.frequencies.inverse_frequencies(dim, theta).tolist()
    assert before.frequencies == pytest.approx(plain, rel=1e-4)
    assert (before.far_frequencies, before.magnitude) == ((), 1.0)
    rule = SCALINGS[scaling]
    expected = plain if scaling == "dynamic" else rule.frequencies(dim, theta).tolist()
    assert after.frequencies == pytest.approx(expected, rel=1e-4)
    assert after.magnitude == pytest.approx(float(getattr(rule, "magnitude", 1.0)), rel=1e-4)
    assert bool(after.far_frequencies) == (scaling == "dynamic")


def test_a_scaling_of_the_same_kind_keeps_its_settings(save: Save, tmp_path: Path) -> None:
    given = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "beta_fast": 16.0}
    folder, _ = save("llama", rope_parameters={**given, "original_max_position_embeddings": 32})
    extend_checkpoint(folder, tmp_path / "out", to=256)
    plan = from_huggingface(json_of(tmp_path / "out")).query_key[0]
    assert plan is not None
    assert plan.scaling is not None
    settings = plan.scaling.settings
    assert (settings["factor"], settings["original_length"], settings["beta_fast"]) == (8.0, 32, 16.0)


def test_the_text_of_a_model_of_images_is_extended_where_it_is(save: Save, tmp_path: Path) -> None:
    folder, _ = save("llama")
    config = json_of(folder)
    whole = {"model_type": "llava", "text_config": config, "vision_config": {"model_type": "clip_vision_model"}}
    (folder / "config.json").write_text(json.dumps(whole))
    extend_checkpoint(folder, tmp_path / "out", to=128)
    written = json_of(tmp_path / "out")
    assert written["text_config"]["rope_parameters"]["factor"] == 2.0
    assert "rope_parameters" not in written


def test_the_length_of_a_tokenizer_follows(save: Save, tmp_path: Path) -> None:
    folder, _ = save("llama")
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 64, "padding_side": "left"}')
    extend_checkpoint(folder, tmp_path / "out", to=128)
    assert json_of(tmp_path / "out", "tokenizer_config.json") == {"model_max_length": 128, "padding_side": "left"}
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 50}')
    extend_checkpoint(folder, tmp_path / "again", to=128)
    assert json_of(tmp_path / "again", "tokenizer_config.json") == {"model_max_length": 50}


def test_a_configuration_that_transformers_cannot_build_is_not_probed(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = save("llama")
    monkeypatch.setitem(sys.modules, "transformers", None)  # as if it were not installed
    found = extended(extend_checkpoint(folder, tmp_path / "out", to=128))
    assert isinstance(found.before, Missing)
    assert "whatwhere[models]" in found.before.missing


def test_the_command_prints_what_was_measured(save: Save, tmp_path: Path) -> None:
    folder, _ = save("llama")
    status, out, err = whatwhere("extend", folder, tmp_path / "out", "--to", "256", "--scaling", "linear")
    assert (status, err) == (0, "")
    assert "length: 256, trained 64: linear, 4" in out
    assert "probed before: 1 to 0.00031623 radians for each position, times 1" in out
    assert "probed after: 0.25 to 7.9057e−5 radians for each position, times 1" in out
    assert "what the weights do at this length is not measured" in out
    assert whatwhere("extend", folder, tmp_path / "json", "--to", "256", "--json").status == 0
