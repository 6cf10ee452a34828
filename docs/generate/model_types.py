"""Probe every model type of the installed transformers that has a text head, and read its configuration beside it.

`python -m docs.generate.model_types` writes docs/models.json; `python -m docs.generate` makes docs/models.md from it.
Types that the file has already are kept, so that an interrupted run is resumed; `--again` measures all.
"""

import argparse
import platform
import sys
import warnings
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto as auto

from docs.generate.models_page import DATA, ModelTypes, TextProbe, TypeRow, read_data
from whatwhere.comparison.folder import write_json
from whatwhere.errors import WhatWhereError
from whatwhere.huggingface.patch import PATCHED
from whatwhere.models.configuration.read import from_huggingface
from whatwhere.models.probe import Probe, probe
from whatwhere.models.probe.differences import differences_of_parts
from whatwhere.models.probe.findings import NOT_MEASURED, OTHER, Layer
from whatwhere.models.probe.tiny import quiet, tiny_config, tiny_model
from whatwhere.report.probe import short

MAPPINGS = {
    "causal": ("CAUSAL_LM",),
    "masked": ("MASKED_LM",),
    "seq2seq": ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ"),
    "multimodal": ("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM"),
}
"""Name of a head in the page -> transformers' mappings of it."""
_GLM4V = {"rope_theta": 10_000.0, "rope_type": "default", "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}
CHOSEN: dict[str, dict[str, Any]] = {
    "cohere_compass": {"text_config": {"rope_parameters": {"full_attention": {"rope_theta": 10_000.0}}}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_theta": 10_000.0}}},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "gemma4_assistant": {
        "text_config": {
            "model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
        }
    },
    **{name: {"text_config": {"rope_parameters": _GLM4V}} for name in ("glm46v", "glm4v", "glmga")},
    "glm4_moe": {"head_dim": 128},
    "minimax_m3_vl": {"text_config": {"partial_rotary_factor": 0.5}},
    "minimax_m3_vl_text": {"partial_rotary_factor": 0.5},
    "glm4v_moe": {"text_config": {"head_dim": 128}},
    "qwen3_omni_moe": {"thinker_config": {"text_config": {"head_dim": 128}}},
    "qwen3_omni_moe_thinker": {"text_config": {"head_dim": 128}},
}  # fmt: skip
"""Types whose default configuration makes no model, or none like those that are published -> what is chosen besides.

Transformers refuses that of Gemma 4's assistant and fails on those of Compass and of GLM-4V, whose axes have 32 of 64
pairs; that of ESM has no tokens; those of GLM-4.5, GLM-4.5V and Qwen3-Omni do not divide their features into heads;
that of MiniMax-M3 rotates another part of each head than its `rotary_dim` says."""
WHOLE = ("t5gemma", "t5gemma2")
"""Types whose text configuration is one of two parts: they are probed as a whole."""


def main() -> None:
    """Measure the types that are missing, and write the file after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", help="types of text to measure again; default: those that are missing")
    parser.add_argument("--again", action="store_true", help="measure all types again")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with quiet():
        rows = _rows()
        names = sorted({row.text for row in rows})
        before = read_data() if DATA.exists() and not options.again else None
        kept = {} if before is None or before.transformers != transformers.__version__ else _by_name(before)
        found = {name: kept[name] for name in names if name in kept and name not in options.types}
        for number, name in enumerate(names):
            if name not in found:
                sys.stderr.write(f"{number + 1} of {len(names)}: {name}\n")
                found[name] = measured(name)
                write_json(DATA, _data(rows, found))
        write_json(DATA, _data(rows, found))


def _by_name(data: ModelTypes) -> dict[str, TextProbe]:
    return {each.name: each for each in data.texts}


def _data(rows: list[TypeRow], found: dict[str, TextProbe]) -> ModelTypes:
    return ModelTypes(
        transformers.__version__,
        str(torch.__version__),
        platform.python_version(),
        platform.machine(),
        datetime.now(UTC).date().isoformat(),
        len(list(CONFIG_MAPPING)),
        tuple(rows),
        tuple(found[name] for name in sorted(found)),
    )


def _rows() -> list[TypeRow]:
    """Return each type with a text head, and whether its default configuration is read."""
    heads: dict[str, list[str]] = {}
    for head, mappings in MAPPINGS.items():
        for name in {name for mapping in mappings for name in getattr(auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES")}:
            heads.setdefault(name, []).append(head)
    rows = []
    for name in sorted(heads):
        try:
            config = CONFIG_MAPPING[name](**CHOSEN.get(name, {}))
        except Exception as problem:
            reason = f"transformers cannot build its default configuration: {_line(problem)}"
            rows.append(TypeRow(name, tuple(heads[name]), name, reason, False))
            continue
        text = name if name in WHOLE else config.get_text_config(decoder=True).model_type
        patched = name in PATCHED or text in PATCHED
        rows.append(TypeRow(name, tuple(heads[name]), text or name, _refusal(config), patched, _keys(name)))
    return rows


def _keys(name: str) -> str:
    """Return what was chosen besides the default configuration, as text."""
    return ", ".join(f"{key}={value!r}" for key, value in CHOSEN.get(name, {}).items())


def _refusal(config: Any) -> str | None:
    try:
        from_huggingface(config)
    except WhatWhereError as problem:
        return _line(problem)
    return None


def measured(name: str) -> TextProbe:
    """Return the probe of a tiny random model of a type, and its differences from the registry."""
    try:
        config = tiny_config(name)
        found = probe(tiny_model(config))
    except Exception as problem:
        return TextProbe(name, failed=_line(problem))
    counted = Counter(_layer(layer, config.is_encoder_decoder) for layer in found.layers)
    result = TextProbe(
        name,
        tuple(f"{number} x {text}" for text, number in counted.items()),
        found.input.kind,
        any(each.kind in (NOT_MEASURED, OTHER) for layer in found.layers for each in (layer.query, layer.key)),
    )
    try:
        return replace(result, differences=_differences(found, config))
    except WhatWhereError:
        return result


def _differences(found: Probe, config: Any) -> tuple[str, ...]:
    listed = differences_of_parts(found, lambda part: from_huggingface(config, part=part))
    return tuple(dict.fromkeys(f"{each.what}: measured {each.measured}, read {each.read}" for each in listed))


def _layer(layer: Layer, parts: bool) -> str:
    return f"{layer.module.partition('.')[0]} {short(layer)}" if parts else short(layer)


def _line(problem: Exception) -> str:
    return " ".join(str(problem).partition("\n")[0].split())[:240]


if __name__ == "__main__":
    main()
