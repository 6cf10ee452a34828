"""Write every scheme out in NumPy float64 and plain loops, forward and backward.

The library is tested against these files, and a student may read them as a textbook. They are slow on purpose: one
loop per index of the formula. In every gradient function, g stands for dL/dy of the output y, and L is any scalar loss.

    tokens         what a token is: lookup, readout
    frequencies    how far each pair of features turns per position
    input          door 1, added to the token's vector
    query_key      door 2, queries and keys mapped
    score          door 3, added to the scaled score
    attention      where the three doors meet

Fixed schemes have no gradient of their own: a sinusoid and an ALiBi bias are constants that are added.
"""

from whatwhere.reference.attention import attention as attention
from whatwhere.reference.attention import attention_gradient as attention_gradient
from whatwhere.reference.attention import attention_weights as attention_weights
from whatwhere.reference.frequencies import inverse_frequencies as inverse_frequencies
from whatwhere.reference.frequencies import tensor2tensor_frequencies as tensor2tensor_frequencies
from whatwhere.reference.input import learned as learned
from whatwhere.reference.input import learned_gradient as learned_gradient
from whatwhere.reference.input import sinusoid as sinusoid
from whatwhere.reference.query_key import rotary as rotary
from whatwhere.reference.query_key import rotary_gradient as rotary_gradient
from whatwhere.reference.score import alibi_bias as alibi_bias
from whatwhere.reference.score import alibi_slopes as alibi_slopes
from whatwhere.reference.tokens import lookup as lookup
from whatwhere.reference.tokens import lookup_gradient as lookup_gradient
from whatwhere.reference.tokens import readout as readout
from whatwhere.reference.tokens import readout_gradient as readout_gradient
