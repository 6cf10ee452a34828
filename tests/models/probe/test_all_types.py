"""docs/models.md: every type with a text head is in it, and every difference of probe and registry has its reason."""

import pytest
from transformers.models.auto import modeling_auto as auto

from docs.generate.models_page import DIFFERENCES, page, read_data, status, why_unpatched


@pytest.fixture(scope="module")
def data():
    return read_data()


def test_every_type_with_a_text_head_is_listed(data):
    names = {row.name for row in data.types}
    for head in ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM", "IMAGE_TEXT_TO_TEXT"):
        assert set(getattr(auto, f"MODEL_FOR_{head}_MAPPING_NAMES")) <= names
    assert {row.text for row in data.types} == {each.name for each in data.texts}


def test_every_difference_has_its_reason(data):
    assert {each.name for each in data.texts if each.differences} == set(DIFFERENCES)


def test_nearly_all_causal_types_with_attention_are_read(data):
    texts = {each.name: each for each in data.texts}
    found = [status(row, texts) for row in data.types if "causal" in row.heads]
    attending = [each for each in found if each != "no attention"]
    assert found.count("read") >= 0.95 * len(attending)


def test_types_that_are_read_are_patched_or_have_a_reason(data):
    assert [row.name for row in data.types if not row.refused and not row.patched and not why_unpatched(row)] == []


def test_a_difference_without_a_reason_shows_on_the_page(data):
    assert "not explained" not in page(data)


@pytest.mark.slow
def test_probe_and_registry_agree_on_all_types(data):
    from docs.generate.model_types import measured

    assert [each for each in data.texts if measured(each.name) != each] == []
