"""Rules that change rotary frequencies so that longer sequences stay within what training showed.

    w_i = theta ** (-2i / dim)                                        what rotary turns by, per position, unscaled

    Linear         w_i / s                                            every pair alike
    NTK            (theta s^(dim / (dim-2))) ** (-2i / dim)           the fastest pair kept, the slowest divided by s
    DynamicNTK     NTK with s that grows with the length
    YaRN           w_i for fast pairs, w_i / s for slow ones, a ramp between; and a magnitude
    LongRoPE       w_i / f_i with searched factors, one list up to the trained length and one beyond; and a magnitude
    Llama3         w_i for short wavelengths, w_i / s for long ones, smooth between
    Proportional   w_i / s for a share of the pairs, none for the rest

A scaling is a value: `Rotary(head_dim=64, scaling=YaRN(factor=4.0, original_length=4096))`.
"""

from whatwhere.where.scaling.blended import Llama3 as Llama3
from whatwhere.where.scaling.blended import Proportional as Proportional
from whatwhere.where.scaling.blended import YaRN as YaRN
from whatwhere.where.scaling.rules import Device as Device
from whatwhere.where.scaling.rules import Frequencies as Frequencies
from whatwhere.where.scaling.rules import Scaling as Scaling
from whatwhere.where.scaling.rules import Unscaled as Unscaled
from whatwhere.where.scaling.rules import rule as rule
from whatwhere.where.scaling.searched import LongRoPE as LongRoPE
from whatwhere.where.scaling.stretched import NTK as NTK
from whatwhere.where.scaling.stretched import DynamicNTK as DynamicNTK
from whatwhere.where.scaling.stretched import Linear as Linear
