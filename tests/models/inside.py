"""Look into a Hugging Face model while it runs: what is turned in which layer, by what scores are multiplied."""

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from torch import Tensor, nn

LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?|albert_layers)\.(\d+)$")
TURNS = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave", "apply_rotary_emb")


@dataclass
class Seen:
    """What was recorded in each layer: queries and keys before and after the rotation, and the softmax scale."""

    before: dict[int, list[Tensor]] = field(default_factory=dict)
    after: dict[int, list[Tensor]] = field(default_factory=dict)
    scales: dict[int, float] = field(default_factory=dict)
    heads: dict[int, tuple[int, int, int]] = field(default_factory=dict)


@contextmanager
def looking_into(model: nn.Module) -> Iterator[Seen]:
    """Watch the model's own functions; (batch, heads, tokens, features) is the shape of what is kept."""
    seen, layer = Seen(), [0]

    def rotated(original: Any) -> Any:
        def watched(*args: Any, **others: Any) -> Any:
            out = original(*args, **others)
            pairs = zip(args, out, strict=False) if isinstance(out, tuple) else [(args[0], out)]
            # GPT-J and Gemma 3n turn one at a time; they and Llama 4 have heads behind tokens
            behind = not isinstance(out, tuple) or (
                original.__name__ == "apply_rotary_emb" and "llama4" in original.__module__
            )
            for x, y in pairs:
                seen.before.setdefault(layer[0], []).append(x.transpose(1, 2) if behind else x)
                seen.after.setdefault(layer[0], []).append(y.transpose(1, 2) if behind else y)
            return out

        return watched

    def attended(original: Any) -> Any:
        def watched(module: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any, **others: Any) -> Any:
            if layer[0] not in seen.scales:
                seen.scales[layer[0]] = others.get("scaling", args[1] if len(args) > 1 else None)
                seen.heads[layer[0]] = (q.shape[1], k.shape[1], q.shape[-1])
            return original(module, q, k, v, *args, **others)

        return watched

    with ExitStack() as stack:
        for name, module in model.named_modules():
            if result := LAYER.search(name):
                index = int(result[1])
                hook = module.register_forward_pre_hook(
                    lambda m, a, k, i=index: layer.__setitem__(0, i), with_kwargs=True
                )
                stack.callback(hook.remove)
        for name in {type(module).__module__ for module in model.modules()}:
            source = sys.modules[name]
            for function in TURNS:
                if hasattr(source, function):
                    stack.enter_context(patch.object(source, function, rotated(getattr(source, function))))
            if hasattr(source, "eager_attention_forward"):
                stack.enter_context(
                    patch.object(source, "eager_attention_forward", attended(source.eager_attention_forward))
                )
        yield seen


@dataclass
class Entered:
    """What enters the first layer or the norm before it, and the tables besides the tokens' that it is made of."""

    vectors: Tensor | None = None
    table: nn.Parameter | None = None
    kinds: Tensor | None = None


NORMS = re.compile(
    r"(embeddings\.(LayerNorm|layer_norm|norm)|layernorm_embedding|word_embeddings_layernorm|embeddings_layer_norm|layer_norm_emb|embedding_layernorm|^model\.norm)$"
)
TABLES = re.compile(r"(^|\.)(wpe|pos_emb|position_embeddings|embed_positions|positions_embed)$")
FIRST = re.compile(r"(^|\.)(layers?|h|blocks?|albert_layers|embedding_hidden_mapping_in|embeddings_project)(\.0)?$")


@contextmanager
def entering(model: nn.Module, part: str | None) -> Iterator[Entered]:
    """Watch what goes into the first layer of a part, or of a model that has only one."""
    entered = Entered()
    prefix = "" if part is None else next(name for name, _ in model.named_modules() if name.endswith(part))
    inner = [
        (name, module)
        for name, module in model.named_modules()
        # the tables of a protein encoder and of LUKE's entities are others
        if name.startswith(prefix) and "protein_encoder" not in name and "entity" not in name
    ]

    def watch(module: nn.Module, args: tuple[Any, ...], others: dict[str, Any]) -> None:
        if entered.vectors is None:
            entered.vectors = (args[0] if args else others["hidden_states"]).detach().clone()

    for name, module in inner:
        if TABLES.search(name) and isinstance(module, nn.Embedding) and isinstance(module.weight, nn.Parameter):
            entered.table = module.weight
        if name.endswith(("token_type_embeddings", "segment_emb")):
            entered.kinds = module.weight[0]
    norms = [module for name, module in inner if NORMS.search(name)]
    layers = [module for name, module in inner if FIRST.search(name) and not isinstance(module, nn.ModuleList)]
    # the first that is called counts: norms of BigBird-Pegasus and of most models are behind their layers
    hooks = [module.register_forward_pre_hook(watch, with_kwargs=True) for module in (*norms, *layers[:1])]
    yield entered
    for hook in hooks:
        hook.remove()
