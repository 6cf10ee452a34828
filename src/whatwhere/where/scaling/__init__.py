"""RoPE scaling: rules that change rotary frequencies so that a model can read longer sequences than it was trained on.

    w_i = theta ** (-2i / dim)                                        the unscaled frequencies, radians per position

    Linear         w_i / s                                            every pair alike
    NTK            (theta s^(dim / (dim-2))) ** (-2i / dim)           the fastest pair kept, the slowest divided by s
    DynamicNTK     NTK with s that grows with the length
    YaRN           w_i for fast pairs, w_i / s for slow ones, a ramp between; and a magnitude
    LongRoPE       w_i / f_i with searched factors, one list up to the trained length and one beyond; and a magnitude
    Llama3         w_i for short wavelengths, w_i / s for long ones, interpolated between
    Proportional   w_i / s for a share of the pairs, 0 for the rest

A scaling is an argument: `Rotary(head_dim=64, scaling=YaRN(factor=4.0, original_length=4096))`.
"""

from whatwhere.checks import answers_names_of_others
from whatwhere.where.scaling.base import Device as Device
from whatwhere.where.scaling.base import FrequencyCache as FrequencyCache
from whatwhere.where.scaling.base import Scaling as Scaling
from whatwhere.where.scaling.base import Unscaled as Unscaled
from whatwhere.where.scaling.base import or_unscaled as or_unscaled
from whatwhere.where.scaling.longrope import LongRoPE as LongRoPE
from whatwhere.where.scaling.rules import NTK as NTK
from whatwhere.where.scaling.rules import DynamicNTK as DynamicNTK
from whatwhere.where.scaling.rules import Linear as Linear
from whatwhere.where.scaling.rules import Llama3 as Llama3
from whatwhere.where.scaling.rules import Proportional as Proportional
from whatwhere.where.scaling.yarn import YaRN as YaRN

for _rule in Scaling.__subclasses__():  # a dataclass has its __init__ last
    setattr(_rule, "__init__", answers_names_of_others(vars(_rule)["__init__"]))  # noqa: B010
