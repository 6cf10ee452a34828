"""Walk a text through the input layer: tokens, ids, the row of each, what its position does, and the sum."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import Tensor

from whatwhere.analysis.similarity import fingerprint
from whatwhere.checks import require_whole
from whatwhere.errors import SettingError, TextError, TokenError
from whatwhere.ruler import positions
from whatwhere.what import text as texts
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.binding import Where
from whatwhere.where.catalogue import scheme as build_scheme
from whatwhere.where.frequencies import angles

LARGEST_TABLE = 1 << 28
"""Numbers in a table that is drawn for show: 1 GB of float32."""

LARGEST_SEED = 1 << 63
"""PyTorch takes 64 bits; tokens and positions have a seed each."""

_DRAWING = Lock()
"""PyTorch's random state is one for all threads."""


@dataclass(frozen=True, eq=False)
class Walkthrough:
    """Hold each step from text to vectors.

    Args:
        tokens, ids: as the tokenizer gives them; tokens are None where ids were given.
        scheme: how position is told.
        rows: the row of each token, E[id].
        position_rows: what is added at each position; None where the scheme adds nothing to the vectors.
        vectors: rows plus position_rows: what enters the first block.
        angles: radians by which queries and keys are turned, one column a frequency: of a pair of features, or of each
            (PoPE); None without a rotary.
        bias: what is added to the score at each distance, one column a head; None without a score scheme.
    """

    tokens: list[str] | None
    ids: list[int]
    scheme: str
    rows: Float[Tensor, "tokens dim"]
    position_rows: Float[Tensor, "tokens dim"] | None
    vectors: Float[Tensor, "tokens dim"]
    angles: Float[Tensor, "tokens pairs"] | None
    bias: Float[Tensor, "distances heads"] | None

    def as_dict(self) -> dict[str, Any]:
        """Give everything as JSON holds it."""
        found: dict[str, Any] = {"scheme": self.scheme, "tokens": self.tokens, "ids": self.ids}
        return found | {name: None if value is None else value.tolist() for name, value in self._tensors().items()}

    def save(self, file: str | Path) -> None:
        """Write ids and vectors as safetensors."""
        tensors = {name: value.contiguous() for name, value in self._tensors().items() if value is not None}
        path = Path(file)
        try:
            # The library's own save_file puts a new file there, also where a link or a device was.
            path.write_bytes(save({"ids": torch.tensor(self.ids), **tensors}, {"scheme": self.scheme}))
        except (OSError, ValueError) as problem:  # ValueError: a path with a null byte
            reason = getattr(problem, "strerror", None) or problem
            raise SettingError(f"{path} cannot be written: {reason}.\nChoose another file.") from problem

    def _tensors(self) -> dict[str, Tensor | None]:
        names = ("rows", "position_rows", "vectors", "angles", "bias")
        return {name: getattr(self, name) for name in names}


def walk(
    text: str | None = None,
    *,
    ids: Sequence[int] | None = None,
    tokenizer: Tokenizer | None = None,
    scheme: str = "sinusoidal",
    dim: int = 8,
    num_heads: int = 2,
    vocab_size: int | None = None,
    seed: int = 0,
) -> Walkthrough:
    """Turn a text, or ids, into the vectors that enter a Transformer, and keep every step.

    Args:
        text: what to read; ids instead skip the tokenizer.
        tokenizer: None numbers the words of the text itself, in order of appearance, as tutorials do by hand.
        scheme: a name of the catalogue, or a mixture such as "sinusoidal+alibi".
        vocab_size: rows of the token table; None is the tokenizer's size, or one more than the largest id.
        seed: of the random tables; tokens are N(0, 1), as PyTorch's nn.Embedding draws them.

    >>> found = walk("The cat sat on the mat.", dim=4)
    >>> found.tokens[-1], found.position_rows[1]
    ('.', tensor([0.8415, 0.5403, 0.0100, 0.9999]))
    """
    numbers, tokens, size = _numbers(text, ids, tokenizer)
    rows = size if vocab_size is None else vocab_size
    require_whole("walk", dim=dim, vocab_size=rows)
    if not 0 <= seed < LARGEST_SEED:
        raise SettingError(f"walk got seed={seed}, but needs a whole number from 0 to below {LARGEST_SEED:,}.")
    if rows * dim > LARGEST_TABLE:
        raise SettingError(
            f"a table of {rows:,} rows by {dim:,} features is {rows * dim * 4 / 1e9:.1f} GB; this shows small ones.\n"
            "Choose a smaller dim, or smaller ids."
        )
    where = draw_scheme(scheme, dim, num_heads, len(numbers), seed)
    table = draw_tokens(rows, dim, seed)
    return follow(table, where, numbers, numbers, tokens=tokens, scheme=scheme)


def draw_scheme(name: str, dim: int, num_heads: int, max_length: int, seed: int = 0, **options: Any) -> Where:
    """Build a scheme of the catalogue; what it learns depends on the seed alone. The caller's random state is kept."""
    # A seed of its own: all schemes show the same tokens.
    with _DRAWING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(2_000_003 + seed)
        return build_scheme(name, dim, num_heads, max_length, **options)


def draw_tokens(vocab_size: int, dim: int, seed: int = 0) -> TokenEmbedding:
    """Draw a token table from N(0, 1); it depends on the seed alone. The caller's random state is kept."""
    with _DRAWING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TokenEmbedding(vocab_size, dim, init="torch")


def follow(
    table: TokenEmbedding,
    where: Where,
    rows: Sequence[int],
    ids: Sequence[int],
    *,
    tokens: list[str] | None = None,
    scheme: str = "",
) -> Walkthrough:
    """Follow tokens of a given table through a given scheme.

    Args:
        table: of the tokens.
        where: how position is told; positions count from 0.
        rows: of the table, one for each token.
        ids: what they are called by, which differ from the rows where the table holds a part of a larger one.
        tokens: their text.
        scheme: the name of it.

    >>> follow(TokenEmbedding.from_weight(torch.eye(2)), Where(), [1, 0], [7, 3]).vectors
    tensor([[0., 1.],
            [1., 0.]])
    """
    here = where.at(positions(len(rows)))
    with torch.no_grad():
        given = torch.tensor(rows)
        return Walkthrough(
            tokens=tokens,
            ids=list(ids),
            scheme=scheme,
            rows=table(given),
            position_rows=None if where.input is None else where.input(here.queries)[0],
            vectors=here.embed(table, given[None])[0],
            angles=_angles(where, len(rows)),
            bias=_bias(where, len(rows)),
        )


def _numbers(
    text: str | None, ids: Sequence[int] | None, tokenizer: Tokenizer | None
) -> tuple[list[int], list[str] | None, int]:
    if (text is None) == (ids is None):
        raise TextError('give a text, or ids instead of it: "The cat sat on the mat." or ids=[105, 6587].')
    if ids is not None:
        if not ids:
            raise TokenError("there are no ids; give at least one, as in ids=[105, 6587].")
        for place, number in enumerate(ids):
            if number < 0:
                raise TokenError(f"id {number} at ({place},) is negative, but ids count from 0.")
        tokens = None if tokenizer is None else [_known(tokenizer, number) for number in ids]
        # Where numbers are left out, the largest id lies beyond the count of tokens.
        return list(ids), tokens, max(max(ids) + 1, 0 if tokenizer is None else tokenizer.get_vocab_size())
    assert text is not None
    used = texts.words(text) if tokenizer is None else tokenizer
    numbers, tokens = texts.encode(used, text)
    return numbers, tokens, max(used.get_vocab_size(), max(numbers) + 1)


def _known(tokenizer: Tokenizer, number: int) -> str:
    token = tokenizer.id_to_token(number)
    if token is None:
        raise TokenError(
            f"id {number} is not of this tokenizer, which has {tokenizer.get_vocab_size()} tokens.\n"
            "Check that ids and tokenizer belong together."
        )
    return str(token)


def _angles(where: Where, tokens: int) -> Tensor | None:
    frequencies = getattr(where.query_key, "inverse_frequencies", None)
    return angles(torch.arange(tokens), frequencies) if isinstance(frequencies, Tensor) else None


def _bias(where: Where, tokens: int) -> Tensor | None:
    seen = None if where.score is None else fingerprint(Where(score=where.score), tokens)
    return None if seen is None else seen.values
