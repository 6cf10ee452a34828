"""Write every scheme out in NumPy float64 and plain loops, forward and backward.

The library is tested against these files, and a student may read them as a textbook. They are slow on purpose: one
loop per index of the formula. In every gradient function, g stands for dL/dy of the output y, and L is any scalar loss.

    tokens         what a token is: lookup, readout
    optimizer      how a table learns: AdamW, and what it does to rows without a gradient
    frequencies    how far each pair of features turns per position
    scaling        the same, under the scalings of rotary
    input          door 1, added to the token's vector
    interpolation  a table of positions, resized
    query_key      door 2, queries and keys mapped
    rotations      door 2, by several coordinates, and fading
    learned_maps   door 2, where the map itself is learned
    score          door 3, added to the scaled score
    content        door 3, where what is added depends on queries and keys
    curves         door 3, further functions of the distance
    gates          door 3, where gates decide
    attention      where the three doors meet

Fixed schemes have no gradient of their own: a sinusoid and an ALiBi bias are constants that are added.
"""

from whatwhere.reference.attention import attention as attention
from whatwhere.reference.attention import attention_gradient as attention_gradient
from whatwhere.reference.attention import attention_weights as attention_weights
from whatwhere.reference.content import deberta_bias as deberta_bias
from whatwhere.reference.content import deberta_gradient as deberta_gradient
from whatwhere.reference.content import deberta_row as deberta_row
from whatwhere.reference.content import shaw_bias as shaw_bias
from whatwhere.reference.content import shaw_gradient as shaw_gradient
from whatwhere.reference.content import transformer_xl_bias as transformer_xl_bias
from whatwhere.reference.content import transformer_xl_gradient as transformer_xl_gradient
from whatwhere.reference.curves import fire_bias as fire_bias
from whatwhere.reference.curves import fire_gradient as fire_gradient
from whatwhere.reference.curves import fire_ratio as fire_ratio
from whatwhere.reference.curves import kerple_bias as kerple_bias
from whatwhere.reference.curves import kerple_gradient as kerple_gradient
from whatwhere.reference.curves import sandwich_bias as sandwich_bias
from whatwhere.reference.frequencies import inverse_frequencies as inverse_frequencies
from whatwhere.reference.frequencies import tensor2tensor_frequencies as tensor2tensor_frequencies
from whatwhere.reference.gates import cope_bias as cope_bias
from whatwhere.reference.gates import cope_counts as cope_counts
from whatwhere.reference.gates import cope_gradient as cope_gradient
from whatwhere.reference.gates import fox_bias as fox_bias
from whatwhere.reference.gates import fox_gates as fox_gates
from whatwhere.reference.gates import fox_gates_gradient as fox_gates_gradient
from whatwhere.reference.gates import fox_gradient as fox_gradient
from whatwhere.reference.input import axial_sinusoid as axial_sinusoid
from whatwhere.reference.input import fourier as fourier
from whatwhere.reference.input import learned as learned
from whatwhere.reference.input import learned_gradient as learned_gradient
from whatwhere.reference.input import sinusoid as sinusoid
from whatwhere.reference.interpolation import resized_grid as resized_grid
from whatwhere.reference.interpolation import resized_rows as resized_rows
from whatwhere.reference.learned_maps import fope as fope
from whatwhere.reference.learned_maps import fope_gradient as fope_gradient
from whatwhere.reference.learned_maps import pope as pope
from whatwhere.reference.learned_maps import pope_gradient as pope_gradient
from whatwhere.reference.learned_maps import ssmax as ssmax
from whatwhere.reference.learned_maps import ssmax_gradient as ssmax_gradient
from whatwhere.reference.optimizer import adamw as adamw
from whatwhere.reference.optimizer import skipped_motion as skipped_motion
from whatwhere.reference.query_key import rotary as rotary
from whatwhere.reference.query_key import rotary_gradient as rotary_gradient
from whatwhere.reference.rotations import axial_rotary as axial_rotary
from whatwhere.reference.rotations import multimodal_axes as multimodal_axes
from whatwhere.reference.rotations import multimodal_rotary as multimodal_rotary
from whatwhere.reference.rotations import xpos as xpos
from whatwhere.reference.scaling import dynamic_ntk_frequencies as dynamic_ntk_frequencies
from whatwhere.reference.scaling import linear_frequencies as linear_frequencies
from whatwhere.reference.scaling import llama3_frequencies as llama3_frequencies
from whatwhere.reference.scaling import longrope_frequencies as longrope_frequencies
from whatwhere.reference.scaling import longrope_magnitude as longrope_magnitude
from whatwhere.reference.scaling import ntk_frequencies as ntk_frequencies
from whatwhere.reference.scaling import proportional_frequencies as proportional_frequencies
from whatwhere.reference.scaling import yarn_frequencies as yarn_frequencies
from whatwhere.reference.scaling import yarn_magnitude as yarn_magnitude
from whatwhere.reference.score import alibi_bias as alibi_bias
from whatwhere.reference.score import alibi_slopes as alibi_slopes
from whatwhere.reference.score import t5_bias as t5_bias
from whatwhere.reference.score import t5_bucket as t5_bucket
from whatwhere.reference.score import t5_gradient as t5_gradient
from whatwhere.reference.tokens import lookup as lookup
from whatwhere.reference.tokens import lookup_gradient as lookup_gradient
from whatwhere.reference.tokens import readout as readout
from whatwhere.reference.tokens import readout_gradient as readout_gradient
