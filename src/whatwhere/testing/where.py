"""check_where: check what users rely on in attention for any Where, and so for a scheme of one's own at any door."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from whatwhere.checks import require_whole
from whatwhere.errors import SettingError
from whatwhere.position.positions import Positions, positions
from whatwhere.testing import harness
from whatwhere.testing.harness import Measurement, NotSupported, Trial
from whatwhere.testing.report import Report
from whatwhere.where.binding import Where

TOKENS, PROMPT, SHIFT, FAR = 9, 4, 7, 1_000
LONG = 600  # tokens of a text so long that attention on a CPU goes by blocks
REGIME = 256  # the length that is stated to schemes that follow it where keys are cached or moved
ROUNDING = 2.0**-16
_WHY = "float32 rounds each of many products by 2**-24, and 256 times that is allowed for vectors of size 1"
COARSE = 2.0**-4
_COARSE_WHY = "bfloat16 rounds vectors, scores and weights by 2**-8 each, and 16 times that is allowed"
_OF_CALL = "slots, or how many tokens a call has, may be read in the place of positions.index"
_OF_PADDING = "padding has a slot, segment -1 and index 0: count by index, and leave segment -1 out of sums"


def check_where(
    build: Callable[[], Where],
    *,
    dim: int | None = None,
    num_heads: int | None = None,
    key_heads: int | None = None,
    head_dim: int | None = None,
    relative: bool | None = None,
    max_length: int | None = None,
    compile: bool = True,
    device: torch.device | str = "cpu",
) -> Report:
    """Check a Where of any schemes, also of your own, by the laws that users of attention rely on.

    A layer of attention must have the same outputs by cached decoding, in chunks, packed, left-padded, compiled and in
    one pass, see no later token, and have the gradients of finite differences. Whether a formula is the right one is
    left to `check_rotary`, `check_bias` and `check_input_encoding`.

    Args:
        build: returns a new Where of the same settings each time. Parameters that start at zero are sampled.
        dim: features of token vectors; None is that of a scheme, or heads times head_dim.
        num_heads, head_dim: heads of queries, and their features; None is those of a scheme, or 4 and 16.
        key_heads: heads of keys and values, a divisor of num_heads; None is half of them, or 1.
        relative: whether shifting all positions changes nothing; None does not check it.
        max_length: how many positions there are, at least 64; None is the `max_length` of the input encoding, as of a
            table, if it has one of at least 64, and else checks positions up to 1,000,000.
        compile: whether to check the law `compile`, which takes some seconds.
        device: of all inputs.

    Returns:
        A report with one finding for each law.

    Raises:
        SettingError: If build does not return a Where, or max_length is below 64.
        ShapeError: If a size is not a whole number of at least 1.

    Examples:
        >>> from whatwhere import ALiBi, Rotary
        >>> report = check_where(lambda: Where(Rotary(16), ALiBi(4)), relative=True, compile=False)
        >>> report.passed, report["decoding"].outcome, report["compile"].note
        (True, 'passes', 'compile=False was passed')
    """
    last = harness.last_position("check_where", max_length)
    where = built(build, torch.device(device))
    end = getattr(where.input, "max_length", None)
    if max_length is None and type(end) is int and end >= 64:
        last = end - 1
    schemes = [part for part in (where.query_key, where.score, where.sink, where.input) if part is not None]

    def size(name: str, given: int | None, default: int) -> int:
        known = (value for part in schemes if isinstance(value := getattr(part, name, None), int))
        number = next(known, default) if given is None else given
        require_whole("check_where", **{name: number})
        return number

    heads, features = size("num_heads", num_heads, 4), size("head_dim", head_dim, 16)
    of_keys = size("key_heads", key_heads, 1 if heads % 2 else heads // 2)
    layer = Layer(where, size("dim", dim, heads * features), heads, of_keys, features)
    laws = _Laws(build, layer, relative, last, torch.device(device), compile)
    settings = {"num_heads": heads, "key_heads": of_keys, "head_dim": features, "relative": relative}
    return Report("check_where", settings, harness.run_all(laws.trials()))


def built(build: Callable[[], Where], device: torch.device) -> Where:
    """Return a new Where on the device; what starts at zero is sampled, so that nothing is without effect."""
    where = build if isinstance(build, nn.Module) else build()
    if where is build or not isinstance(where, Where):
        raise SettingError(
            f"check_where needs a function that returns a new Where each time, not {type(where).__name__}.\n"
            "Pass check_where(lambda: Where(MyScheme(...)))."
        )
    with torch.no_grad():
        for weight in where.to(device).parameters():
            if not weight.any():
                weight.copy_(harness.sample(*weight.shape))
    return where


class Layer(nn.Module):
    """Attention of token vectors to each other without weights of its own: features of the vectors make the heads."""

    def __init__(self, where: Where, *sizes: int) -> None:
        super().__init__()
        self.where, self.sizes = where, sizes
        self.dim, self.num_heads, self.key_heads, self.head_dim = sizes

    def heads(self, x: Tensor) -> list[Tensor]:
        """Return queries, keys and values: their heads take features in order, each from another one on."""
        made = []
        for part, heads in enumerate((self.num_heads, self.key_heads, self.key_heads)):
            features = torch.arange(heads * self.head_dim, device=x.device) + part * (self.dim // 3)
            made.append(x[..., features % self.dim].unflatten(-1, (heads, -1)).transpose(1, 2))
        return made

    def forward(self, x: Tensor, *at: Positions, cache: Any = None, regime: int | None = None, **how: Any) -> Tensor:
        """Attend, also with `heads`; to a cache is appended what later tokens need of these."""
        here = self.where.at(*at, regime_length=regime)
        x = here.input(x)
        q, k, v = how.pop("heads", None) or self.heads(x)
        q, k = here.query_key(q, k, increments=_appended(cache, "increments", here.increments(x)))
        k, v, gates = (_appended(cache, *new) for new in (("k", k), ("v", v), ("gates", here.gates(x))))
        return here.attention(q, k, v, gates=gates, **how)

    def decode(self, x: Tensor, p: Positions, counts: Sequence[int], regime: int | None = None) -> Tensor:
        """Attend to a prompt, then to some tokens at a time, with a KV cache; positions grow as a server's do."""
        cache: dict[str, Tensor] = {}
        rows = [self(x[:, : p.tokens], p, p, cache=cache, regime=regime)]
        for count in counts:
            step, new = p.next(count), x[:, p.tokens : p.tokens + count]
            p = p.append(step)
            rows.append(self(new, step, p, cache=cache, regime=regime))
        return torch.cat(rows, dim=2)


def _appended(cache: dict[str, Tensor] | None, name: str, new: Any) -> Any:
    if cache is None or new is None:
        return new
    cache[name] = torch.cat([cache[name], new], dim=2) if name in cache else new
    return cache[name]


def _measured(*pairs: tuple[Tensor, Tensor], note: str = "", tolerance: float = ROUNDING) -> Measurement:
    """Return the errors by slot of outputs, each beside what it should be."""
    errors = [(actual.double() - wanted.double()).abs().amax((0, 1, 3)) for actual, wanted in pairs]
    slots = torch.cat([torch.arange(len(error)) for error in errors])
    return Measurement(torch.cat(errors), slots, tolerance, lambda: note)


@dataclass(frozen=True, eq=False)
class _Laws:
    """The laws, applied to a Where; the first position of a failure is the slot of a token."""

    build: Callable[[], Where]
    layer: Layer
    relative: bool | None
    last: int
    device: torch.device
    compile: bool

    @cached_property
    def regime(self) -> int | None:
        """The length to state where keys are cached or moved; None where no scheme follows it."""
        scheme = self.layer.where.query_key
        return REGIME if scheme is not None and scheme.follows_length else None

    @cached_property
    def directions(self) -> list[bool]:
        """Whether attention is causal: also bidirectional where the schemes support it."""
        schemes = (self.layer.where.query_key, self.layer.where.score)
        return [True] if any(scheme is not None and scheme.causal_only for scheme in schemes) else [True, False]

    @cached_property
    def mask(self) -> Tensor:
        """Two sequences, of which one begins with padding."""
        return torch.arange(TOKENS, device=self.device) >= torch.tensor([[0], [3]], device=self.device)

    def vectors(self, batch: int = 2, tokens: int = TOKENS, seed: int = 0) -> Float[Tensor, "batch tokens dim"]:
        """Sample token vectors that are exact in bfloat16."""
        return 2 * harness.sample(batch, tokens, self.layer.dim, seed=seed).to(self.device)

    def count(self, tokens: int = TOKENS, start: int = 0) -> Positions:
        return positions(tokens, start, self.device)

    def fresh(self) -> Layer:
        where = built(self.build, self.device)
        where.load_state_dict(self.layer.where.state_dict())
        return Layer(where, *self.layer.sizes)

    def call(self, x: Tensor, *at: Positions, layer: nn.Module | None = None, **how: Any) -> Tensor:
        y = harness.call(lambda: (self.layer if layer is None else layer)(x, *at, **how))
        wanted = (len(x), self.layer.num_heads, x.shape[1], self.layer.head_dim)
        return harness.require_shape(y, wanted, "(batch, heads, tokens, head_dim)").cpu()

    def decoded(self, x: Tensor, p: Positions, counts: Sequence[int]) -> Tensor:
        return harness.call(lambda: self.layer.decode(x, p, counts, self.regime)).cpu()

    def trials(self) -> Iterator[Trial]:
        """Yield the laws in the order of the checks; the one that takes longest comes last."""
        far, rest = self.last + 1 - TOKENS, TOKENS - PROMPT
        near, single = f"also at position {min(FAR, far):,}", partial(self.chunks, *[1] * rest)
        chosen = f"the plain formula has the outputs of the engine that is chosen, also of {LONG} tokens"
        kept = "queries, keys, values and positions are not modified"
        shifted = "shifting all positions by {:,} changes nothing{}".format
        slopes = "gradients of vectors and parameters are those of finite differences"
        rounded = f"a model in bfloat16 differs by rounding alone, {near}"
        graphs = "compiling changes no output, and two graphs serve all lengths"
        yield from (
            Trial("finite", "outputs are finite and of the dtype of the queries, also beside padding", self.finite),
            Trial("input kept", kept, self.input_unmodified),
            Trial("decoding", "one token at a time, with a KV cache, is as all at once", single, _WHY),
            Trial("chunks", "some tokens at a time are as all at once", partial(self.chunks, 3, rest - 3), _WHY),
            Trial("packing", "documents in one sequence are as each alone", self.packing, _WHY),
            Trial("left padding", "a sequence behind padding is as without it", self.padding, _WHY),
            Trial("padded decoding", "one token at a time behind padding is as all at once", self.padded_steps, _WHY),
            Trial("causal", "no token changes an output before it", self.causal, _WHY),
            Trial("engines", chosen, self.engines, _WHY),
            Trial("relative", shifted(SHIFT, ""), partial(self.moved, SHIFT), _WHY),
            Trial("relative far away", shifted(far, " either"), partial(self.moved, far), _WHY),
            Trial("gradient", slopes, self.gradient),
            Trial("bfloat16", rounded, self.bfloat16, _COARSE_WHY),
            Trial("autocast", f"autocast to bfloat16 rounds no position, {near}", self.autocast, _COARSE_WHY),
            Trial("call order", "no call affects a later one", self.call_order, _WHY),
            Trial("compile", graphs, self.compiled, _WHY),
        )

    def finite(self) -> None:
        x = self.vectors()
        for p, beside in ((self.count(), ""), (Positions.from_mask(self.mask), " beside padding")):
            y = self.call(x, p)
            harness.require(y.isfinite().all(), f"outputs{beside} are not finite")
            harness.require(y.dtype == x.dtype, f"queries in {x.dtype} have outputs in {y.dtype}")

    def input_unmodified(self) -> None:
        x, p = self.vectors(), Positions.from_mask(self.mask)
        heads = self.layer.heads(x)
        given = {"x": x, **dict(zip("qkv", heads, strict=True)), "index": p.index, "order": p.order}
        before = {name: each.clone() for name, each in given.items()}
        self.call(x, p, heads=heads)
        for name, each in given.items():
            harness.require(torch.equal(each, before[name]), f"it writes into {name}: what reads it later is wrong")

    def chunks(self, *counts: int) -> Measurement:
        x, p = self.vectors(), self.count(PROMPT)
        whole = self.call(x, self.count(), regime=self.regime)
        note = f"calls have {', '.join(map(str, (PROMPT, *counts)))} tokens: {_OF_CALL}"
        return _measured((self.decoded(x, p, counts), whole), note=note)

    def packing(self) -> Measurement:
        x, lengths, pairs = self.vectors(), (3, 1, TOKENS - 4), []
        for causal in self.directions:
            together = self.call(x, Positions.packed(lengths, self.device), causal=causal)
            alone = [self.call(part, self.count(part.shape[1]), causal=causal) for part in x.split(lengths, dim=1)]
            pairs.append((together, torch.cat(alone, dim=2)))
        note = f"documents of {lengths} tokens: in each index begins at 0, order goes on, segment is another"
        return _measured(*pairs, note=note)

    def padding(self) -> Measurement:
        x, pairs = self.vectors(), []
        for causal in self.directions:
            y = self.call(x, Positions.from_mask(self.mask), causal=causal)
            for row, begin in enumerate((~self.mask).sum(-1).tolist()):
                alone = self.call(x[row : row + 1, begin:], self.count(TOKENS - begin), causal=causal)
                pairs.append((y[row : row + 1, :, begin:], alone))
        return _measured(*pairs, note=_OF_PADDING)

    def padded_steps(self) -> Measurement:
        x, real = self.vectors(), self.mask.cpu()[:, None, :, None]
        whole = self.call(x, Positions.from_mask(self.mask), regime=self.regime)
        steps = self.decoded(x, Positions.from_mask(self.mask[:, :-PROMPT]), [1] * PROMPT)
        return _measured((steps.where(real, 0), whole.where(real, 0)), note=_OF_PADDING)

    def causal(self) -> Measurement:
        x, kept = self.vectors(), TOKENS - 3
        other = torch.cat([x[:, :kept], self.vectors(seed=1)[:, kept:]], dim=1)
        y, changed = (self.call(each, self.count())[:, :, :kept] for each in (x, other))
        return _measured((changed, y), note=f"the tokens from {kept} on were exchanged, and outputs before them moved")

    def engines(self) -> Measurement:
        lengths = (TOKENS, LONG) if self.last >= LONG else (TOKENS,)
        calls = [
            partial(self.call, self.vectors(tokens=tokens), self.count(tokens), causal=causal)
            for tokens in lengths
            for causal in self.directions
        ]
        return _measured(*((call(), call(engine="dense")) for call in calls))

    def moved(self, shift: int) -> Measurement | None:
        if self.relative is None:
            raise NotSupported("whether it is relative was not said: pass relative=")
        there, here = (self.call(self.vectors(), self.count(start=n), regime=self.regime) for n in (shift, 0))
        note = "angles or biases may be made of numbers of a narrow dtype, or of positions and not of distances"
        result = _measured((there, here), note=note)
        if self.relative:
            return result
        harness.require(result.exceeded.any(), "relative=False was passed, but this changes nothing")
        return None

    def gradient(self) -> None:
        """Compare slopes along a direction of each tensor, by two steps: the larger is for numbers made in float32."""
        layer, p = self.fresh().double(), self.count()
        x = self.vectors(1).double().requires_grad_()
        incoming = harness.sample(1, layer.num_heads, TOKENS, layer.head_dim, seed=2).to(x)

        def loss() -> Tensor:
            y: Tensor = layer(x, p, regime=self.regime)
            return (y * incoming).sum()

        def slopes(leaf: Tensor) -> Tensor:
            direction = harness.sample(*leaf.shape, seed=3).to(leaf)
            direction /= direction.norm()
            with torch.enable_grad():
                (found,) = torch.autograd.grad(loss(), leaf, allow_unused=True)
            made = [x.new_zeros(()) if found is None else (found * direction).sum()]
            for step in (1e-6, 1e-2):
                leaf.add_(step * direction)
                ahead = loss()
                leaf.sub_(2 * step * direction)
                made.append((ahead - loss()) / (2 * step))
                leaf.add_(step * direction)
            return torch.stack(made)

        for name, leaf in {"the vectors": x, **dict(layer.where.named_parameters())}.items():
            if leaf.requires_grad:
                given, near, far = harness.call(slopes, leaf).tolist()
                error = min(abs(given - each) / max(abs(given), abs(each), 1e-2) for each in (near, far))
                note = f"along a direction the gradient of {name} is {given:.2e}, finite differences are {near:.2e}"
                harness.require(error <= 1e-2, note)

    def near(self, x: Tensor) -> Tensor:
        return self.call(x, self.count(start=min(FAR, self.last + 1 - TOKENS)), regime=self.regime)

    def bfloat16(self) -> Measurement:
        x = self.vectors()
        with harness.weights_rounded(self.layer):
            exact = self.near(x)
        with harness.in_bfloat16(self.layer):
            rounded = self.near(x.bfloat16())
        harness.require(rounded.dtype == torch.bfloat16, f"queries in bfloat16 have outputs in {rounded.dtype}")
        return _measured((rounded, exact), tolerance=COARSE, note="positions or a table of them may be rounded")

    def autocast(self) -> Measurement:
        exact = self.near(self.vectors())
        with torch.autocast(self.device.type, torch.bfloat16):
            rounded = self.near(self.vectors())
        return _measured((rounded, exact), tolerance=COARSE, note="a product may be computed of positions")

    def call_order(self) -> Measurement:
        x, p, elsewhere = self.vectors(), self.count(), self.count(start=3)
        before, wanted = self.call(x, p), self.call(x, elsewhere, layer=self.fresh())
        self.call(x[:, 2:], Positions.packed((2, TOKENS - 4), self.device))
        note = "its tables may be those of an earlier call, or build() makes a different one each time"
        return _measured((self.call(x, elsewhere), wanted), (self.call(x, p), before), note=note)

    def compiled(self) -> Measurement:
        if not self.compile:
            raise NotSupported("compile=False was passed")
        graphs: list[Any] = []

        def backend(graph: Any, inputs: object) -> Any:
            graphs.append(graph)
            return graph.forward

        torch.compiler.reset()  # else the compiler gives up after some layers that were checked before
        layer: Any = torch.compile(self.layer, fullgraph=True, backend=backend)
        given = [(self.vectors(tokens=n), self.count(n, start=3)) for n in (5, 6, 9, 13)]
        pairs = [(self.call(*each, layer=layer), self.call(*each)) for each in given]
        harness.require(len(graphs) <= 2, f"{len(graphs)} graphs were compiled for 4 lengths, where two suffice")
        return _measured(*pairs)
