"""What schemes, scalings, windows and layers refuse: a call, the error, and what its message says."""

import inspect

import pytest
import torch
from torch import Tensor

import whatwhere as ww
from tests.refusals import require_refused, short_refusals
from whatwhere.where.score_bias import DistanceBias

NAMES = {name: getattr(ww, name) for name in ww.__all__ if name not in ("compare", "similarity")}


def q(tokens: int, head_dim: int = 8, num_heads: int = 2) -> Tensor:
    return torch.ones(1, num_heads, tokens, head_dim)


def bind(scheme, p=None, **content):
    p = ww.positions(3) if p is None else p
    return scheme.bind(p, p, **content)


def attend(scheme, x, mapped=False, sink=None, **settings):
    here = ww.Where(*([] if scheme is None else [scheme]), sink=sink).at(x.shape[2])
    return here.attention(*(here.query_key(x, x) if mapped else (x, x)), x, **settings)


def turned(scheme, x, change):
    here = ww.Where(scheme).at(x.shape[2])
    increments = here.increments(torch.ones(1, x.shape[2], scheme.dim))
    return here.query_key(x, x, increments=increments if change is None else change(increments))


class Unscaled(ww.QueryKeyMap):
    """Change nothing, and ask for a softmax scale of 1."""

    scale = 1.0

    def __init__(self, head_dim):
        super().__init__()
        self.head_dim = head_dim

    def bind(self, positions, lengths=None):
        return ()

    def map_query(self, q, bound):
        return q

    def map_key(self, k, bound):
        return k


class OfDistance(DistanceBias):
    """A bias whose author forgot something."""

    def __init__(self, curve=None, begun=True, **sizes):
        if begun:
            super().__init__()
        vars(self).update(sizes, made=curve)

    def curve(self, device):
        return self.made


class OfElement(ww.ScoreBias):
    """A bias that returns what it is given."""

    num_heads = 2

    def __init__(self, element):
        super().__init__()
        self.made = element

    def bind(self, queries, keys, **content):
        return self.made


class OfTokens(ww.InputEncoding):
    """It returns what it is made with."""

    def __init__(self, vectors=None):
        super().__init__()
        self.dim, self.vectors = 8, vectors

    def forward(self, positions):
        return self.vectors


HELPERS = [q, bind, attend, turned, Unscaled, OfDistance, OfElement, OfTokens]
NAMES |= {"torch": torch, "bind_layers": ww.bind, **{helper.__name__: helper for helper in HELPERS}}
REFUSALS = """
# The input door
Sinusoidal(2.0) -> ShapeError: dim
AxialSinusoidal(7) -> ShapeError: needs an even number: a sine and a cosine share one frequency
AxialSinusoidal(8, 3) -> ShapeError: none are left for the last. … A multiple of 6, such as 12,
AxialSinusoidal(4, 2, layout="tensor2tensor") -> ShapeError: at least 4 features, but dim=4 gives 2. … Pass dim=8
AxialSinusoidal(0) -> ShapeError: needs a whole number of at least 1
AxialSinusoidal(8, 0) -> ShapeError: needs a whole number of at least 1
AxialSinusoidal(8)(Positions.grid(2, 2, 2)) -> PositionError: AxialSinusoidal measures along 2 axes, but these
Fourier(8, 9, axes=2)(Positions.grid(2, 2, 2)) -> PositionError: Fourier measures along 2 axes
Fourier(8, 10, features=7) -> ShapeError: features=7, but needs an even number: a cosine and a sine share one frequency
Fourier(7, 10) -> ShapeError: features=7
Learned(3, 7).resized_grid((2, 3), (4, 5)) -> ShapeError: a grid of 2 x 3 has 6 cells, but the table 7 rows
Learned(3, 7).resized_grid((2, 3), (4, 5), prefix=7) -> ShapeError: prefix=7, but this table has 7 positions
Learned(3, 7).resized_grid((2, 3), (4, 5, 6), prefix=1) -> ShapeError: a grid has two sizes, as in (14, 14)
Learned(3, 7).resized(0) -> ShapeError: length=0, but needs a whole number
Learned(3, 7).resized(9, rule="bicubic") -> SettingError: rule='bicubic', but knows only: linear, cubic
Learned(3, 7).resized(9, align="corners") -> SettingError: align='corners', but knows only: ends, cells

# The query_key door: rotations
Rotary(12, rotary_start=12) -> ShapeError: got rotary_start=12, but needs a feature of the head
Rotary(12, rotary_dim=10, rotary_start=4) -> ShapeError: got rotary_dim=10 from rotary_start=4, but a head has only
Rotary(12, rotary_start=3) -> ShapeError: got head_dim - rotary_start=9, but needs an even number
Rotary(8, 1.0, scaling=scaling.YaRN(4.0, 64)) -> SettingError: YaRN got theta=1.0, but needs a value above 1
Rotary(8, scaling=scaling.LongRoPE((1.0,) * 4, (1.0,), 64)) ->
    ShapeError: LongRoPE got 1 numbers as long_factor, but 8 features are 4 pairs, and each needs its own
Rotary(8, scaling=scaling.Proportional(0.1)) ->
    SettingError: Proportional(share=0.1) of 8 features rotates no pair: raise the share
Rotary(2, scaling=scaling.NTK(4.0)) ->
    ShapeError: NTK raises theta by dim / (dim - 2), so more than 2 features must be rotated
Rotary(8, scaling=scaling.Linear) -> SettingError: but needs a scaling, such as YaRN
Rotary(8, scaling="yarn") -> SettingError: Rotary got scaling='yarn', but needs a scaling
Rotary(8, scaling=scaling.DynamicNTK(4.0, 64))(q(1), q(1), 1, regime_length=0) ->
    ShapeError: Rotary got regime_length=0, but needs a whole number of at least 1
AxialRotary(7) -> ShapeError: AxialRotary got head_dim=7, but needs an even number
AxialRotary(64, 3) ->
    ShapeError: head_dim=64, whose 32 pairs do not divide among axes=3. … For larger first … pass sections=(11, 11, 10)
AxialRotary(16, sections=(4, 5)) ->
    ShapeError: sections=(4, 5) for axes=2, but needs 2 numbers, 8 in total: that is how many pairs head_dim=16 has
AxialRotary(16, sections=(8, 0)) -> ShapeError: sections[1]=0, but needs a whole number
AxialRotary(8)(q(8), q(8), Positions.grid(2, 2, 2)) ->
    PositionError: AxialRotary measures along 2 axes, but these positions have 3
AxialRotary(8)(q(4, 6), q(4, 6), Positions.grid(2, 2)) ->
    ShapeError: AxialRotary was made for head_dim=8, but q has shape
MixedRotary(6) -> ShapeError: got head_dim=6, but needs a multiple of 4
MixedRotary(8, sets=4)(q(4, 8, 4), q(4, 8, 2), Positions.grid(2, 2)) ->
    ShapeError: has 4 sets of frequencies, which do not divide 2 heads
MultimodalRotary(128, (16, 24, 20)) ->
    ShapeError: sections=(16, 24, 20), 60 pairs in total, but 128 features are rotated, which are 64 pairs
MultimodalRotary(16, (10, -1, -1)) -> ShapeError: but needs whole numbers, 0 or more
MultimodalRotary(16, (2, 3, 3), layout="interleaved") ->
    ShapeError: axis 2 has one pair in 3, 3 in all: the last would be pair 8, but they end at 7. … Give the other axes
MultimodalRotary(16, (4, 2, 2), layout="mixed") ->
    SettingError: MultimodalRotary got layout='mixed', but knows only: chunked, interleaved
MultimodalRotary(16, (4, 4, 4), rotary_dim=24) ->
    ShapeError: MultimodalRotary got rotary_dim=24, but a head has only head_dim=16 features
MultimodalRotary(16, (4, 2, 2), scaling="yarn") -> SettingError: but needs a scaling, such as
MultimodalRotary(16, (4, 2, 2))(q(4, 16), q(4, 16), Positions.grid(2, 2)) ->
    PositionError: MultimodalRotary measures along 3 axes, but these positions have 2
XPos(7) -> ShapeError: XPos got head_dim=7, but needs an even number
XPos(8)(q(4), q(4), Positions.grid(2, 2)) -> PositionError: XPos measures along one axis, but these positions have 2
FoPE(7, 100) -> ShapeError: needs an even number: it rotates pairs of features
FoPE(8, 6) -> SettingError: not even the fastest wave completes a rotation
FoPE(8, 100, 3)(q(3, 8, 4), q(3, 8, 4), 3) -> ShapeError: 3 sets of coefficients, which do not match 4 heads
PoPE(8, 4)(q(3), q(3), 3) -> ShapeError: PoPE was made for num_heads=4, but q has 2 heads
Where(PoPE(8, 1), T5(1)) -> SettingError: different softmax scales
Where(Unscaled(4), CoPE(4, 2, 3)) ->
    SettingError: the two schemes need different softmax scales, [0.5, 1.0], but attention has one. … Choose one
Where(Unscaled(4), scale=2.0) -> SettingError: the scheme and scale= need different softmax scales, [1.0, 2.0]
Where(scale=0.0) -> SettingError: scale=0.0
Where(OfDistance()) -> SettingError: the __init__ of OfDistance does not set self.num_heads
Where(OfDistance(begun=False, num_heads=2)) -> SettingError: does not begin with super().__init__()
attend(OfDistance(torch.ones(3), num_heads=2), q(3)) -> SettingError: returned a Tensor, but needs a function of head
attend(OfDistance(lambda head, distance: None, num_heads=2), q(3)) ->
    SettingError: the function of OfDistance.curve returned a NoneType, but needs a tensor
attend(OfDistance(lambda head, distance: [1.0], num_heads=2), q(300)) ->
    SettingError: the function of OfDistance.curve returned a list, but needs a tensor
OfDistance(lambda head, distance: 0.0, num_heads=2)(3) -> SettingError: returned a float, but needs a tensor
attend(OfElement(lambda *slots: None), q(3)) ->
    SettingError: the function of a bias returned a NoneType, but needs a tensor
attend(OfElement(None), q(3)) ->
    SettingError: OfElement.bind returned a NoneType, but needs a function element(batch, head, query_slot, key_slot)
OfElement(None)(3) -> SettingError: the bind of a bias returned a NoneType, but needs a function element
Where(OfTokens()).at(3).input(torch.ones(1, 3, 8)) -> SettingError: OfTokens.forward returned a NoneType
Where(OfTokens(torch.ones(1, 3, 1))).at(3).input(torch.ones(1, 3, 8)) ->
    ShapeError: OfTokens.forward returned (1, 3, 1), but (batch, tokens, 8) is needed
attend(Rotary(8), q(3).numpy(), mapped=True) -> SettingError: q is of type ndarray … Pass torch.from_numpy(q)
attend(None, q(3).numpy()) -> SettingError: q is of type ndarray
Rotary(8)(q(3), [1.0]) -> SettingError: k is of type list … Pass torch.tensor(k)
Where().at(3).input(q(3)[0].numpy()) -> SettingError: x is of type ndarray
SelfExtend(PoPE(8, 2), 4, 2) -> DoorError: such as Rotary(head_dim=64), but got PoPE
DualChunk(Rotary(8), chunk_size=6, max_distance=5) -> ShapeError: max_distance needs to be at least chunk_size
SelfExtend(Rotary(8), 4, 0) -> ShapeError: group_size
attend(SelfExtend(Rotary(8), 4, 2), q(6)) -> ShapeError: Map queries and keys first
Where(SelfExtend(AxialRotary(8), 4, 2)).at(Positions.grid(2, 3)) -> PositionError: measures along one axis

# The query_key door: rotations by content, and factors
Where(CARoPE(5, 8, 3)).at(4).query_key(q(4, 8, 3), q(4, 8, 3)) ->
    SettingError: CARoPE needs the increments of all keys, but got none
Where(Rotary(8)).at(4).query_key(q(4), q(4), increments=q(4, 8, 2)[..., 0]) ->
    SettingError: increments were given, but Rotary needs none
Where().at(4).query_key(q(4), q(4), increments=q(4)[..., 0]) -> SettingError: but there is no map of queries and keys
turned(CARoPE(5, 8, 3), q(4, 8, 3), lambda x: x[..., :3]) -> ShapeError: append the new ones to the cached
turned(CARoPE(5, 8, 3), q(4), None) -> ShapeError: num_heads=3, but q has 2 heads
Where(CARoPE(5, 8, 3)).at(4).query_key(q(4, 8, 3), q(4), increments=CARoPE(5, 8, 3).increments(torch.ones(1, 4, 5))) ->
    ShapeError: do not divide
Where(CARoPE(5, 8, 3)).at(4).increments(torch.ones(1, 4, 6)) -> ShapeError: made for dim=5
CARoPE(5, 8, 3)(q(4, 8, 3), q(4, 8, 3), 4) -> DoorError: it needs more than positions
SSMax(8, 3, CARoPE(5, 8, 3)) -> DoorError: needs a map by position alone
Where(CARoPE(5, 8, 3), window=2).kept(positions(4)) -> SettingError: so none can be deleted
CARoPE(5, 8, 3, theta=1.0) -> SettingError: theta
Where(SelectiveRoPE(12, 8, 3)).at(4).query_key(q(4, 8, 3), q(4, 8, 3)) ->
    SettingError: SelectiveRoPE needs the increments of all keys, but got none
turned(SelectiveRoPE(12, 8, 3), q(4, 8, 3), lambda x: torch.cat([x, x[..., :1]], -1)) ->
    ShapeError: of shape (batch, 3, 4, 4), heads and keys first, but got
turned(SelectiveRoPE(12, 8, 3), q(4, 8, 3), lambda x: x[:, :, :3]) -> ShapeError: append the new ones to the cached
Where(SelectiveRoPE(12, 8, 3)).at(4).increments(torch.ones(1, 4, 6)) -> ShapeError: made for dim=12
SelectiveRoPE(12, 8, 3)(q(4, 8, 3), q(4, 8, 3), 4) -> DoorError: SelectiveRoPE depends on token vectors
SelectiveRoPE(12, 8, 5) -> ShapeError: normalizes 5 equal parts of x
SelectiveRoPE(5, 8, 5, theta=0.0) -> SettingError: theta
SSMax(8, 3)(q(3), q(3), 3) -> ShapeError: SSMax was made for num_heads=3, but q has 2 heads
SSMax(8, 3, then=ALiBi(3)) -> DoorError: such as Rotary(head_dim=64), but got ALiBi
SSMax(8, 3, then=Rotary(16)) -> ShapeError: SSMax has head_dim=8, but Rotary has 16: make both equal
SSMax(8, 3, original_length=1) -> ShapeError: original_length=1
scheme("ssmax", 16, 2, 32, then="rotery") -> UnknownScheme: ssmax got then='rotery', but takes one of: rotary
QueryTemperature(8, 0.1) -> SettingError: got curve=0.1, but needs a curve, such as temperature.Stepped
QueryTemperature(8, temperature.Power(), Rotary(16)) -> ShapeError: QueryTemperature has head_dim=8, but Rotary has 16
QueryTemperature(8, temperature.Power())(q(4), q(4), Positions.grid(2, 2)) ->
    PositionError: QueryTemperature measures along one axis
temperature.SteppedLog(offset=2) -> SettingError: SteppedLog got offset=
temperature.ClampedLog(length=0.5) -> ShapeError: ClampedLog got length=
temperature.Power(exponent=float("nan")) -> SettingError: Power got exponent=
temperature.Power(length=True) -> ShapeError: Power got length=
temperature.LogN(original_length=1) -> ShapeError: LogN got original_length=
scheme("temperature@curve=steep", 16, 2, 32) ->
    SettingError: temperature got curve='steep', but knows only: power, stepped
scheme("temperature@then=rotery", 16, 2, 32) -> UnknownScheme: temperature got then='rotery', but takes one of: rotary

# Scalings
scaling.NTK(float("inf")) -> SettingError: NTK got factor=inf, but needs a finite number above 0
scaling.DynamicNTK(0.5, 64) -> SettingError: DynamicNTK got factor=0.5, but needs a number of at least 1
scaling.DynamicNTK("2", 64) -> SettingError: factor=
scaling.DynamicNTK(2.0, 64, doubling=1) -> SettingError: doubling=1
scaling.YaRN(4.0, 64, beta_fast=1.0, beta_slow=32.0) ->
    SettingError: beta_fast must not be smaller. The authors use 32 and 1
scaling.YaRN(4.0, 64, mscale=0.7) ->
    SettingError: YaRN got mscale=0.7 and mscale_all_dim=None, but needs both or neither: … 1.13863, and … 1.09704
scaling.YaRN(4.0, 64, mscale=0.5, mscale_all_dim=0.0) -> SettingError: needs both or neither
scaling.YaRN(4.0, 64, mscale=-1.0, mscale_all_dim=1.0) ->
    SettingError: YaRN got mscale=-1.0, but needs a finite number above 0
scaling.YaRN(4.0, 64, truncate="2") -> SettingError: True or False
scaling.YaRN(4.0, 64, truncate=None) -> SettingError: True or False
scaling.YaRN(4.0, 64, truncate=1.0) -> SettingError: True or False
scaling.LongRoPE((1.0, 0.0), (1.0, 1.0), 64) -> SettingError: LongRoPE got short_factor[1]=0.0
scaling.LongRoPE((1.0,), (1.0,), 1, factor=2.0) ->
    SettingError: divides by the logarithm of original_length, so it must be at least 2, not 1
scaling.LongRoPE(2.0, [1.0], 64) -> SettingError: short_factor= … a list of numbers
scaling.LongRoPE([1.0], None, 64) -> SettingError: long_factor= … a list of numbers
scaling.LongRoPE([1.0], torch.tensor(2.0), 64) -> SettingError: long_factor= … a list of numbers
scaling.Llama3(low_frequency_factor=4.0, high_frequency_factor=1.0) ->
    SettingError: the second must not be smaller. Llama 3.1 uses 1 and 4
scaling.Proportional(1.5) -> SettingError: Proportional got share=1.5, but needs a share of at most 1

# The score door
ALiBi(2, slopes=[1.0, 0.5, 0.25]) -> ShapeError: ALiBi got 3 slopes for 2 heads
ALiBi(2, slopes=[1.0, 0.0]) -> SettingError: slopes[1]=0
bind(ALiBi(2), gate=1) -> SettingError: ALiBi depends on positions alone, so nothing would read gate.
T5(2, num_buckets=1) -> SettingError: at least 2
T5(2, num_buckets=2.0) -> ShapeError: num_buckets
T5(2, num_buckets=2, bidirectional=True) -> SettingError: at least 4
T5(2, num_buckets=9, bidirectional=True) -> ShapeError: half of the buckets are for later keys
T5(2, max_distance=16) -> SettingError: max_distance=17 or more
T5(2, max_distance=8, bidirectional=True) -> SettingError: max_distance=9 or more
T5(2)(Positions.grid(2, 3), causal=True) -> PositionError: T5 measures along one axis
KERPLE(2, "linear") -> SettingError: KERPLE got kind='linear', but knows only: log, power.
KERPLE(2).assign(p=torch.ones(3), a=torch.ones(2)) ->
    ShapeError: has 2 heads and needs one p for each, but got shape (3,)
KERPLE(2).assign(p=torch.ones(2), a=torch.tensor([1.0, 0.0])) ->
    SettingError: got a=0.0 for head 1, but kind='log' needs a above 0 and finite
KERPLE(2, "power").assign(p=2 * torch.ones(2), a=torch.ones(2)) ->
    SettingError: got p=2.0 for head 0, but kind='power' needs p above 0 and below 2
Sandwich(4, 7) -> ShapeError: Sandwich got sinusoid_dim=7, but needs an even number
FIRE(2)(Positions.grid(2, 2)) -> PositionError: FIRE measures along one axis
bind(FIRE(2), p=None, causal=True, gate=1) -> SettingError: nothing would read gate
bind(Swin(2), Positions.grid(2, 2), q=q(4), scale=1, heads=2) -> SettingError: nothing would read heads, scale
Swin(2)(Positions.centered_grid(2, 2)) -> PositionError: Swin needs whole positions
Swin(2)(Positions.grid(2, 2, 2)) -> PositionError: Swin measures along 2 axes, but these positions have 3
SwinV2(2, (1, 2, 3)) -> ShapeError: SwinV2 got window_size=(1, 2, 3), but needs height and width
SwinV2(2, 8, (1, 4)) -> ShapeError: trained_size=(1, 4) for window_size=(8, 8)
SAM(8, 2, (2, 0)) -> ShapeError: SAM got window_size

# The score door: by content
Shaw(8, 2)(positions(3)) -> DoorError: depends on queries and keys
bind(Shaw(8, 2)) -> DoorError: q is missing
attend(Shaw(8, 2), q(3, 6)) -> ShapeError: head_dim=8, but q has shape
bind(Shaw(8, 2), Positions.grid(1, 3), q=q(3)) -> PositionError: one axis
DeBERTa(8, 1.5, 4) -> ShapeError: num_heads
DeBERTa(8, 2, 20, 7) -> ShapeError: half of the rows
DeBERTa(8, 2, 20, 2) -> SettingError: at least 4
DeBERTa(8, 2, 5, 8) -> SettingError: max_distance=6 or more
DeBERTa(8, 2, 4, terms=()) -> SettingError: no terms
DeBERTa(8, 2, 4, terms=("p2p",)) -> SettingError: knows only: c2p, p2c
DeBERTa(8, 2, 4)(positions(3)) -> DoorError: depends on queries and keys
bind(DeBERTa(8, 2, 4), k=q(3)) -> DoorError: q is missing
attend(DeBERTa(8, 2, 4), q(3, 6)) -> ShapeError: head_dim=8, but q has shape
TransformerXL(8, True) -> ShapeError: num_heads=True
TransformerXL(8, 2, 7) -> ShapeError: a sine and a cosine
TransformerXL(3, 3) -> ShapeError: dim=9
TransformerXL(8, 2)(positions(3)) -> DoorError: depends on queries and keys
bind(TransformerXL(8, 2), k=q(3)) -> DoorError: q is missing
attend(TransformerXL(8, 2), q(3, 6)) -> ShapeError: head_dim=8, but q has shape
bind(TransformerXL(8, 2), Positions.grid(1, 3), q=q(3), k=q(3)) -> PositionError: one axis
CoPE(4, 2, 8)(positions(3)) -> DoorError: CoPE depends on queries and keys
CoPE(4, 2, 8).score_mod(positions(3)) -> DoorError: CoPE depends on queries and keys
bind(CoPE(4, 2, 8)) -> DoorError: q is missing
attend(CoPE(4, 2, 8), q(3, 6)) -> ShapeError: CoPE was made for head_dim=4, but q has shape (1, 2, 3, 6)
FoX(8, 2)(positions(3)) -> DoorError: FoX depends on queries and keys, so it needs more than positions
attend(FoX(8, 2), q(4)) -> SettingError: needs the gates of all keys, but got none. … Pass gates=here.gates(x)
attend(FoX(8, 2), q(4), gates=torch.zeros(1, 2, 1)) ->
    ShapeError: (batch, heads, keys) = (1, 2, 4), but got (1, 2, 1). … With a KV cache
attend(FoX(8, 2), q(4), gates=torch.full((1, 2, 4), 0.5)) ->
    SettingError: FoX got gates up to 0.5, but they are logarithms
attend(None, q(4), gates=torch.zeros(1, 2, 4)) -> SettingError: gates were given, but there is no bias
attend(ALiBi(2), q(4), gates=torch.zeros(1, 2, 4)) -> SettingError: gates were given, but ALiBi has none
Where(FoX(8, 2)).at(4).gates(torch.zeros(1, 4, 6)) ->
    ShapeError: made for dim=8, but the token vectors have shape (1, 4, 6)
Inkling(8, 2, temperature=2.0) -> SettingError: temperature=2.0, but needs a curve
attend(Inkling(8, 2, 4), q(4)) -> SettingError: needs the gates of the queries
attend(Inkling(8, 2, 4), q(4), gates=q(3, 4)) -> ShapeError: Inkling needs gates of shape
Where(Inkling(8, 2)).at(4).gates(torch.ones(1, 4, 9)) -> ShapeError: was made for dim=8

# Doors, windows, sinks, heads
Where(Rotary(8), Rotary(8)) -> DoorError: Rotary and Rotary … 'query_key' has room for one … Leave one out
Where(Learned(4, 9), input=Sinusoidal(4)) -> DoorError: Sinusoidal and Learned … 'input' … layers may have
Where("rotary") -> DoorError: the text 'rotary' … needs schemes … whatwhere.scheme('rotary'
Where(None) -> DoorError: got None … needs schemes … Leave it out
Where(Rotary(8))(q(9), q(9), q(9)) -> SettingError: not called … here = where.at(positions), then here(q, k, v)
InputLayer(9, 8, Learned(8, 9))(torch.tensor([[1]]), Where(Learned(8, 9)).at(1)) ->
    DoorError: own input scheme, Learned … was bound with another … InputLayer(input=None)
Where([Rotary(8), ALiBi(2)]) -> DoorError: a list … Where(Rotary(...), ALiBi(...))
attend(None, q(3), mask=torch.ones(3, 3) > 0) -> ShapeError: (3, 3) … mask[None, None] … from_mask
Where(torch.nn.Linear(2, 2)) -> DoorError: a Linear … needs schemes … subclass of InputEncoding, QueryKeyMap
Rotary(8)(q(1), q(9)) -> PositionError: 1 queries and 9 keys without positions … pass p[-1:] and p
Rotary(8)(q(9), q(9), key_positions=9) -> PositionError: key_positions without positions
Rotary(8)(q(1), q(9), 1, 9) -> PositionError: 1 queries and 9 keys do not say
Where().at(1, 9) -> PositionError: 1 queries and 9 keys do not say
ALiBi(2)(1, 9) -> PositionError: 1 queries and 9 keys do not say
Where(Sinusoidal(8)).at(3).input(torch.ones(1, 3, 8, dtype=torch.int64)) -> ShapeError: floating-point
Where(Rotary(8)).at(3).query_key(q(3).long(), q(3).long()) -> ShapeError: floating-point
Window(4, chunked=4) -> SettingError: chunked=4
Window(2, by="coordinates").mask(Positions.grid(2, 3)) -> PositionError: measures along one axis
Window(4, by="slots") -> SettingError: by='slots'
Where(window="512") -> SettingError: window='512'
Where(window=4, chunk=4) -> SettingError: has one of them
Where(chunk=0) -> ShapeError: size=0
Where().at(3).attention(q(3), q(3)[:, :0], q(3)[:, :0]) -> ShapeError: divide the query heads
Where().at(3).attention(q(3), *[q(3).repeat(2, 1, 1, 1)] * 2) -> ShapeError: need one batch
Where().at(positions(3, start=torch.tensor([0, 1, 2]))).attention(*[q(3)] * 3) -> ShapeError: with batch 3
attend(None, q(3).long()) -> ShapeError: floating-point
InputLayer(9, 8, Learned(8, 4))(torch.ones(1, 3).long(), Where(Learned(8, 4)).at(3)) ->
    DoorError: its own input scheme, Learned, but the Here … InputLayer(input=None), or bind the layer's own layer.where
attend(None, q(3), sink=Sink(4)) -> ShapeError: Sink was made for num_heads=4, but q has 2 heads
Where(sink=torch.nn.Linear(1, 1)) -> SettingError: needs a Sink
ALiBi(4).heads(3, 2) -> ShapeError: has 4 heads
ALiBi(4).heads(3, 0) -> ShapeError: at least 1
ALiBi(4).heads(0, 2, total=3) -> ShapeError: total=3
FoPE(16, 32, sets=2).heads(0, 2) -> ShapeError: pass total=
FoPE(16, 32, sets=2).heads(1, 2, total=4) -> ShapeError: where a set ends
bind_layers([Rotary(8)], positions(2)) -> DoorError: got a Rotary
bind_layers(Where(), positions(2)) -> DoorError: in a list
frequencies.inverse_frequencies(7) -> ShapeError: needs an even number: one frequency serves two features
frequencies.inverse_frequencies(0) -> ShapeError: dim=0
frequencies.inverse_frequencies(8, 0.0) -> SettingError: theta=0
frequencies.tensor2tensor_frequencies(2) -> ShapeError: dim must be at least 4, not 2
scheme("rotary+xpos", 64, 4, 128) -> SettingError: two schemes at the door 'query_key'
scheme("rotary@512+alibi@512", 64, 4, 128) -> SettingError: window is given twice
scheme("rotary@fast", 64, 4, 128) -> SettingError: 'fast' of 'rotary@fast' has no value
"""

BUILT = """
Sinusoidal(dim=8); AxialSinusoidal(dim=8); Fourier(dim=8, max_length=10); Learned(dim=3, max_length=7)
Rotary(head_dim=8); LearnedRotary(head_dim=8); AxialRotary(head_dim=8); MixedRotary(head_dim=8); XPos(head_dim=8)
MultimodalRotary(head_dim=16, sections=(4, 2, 2)); FoPE(head_dim=8, original_length=100); PoPE(head_dim=8, num_heads=2)
CARoPE(dim=5, head_dim=8, num_heads=3); SelectiveRoPE(dim=12, head_dim=8, num_heads=3); SSMax(head_dim=8, num_heads=3)
SelfExtend(then=Rotary(8), window=4, group_size=2); DualChunk(then=Rotary(8), chunk_size=6, max_distance=9)
ALiBi(num_heads=2); T5(num_heads=2); KERPLE(num_heads=2); Sandwich(num_heads=2); FIRE(num_heads=2); Swin(num_heads=2)
SwinV2(num_heads=2); SAM(head_dim=8, num_heads=2); Shaw(head_dim=8, num_heads=2); TransformerXL(head_dim=8, num_heads=2)
DeBERTa(head_dim=8, num_heads=2, max_distance=9); CoPE(head_dim=4, num_heads=2, max_distance=8)
FoX(dim=8, num_heads=2); Inkling(dim=8, num_heads=2); Window(size=4); Sink(num_heads=2)
scaling.Linear(factor=2.0); scaling.NTK(factor=2.0); scaling.Proportional(share=0.5)
scaling.DynamicNTK(factor=2.0, original_length=64); scaling.YaRN(factor=4.0, original_length=64); scaling.Llama3()
scaling.LongRoPE(short_factor=[1.0], long_factor=[1.0], original_length=64)
temperature.SteppedLog(); temperature.ClampedLog(); temperature.Power(); temperature.LogN(original_length=4)
"""
"""Arguments that fit: each number among them, and each that has a default, is refused below 0."""
MAY_BE_ZERO = ("offset", "rotary_start", "center", "gain", "max_future_distance", "first", "mscale", "mscale_all_dim")


@pytest.mark.parametrize("code", [code.strip() for code in BUILT.replace("\n", ";").split(";") if code.strip()])
@pytest.mark.usefixtures("our_own_checks")
def test_numbers_out_of_range_are_refused_by_name(code: str) -> None:
    built, fitting = eval(code.partition("(")[0], NAMES), eval(f"dict({code.partition('(')[2]}", NAMES)
    for name, parameter in inspect.signature(built).parameters.items():
        kind = str(parameter.annotation)
        if ("int" not in kind and "float" not in kind) or "Sequence" in kind:
            continue
        for number in (-1, 0):
            if number == 0 and (name in MAY_BE_ZERO or (built, name) == (ww.CoPE, "std")):
                built(**fitting | {name: 0})
                continue
            of_sides = "window_size" if name == "trained_size" else name  # which is a fraction of the other
            with pytest.raises(ww.WhatWhereError, match=of_sides):
                built(**fitting | {name: number})


@short_refusals(REFUSALS)
@pytest.mark.usefixtures("our_own_checks")
def test_what_does_not_fit_is_refused(call: str, error: str, parts: str) -> None:
    require_refused(call, error, parts, NAMES)
