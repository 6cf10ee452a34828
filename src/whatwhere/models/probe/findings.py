"""What a probe measured of a model, by layer; what is None was not measured, or is not there."""

from dataclasses import dataclass
from typing import Literal

Layout = Literal["half", "interleaved", "other"]
NONE, ROTARY, SCALED, OTHER, NOT_MEASURED = "none", "rotary", "scaled", "other", "not measured"


@dataclass(frozen=True)
class FeatureMap:
    """How the queries, or keys, of a layer change with position: vector(p) = vector(0) A(p).

    "none" is A = 1 at all positions; "rotary" are pairs of features that rotate; "scaled" is a factor by position; and
    "other" is a linear map of another form.
    """

    kind: str  # "none", "rotary", "scaled", "other", or "not measured"
    residual: float = 0.0  # largest deviation from that form, relative to the largest value
    positions: tuple[int, ...] = ()  # at which it was measured
    layout: Layout | None = None  # of the pairs as they reach the scores
    projected_layout: Layout | None = None  # in the order of the projection's own features
    start: int | None = None  # first feature that rotates
    rotary_dim: int | None = None  # number of features that rotate
    frequencies: tuple[float, ...] = ()  # radians per position, of each pair by its first feature, of short sequences
    far_frequencies: tuple[float, ...] = ()  # of a sequence that reaches the last position, where they differ
    scales: tuple[float, ...] = ()  # factor at each position, relative to position 0; empty if it is 1 at all
    reason: str | None = None  # why it was not measured, or what the other form is


@dataclass(frozen=True)
class Bias:
    """What a layer adds to the scores by position, apart from the mask.

    "linear" is slope times distance; what it adds to all scores of a query alike changes no softmax, and is left out.
    """

    kind: str  # "none", "linear", "by distance", "by positions", "by content", or "not measured"
    residual: float = 0.0  # largest deviation from that form, relative to the largest value
    slopes: tuple[float, ...] = ()  # of each head, per token of distance into the past, if it is linear
    distances: tuple[int, ...] = ()  # query minus key, at which values are listed
    values: tuple[float, ...] = ()  # of the first head, less that at distance 0
    reason: str | None = None


@dataclass(frozen=True)
class Span:
    """Which keys a query sees, from the mask that reached attention."""

    causal: bool | None  # whether later keys are hidden; None if no mask was passed and no flag says it
    before: int | None = None  # number of earlier tokens that are seen at most; None if all of the sequence
    after: int | None = None  # number of later tokens that are seen at most; None if all, 0 if causal
    chunk: int | None = None  # size of the chunks, if tokens attend within chunks
    tokens: int = 0  # length of the sequence in which this was measured
    named: int | None = None  # the sliding window that was passed by name beside the mask


@dataclass(frozen=True)
class Layer:
    """One attention of the model, by the name of its module; sizes are those that reach the scores."""

    module: str
    num_heads: int
    key_heads: int
    head_dim: int
    query: FeatureMap
    key: FeatureMap
    magnitude: float | None  # factor of rotated queries and keys at position 0, as the rotary module's cosine has it
    scale: float | None  # of the softmax, with the factor from projections to queries and keys where it is one number
    bias: Bias
    span: Span
    sinks: bool  # whether a learned sink joins the softmax
    softcap: float | None


@dataclass(frozen=True)
class InputChange:
    """Whether hidden states depend on position before the first attention: "table" is added, "other" is not a sum."""

    kind: str  # "none", "learned", "sinusoidal", "table", "other", or "not measured"
    residual: float = 0.0  # largest deviation from that form, relative to the largest value
    module: str | None = None  # whose rows are read by position
    rows: int | None = None  # of that table
    offset: int | None = None  # its row of position 0
    reason: str | None = None


@dataclass(frozen=True)
class Probe:
    """What a probe measured of a model."""

    model_type: str
    model: str  # its class
    method: str  # "interface" (transformers' AttentionInterface) or "functions" (PyTorch's softmax and products)
    positions: bool  # whether position ids were followed, so that far positions could be measured
    input: InputChange
    layers: tuple[Layer, ...]  # each attention over one sequence, in order
    crossing: int  # number of attentions over another sequence, which are not measured
    embedding_scale: float | None  # factor of token vectors before the first layer
    notes: tuple[str, ...]  # what was not measured, with the reason
    torch: str
    transformers: str


@dataclass(frozen=True)
class ProbedRotation:
    """How the queries of one layer or more rotate, in radians per position, by pair, to five digits."""

    frequencies: tuple[float, ...]  # of short texts
    far_frequencies: tuple[float, ...]  # of long texts, where they differ
    magnitude: float  # by which queries and keys are multiplied
