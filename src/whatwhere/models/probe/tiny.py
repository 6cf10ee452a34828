"""Tiny random models of any model type of the installed transformers, shrunk from its default configuration."""

import inspect
import warnings
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from logging import ERROR
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from whatwhere.errors import CheckpointError, SettingError
from whatwhere.initialization import seeded
from whatwhere.models.probe.tiny_sizes import (
    HEAD_COUNTS,
    HEAD_DIM,
    HEADS,
    KEPT,
    KEY_HEAD_COUNTS,
    LAYER_KEYS,
    MODEL_ONLY,
    MOST_LAYERS,
    SIZES,
    WIDTHS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedConfig, PreTrainedModel

LEAST_LAYERS = 4


def tiny_config(model_type: str, **settings: Any) -> "PreTrainedConfig":
    """Return a tiny configuration of a model type, with the layer pattern of its default one.

    Raises:
        SettingError: If transformers does not know the type, or its class refuses the tiny sizes.

    Examples:
        >>> tiny_config("gemma3_text").layer_types[-2:]
        ['sliding_attention', 'full_attention']
    """
    from transformers import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        raise SettingError(
            f"the installed transformers has no model type {model_type!r}: upgrade it, or pass a folder."
        )
    made = CONFIG_MAPPING[model_type]
    with quiet():
        try:
            return made(**shrunk(made(), settings))
        except Exception as problem:
            raise SettingError(
                f"a tiny configuration of {model_type!r} was refused by transformers: {problem}.\n"
                "Probe a loaded model of this type instead."
            ) from problem


def shrunk(config: "PreTrainedConfig", settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return keyword arguments of a configuration like this one, but tiny.

    Args:
        config: any; nested configurations are shrunk too.
    """
    values = {key: value for key, value in vars(config).items() if not key.startswith("_")}
    keep = _kept_layers(values)
    made: dict[str, Any] = {}
    for key, value in values.items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            made[key] = {**shrunk(value), "model_type": value.model_type}
        elif key in SIZES and isinstance(value, int) and not isinstance(value, bool) and value > 0:
            made[key] = SIZES[key]
        elif key in LAYER_KEYS and isinstance(value, int):
            made[key] = min(value, keep)
        elif isinstance(value, list | tuple) and len(value) == _layers(values) and keep < len(value):
            made[key] = list(value)[:keep]
    heads = next((values[key] for key in HEAD_COUNTS if key in values), 0)
    for key in KEY_HEAD_COUNTS:
        if isinstance(values.get(key), int):
            made[key] = HEADS if values[key] == heads else min(values[key], 2)
    made.update(_token_ids(values))
    made.update(_sections(values))
    made.update(MODEL_ONLY.get(config.model_type, {}))
    made.update(settings or {})
    return made


def tiny_like(config: "PreTrainedConfig") -> "PreTrainedConfig":
    """Return a configuration with few layers, heads and tokens whose heads are those of another one.

    Args:
        config: whose settings of positions, windows and features of a head are kept.

    Raises:
        SettingError: If its class refuses the sizes.
    """
    values = config.to_dict()
    heads = next((values[key] for key in HEAD_COUNTS if isinstance(values.get(key), int)), 1)
    width = next((values[key] for key in WIDTHS if isinstance(values.get(key), int)), 64)
    named = values.get("head_dim")
    head_dim: int = named if isinstance(named, int) else width // max(heads, 1)
    made = {key: value for key, value in shrunk(config).items() if key not in KEPT}
    made |= {key: 2 * max(head_dim, 32) for key in made if key in WIDTHS}
    made |= {key: 2 for key in made if key in (*HEAD_COUNTS, *KEY_HEAD_COUNTS) and made[key] > 1}
    kept = {key: value for key, value in values.items() if key not in ("model_type", "architectures", "auto_map")}
    try:
        return type(config)(**{**kept, **made})
    except Exception as problem:
        raise SettingError(
            f"a smaller configuration of {config.model_type!r} was refused by transformers: {problem}.\n"
            "Probe the model with its weights instead."
        ) from problem


def _sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return rope parameters whose sections for several axes fit a tiny head."""
    made = {}
    for key in ("rope_parameters", "rope_scaling"):
        given = values.get(key)
        if isinstance(given, dict) and isinstance(sections := given.get("mrope_section"), list):
            fraction = given.get("partial_rotary_factor", values.get("partial_rotary_factor", 1.0))
            pairs = int(HEAD_DIM * (fraction or 1.0)) // 2
            tiny = [pairs * section // sum(sections) for section in sections]
            tiny[0] += pairs - sum(tiny)
            made[key] = {**given, "mrope_section": tiny}
    return made


def _token_ids(values: Mapping[str, Any]) -> dict[str, int]:
    return {
        key: number % 60 if number >= 60 else number
        for key, number in values.items()
        if key.endswith(("token_id", "token_index")) and isinstance(number, int)
    }


def _layers(values: Mapping[str, Any]) -> int:
    return max((values[key] for key in LAYER_KEYS if isinstance(values.get(key), int)), default=0)


def _kept_layers(values: Mapping[str, Any]) -> int:
    """Return the number of layers that has each kind of layer once, as the lists by layer have them."""
    layers = _layers(values)
    keep = min(layers, LEAST_LAYERS)
    for value in values.values():
        if isinstance(value, list | tuple) and len(value) == layers:
            first = {str(each): index for index, each in reversed(list(enumerate(value)))}
            if len(first) <= layers // 2:
                keep = max(keep, 1 + max(first.values()))
    return min(keep, MOST_LAYERS)


def tiny_model(config: "PreTrainedConfig", seed: int = 0, *, trust_remote_code: bool = False) -> "PreTrainedModel":
    """Return a random model of a tiny configuration, without a head where transformers has such a class.

    Args:
        trust_remote_code: whether its class may come from code beside its file.

    Raises:
        CheckpointError: If transformers cannot build it.

    Examples:
        >>> type(tiny_model(tiny_config("llama"))).__name__
        'LlamaModel'
    """
    with quiet(), seeded(seed):
        try:
            model = _built(config, trust_remote_code)
        except Exception as problem:
            raise CheckpointError(
                f"a tiny model of the type {config.model_type!r} could not be built: "
                f"{type(problem).__name__}: {problem}.\nProbe a loaded model of this type instead."
            ) from problem
        for module in model.modules():
            if isinstance(module, nn.Embedding) and "Sinusoid" in type(module).__name__:
                module.requires_grad_(False)  # a table of fixed values, which FSMT keeps as a parameter
        for parameter in model.parameters():
            if parameter.dim() > 1 and parameter.requires_grad:
                nn.init.normal_(parameter, std=0.3)
            elif parameter.requires_grad:  # the features of a plain LayerNorm sum to 0, which leaves maps undetermined
                parameter.data += 0.03 * torch.randn_like(parameter)
    model.train(False).float()
    return model


def _built(config: "PreTrainedConfig", trust_remote_code: bool) -> "PreTrainedModel":
    from transformers import AutoModel, AutoModelForCausalLM

    model: PreTrainedModel
    own = getattr(config, "auto_map", None) or {}
    if trust_remote_code and own:
        made: Any = AutoModel if "AutoModel" in own else AutoModelForCausalLM
        model = made.from_config(config, attn_implementation="eager", trust_remote_code=True)
    else:
        model = class_of(config)._from_config(config, attn_implementation="eager")
    return model


def class_of(config: "PreTrainedConfig") -> Any:
    """Return the class of a configuration's model: the plain model, or the first one with a head."""
    from transformers import PreTrainedModel
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    with suppress(ValueError):  # a name that its module lacks
        if type(config) in MODEL_MAPPING:
            made = MODEL_MAPPING[type(config)]
            return made[0] if isinstance(made, tuple) else made
    package = type(config).__module__.rpartition(".")[0]
    files = sorted(Path(str(import_module(package).__file__)).parent.glob("modeling_*.py"))
    found = [
        each
        for file in files
        for _, each in inspect.getmembers(import_module(f"{package}.{file.stem}"), inspect.isclass)
        if issubclass(each, PreTrainedModel)
        and each.config_class is type(config)
        and each.__module__ == f"{package}.{file.stem}"
        and not each.__name__.endswith("PreTrainedModel")
    ]
    found.sort(key=lambda each: (not each.__name__.endswith("Model"), "CausalLM" not in each.__name__, each.__name__))
    if not found:
        raise CheckpointError(f"transformers has no model class for {type(config).__name__}.")
    return found[0]


@contextmanager
def quiet() -> "Iterator[None]":
    """Silence the warnings of transformers, which speak of settings that are shrunk on purpose."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
