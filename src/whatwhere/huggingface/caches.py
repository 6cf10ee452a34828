"""KV caches of transformers with the positions of their keys: cropped, moved and joined in place, in all layers."""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from inspect import signature
from typing import Any, cast

import torch
from jaxtyping import Int64, Integer
from torch import Tensor, nn

from whatwhere.errors import CheckpointError, PositionError, SettingError, ShapeError
from whatwhere.huggingface.replacements import RotaryTables
from whatwhere.models.configuration.read import from_huggingface
from whatwhere.position.positions import Positions
from whatwhere.position.positions import positions as counted
from whatwhere.where.binding import Where
from whatwhere.where.kv_cache import KVCache, first_token, position_inside
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.query_factor import QueryFactor
from whatwhere.where.rotary_map import ScaledRotaryMap

_PLAIN = ("DynamicLayer", "DynamicSlidingWindowLayer", "StaticLayer", "StaticSlidingWindowLayer")
"""Layers of transformers that hold nothing but keys and values."""
_AT = (7, 5, 3)  # coordinates at which a token is read to measure how keys are rotated


class ModelCache:
    """A KV cache of transformers and the positions of its keys; `of` makes one.

    Operations, their arguments and their errors are those of a KVCache. They change transformers' cache in place, in
    all layers, and return this object; where one layer refuses, none is changed. Hidden vectors stay as they are.

    Raises:
        SettingError: If positions are inside the hidden vectors, windows have forgotten keys, or models differ.
        PositionError: If tokens or positions are not there, or if a query would see keys that have been forgotten.
        ShapeError: If batches or sizes differ, or a static cache has no room.
    """

    def __init__(self, layers: "list[_Layer]", text: Positions, rows: int, input_scheme: str | None) -> None:
        self._layers, self._input = layers, input_scheme
        self._text = Where().cache()  # of all tokens, also those that windows have forgotten
        nothing = torch.empty(rows, 1, text.tokens, 0, device=text.device)
        self._text.append(text, nothing, nothing)

    @property
    def positions(self) -> Positions:
        """The positions of all tokens, also of those that windows have forgotten."""
        return self._text.positions

    def __repr__(self) -> str:
        return f"<ModelCache: {len(self._layers)} layers, {self._text.tokens} tokens, {self.positions}>"

    def next(self, n: int = 1) -> Positions:
        """Return the positions of the n tokens that follow; `position_ids=cache.next(n).index[0]` states them.

        Without them transformers counts the tokens in its cache, which after `shift` is wrong.
        """
        return self._text.next(n)

    def crop(self, n: int) -> "ModelCache":
        """Keep the first n tokens of the text; below 0, let so many go from its end."""
        gone = -n if n < 0 else self._text.tokens - n
        if not 0 <= gone <= self._text.tokens:
            raise PositionError(f"crop got n={n}, but the text has {self._text.tokens} tokens.")
        return self._change(lambda cache, _: cache.crop(max(cache.tokens - gone, 0)))

    def select(self, rows: Int64[Tensor, " some"] | Sequence[int]) -> "ModelCache":
        """Keep some sequences, in any order and number."""
        return self._change(lambda cache, _: cache.select(rows))

    def shift(self, by: int | Sequence[int] | Integer[Tensor, " batch"]) -> "ModelCache":
        """Move all tokens by a number of positions: one, or one for each axis (a list) or each sequence (a tensor)."""
        return self._change(lambda cache, _: cache.shift(by), "shift")

    def drop(self, a: int, b: int) -> "ModelCache":
        """Delete the tokens from a up to b; later ones close up, so that transformers' count of positions is right."""
        return self._change(lambda cache, _: cache.drop(a, b), "drop")

    def paste(self, other: "ModelCache", at: int | Integer[Tensor, " batch"] | None = None) -> "ModelCache":
        """Append the keys and values of another cache of this model, from a position on; None is the next one."""
        start = self.next().index.amin(0) if at is None else torch.as_tensor(at).reshape(-1, 1)
        by = start - first_token(other.positions)[0]
        theirs = [other._text, *(layer.cache for layer in other._layers)]
        if len(theirs) != len(self._layers) + 1:
            raise SettingError(f"paste got a cache of {len(theirs) - 1} layers, but this one has {len(self._layers)}.")

        def pasted(cache: KVCache, n: int) -> KVCache:  # windows have forgotten the first tokens of some layers
            return cache.paste(theirs[n], (first_token(theirs[n].positions)[0] + by)[:, 0])

        return self._change(pasted, "paste")

    def regime(self, n: int) -> "ModelCache":
        """Rotate all keys to the frequencies of a text of n tokens (LongRoPE, dynamic), as the model has them then."""
        return self._change(lambda cache, _: cache.regime(n))

    def _change(self, operation: Callable[[KVCache, int], object], moves: str | None = None) -> "ModelCache":
        """Do an operation with the text and all layers, and write them when none has refused."""
        if moves is not None and self._input is not None:
            raise SettingError(position_inside(moves, self._input))
        text, *caches = changed = [copy(self._text), *(copy(layer.cache) for layer in self._layers)]
        for n, cache in enumerate(changed):
            operation(cache, n)
        for layer, cache in zip(self._layers, caches, strict=True):
            layer.require_room(cache)
        self._text = text
        for layer, cache in zip(self._layers, caches, strict=True):
            layer.write(cache, text.tokens)
        return self


class _Layer:
    """A layer of a cache of transformers."""

    def __init__(self, layer: Any, where: Where, swapped: bool, text: Positions, regime_length: int | None) -> None:
        self.layer, self.swapped = layer, swapped
        self.static = hasattr(layer, "max_cache_len")
        self.window: int | None = None  # keys that the next query sees beside its own
        if getattr(layer, "is_sliding", False):
            self.window = layer.max_cache_len if self.static else layer.sliding_window - 1
        self.cache = where.cache(regime_length=regime_length)
        k, v = self._tensors()[:: -1 if swapped else 1]
        held = k.shape[2]
        self.cache.append(text[text.tokens - held :] if held < text.tokens else text, k, v)
        if held < text.tokens and self.window is not None:
            self.cache.least = min(self.window, held)

    def _tensors(self) -> tuple[Tensor, Tensor]:
        """Return keys and values of all tokens that are held."""
        layer = self.layer
        if hasattr(layer, "_quantized_keys"):
            k, v = (layer._dequantize(x).to(layer.dtype) for x in (layer._quantized_keys, layer._quantized_values))
            if getattr(layer, "_pending_beam_idx", None) is not None:
                k, v = layer._apply_pending_reorder(k, v)
            pairs = (k, layer.keys), (v, layer.values)
            k, v = (torch.cat([x, rest], dim=2) if rest.numel() else x for x, rest in pairs)
            return k, v
        held = min(int(layer.get_seq_length()), layer.keys.shape[2])
        return layer.keys[:, :, :held], layer.values[:, :, :held]

    def require_room(self, cache: KVCache) -> None:
        """Raise ShapeError where a static layer has no room for all keys."""
        if self.static and self.window is None and cache.tokens > self.layer.max_cache_len:
            raise ShapeError(
                f"{cache.tokens} tokens do not fit: this static cache has room for {self.layer.max_cache_len}.\n"
                "Make a larger one."
            )

    def write(self, cache: KVCache, tokens: int) -> None:
        """Write keys and values, those of a window alone, and that the text has so many tokens."""
        layer, self.cache = self.layer, cache
        first = 0
        if self.window is not None and not getattr(layer, "record_past", False):
            first = max(0, cache.tokens - self.window)
        for name, x in zip(("keys", "values"), (cache.k, cache.v)[:: -1 if self.swapped else 1], strict=True):
            x = x[:, :, first:]
            if hasattr(layer, "_quantized_keys"):
                how = {"axis": getattr(layer, f"axis_{name[:-1]}")} if hasattr(layer, "axis_key") else {}
                setattr(layer, f"_quantized_{name}", layer._quantize(x.contiguous(), **how))
                setattr(layer, name, x.new_empty(0))
                continue
            if self.static:
                x, old = nn.functional.pad(x, (0, 0, 0, layer.max_cache_len - x.shape[2])), getattr(layer, name)
                layer.batch_size = len(x)
                x = old.copy_(x) if len(x) == len(old) else x  # in place: compiled programs know the address
            setattr(layer, name, x)
        if hasattr(layer, "_pending_beam_idx"):
            layer._pending_beam_idx = None
        for name in ("cumulative_length", "cumulative_length_int"):
            if isinstance(getattr(layer, name, None), Tensor):
                getattr(layer, name).fill_(tokens if self.window is None else min(tokens, layer.max_cache_len))
            elif hasattr(layer, name):
                setattr(layer, name, tokens)


def of(
    past_key_values: Any, model: nn.Module, *, positions: Positions | None = None, regime_length: int | None = None
) -> ModelCache:
    """Return a KV cache of transformers with the positions of its keys, to be cropped, moved and joined in place.

    How keys are rotated is measured, not only read: the model reads one token at two positions, and of each layer the
    keys at the second must be those at the first, rotated as its configuration states, in one of both layouts. (Models
    of latent attention, such as DeepSeek's, cache rotated keys as values, in the half layout, where the configuration
    says interleaved.) What fits neither is refused. Quantized layers are quantized again, with that error.

    Args:
        past_key_values: a cache with full, sliding, static or quantized layers; of an encoder-decoder, its
            `self_attention_cache`.
        model: whose cache it is, patched or not.
        positions: of all tokens of the text so far, also those that windows have forgotten, as the model was given
            them: `Positions.from_mask(attention_mask)` of padded prompts, those of images for M-RoPE; None counts from
            0.
        regime_length: the length for which keys were rotated by LongRoPE or dynamic frequencies; None is that of the
            patch, or the trained one while the text is not longer.

    Raises:
        SettingError: If the cache is empty, or has layers that are not of keys and values alone; or the text is longer
            than the trained length, and it is not known for which length keys were rotated.
        CheckpointError: If the model does not rotate keys as its configuration states.
        ShapeError: If there are not the positions of all tokens.

    Examples:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=8, num_hidden_layers=2,
        ...                                      num_attention_heads=2))
        >>> past = model(torch.arange(8)[None], use_cache=True).past_key_values
        >>> of(past, model).drop(2, 5), past.get_seq_length()
        (<ModelCache: 2 layers, 5 tokens, positions(5)>, 5)
    """
    if not hasattr(past_key_values, "layers"):
        raise SettingError(
            f"caches.of needs a cache with layers, but got {type(past_key_values).__name__}.\n"
            "Of an encoder-decoder pass its self_attention_cache."
        )
    layers = [(n, one) for n, one in enumerate(past_key_values.layers) if type(one).__name__ != "DummyLayer"]
    for n, layer in layers:
        if type(layer).__name__ not in _PLAIN and not hasattr(layer, "_quantized_keys"):
            raise SettingError(
                f"layer {n} of this cache is a {type(layer).__name__}, which holds more than keys and values: states "
                "that sum over tokens, or keys of an index.\nCompute the text again."
            )
    if not layers or not all(layer.is_initialized for _, layer in layers):
        raise SettingError("this cache is empty.\nLet the model read a prompt first: model(ids, use_cache=True).")
    tokens = int(layers[0][1].get_seq_length())
    text = counted(tokens, device=layers[0][1].values.device) if positions is None else positions
    if text.tokens != tokens:
        raise ShapeError(f"the cache has {tokens} tokens, but {text.tokens} positions were given.\nPass those of all.")
    description = from_huggingface(cast(Any, model.config))
    tables = (module for module in model.modules() if isinstance(module, RotaryTables))
    patched = next((module.regime_length for module in tables), None)
    regime_length = patched if regime_length is None else regime_length
    held = []
    for n, (where, swapped) in _measured(model, description.wheres(), [n for n, _ in layers], patched).items():
        scaling: Any = getattr(where.query_key, "scaling", None)
        known = regime_length is not None or scaling is None or not scaling.follows_length
        if not known and tokens > scaling.original_length:
            raise SettingError(
                f"this text has {tokens} tokens, {type(scaling).__name__} was trained on {scaling.original_length}, "
                "and the cache does not record for which length each key was rotated.\n"
                "Pass regime_length=, and patch the model with it before the text is read."
            )
        held.append(_Layer(past_key_values.layers[n], where, swapped, text, regime_length))
    rows = held[0].cache.v.shape[0]
    return ModelCache(held, text, rows, None if description.input is None else description.input.class_name)


def _measured(
    model: nn.Module, wheres: list[Where], layers: list[int], regime_length: int | None
) -> dict[int, tuple[Where, bool]]:
    """Return how each layer maps the keys that it caches, and whether they are where values are elsewhere."""
    maps: dict[int, Any] = {}
    for n in layers:
        scheme: Any = wheres[n].query_key
        while isinstance(scheme, QueryFactor):  # of queries alone
            scheme = scheme.then
        maps[n] = scheme
    fixed = {n: (Where(window=wheres[n].window), False) for n in layers}
    if all(scheme is None for scheme in maps.values()):
        return fixed
    axes = max(scheme.axes if isinstance(scheme, MultimodalRotary) else 1 for scheme in maps.values())
    at = [torch.tensor(given[:axes])[:, None, None] for given in ((0, 0, 0), _AT)]
    training = [module for module in model.modules() if module.training]
    model.eval()  # without dropout
    try:
        old, new = (_read(model, index if axes > 1 else index[0]) for index in at)
    finally:
        for module in training:
            module.training = True
    found: dict[int, tuple[Where, bool]] = {}
    for n, scheme in maps.items():
        pairs = list(zip(old[n], new[n], strict=True))  # keys, values
        moved = [name for name, (x, y) in enumerate(pairs) if _differ(x, y)]
        if scheme is None and not moved:
            found[n] = fixed[n]
        elif isinstance(scheme, ScaledRotaryMap) and len(moved) == 1:
            x, y = pairs[moved[0]]
            tables = [Positions.from_coordinates(index.to(x.device)) for index in at]
            lengths = [1, 1 + max(_AT[:axes])] if regime_length is None else [regime_length] * 2
            for one in _layouts(scheme, x.shape[-1]):
                bounds = (one.bind(p, length) for p, length in zip(tables, lengths, strict=True))
                if not _differ(one.rerotate(x, *bounds), y):
                    found[n] = Where(one, window=wheres[n].window), moved[0] == 1
                    break
        if n not in found:
            raise CheckpointError(
                f"layer {n} of this {type(model).__name__} caches keys that are not rotated as its configuration "
                f"states, by {scheme}, in neither layout.\nCompute the text again at its new positions."
            )
    return found


def _layouts(scheme: ScaledRotaryMap, features: int) -> Iterator[ScaledRotaryMap]:
    """Yield the map for keys of so many features in the layout of the configuration, and in the other one."""
    if features not in (scheme.head_dim, scheme.rotary_dim):
        return
    for interleaved in (scheme.interleaved, not scheme.interleaved):
        one = copy(scheme)
        one.interleaved, one.head_dim = interleaved, features
        one.rotary_start = scheme.rotary_start if features == scheme.head_dim else 0
        yield one


def _differ(x: Tensor, y: Tensor) -> bool:
    """Return whether keys differ by more than rounding errors of their dtype."""
    allowed = 2e-4 if x.dtype in (torch.float32, torch.float64) else 2**-6
    return bool((x.double() - y.double()).abs().amax() > allowed * x.double().abs().amax())


def _read(model: nn.Module, index: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the keys and values of each layer for one token at a position."""
    from transformers import DynamicCache

    if "position_ids" not in signature(model.forward).parameters:
        raise CheckpointError(
            f"{type(model).__name__} takes no position_ids, so how it rotates keys cannot be measured.\n"
            "Compute the text again at its new positions."
        )
    device, config = cast(Any, model.device), cast(Any, model.config)
    cache: Any = DynamicCache(config=config)
    ids = torch.zeros(1, 1, dtype=torch.long, device=device)
    with torch.no_grad():
        model(input_ids=ids, position_ids=index.to(device), past_key_values=cache, use_cache=True)
    return [(layer.keys, layer.values) for layer in cache.layers]
