"""The Transformer that is trained, its token table and schemes, and the positions of tokens in training and tests."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize, skip_init

from whatwhere.comparison.settings import Settings, rank_of
from whatwhere.comparison.tasks import Task
from whatwhere.errors import RandomPositionsWarning, SettingError
from whatwhere.initialization import reset_linear
from whatwhere.position.positions import Positions, positions
from whatwhere.what.embedding import Init, TokenEmbedding
from whatwhere.where.binding import Here, Where, bind
from whatwhere.where.catalogue import Build, build_layers, canonical_name, catalogue, entry_names
from whatwhere.where.input_layer import InputLayer


class LowRank(nn.Module):
    """The product of two factors as the weight of a table: E = A B, A (tokens, rank), B (rank, dim).

    It starts as the best approximation of a sampled table by this rank (Eckart and Young 1936), scaled to its norm.
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def forward(self, left: Float[Tensor, "tokens rank"], right: Float[Tensor, "rank dim"]) -> Tensor:
        """Return the table."""
        return left @ right

    def right_inverse(self, table: Float[Tensor, "tokens dim"]) -> tuple[Tensor, Tensor]:
        """Return the factors of the approximation of a table."""
        u, s, v = torch.linalg.svd(table, full_matrices=False)
        kept = s[: self.rank] * (s.norm() / s[: self.rank].norm())
        return u[:, : self.rank] * kept.sqrt(), kept.sqrt()[:, None] * v[: self.rank]


def token_table(vocab_size: int, settings: Settings, generator: torch.Generator | None = None) -> TokenEmbedding:
    """Build the token table that the settings name.

        learned, frozen  rows sampled as `init` describes
        onehot           E[t] = e_t
        rankK            A B, of rank K, sampled as `init` describes
        ids              E[t] = z_t u + v,  z_t = (t - mean) / std,  u and v sampled, orthogonal and of norm 1

    `ids` is what a linear layer makes of the id as a number. Without v, the normalization before attention would leave
    of z_t its sign alone. All kinds advance the generator alike, so that the layers of a model start equal.
    """
    dim, kind = settings.dim, settings.table
    table = TokenEmbedding(vocab_size, dim, init=cast("Init | float", settings.init), device="meta")
    table.to_empty(device="cpu").reset_parameters(generator)
    if kind == "onehot":
        if dim < vocab_size:
            raise SettingError(f"one-hot rows of {vocab_size} tokens need dim={vocab_size} or more, but dim={dim}.")
        return TokenEmbedding.from_weight(torch.eye(vocab_size, dim), freeze=True)
    if kind == "ids":
        return TokenEmbedding.from_weight(_ids(table.weight.detach()), freeze=True)
    rank = rank_of(kind)
    if rank is not None:
        parametrize.register_parametrization(table, "weight", LowRank(rank))
    elif kind == "frozen":
        table.weight.requires_grad_(False)
    return table


def _ids(sampled: Float[Tensor, "tokens dim"]) -> Float[Tensor, "tokens dim"]:
    """Return a table of raw ids, in the directions of two sampled rows."""
    if min(sampled.shape) < 2:
        raise SettingError(f"table='ids' needs two tokens and dim=2 or more, but the table is {tuple(sampled.shape)}.")
    ids = torch.arange(float(len(sampled)))
    z = (ids - ids.mean()) / ids.std(correction=0)
    directions, _ = torch.linalg.qr(sampled[:2].T)
    table: Tensor = z[:, None] * directions[:, 0] + directions[:, 1]
    return table


SchemeLike = str | tuple[str, Build | Mapping[str, Build]]
"""A name of the catalogue; a name of the caller's own with the function that builds the scheme; or a name with the
functions of the caller's own schemes in it, as in ("mine*2/none", {"mine": build}).
"""


def name_of(scheme: SchemeLike) -> str:
    """Return the name that a scheme has in results."""
    if isinstance(scheme, str):
        return scheme
    is_pair = isinstance(scheme, tuple) and len(scheme) == 2 and isinstance(scheme[0], str)
    # A module is callable too, but it returns tensors, not a scheme.
    if is_pair and (isinstance(scheme[1], Mapping) or (callable(scheme[1]) and not isinstance(scheme[1], nn.Module))):
        return scheme[0]
    raise SettingError(
        f"a run got the scheme {scheme!r}, but needs a name of the catalogue, or a pair of your own name and a "
        'function that builds it:\n("mine", lambda dim, num_heads, max_length: Where(score=ALiBi(num_heads))).'
    )


def own_builds(scheme: SchemeLike) -> Mapping[str, Build]:
    """Return the functions of the caller's own that build a scheme, by name."""
    name = name_of(scheme)
    if isinstance(scheme, str):
        return {}
    return scheme[1] if isinstance(scheme[1], Mapping) else {name: scheme[1]}


def with_builds(schemes: Iterable[SchemeLike], builds: Mapping[str, Build] | None = None) -> list[SchemeLike]:
    """Return schemes, names with the functions of the caller's own in them: those of `builds`, and of other schemes."""
    schemes = list(schemes)
    own = {name: build for scheme in schemes for name, build in own_builds(scheme).items()} | dict(builds or {})
    if taken := sorted(name for name in own if canonical_name(name) in catalogue):
        raise SettingError(f"the scheme {taken[0]!r} of your own has a name of the catalogue: give it another name.")
    named: list[SchemeLike] = []
    for scheme in schemes:
        if not isinstance(scheme, str) and callable(scheme[1]):
            named.append(scheme)
            continue
        name = canonical_name(name_of(scheme))
        used = {each: own[each] for each in sorted(entry_names(name) & own.keys())}
        named.append((name, used) if used else name)
    return named


def build_wheres(
    scheme: SchemeLike, dim: int, num_heads: int, max_length: int, layers: int, seed: int = 0
) -> list[Where]:
    """Build the Where of each layer: one for all, or a mixture by layer such as "rotary/none"."""
    parts = build_layers(name_of(scheme), dim, num_heads, max_length, seed, own_builds(scheme))
    if len(parts) > layers:
        raise SettingError(
            f"the scheme {name_of(scheme)!r} has {len(parts)} parts, but the model only {layers} layers: "
            f"pass layers={len(parts)}, or leave parts out."
        )
    wheres = [parts[n % len(parts)] for n in range(layers)]
    if any(where.input is not None and where.input is not wheres[0].input for where in wheres):
        raise SettingError(
            f"the scheme {name_of(scheme)!r} has an input scheme in a later layer, but token vectors are "
            "computed once: put it into the first part."
        )
    return wheres


class Block(nn.Module):
    """A pre-norm block: attention, then a feed-forward network, each with a residual connection.

    Initial values are sampled as PyTorch samples those of its own layers; None is its global random state.
    """

    def __init__(
        self, dim: int, heads: int, feedforward: int, causal: bool, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_attention, self.norm_feed = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = skip_init(nn.Linear, dim, 3 * dim, bias=False)
        self.out = skip_init(nn.Linear, dim, dim, bias=False)
        wide, narrow = skip_init(nn.Linear, dim, feedforward), skip_init(nn.Linear, feedforward, dim)
        self.feed = nn.Sequential(wide, nn.GELU(), narrow)
        for layer in (self.qkv, self.out, wide, narrow):
            reset_linear(layer, generator)

    def forward(
        self, x: Float[Tensor, "batch tokens dim"], here: Here, at: int | None = None
    ) -> Float[Tensor, "batch queries dim"]:
        """Apply the block; `at` is the only token whose output is computed, as in a last layer, or None."""
        q, k, v, gates = self._project(x, here, at)
        y = here.attention(q, k, v, causal=self.causal, gates=gates)
        if at is not None:
            x = x[:, at : at + 1]
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        fed: Tensor = x + self.feed(self.norm_feed(x))
        return fed

    def weights(
        self, x: Float[Tensor, "batch tokens dim"], here: Here, at: int | None = None
    ) -> Float[Tensor, "batch heads queries tokens"]:
        """Compute the attention weights; arguments as for `forward`."""
        q, k, v, gates = self._project(x, here, at)
        # Attention of one-hot values returns its weights, whatever the schemes add to the scores.
        ones = torch.eye(k.shape[2], dtype=v.dtype, device=v.device).expand(*v.shape[:2], -1, -1)
        return here.attention(q, k, ones, causal=self.causal, gates=gates, engine="dense")

    def _project(self, x: Tensor, here: Here, at: int | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Compute queries and keys as the query_key scheme maps them, values, and gates."""
        y = self.norm_attention(x)
        gates = here.gates(y)
        q, k, v = self._heads(y, at)
        q, k = here.query_key(q, k, increments=here.increments(y))
        return q, k, v, gates

    def _heads(self, y: Tensor, at: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """Project to queries, keys and values by head; the query of one token only, where `at` is given."""
        if at is None:
            # (batch, tokens, 3 dim) -> 3 x (batch, heads, tokens, head_dim)
            q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
            return q, k, v
        dim = y.shape[-1]
        q_weight, kv_weight = self.qkv.weight.split([dim, 2 * dim])
        q = F.linear(y[:, at : at + 1], q_weight).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = F.linear(y, kv_weight).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v


class ComparedModel(nn.Module):
    """What is trained and measured: our Transformer, or a model of the caller's own; `wheres` are a part of it."""

    wheres: nn.ModuleList

    @property
    def token_table(self) -> Tensor | None:
        """The only table with a row for each token; None where there is none or several."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """The device of its parameters."""
        return next(self.parameters()).device

    @property
    def layer_wheres(self) -> list[Where]:
        """The Where of each layer."""
        return [where for where in self.wheres if isinstance(where, Where)]

    def require_defined(self, p: Positions) -> None:
        """Raise PositionError where the input scheme has no vector for a position.

        Models do so themselves on the CPU; on a GPU such a position would end the program.
        """
        if p.device.type != "cpu":
            for scheme in {where.input for where in self.layer_wheres if where.input is not None}:
                scheme.require_defined(p.to("cpu"))


class Transformer(ComparedModel):
    """A small pre-norm Transformer from tokens to logits, of one Where for each layer."""

    def __init__(
        self, vocab_size: int, wheres: Sequence[Where], settings: Settings, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        dim = settings.dim
        self.input = InputLayer(vocab_size, dim, wheres[0].input, device="meta")
        self.input.tokens = token_table(vocab_size, settings, generator)
        self.blocks = nn.ModuleList(
            Block(dim, settings.heads, settings.feedforward, settings.direction == "decoder", generator) for _ in wheres
        )
        self.norm = nn.LayerNorm(dim)
        self.lm_head = None if settings.tied else skip_init(nn.Linear, dim, vocab_size, bias=False)
        if self.lm_head is not None:
            reset_linear(self.lm_head, generator)
        self.wheres = nn.ModuleList(wheres)

    def forward(
        self, ids: Int64[Tensor, "batch tokens"], at: int | None = None, p: Positions | None = None
    ) -> Float[Tensor, "batch *tokens vocab_size"]:
        """Compute logits, of all tokens or of the one at `at`; positions count from 0 where `p` is None."""
        heres, queries = self._bind(ids, at, p)
        x = self.input(ids, heres[0])
        for block, here, query in zip(self.blocks, heres[1:], queries, strict=True):
            x = block(x, here, query)
        if at is not None:
            x = x[:, 0]
        logits: Tensor = self.input.tokens.readout(self.norm(x)) if self.lm_head is None else self.lm_head(self.norm(x))
        return logits

    def weights(
        self, ids: Int64[Tensor, "batch tokens"], at: int | None = None, p: Positions | None = None
    ) -> list[Float[Tensor, "batch heads queries tokens"]]:
        """Compute the attention weights of every layer; arguments as for `forward`."""
        heres, queries = self._bind(ids, at, p)
        x, weights = self.input(ids, heres[0]), []
        for block, here, query in zip(self._layers, heres[1:], queries, strict=True):
            weights.append(block.weights(x, here, query))
            x = block(x, here, query)
        return weights

    def _bind(self, ids: Tensor, at: int | None, p: Positions | None) -> tuple[list[Here], list[int | None]]:
        """Bind the input and each layer; return these, and the only query of each layer, None for all tokens."""
        p = positions(ids.shape[1], device=ids.device) if p is None else p
        wheres = self.layer_wheres
        heres = bind(wheres, p)
        queries: list[int | None] = [None] * len(wheres)
        first = heres[0]
        if at is not None:  # of the last layer nothing else is read
            queries[-1] = query = range(ids.shape[1])[at]  # a negative index counted from the start
            heres[-1] = wheres[-1].at(p[query : query + 1], p)
        return [first, *heres], queries

    @property
    def _layers(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]

    @property
    def token_table(self) -> Tensor:
        """The rows of the tokens; of a table of low rank, the product of its factors."""
        return self.input.tokens.weight


def with_max_length(settings: Settings, task: Task) -> Settings:
    """Fill in how many positions are sampled from: twice the tokens of the longest sequence, unless it was passed."""
    if settings.positions == "plain":
        return settings
    tokens = max(task.token_count(n) for n in {*task.trained, *task.tested_in_length, *settings.lengths})
    if settings.max_length is None:
        return replace(settings, max_length=2 * tokens)
    if settings.max_length < tokens:
        raise SettingError(
            f"a run got max_length={settings.max_length} for positions={settings.positions!r}, but the longest "
            f"sequence has {tokens} tokens: pass max_length={tokens} or more, or shorter lengths than "
            f"{settings.lengths}."
        )
    return settings


def warn_of_plain_tests(settings: Settings) -> None:
    """Warn where models are trained at sampled positions and tested at 0, 1, 2, ....

    Ruoss et al. 2023 sample at evaluation too: training at sampled positions rarely shows a gap of 1. In one trial on
    expressions (800 steps) the sinusoid scored 0.98 within the trained length at sampled positions, 0.78 at plain ones.
    """
    if settings.positions != "plain" and settings.test_positions == "plain":
        warnings.warn(
            f"models are trained at positions={settings.positions!r} and tested at plain ones, which training rarely "
            "shows: expect low scores.\nLeave test_positions out to sample in the tests too.",
            RandomPositionsWarning,
            stacklevel=3,
        )


def table_rows(settings: Settings, task: Task) -> int:
    """Return how many positions training shows: the rows of a learned table."""
    tokens = task.token_count(max(task.trained))
    return tokens if settings.positions == "plain" else max(tokens, settings.max_length or 0)


def training_positions(
    settings: Settings, ids: Int64[Tensor, "batch tokens"], generator: torch.Generator
) -> Positions | None:
    """Return the positions of a training batch; None counts from 0."""
    return None if settings.positions == "plain" else _sampled(settings, ids, generator)


def evaluation_positions(
    settings: Settings, ids: Int64[Tensor, "batch tokens"], generator: torch.Generator, shift: int = 0
) -> Positions:
    """Return the positions of a test batch."""
    if settings.positions == "plain" or settings.test_positions == "plain":
        return positions(ids.shape[1], start=shift, device=ids.device)
    sampled = _sampled(settings, ids, generator)
    end = None if sampled.max_length is None else sampled.max_length + shift
    return replace(sampled, index=sampled.index + shift, max_length=end)


def evaluation_generator(tokens: int) -> torch.Generator:
    """Create the random numbers of a test: the same for every run, every shift and every scheme."""
    return torch.Generator().manual_seed(7_770_000 + tokens)


def _sampled(settings: Settings, ids: Tensor, generator: torch.Generator) -> Positions:
    batch, tokens = ids.shape
    sample = Positions.randomized if settings.positions == "randomized" else Positions.random_offset
    return sample(tokens, settings.max_length or 2 * tokens, batch, generator).to(ids.device)
