"""Checks of settings, without PyTorch."""

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from inspect import Parameter, signature
from numbers import Real
from typing import ParamSpec, TypeVar

from whatwhere.errors import SettingError, ShapeError

P = ParamSpec("P")
R = TypeVar("R")

_ELSEWHERE = {
    "vocab_size": "num_embeddings num_tokens n_vocab",
    "num_embeddings": "vocab_size num_tokens",
    "embedding_dim": "dim d_model n_embd hidden_size embed_dim",
    "dim": "embedding_dim d_model n_embd hidden_size embed_dim",
    "head_dim": "dim dim_head d_head d_k",
    "rotary_dim": "rot_dim rotary_ndims",
    "theta": "base rope_theta rotary_base",
    "interleaved": "is_neox_style rotary_interleaved traditional",
    "scaling": "rope_scaling scaling_factor scale_factor rope_parameters",
    "original_length": "original_max_position_embeddings",
    "factor": "scale scaling_factor",
    "max_length": "max_position_embeddings max_seq_len max_seq_length max_len block_size n_positions num_positions"
    " num_embeddings seq_len context_length",
    "num_heads": "n_heads heads n_head nhead num_attention_heads",
    "causal": "is_causal",
    "dropout": "dropout_p attn_dropout",
    "mask": "attn_mask",
    "engine": "backend attn_implementation",
    "queries": "positions position_ids seq_len",
    "input": "where encoding position_encoding position pos_encoding",
    "targets": "target labels",
    "softcap": "logit_softcapping logits_soft_cap final_logit_softcapping",
    "window": "window_size sliding_window",
    "chunk": "chunk_size attention_chunk_size",
    "sink": "sinks attention_sink s_aux",
    "capacity": "max_length max_cache_len max_seq_len",
    "padding_idx": "pad_token_id pad_idx",
}
"""Names that an argument has in other libraries."""
_VALUES = {
    "mask": "..., of bool, True where a query may attend to a key: nn.MultiheadAttention has it the other way round.",
    "interleaved": "True for pairs of neighbors, as traditional=True and is_neox_style=False, else False.",
    "scaling": "ww.scaling.Linear(factor=2.0) or another one; a configuration is read by from_huggingface(config).",
    "input": "Sinusoidal(...), Learned(...) or another InputEncoding: what acts in attention belongs to a Where there.",
}
_INSTEAD = {
    "The softmax scale belongs to the layer: Where(..., scale=...).": "scale softmax_scale sm_scale scaling",
    "The window belongs to the layer: Where(..., window=...).": "window window_size sliding_window local_window_size",
    "Padding is in the positions: where.at(Positions.from_mask(mask)).": "attention_mask key_padding_mask padding_mask",
    "Positions are bound before: here = where.at(positions).": "positions position_ids",
    "A bias of the scores is a ScoreBias of the layer, such as ALiBi: Where(..., score=...).": "bias attn_bias"
    " position_bias alibi_slopes",
    "Key heads may be fewer than query heads: leave it out.": "enable_gqa num_key_value_heads",
    "Keys of a KV cache are in its layer: cache = where.cache().": "past_key_values past_key_value kv_cache use_cache",
    "attention_with_lse returns the logarithm of the denominator; no call returns weights.": "return_lse need_weights"
    " return_weights output_attentions",
    "Pass dropout=0 outside of training.": "training",
}
_INSTEAD_OF_SETTINGS = {
    "Causality is an argument of attention: here(q, k, v, causal=...).": "causal is_causal",
    "A mask is an argument of attention: here(q, k, v, mask=...), of bool, True where a query may attend.": "attn_mask",
    "Positions have no maximum here: leave it out.": "max_position_embeddings max_seq_len max_seq_length max_len",
    "Positions belong to a call: where.at(positions), layer(ids, positions).": "positions position_ids",
    "Of attention weights it is here(q, k, v, dropout=...), of vectors nn.Dropout.": "dropout dropout_p attn_dropout",
    "Pass rotary_dim, the features to rotate, not a fraction.": "partial_rotary_factor rotary_percent rotary_pct",
    "Schemes are passed without a name: Where(Rotary(...), ALiBi(...)).": "rotary rope bias alibi position",
    "All heads share it: leave it out.": "num_heads n_heads num_attention_heads",
    "Set the numbers afterwards, by nn.init.": "std initializer_range",
    "Move the module: .to(device, dtype).": "device dtype",
}
_INSTEAD_OF_LOSS = {
    "Weight the losses of tokens that reduction='none' returns.": "weight class_weights class_weight ce_weight",
    "Pass reduction='mean', 'sum' or 'none'.": "size_average reduce",
    "Nothing is shifted here: for the next token, loss(hidden[:, :-1], ids[:, 1:]).": "shift shift_labels",
}
_BY_CALL = dict.fromkeys(("loss", "linear_cross_entropy"), _INSTEAD_OF_LOSS)
_BY_CALL |= {"__init__": _INSTEAD_OF_SETTINGS, "at": _INSTEAD_OF_SETTINGS | _INSTEAD}
"""What to do instead of passing some arguments of other libraries: by method, and `_INSTEAD` for the other ones."""


def answers_names_of_others(call: Callable[P, R]) -> Callable[P, R]:
    """Make a method raise SettingError for an argument of other libraries, with what to pass or to do here."""
    parameters = signature(call).parameters
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
        return call  # which may take any name
    known = frozenset(parameters)
    positional = [name for name, each in parameters.items() if each.kind is not Parameter.KEYWORD_ONLY]
    instead = _BY_CALL.get(call.__name__, _INSTEAD)

    @wraps(call)
    def checked(*given: P.args, **settings: P.kwargs) -> R:
        for name in settings:
            if name not in known or name in positional[: len(given)]:
                owner = type(given[0]).__name__ if call.__name__ == "__init__" else call.__qualname__
                _refuse_name_of_others(owner.removesuffix(".__call__"), name, known, instead)
        return call(*given, **settings)

    return checked


def _refuse_name_of_others(owner: str, name: str, known: Collection[str], instead: Mapping[str, str]) -> None:
    if own := [mine for mine, others in _ELSEWHERE.items() if mine in known and name in others.split()]:
        value = _VALUES.get(own[0], "...")
        raise SettingError(f"{owner} has no argument {name!r}; it is called {own[0]} here.\nPass {own[0]}={value}")
    if ways := [way for way, others in instead.items() if name in others.split()]:
        other = "other " if name in known else ""  # F.cross_entropy weights classes by a name that is the table's here
        raise SettingError(f"{owner} has no {other}argument {name!r}.\n{ways[0]}")


def require_whole(owner: str, least: int = 1, /, **sizes: int) -> None:
    """Raise ShapeError unless every size is a whole number of at least 1, or another least one."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < least:
            raise ShapeError(f"{owner} got {name}={size!r}, but needs a whole number of at least {least}.")


def require_even(owner: str, reason: str, **sizes: int) -> None:
    """Raise ShapeError unless every size is even."""
    for name, size in sizes.items():
        if size % 2:
            raise ShapeError(
                f"{owner} got {name}={size}, but needs an even number: {reason}.\n"
                + (f"The nearest even numbers are {size - 1} and {size + 1}." if size > 1 else "The smallest is 2.")
            )


def require_positive(owner: str, **settings: float) -> None:
    """Raise SettingError unless every setting is a finite number above zero."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < float("inf"):
            raise SettingError(f"{owner} got {name}={value!r}, but needs a finite number above 0.")


def require_magnitude(owner: str, **settings: float) -> None:
    """Raise SettingError unless every setting is above zero and its square, a factor of the scores, fits float32."""
    require_positive(owner, **settings)
    for name, value in settings.items():
        if not 1e-18 <= value <= 1e18:
            raise SettingError(
                f"{owner} got {name}={value!r}, but needs a number from 1e-18 to 1e18.\n"
                "Queries and keys are both multiplied by it, in float32. The authors take some number between 1 and 2."
            )


def require_choice(owner: str, setting: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise SettingError unless the value is one of the choices."""
    if value not in choices:
        raise SettingError(f"{owner} got {setting}={value!r}, but knows only: {', '.join(choices)}.")
