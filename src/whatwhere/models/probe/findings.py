"""What a probe measured of a model, by layer: each statement with its residual, or with the reason why it has none."""

from dataclasses import dataclass
from typing import Literal

Layout = Literal["half", "interleaved", "other"]
NONE, ROTARY, SCALED, OTHER, NOT_MEASURED = "none", "rotary", "scaled", "other", "not measured"


@dataclass(frozen=True)
class FeatureMap:
    """How the queries, or keys, of a layer change with position: vector(p) = vector(0) A(p).

    Args:
        kind: "none" (A = 1 at all positions), "rotary" (pairs of features rotate), "scaled" (a factor by position
            alone), "other" (a linear map of another form), or "not measured".
        residual: largest difference between the vectors and the map that is reported, relative to the largest value.
        positions: at which it was measured.
        layout: of the pairs as they reach the scores; "other" if neither half nor interleaved.
        projected_layout: the layout in the order of the projection's own features, where it could be found.
        start: first feature that rotates.
        rotary_dim: number of features that rotate.
        frequencies: radians per position, of each pair by its first feature, in float64; from short sequences.
        far_frequencies: those of a sequence that reaches the last position, where they differ.
        scales: factor at each position, relative to position 0; empty if it is 1 at all.
        reason: why it was not measured, or what the other form is.
    """

    kind: str
    residual: float = 0.0
    positions: tuple[int, ...] = ()
    layout: Layout | None = None
    projected_layout: Layout | None = None
    start: int | None = None
    rotary_dim: int | None = None
    frequencies: tuple[float, ...] = ()
    far_frequencies: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Bias:
    """What a layer adds to the scores by position, apart from the mask.

    Args:
        kind: "none", "linear" (slope times distance), "by distance", "by positions" (of both), "by content", or "not
            measured".
        residual: largest deviation from that form.
        slopes: of each head, per token of distance into the past, if it is linear.
        distances: at which values are listed: query minus key.
        values: of the first head at these distances.
        reason: why it was not measured.
    """

    kind: str
    residual: float = 0.0
    slopes: tuple[float, ...] = ()
    distances: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Span:
    """Which keys a query sees, from the mask that reached attention.

    Args:
        causal: whether later keys are hidden; None if no mask was passed and no flag says it.
        before: number of earlier tokens that are seen at most; None if all of the sequence.
        after: number of later tokens that are seen at most; None if all, 0 if causal.
        chunk: size of the chunks, if tokens attend within chunks.
        tokens: length of the sequence in which this was measured.
        named: the sliding window that was passed by name beside the mask.
    """

    causal: bool | None
    before: int | None = None
    after: int | None = None
    chunk: int | None = None
    tokens: int = 0
    named: int | None = None


@dataclass(frozen=True)
class Layer:
    """One attention of the model.

    Args:
        module: its name in the model.
        num_heads, key_heads, head_dim: of queries and keys as they reach the scores.
        query, key: how they change with position.
        magnitude: factor of rotated queries and keys at position 0, as the rotary module's cosine has it; None if no
            such module was seen.
        scale: softmax scale; with the factor between projections and queries and keys at position 0 where these are a
            multiple of one another, as they are not where a norm is between.
        bias: added to the scores.
        span: which keys are seen.
        sinks: whether a learned sink joins the softmax.
        softcap: cap of the scores, or None.
    """

    module: str
    num_heads: int
    key_heads: int
    head_dim: int
    query: FeatureMap
    key: FeatureMap
    magnitude: float | None
    scale: float | None
    bias: Bias
    span: Span
    sinks: bool
    softcap: float | None


@dataclass(frozen=True)
class InputChange:
    """Whether hidden states depend on position before the first attention.

    Args:
        kind: "none", "learned", "sinusoidal", "table" (added, of unknown origin), "other" (not a sum), or "not
            measured".
        residual: largest deviation from that form.
        module: name of the module whose rows are read by position, or None.
        rows: of that table.
        offset: its row of position 0.
        reason: why it was not measured.
    """

    kind: str
    residual: float = 0.0
    module: str | None = None
    rows: int | None = None
    offset: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Probe:
    """What a probe measured of a model.

    Args:
        model_type: of its configuration.
        model: name of its class.
        method: "interface" (transformers' AttentionInterface) or "functions" (PyTorch's softmax and products).
        positions: whether position ids were followed, so that far positions could be measured.
        input: hidden states before the first attention.
        layers: each attention over one sequence, in order.
        crossing: number of attentions over another sequence, which are not measured.
        embedding_scale: factor of token vectors before the first layer; None if not measured.
        notes: what was not measured, with the reason.
        torch, transformers: versions.
    """

    model_type: str
    model: str
    method: str
    positions: bool
    input: InputChange
    layers: tuple[Layer, ...]
    crossing: int
    embedding_scale: float | None
    notes: tuple[str, ...]
    torch: str
    transformers: str
