"""Checks of settings, without PyTorch."""

from collections.abc import Collection
from numbers import Real

from whatwhere.errors import SettingError, ShapeError

_ELSEWHERE = {
    "num_embeddings": "vocab_size num_tokens",
    "embedding_dim": "dim d_model n_embd hidden_size embed_dim",
    "dim": "embedding_dim d_model n_embd hidden_size embed_dim",
    "head_dim": "dim dim_head d_head d_k",
    "rotary_dim": "rot_dim rotary_ndims",
    "theta": "base rope_theta rotary_base",
    "interleaved": "is_neox_style rotary_interleaved",
    "max_length": "max_position_embeddings max_seq_len max_seq_length max_len block_size n_positions num_positions"
    " num_embeddings seq_len context_length",
    "num_heads": "n_heads heads n_head nhead num_attention_heads",
    "causal": "is_causal",
    "dropout": "dropout_p attn_dropout",
    "mask": "attn_mask attention_mask bias",
}
"""Names that an argument has in other libraries."""


def refuse_names_of_others(owner: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise SettingError for an argument under the name that it has in other libraries, with the one that it has here.

    Args:
        given: names of the arguments that were passed.
        known: names of the arguments that there are.
    """
    for name in given:
        own = [mine for mine, others in _ELSEWHERE.items() if mine in known and name in others.split()]
        if name not in known and own:
            raise SettingError(f"{owner} has no argument {name!r}; it is called {own[0]} here.\nPass {own[0]}=...")


def require_whole(owner: str, **sizes: int) -> None:
    """Raise ShapeError unless every size is a whole number of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ShapeError(f"{owner} got {name}={size!r}, but needs a whole number of at least 1.")


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
