"""Walk a text through the input layer: tokens, ids, their rows, what positions add, and the sum."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import Tensor

from whatwhere.analysis.position_similarity import fingerprint
from whatwhere.atomic import write_atomic
from whatwhere.checks import require_whole
from whatwhere.errors import SettingError, TextError, TokenError
from whatwhere.position import positions
from whatwhere.what import text as texts
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.where.binding import Where
from whatwhere.where.catalogue import scheme as build_scheme
from whatwhere.where.frequencies import angles

LARGEST_TABLE = 1 << 28
"""Numbers in a random table: 1 GB of float32."""

LARGEST_SEED = 1 << 63
"""PyTorch takes 64 bits; tokens and positions have different seeds."""


@dataclass(frozen=True, eq=False)
class Walkthrough:
    """Each step from text to vectors.

    Args:
        tokens, ids: of the tokenizer; tokens are None where ids were passed without one.
        scheme: the name of the encoding.
        rows: the row of each token, E[id].
        position_rows: the vector added at each position; None without an input encoding.
        vectors: rows plus position_rows: the input of the first block.
        angles: radians by which queries and keys are rotated, one column for each frequency: of a pair of features, or
            of each feature (PoPE); None without a rotary.
        bias: added to the score at each distance, one column for each head; None without a score scheme.
    """

    tokens: list[str] | None
    ids: list[int]
    scheme: str
    rows: Float[Tensor, "tokens dim"]
    position_rows: Float[Tensor, "tokens dim"] | None
    vectors: Float[Tensor, "tokens dim"]
    angles: Float[Tensor, "tokens pairs"] | None
    bias: Float[Tensor, "distances heads"] | None

    def as_dict(self) -> dict[str, object]:
        """Return all fields as a dictionary that json.dumps writes: tensors become lists."""
        facts: dict[str, object] = {"scheme": self.scheme, "tokens": self.tokens, "ids": self.ids}
        return facts | {name: None if value is None else value.tolist() for name, value in self._tensors().items()}

    def save(self, file: str | Path) -> None:
        """Write ids and tensors as safetensors; raise SettingError where the file cannot be written."""
        tensors = {name: value.contiguous() for name, value in self._tensors().items() if value is not None}
        path = Path(file)
        try:
            # save_file of the library writes in place, and replaces a link or a device by a file.
            write_atomic(path, save({"ids": torch.tensor(self.ids), **tensors}, {"scheme": self.scheme}))
        except (OSError, ValueError) as error:  # ValueError: a path with a null byte
            reason = getattr(error, "strerror", None) or error
            raise SettingError(f"{path} cannot be written: {reason}.\nChoose another file.") from error

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
    """Return the input vectors of a Transformer for a text, or ids, with every step.

    Args:
        text: the input; pass either this or `ids`.
        ids: token ids, which need no tokenizer.
        tokenizer: of the text; None numbers its words in order of appearance.
        scheme: a name of the catalogue, or a mixture such as "sinusoidal+alibi".
        dim: features of a vector.
        num_heads: heads of schemes that depend on them.
        vocab_size: rows of the token table; None is the size of the tokenizer, or one more than the largest id.
        seed: of the random tables; tokens are N(0, 1), the default of nn.Embedding.

    Raises:
        TextError: both text and ids are passed, or neither.
        TokenError: an id is negative, or unknown to the tokenizer.
        SettingError: the seed is out of range, or the table too large.

    Examples:
        >>> steps = walk("The cat sat on the mat.", dim=4)
        >>> steps.tokens[-1], steps.position_rows[1]
        ('.', tensor([0.8415, 0.5403, 0.0100, 0.9999]))
    """
    numbers, tokens, size = _encode(text, ids, tokenizer)
    rows = size if vocab_size is None else vocab_size
    require_whole("walk", dim=dim, vocab_size=rows)
    if not 0 <= seed < LARGEST_SEED:
        raise SettingError(f"walk got seed={seed}, but needs a whole number from 0 to below {LARGEST_SEED:,}.")
    if rows * dim > LARGEST_TABLE:
        raise SettingError(
            f"a table of {rows:,} rows by {dim:,} features has {rows * dim * 4 / 1e9:.1f} GB, more than 1 GB.\n"
            "Choose a smaller dim, or smaller ids."
        )
    where = random_scheme(scheme, dim, num_heads, len(numbers), seed)
    table = random_embedding(rows, dim, seed)
    return follow(table, where, numbers, numbers, tokens=tokens, scheme=scheme)


def random_scheme(name: str, dim: int, num_heads: int, max_length: int, seed: int = 0, **options: object) -> Where:
    """Return a scheme of the catalogue; its parameters are sampled, and depend on the seed only."""
    # Another seed than that of the tokens, so that all schemes are shown with the same tokens.
    generator = torch.Generator().manual_seed(2_000_003 + seed)
    return build_scheme(name, dim, num_heads, max_length, generator=generator, **options)


def random_embedding(vocab_size: int, dim: int, seed: int = 0) -> TokenEmbedding:
    """Return a token table sampled from N(0, 1), which depends on the seed only."""
    table = TokenEmbedding(vocab_size, dim, init="torch", device="meta").to_empty(device="cpu")
    table.reset_parameters(torch.Generator().manual_seed(seed))
    return table


def follow(
    table: TokenEmbedding,
    where: Where,
    rows: Sequence[int],
    ids: Sequence[int],
    *,
    tokens: list[str] | None = None,
    scheme: str = "",
) -> Walkthrough:
    """Return every step of the input layer for given tokens, table and encoding.

    Args:
        table: of the tokens.
        where: the encoding of positions, which count from 0.
        rows: of the table, one for each token.
        ids: of the tokens, which differ from `rows` where the table is part of a larger one.
        tokens: their text.
        scheme: the name of the encoding.

    Examples:
        >>> follow(TokenEmbedding.from_weight(torch.eye(2)), Where(), [1, 0], [7, 3]).vectors
        tensor([[0., 1.],
                [1., 0.]])
    """
    here = where.at(positions(len(rows)))
    with torch.no_grad():
        index = torch.tensor(rows)
        return Walkthrough(
            tokens=tokens,
            ids=list(ids),
            scheme=scheme,
            rows=table(index),
            position_rows=None if where.input is None else where.input(here.queries)[0],
            vectors=here.embed(table, index[None])[0],
            angles=_angles(where, len(rows)),
            bias=_bias(where, len(rows)),
        )


def _encode(
    text: str | None, ids: Sequence[int] | None, tokenizer: Tokenizer | None
) -> tuple[list[int], list[str] | None, int]:
    if (text is None) == (ids is None):
        raise TextError('walk needs either a text or ids: "The cat sat on the mat." or ids=[105, 6587].')
    if ids is not None:
        if not ids:
            raise TokenError("ids is empty, but needs at least one, as in ids=[105, 6587].")
        for slot, number in enumerate(ids):
            if number < 0:
                raise TokenError(f"id {number} at ({slot},) is negative, but ids count from 0.")
        tokens = None if tokenizer is None else [_known(tokenizer, number) for number in ids]
        # Ids of a tokenizer may have gaps: the largest is then beyond the number of tokens.
        return list(ids), tokens, max(max(ids) + 1, 0 if tokenizer is None else tokenizer.get_vocab_size())
    assert text is not None
    encoder = texts.words(text) if tokenizer is None else tokenizer
    numbers, tokens = texts.encode(encoder, text)
    return numbers, tokens, max(encoder.get_vocab_size(), max(numbers) + 1)


def _known(tokenizer: Tokenizer, number: int) -> str:
    token = tokenizer.id_to_token(number)
    if token is None:
        raise TokenError(
            f"id {number} is unknown to this tokenizer, which has {tokenizer.get_vocab_size()} tokens.\n"
            "Check that ids and tokenizer belong together."
        )
    return str(token)


def _angles(where: Where, tokens: int) -> Tensor | None:
    frequencies = getattr(where.query_key, "inverse_frequencies", None)
    return angles(torch.arange(tokens), frequencies) if isinstance(frequencies, Tensor) else None


def _bias(where: Where, tokens: int) -> Tensor | None:
    image = None if where.score is None else fingerprint(Where(score=where.score), tokens)
    return None if image is None else image.values
