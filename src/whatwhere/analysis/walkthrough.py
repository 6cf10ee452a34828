"""Walk a text through the input layer (tokens, ids, rows, positions, their sum), and on to attention scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import Tensor

from whatwhere.analysis.position_similarity import fingerprint
from whatwhere.analysis.subject import OF_ANOTHER
from whatwhere.atomic import write_atomic
from whatwhere.checks import require_whole
from whatwhere.errors import SettingError, ShapeError, TextError, TokenError, WhatWhereError
from whatwhere.models.checkpoint import Checkpoint
from whatwhere.models.checkpoint.lookup import table_name, word_of
from whatwhere.models.load_where import TOKENS, LoadedWhere, chosen_run, default_heads, load_where, of_run
from whatwhere.models.model_text import (
    encode_text,
    looks_up,
    no_reader,
    reader_of,
    shown_texts,
    token_factor,
    token_rows,
)
from whatwhere.position.positions import positions
from whatwhere.what import text as texts
from whatwhere.what.embedding import TokenEmbedding
from whatwhere.what.expressions import tokenizer_of
from whatwhere.where.binding import Where
from whatwhere.where.catalogue import canonical_name, random_scheme
from whatwhere.where.frequencies import angles
from whatwhere.where.query_key.axial_rotary import AxialRotary
from whatwhere.where.query_key.learned_rotary import LearnedRotary
from whatwhere.where.query_key.multimodal_rotary import MultimodalRotary
from whatwhere.where.query_key.rotary import Rotary
from whatwhere.where.query_key.xpos import XPos
from whatwhere.where.region_map import products
from whatwhere.where.score_bias import tabulate

MAX_TABLE = 1 << 28  # maximum number of values in a random table: 1 GB in float32
MAX_SEED = 1 << 63  # PyTorch takes seeds of 64 bits; tokens and positions have different seeds
_PASS_IDS = "Pass ids, as in --ids 105,6587, or put its tokenizer.json there."
PASSED = "the one that was passed"  # source of the ids of a tokenizer that the user chose


@dataclass(frozen=True, eq=False)
class Walkthrough:
    """Each step from text to vectors."""

    tokens: list[str] | None  # of the tokenizer; None if ids were passed without one
    ids: list[int]
    scheme: str  # the name of the encoding
    rows: Float[Tensor, "tokens dim"]  # the row of each token, E[id]
    position_rows: Float[Tensor, "tokens dim"] | None  # the vector added at each position; None without
    vectors: Float[Tensor, "tokens dim"]  # rows plus position_rows: the input of the first block
    angles: Float[Tensor, "tokens pairs"] | None  # of queries and keys, by frequency; None without rotary positions
    bias: Float[Tensor, "distances heads"] | None  # of each distance, a column for each head; None without
    tokenizer: str = ""  # what made the ids, in words
    table: str | None = None  # name of the tensor that the rows were read from; None where they are random samples
    factor: float = 1.0  # by which the rows were multiplied
    notes: Sequence[str] = ()  # sentences on what differs from a model
    texts: list[str | None] | None = None  # that tokens decode to, with their space; None where not known

    def save(self, file: str | Path) -> None:
        """Write ids and tensors as safetensors."""
        tensors = {name: value.contiguous() for name, value in vars(self).items() if isinstance(value, Tensor)}
        path = Path(file)
        try:
            # save_file of the library writes in place, and replaces a link or a device by a file.
            write_atomic(path, save({"ids": torch.tensor(self.ids), **tensors}, {"scheme": self.scheme}))
        except (OSError, ValueError) as error:  # ValueError: a path with a null byte
            reason = getattr(error, "strerror", None) or error
            raise SettingError(f"{path} cannot be written: {reason}.\nChoose another file.") from error


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
    """Return the input vectors of a Transformer for a text, or for ids, after every step.

    `tokenizer` None is that of the first tutorial's expressions where the whole text is one, else gives words ids in
    order of appearance. `vocab_size` None is the size of the tokenizer, or one more than the largest id.
    """
    _require_one("walk", text, ids)
    scheme = canonical_name(scheme)
    numbers, tokens, size, source = _encode(text, ids, tokenizer)
    rows = size if vocab_size is None else vocab_size
    require_whole("walk", dim=dim, vocab_size=rows)
    if not 0 <= seed < MAX_SEED:
        raise SettingError(f"walk got seed={seed}, but needs a whole number from 0 to below {MAX_SEED:,}.")
    if rows * dim > MAX_TABLE:
        raise SettingError(
            f"a table of {rows:,} rows by {dim:,} features has {rows * dim * 4 / 1e9:.1f} GB, more than 1 GB.\n"
            "Choose a smaller dim, or smaller ids."
        )
    where = random_scheme(scheme, dim, num_heads, len(numbers), seed)
    table = random_embedding(rows, dim, seed)
    meant = None if tokenizer is None or tokens is None else shown_texts(tokens, tokenizer.get_vocab())
    return follow(table, where, numbers, numbers, tokens=tokens, scheme=scheme, tokenizer=source, texts=meant)


def random_embedding(vocab_size: int, dim: int, seed: int = 0) -> TokenEmbedding:
    """Build a token table of samples from N(0, 1), which depend on the seed only."""
    table = TokenEmbedding(vocab_size, dim, init="torch", device="meta").to_empty(device="cpu")
    table.reset_parameters(torch.Generator().manual_seed(seed))
    return table


def follow(
    embedding: TokenEmbedding, where: Where, rows: Sequence[int], ids: Sequence[int], **stated: Any
) -> Walkthrough:
    """Compute every step of an input layer for tokens, with this table and encoding; the other fields are stated."""
    here = where.at(positions(len(rows)))
    frequencies = getattr(where.query_key, "inverse_frequencies", None)
    bias = None if where.score is None else fingerprint(Where(score=where.score), len(rows))
    with torch.no_grad():
        index = torch.tensor(rows)
        return Walkthrough(
            ids=list(ids), rows=embedding(index),
            position_rows=None if where.input is None else where.input(here.queries)[0],
            vectors=here.embed(embedding, index[None])[0],
            angles=angles(torch.arange(len(rows)), frequencies) if isinstance(frequencies, Tensor) else None,
            bias=None if bias is None else bias.values, factor=embedding.factor or 1.0, **stated,
        )  # fmt: skip


def _require_one(function: str, text: str | None, ids: Sequence[int] | None) -> None:
    if (text is None) == (ids is None):
        raise TextError(f'{function} needs either a text or ids: "The cat sat on the mat." or ids=[105, 6587].')


def _encode(
    text: str | None, ids: Sequence[int] | None, tokenizer: Tokenizer | None
) -> tuple[list[int], list[str] | None, int, str]:
    """Return ids, tokens, rows of the table, and what made the ids."""
    if ids is not None:
        if not ids:
            raise TokenError("ids is empty, but needs at least one, as in ids=[105, 6587].")
        for slot, number in enumerate(ids):
            if number < 0:
                raise TokenError(f"id {number} at ({slot},) is negative, but ids count from 0.")
            if tokenizer is not None and tokenizer.id_to_token(number) is None:
                raise TokenError(
                    f"id {number} is unknown to this tokenizer, which has {tokenizer.get_vocab_size()} tokens.\n"
                    "Check that ids and tokenizer belong together."
                )
        tokens = None if tokenizer is None else [str(tokenizer.id_to_token(number)) for number in ids]
        # Ids of a tokenizer may have gaps; then the largest id exceeds the number of tokens.
        size = max(max(ids) + 1, 0 if tokenizer is None else tokenizer.get_vocab_size())
        return list(ids), tokens, size, "none: ids were given" if tokenizer is None else PASSED
    assert text is not None
    encoder, source = tokenizer_of(text) if tokenizer is None else (tokenizer, PASSED)
    numbers, tokens = texts.encode(encoder, text)
    return numbers, tokens, max(encoder.get_vocab_size(), max(numbers) + 1), source


def walk_model(
    source: Checkpoint | str | Path,
    text: str | None = None,
    *,
    ids: Sequence[int] | None = None,
    run: str | None = None,
    scheme: str | None = None,
    seed: int = 0,
) -> Walkthrough:
    """Return the input vectors of a text with a model's own tokenizer, token rows, their factor, and positions.

    What a model adds behind that sum, such as a norm, is not built, and noted. `run` may be None where a comparison has
    only one; `scheme` None is the model's own encoding.
    """
    checkpoint = source if isinstance(source, Checkpoint) else Checkpoint.open(source)
    _require_one("walk_model", text, ids)
    if not checkpoint.runs:
        checkpoint, run = of_run(checkpoint, run), None
    name = chosen_run(checkpoint, run)
    tensor = table_name(checkpoint, "input") if name is None else name + TOKENS
    numbers, tokens, tokenizer = _read(checkpoint, text, ids)
    factor = 1.0 if name is not None else token_factor(checkpoint)
    table = token_rows(checkpoint, tensor, numbers, factor or 1.0)
    where, notes = _positions(checkpoint, name, table.weight.shape[1], scheme, len(numbers), seed)
    if table.weight.shape[1] != checkpoint.entry(tensor).shape[1]:
        notes.append("the rows are those of the table multiplied by its projection")
    if factor is None and checkpoint.config is not None:
        notes.append("the factor of the token embeddings is not known, and taken as 1")
    return follow(
        table, where.where, range(len(numbers)), numbers, tokens=tokens, scheme=where.title, tokenizer=tokenizer,
        table=tensor, notes=tuple(notes), texts=None if tokens is None else shown_texts(tokens, checkpoint.words or ()),
    )  # fmt: skip


def _read(
    checkpoint: Checkpoint, text: str | None, ids: Sequence[int] | None
) -> tuple[list[int], list[str] | None, str]:
    words = checkpoint.words or []
    if text is None:
        numbers = list(ids or ())
        if not numbers or min(numbers) < 0:
            raise TokenError(f"ids are whole numbers from 0, at least one, but got {numbers}.")
        return numbers, [word_of(words, n) for n in numbers] if words else None, "none: ids were given"
    reader = reader_of(checkpoint)
    if reader is None:
        raise TextError(f"{no_reader(checkpoint)}.\n{_PASS_IDS}")
    numbers, tokens = encode_text(checkpoint, reader, text)
    if checkpoint.tokenizer is not None:
        return numbers, tokens, "the model's own"
    if not looks_up(checkpoint):
        return numbers, tokens, "that of the comparison's task"
    return numbers, tokens, f"{checkpoint.why_no_tokenizer}: each word is looked up whole in its vocabulary"


def _positions(
    checkpoint: Checkpoint, run: str | None, dim: int, scheme: str | None, length: int, seed: int
) -> tuple[LoadedWhere, list[str]]:
    """Return the positional encoding, and sentences on what it is not."""
    heads = default_heads(checkpoint, dim)
    if scheme is not None:
        scheme = canonical_name(scheme)
        where = random_scheme(scheme, dim, heads, length, seed, builds=checkpoint.builds)
        learned = any(True for _ in where.parameters())
        notes = [f"the parameters of {scheme} are random, seed {seed}"] if learned else []
        return LoadedWhere(scheme, where, dim, heads, dim // heads), notes
    absent = [] if run is not None else _without_positions(checkpoint)
    if absent:
        return LoadedWhere("not known", Where(), dim, heads, dim // heads), absent
    try:
        loaded = load_where(checkpoint, run)
    except SettingError as problem:
        if checkpoint.config is not None or run is not None:
            raise
        return LoadedWhere("not known", Where(), dim, heads, dim // heads), [" ".join(str(problem).splitlines()[:1])]
    return loaded, list(loaded.notes)


def _without_positions(checkpoint: Checkpoint) -> list[str]:
    """Return why none are added or read: the configuration is of another model, or no layer has attention."""
    if not checkpoint.describes_table:
        return [OF_ANOTHER.format(checkpoint.token_table)]
    try:
        return [] if checkpoint.description.heads else [*checkpoint.description.notes]
    except WhatWhereError:  # which is said where positions are loaded
        return []


# Attention scores


@dataclass(frozen=True, eq=False)
class AttentionScores:
    """Each step from input vectors to attention scores."""

    q: Float[Tensor, "heads tokens head_dim"]  # queries by head, before the query_key map
    k: Float[Tensor, "heads tokens head_dim"]  # keys; without projections the same
    mapped_q: Float[Tensor, "heads tokens mapped_dim"]  # queries after the query_key map
    mapped_k: Float[Tensor, "heads tokens mapped_dim"]  # keys after it
    products: Float[Tensor, "heads tokens tokens"]  # <q_i, k_j> scale, before the map
    mapped_products: Float[Tensor, "heads tokens tokens"]  # and after it
    bias: Float[Tensor, "heads tokens tokens"] | None  # added to each score; None without a bias
    scores: Float[Tensor, "heads tokens tokens"]  # mapped products plus bias; minus infinity for masked keys
    weights: Float[Tensor, "heads tokens tokens"]  # the softmax of each row; a sink takes the rest of its 1
    scale: float  # the softmax scale
    causal: bool  # whether later keys are masked


def attention_scores(
    x: Float[Tensor, "tokens dim"],
    where: Where,
    num_heads: int,
    head_dim: int | None = None,
    *,
    causal: bool = True,
    projections: tuple[Float[Tensor, "features dim"], Float[Tensor, "features dim"]] | None = None,
) -> AttentionScores:
    """Return attention scores of a text from its input vectors, with or without the projections of a model.

        score(h, i, j) = < query_key(q_i, p_i), query_key(k_j, p_j) > * scale + score(h, p_i, p_j)

    In a model q = W_q x and k = W_k x, with x behind a norm: pass that and the two weights. Without them q = k = x by
    heads, so that every number can be traced back to a row of the token table: the scores show the effect of positions,
    not what a layer has learned.

    Args:
        x: input of the first block, or of its projections.
        where: the encoding of positions, which count from 0.
        num_heads: number of attention heads.
        head_dim: features of a head; None is dim / num_heads. The features of wider heads wrap around at dim.
        causal: whether later keys are masked, which schemes for causal attention require.
        projections: the weights of queries and keys as of `nn.Linear`, with heads * head_dim rows; None for none.

    Raises:
        ShapeError: If num_heads or head_dim is below 1, or a projection has a different shape.
        SettingError: If the scheme supports causal attention only, but causal is False.

    Examples:
        >>> from whatwhere import scheme
        >>> steps = attention_scores(torch.ones(2, 4), scheme("alibi", dim=4, num_heads=1, max_length=2), num_heads=1)
        >>> steps.scores
        tensor([[[2.0000,   -inf],
                 [1.9961, 2.0000]]])
    """
    size = head_dim or x.shape[1] // num_heads
    require_whole("attention_scores", num_heads=num_heads, head_dim=size)
    if projections is None:
        starts = torch.arange(num_heads) * x.shape[1] // num_heads
        split = [x[:, (starts[:, None] + torch.arange(size)) % x.shape[1]]] * 2  # (tokens, heads, head_dim)
    else:
        if wrong := [tuple(w.shape) for w in projections if w.shape != (num_heads * size, x.shape[1])]:
            raise ShapeError(
                f"attention_scores got a projection of shape {wrong[0]}, but {num_heads} heads of {size} features of x "
                f"need {(num_heads * size, x.shape[1])}: pass the weights of queries and keys alone."
            )
        split = [(x @ weight.detach().mT).unflatten(-1, (num_heads, size)) for weight in projections]
    q, k = (each.transpose(0, 1)[None].clone(memory_format=torch.contiguous_format) for each in split)
    here = where.at(positions(len(x)))
    scale = size**-0.5 if here.scale is None else here.scale
    with torch.no_grad():
        mapped_q, mapped_k = here.query_key(q, k, increments=here.increments(x[None]))
        for door in (where.query_key, where.score):
            if door is not None:
                door.require_direction(causal)
        product = scale * (q @ k.mT)
        mapped = product
        if where.query_key is not None:
            mapped = scale * products(where.query_key, mapped_q, mapped_k, here.queries, here.keys)
            mapped_q, mapped_k = mapped_q[:, :num_heads], mapped_k[:, :num_heads]  # of the first region
        bias = None
        if (score := where.score) is not None:
            p, gates = positions(len(x)), score.gates(x[None])
            element = score.bind(p, p, q=mapped_q, k=mapped_k, gates=gates, causal=causal)
            bias = tabulate(element, 1, score.num_heads, len(x), len(x), x.device)
        scores = mapped if bias is None else mapped + bias
        if causal:
            scores = scores.masked_fill(~here.queries.mask(), -torch.inf)
        if where.window is not None:
            scores = scores.masked_fill(~where.window.mask(here.queries), -torch.inf)
        total = scores.logsumexp(-1, keepdim=True)
        if where.sink is not None:
            total = total.logaddexp(where.sink.weight[:, None, None])
        weights = (scores - total).exp()
    added = None if bias is None else bias[0]
    return AttentionScores(
        q[0], k[0], mapped_q[0], mapped_k[0], product[0], mapped[0], added, scores[0], weights[0], scale, causal
    )


def rotary_pairs(scheme: object) -> tuple[Int64[Tensor, " pairs"], Int64[Tensor, " pairs"]] | None:
    """Return the two features of each rotary pair, in the order of the frequencies; None where nothing rotates."""
    if not isinstance(scheme, Rotary | LearnedRotary | AxialRotary | MultimodalRotary | XPos):
        return None
    pairs = torch.arange(len(scheme.inverse_frequencies))
    first, second = (2 * pairs, 2 * pairs + 1) if scheme.interleaved else (pairs, pairs + len(pairs))
    return scheme.rotary_start + first, scheme.rotary_start + second
