"""The model that is probed: tiny and random, shrunk from the configuration of a type or file, or with its weights."""

import inspect
import json
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from whatwhere.errors import CheckpointError, MissingExtra, SettingError
from whatwhere.initialization import seeded
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.combined import MERGE
from whatwhere.models.checkpoint.files import File
from whatwhere.models.checkpoint.hub import locate, ranges_folder, why_not_found
from whatwhere.models.checkpoint.tokenizer_files import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_LEAST_LAYERS = 4
HEADS, HEAD_DIM, WINDOW = 4, 16, 5  # heads, features of a head, and tokens of a window or chunk
MOST_LAYERS = 13  # layers that are kept at most, to have each type of layer once

LAYER_KEYS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers", "encoder_layers", "decoder_layers",
    "num_encoder_layers", "num_decoder_layers", "num_layers_per_stack",
)  # fmt: skip
"""Keys of numbers of layers."""

_DATA = json.loads(Path(__file__).with_suffix(".json").read_bytes())
SIZES: Mapping[str, int] = {key: value for value, keys in _DATA["sizes"] for key in keys}
"""Key -> its value in a tiny configuration."""
MODEL_ONLY: Mapping[str, Mapping[str, Any]] = _DATA["types"]  # model type -> what it needs besides

HEAD_COUNTS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KEY_HEAD_COUNTS = ("num_key_value_heads", "swa_num_key_value_heads", "num_kv_heads")
WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim")
KEPT = frozenset(
    key
    for key, value in SIZES.items()
    if value in (HEAD_DIM, WINDOW)
    or "position" in key
    or key in ("d_rel", "d_relative", "model_max_length", "max_seq_len", "n_ctx", "qk_nope_head_dim", "rel_extent",
               "v_head_dim")
)  # fmt: skip
"""Keys that a model of a file keeps: features of a head, windows, and lengths."""


def model_to_probe(
    name_or_path: str, *, weights: bool = False, trust_remote_code: bool = False
) -> tuple["PreTrainedModel", "PreTrainedConfig"]:
    """Return the model of a type or of a file, local or at huggingface.co, and the configuration that it was made of.

    Of a file the heads keep their features, so that frequencies are those of the file; of a type they are tiny too.
    `weights` loads those of the folder, from safetensors alone. `trust_remote_code` runs code that lies in the folder.
    """
    try:
        from transformers import AutoConfig, AutoModel
    except ModuleNotFoundError:
        raise MissingExtra(
            "a probe runs models of transformers, which is not installed: pip install 'whatwhere[models]'."
        ) from None
    path = _path_of(name_or_path)
    if path is None:
        if weights:
            raise SettingError(
                f"--weights needs a folder, but {name_or_path!r} is none: pass a folder with a config.json."
            )
        config = tiny_config(name_or_path)
        return tiny_model(config), config
    if not (path / "config.json").exists() and (path / "adapter_config.json").is_file():
        base = Checkpoint.open(path).base  # whose positions an adapter keeps
        if weights or base is None:
            raise SettingError(f"{path} is an adapter: without --weights its base is probed, if it is here.\n{MERGE}")
        path = base
    with quiet():
        text = _read(AutoConfig, path, trust_remote_code).get_text_config()
        if not weights:
            return tiny_model(_tiny_like(text), trust_remote_code=trust_remote_code), text
        for file in path.glob("*.safetensors"):
            File(file).require_local()
        return _read(AutoModel, path, trust_remote_code, use_safetensors=True), text


def _path_of(name_or_path: str) -> Path | None:
    """Return the path of a file, a folder, or a model's name; None of a model type, known or not."""
    from transformers import CONFIG_MAPPING

    path = Path(name_or_path)
    if path.exists():
        return path
    if name_or_path in CONFIG_MAPPING:
        return None
    path = locate(name_or_path)
    if path.exists():
        return path
    if "/" in name_or_path:
        way = why_not_found(name_or_path) or "Pass a model type, a config.json, or a folder with one."
        raise CheckpointError(f"{name_or_path} does not exist.\n{way}")
    return None


def _read(made_by: Any, path: Path, trust: bool, **options: Any) -> Any:
    """Return what a class of transformers reads from a path, of local files alone."""
    try:
        return made_by.from_pretrained(str(path), trust_remote_code=trust, local_files_only=True, **options)
    except Exception as problem:
        text = " ".join(str(problem).split())
        if "trust_remote_code" not in text and not trust:
            way = "Pass a folder with a config.json whose model_type the installed transformers knows."
        elif path.is_relative_to(ranges_folder()):
            way = "Its own code is not downloaded: run hf download, and pass the folder that is printed."
        elif trust:
            way = "Its own code failed, or is not in the folder: download the whole model by hf download."
        else:
            way = "The folder has code of its own: read it, and if you trust it pass --trust-remote-code."
        raise CheckpointError(f"transformers cannot read {path}: {text[:300]}\n{way}") from problem


def tiny_config(model_type: str, **settings: Any) -> "PreTrainedConfig":
    """Return a tiny configuration of a model type, with the layer pattern of its default one."""
    from transformers import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        raise SettingError(
            f"the installed transformers has no model type {model_type!r}: upgrade it, or pass a folder."
        )
    made = CONFIG_MAPPING[model_type]
    with quiet():
        try:
            return made(**{**shrunk(made()), **settings})
        except Exception as problem:
            raise SettingError(
                f"a tiny configuration of {model_type!r} was refused by transformers: {problem}.\n"
                "Probe a loaded model of this type instead."
            ) from problem


def shrunk(config: "PreTrainedConfig") -> dict[str, Any]:
    """Return keyword arguments of a configuration like this one, and like those in it, but tiny."""
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
        elif key.endswith(("token_id", "token_index")) and isinstance(value, int):
            made[key] = value % 60 if value >= 60 else value
    heads = next((values[key] for key in HEAD_COUNTS if key in values), 0)
    for key in KEY_HEAD_COUNTS:
        if isinstance(values.get(key), int):
            made[key] = HEADS if values[key] == heads else min(values[key], 2)
    return {**made, **_sections(values), **MODEL_ONLY.get(config.model_type, {})}


def _tiny_like(config: "PreTrainedConfig") -> "PreTrainedConfig":
    """Return a configuration with few layers, heads and tokens, and with the positions and windows of another one."""
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


def _layers(values: Mapping[str, Any]) -> int:
    return max((values[key] for key in LAYER_KEYS if isinstance(values.get(key), int)), default=0)


def _kept_layers(values: Mapping[str, Any]) -> int:
    """Return the number of layers that has each kind of layer once, as the lists by layer have them."""
    layers = _layers(values)
    keep = min(layers, _LEAST_LAYERS)
    for value in values.values():
        if isinstance(value, list | tuple) and len(value) == layers:
            first = {str(each): index for index, each in reversed(list(enumerate(value)))}
            if len(first) <= layers // 2:
                keep = max(keep, 1 + max(first.values()))
    return min(keep, MOST_LAYERS)


def tiny_model(config: "PreTrainedConfig", seed: int = 0, *, trust_remote_code: bool = False) -> "PreTrainedModel":
    """Return a random model of a tiny configuration, without a head where transformers has such a class."""
    from transformers import AutoModel, AutoModelForCausalLM

    own = getattr(config, "auto_map", None) or {}
    with quiet(), seeded(seed):
        try:
            if trust_remote_code and own:
                made: Any = AutoModel if "AutoModel" in own else AutoModelForCausalLM
                model = made.from_config(config, attn_implementation="eager", trust_remote_code=True)
            else:
                model = class_of(config)._from_config(config, attn_implementation="eager")
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
    result: PreTrainedModel = model.train(False).float()
    return result


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
