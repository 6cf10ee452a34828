"""What transformers makes of a published configuration, measured on the model of that size, whose tensors have no data.

A model on the meta device costs no memory, so that it runs on its own length: the shapes of queries and keys, softmax
scales, rows of masks and the rotary module of each layer are those that the code passes on.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface, AutoModel, AutoModelForCausalLM, PreTrainedConfig
from transformers.masking_utils import AttentionMaskInterface
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from whatwhere.models.configuration.description import Description

from .tiny import TEXT_ALONE

NAME = "published"
TURNS = re.compile("^(apply_.*rotary.*|apply_multimodal_rotary_pos_emb)$")
TABLES = re.compile(r"(^|\.)(wpe|pos_emb|position_embeddings|embed_positions|positions_embed)$")


@dataclass
class Call:
    """One call of attention: its module, shapes of queries and keys, softmax scale, and what two queries see."""

    module: str
    num_heads: int
    key_heads: int
    head_dim: int
    scale: float
    last: int
    middle: int
    rotary: tuple[nn.Module, str] | None


@dataclass
class Watched:
    """What was recorded: the calls, and which rotary module made a tensor."""

    names: dict[int, str]
    calls: list[Call] = field(default_factory=list)
    made: dict[int, tuple[nn.Module, str]] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)
    turned: tuple[nn.Module, str] | None = None

    def attend(
        self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, attention_mask: Any = None, **others: Any
    ) -> Any:
        """Record a call, in place of attention."""
        rows = attention_mask if isinstance(attention_mask, list) else [k.shape[2], k.shape[2]]
        if attention_mask is None and (others.get("is_causal") or getattr(module, "is_causal", False)):
            rows = [k.shape[2], k.shape[2] // 2 + 1]
        scale = others.get("scaling") or q.shape[3] ** -0.5
        scale *= getattr(module, "scaling", 1.0) if scale == 1 else 1  # OPT and BART multiply queries before
        self.calls.append(Call(self.names[id(module)], q.shape[1], k.shape[1], q.shape[3], scale, *rows, self.turned))
        self.turned = None
        return torch.empty(q.shape[0], q.shape[2], q.shape[1], v.shape[3], dtype=q.dtype, device="meta"), None


class Unknown(TorchFunctionMode):
    """Take a number that a model asks of a tensor without data as 0."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return 0 for the value of a tensor on the meta device."""
        if function in (Tensor.__bool__, Tensor.item, Tensor.__int__) and is_meta(args[0]):
            return 0 if function is not Tensor.__bool__ else False
        return function(*args, **(kwargs or {}))


class Zeros(TorchFunctionMode):
    """Take tensors without data, such as the padding of a mask, as zeros."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute on the CPU."""
        args = [torch.zeros(one.shape, dtype=one.dtype) if is_meta(one) else one for one in args]
        return function(*args, **(kwargs or {}))


def is_meta(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_meta


def masked(q_length: int, kv_length: int, mask_function: Any, **others: Any) -> list[int]:
    """Return how many keys the last and the middle query see, in place of a mask."""
    with torch.device("cpu"), Zeros():
        zero, keys = torch.tensor(0), torch.arange(kv_length)
        at = (torch.tensor(kv_length - 1), torch.tensor(kv_length // 2))
        return [int(torch.as_tensor(mask_function(zero, zero, one, keys)).expand(kv_length).sum()) for one in at]


@contextmanager
def watching(model: nn.Module) -> Iterator[Watched]:
    """Record attention, rotary modules and the functions that rotate while a model runs."""
    watched = Watched({id(module): name for name, module in model.named_modules()})

    def made(module: nn.Module, args: Any, others: Any, output: Any) -> None:
        label = next((one for one in (*args, *others.values()) if isinstance(one, str)), "")
        for one in output if isinstance(output, tuple) else (output,):
            watched.made[id(one)] = (module, label)
            watched.kept.append(one)  # or its id could be given to another

    def turning(original: Any) -> Any:
        def turned(*args: Any, **others: Any) -> Any:
            for one in (*args, *others.values()):
                if id(one) in watched.made:
                    watched.turned = watched.made[id(one)]
            return original(*args, **others)

        return turned

    with ExitStack() as stack:
        stack.enter_context(patch.dict(AttentionInterface._global_mapping, {NAME: watched.attend}))
        for module in model.modules():
            if "Rotary" in type(module).__name__:
                stack.callback(module.register_forward_hook(made, with_kwargs=True).remove)
        for source in {type(module).__module__ for module in model.modules()}:
            for name, function in vars(import_module(source)).items():
                if TURNS.match(name):
                    stack.enter_context(patch(f"{source}.{name}", turning(function)))
        yield watched


AttentionInterface.register(NAME, masked)  # known by name; each run has its own recorder in its place
AttentionMaskInterface.register(NAME, masked)


def text_config(config: Mapping[str, Any]) -> tuple[PreTrainedConfig, PreTrainedConfig]:
    """Return what transformers makes of a file, and of its text."""
    others = ("model_type", "vision_config", "audio_config", "quantization_config")
    values = deepcopy({key: value for key, value in config.items() if key not in others})  # transformers changes them
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of names of older files
        whole = CONFIG_MAPPING[config["model_type"]].from_dict(values)
    inner = getattr(whole, "text_config", None)
    return whole, inner or (whole if whole.is_encoder_decoder else whole.get_text_config(decoder=True))


def kinds_of(text: PreTrainedConfig) -> list[tuple[Any, ...]]:
    """Return of each layer what lists with an entry for each layer say, by which its code can tell layers apart."""
    layers = layers_of(text)
    values = [*vars(text).values(), getattr(text, "layers_block_type", None)]
    lists = [value for value in values if isinstance(value, list | tuple) and len(value) == layers]
    named = [value for key, value in vars(text).items() if re.search("layers$|idxs$|indices$", key)]
    named = [value for value in named if isinstance(value, list) and value not in lists]
    return [tuple([str(one[n]) for one in lists] + [str(n in one) for one in named]) for n in range(layers)]


def model_of(config: PreTrainedConfig, layers: int) -> Any:
    config._attn_implementation = NAME
    for key in (*LAYERS, "encoder_layers"):
        if hasattr(config, key):
            setattr(config, key, layers)
    if hasattr(config, "num_kv_shared_layers"):
        config.num_kv_shared_layers = 0  # the last ones, which have no keys of their own
    with torch.device("meta"):
        if config.model_type in TEXT_ALONE:
            return TEXT_ALONE[config.model_type](config).eval()
        kind = AutoModel if config.model_type in MODEL_MAPPING_NAMES else AutoModelForCausalLM
        return kind.from_config(config, dtype=torch.bfloat16).eval()


def differences(config: Mapping[str, Any], description: Description, encoder: Description | None) -> list[str]:
    """Return in what descriptions, of an encoder too, differ from the model that transformers makes of a file."""
    whole, text = text_config(config)
    found: list[str] = []

    def same(what: str, ours: object, theirs: object) -> None:
        if ours != theirs:
            found.append(f"{what}: read {ours}, transformers has {theirs}")

    same("layers", description.layers, layers_of(text))
    same("padding id", description.padding_idx, getattr(text, "pad_token_id", None))
    if whole is text and text.model_type not in FORCED:  # else the default of a whole is True, whatever its files have
        same("tied", description.tied, bool(whole.tie_word_embeddings))
    kinds, states = kinds_of(text), states_of(description)
    first = {kind: kinds.index(kind) for kind in kinds}
    for layer, kind in enumerate(kinds):  # of each kind one layer is run
        same(f"layer {layer}, of the kind of layer {first[kind]}", states[layer], states[first[kind]])
    windows = [value for key, value in vars(text).items() if re.search("window|chunk", key) and isinstance(value, int)]
    length = max(200, 2 * max(windows, default=0) + 10)
    rows = None
    if description.input is not None and description.input.scheme == "learned":
        length = description.input.settings["max_length"]
        rows = length + description.position_offset
    model = model_of(text, max(2, *(1 + layer for layer in first.values())))
    tokens = model.get_input_embeddings().weight
    same("token table", (description.vocab_size, description.token_dim), tuple(tokens.shape))
    tables = [m.weight.shape[0] for name, m in model.named_modules() if TABLES.search(name) and hasattr(m, "weight")]
    same("rows of positions", rows, tables[0] if tables and is_learned(model) else None)
    with watching(model) as watched:
        run(model, text, length)
    own = [call for call in watched.calls if not re.search("encoder_attn|EncDec|cross", call.module)]
    of_encoder = [call for call in own if text.is_encoder_decoder and call.module.startswith("encoder")]
    parts = [(description, [call for call in own if call not in of_encoder])]
    for part, calls in parts if encoder is None else (*parts, (encoder, of_encoder)):
        same("attention", bool(calls), bool(part.heads))
        types = part.layer_types or ("",) * part.layers
        attending = [layer for layer in range(part.layers) if types[layer] not in WITHOUT]
        for layer, call in zip(attending, calls, strict=False):
            heads = part.heads[layer]
            same(f"heads of {layer}", (heads.num_heads, heads.head_dim), (call.num_heads, call.head_dim))
            if call.key_heads != call.num_heads or part.rotary_part is None:
                same(f"key heads of {layer}", heads.key_heads, call.key_heads)
            scale = call.scale * getattr(text, "key_multiplier", 1.0)  # of the keys, before
            if abs(part.scales[layer] / scale - 1) > 1e-6:
                same(f"scale of {layer}", part.scales[layer], scale)
            same(f"keys seen in {layer}", seen(part, layer, length), (call.last, call.middle))
            same(f"rotation in {layer}", part.query_key[layer] is not None, call.rotary is not None)
            if call.rotary is not None and part.query_key[layer] is not None:
                found += rotary_differences(part, layer, model, *call.rotary)
    return found


def states_of(description: Description) -> list[tuple[Any, ...]]:
    layers = range(description.layers)
    heads = description.heads or (None,) * description.layers
    return [(heads[n], description.query_key[n], description.score[n], description.windows[n]) for n in layers]


LAYERS = ("decoder_layers", "num_decoder_layers", "num_hidden_layers")
FORCED = ("t5", "mt5", "umt5")
"""Types whose class ties the output projection, but their models not, where a file has both and they differ."""
WITHOUT = ("linear_attention", "conv", "mlp", "moe", "cross_attention")


def layers_of(text: PreTrainedConfig) -> int:
    return next(getattr(text, key) for key in LAYERS if hasattr(text, key))


def is_learned(model: nn.Module) -> bool:
    named = [type(module).__name__ for name, module in model.named_modules() if TABLES.search(name)]
    return bool(named) and "Sinusoid" not in named[0]


def run(model: nn.Module, text: PreTrainedConfig, length: int) -> None:
    """Run a model on tokens without data; what fails behind attention does not matter."""
    ids = torch.zeros(1, length, dtype=torch.long, device="meta")
    others = {"decoder_input_ids": ids} if text.is_encoder_decoder else {}
    with torch.device("meta"), torch.no_grad(), Unknown():
        model(ids, **others)


def seen(description: Description, layer: int, length: int) -> tuple[int, int]:
    """Return how many keys the last and the middle query of a text see."""
    window, middle = description.windows[layer], length // 2
    size = length if window is None else window.size
    if window is not None and window.chunked:
        return (length - 1) % size + 1, middle % size + 1
    before, after = (min(size, middle + 1), 0)
    if not description.causal:
        after = min(size - 1, length - 1 - middle)
    return min(size, length), before + after


def rotary_differences(description: Description, layer: int, model: Any, module: nn.Module, label: str) -> list[str]:
    """Return in what frequencies and magnitude differ from those of a rotary module."""
    plan = description.query_key[layer]
    assert plan is not None
    scheme: Any = plan.build()
    prefix = f"{label}_" if label and hasattr(module, f"{label}_inv_freq") else ""
    if getattr(module, f"{prefix}inv_freq").is_meta:
        module.to_empty(device="cpu")
        model._init_weights(module)
    theirs = getattr(module, f"{prefix}inv_freq").double()
    length = torch.tensor(1) if scheme.follows_length else None
    ours = scheme.frequencies(length)
    if ours.shape != theirs.shape:
        return [f"pairs of {layer}: read {len(ours)}, transformers has {len(theirs)}"]
    found = []
    if (ours - theirs).abs().max() > 2e-7 * theirs.abs().max() or ((ours / theirs - 1).abs() > 1e-5)[theirs > 0].any():
        found.append(f"frequencies of {layer}: read {ours[:3]}..., transformers has {theirs[:3]}...")
    magnitude = getattr(module, f"{prefix}attention_scaling", 1.0)
    magnitude = (getattr(module.config, "rope_parameters", None) or {}).get("short_mscale") or magnitude  # Phi-3.5-MoE
    if abs(float(scheme.magnitude) / magnitude - 1) > 1e-6:
        found.append(f"magnitude of {layer}: read {float(scheme.magnitude)}, transformers has {magnitude}")
    return found
