"""Reference implementation of every scheme in NumPy float64, mostly plain loops.

The library is tested against these files, and they can be read as a textbook. They are slow on purpose: one loop for
each index of the formula. Gradients are here where a table collects them: of a lookup, of the tied output projection
and of learned positions. In these g is dL/dy of the output y, and L any scalar loss.

    what           the token table: lookup, output projection, its loss, and AdamW with the updates of skipped rows;
                   beyond one table: by layer, hashed n-grams, factorized, added to values
    frequencies    radians per position of each pair of features, and the RoPE scalings
    input          door 1, added to the token's vector; tables of positions resized
    rotation       door 2, rotations by position: rotary, several axes, xPos; Self-Extend, dual chunk attention
    query_key      door 2, other maps: PoPE, FoPE, SSMax, the query temperature; CARoPE, Selective RoPE by content
    distance_bias  door 3, by distance: ALiBi, T5, KERPLE, Sandwich, FIRE; along two axes: Swin, Swin v2
    content_bias   door 3, by queries and keys: Shaw, SAM, DeBERTa, Transformer-XL; gated: FoX, CoPE, Inkling
    attention      the three doors together; windows and sinks
    checks         checks of arguments
"""

from whatwhere.reference.attention import attention as attention
from whatwhere.reference.attention import attention_weights as attention_weights
from whatwhere.reference.attention import window_mask as window_mask
from whatwhere.reference.content_bias import cope_bias as cope_bias
from whatwhere.reference.content_bias import cope_counts as cope_counts
from whatwhere.reference.content_bias import deberta_bias as deberta_bias
from whatwhere.reference.content_bias import deberta_row as deberta_row
from whatwhere.reference.content_bias import fox_bias as fox_bias
from whatwhere.reference.content_bias import fox_gates as fox_gates
from whatwhere.reference.content_bias import inkling_bias as inkling_bias
from whatwhere.reference.content_bias import inkling_gates as inkling_gates
from whatwhere.reference.content_bias import sam_bias as sam_bias
from whatwhere.reference.content_bias import shaw_bias as shaw_bias
from whatwhere.reference.content_bias import transformer_xl_bias as transformer_xl_bias
from whatwhere.reference.distance_bias import alibi_bias as alibi_bias
from whatwhere.reference.distance_bias import alibi_slopes as alibi_slopes
from whatwhere.reference.distance_bias import fire_bias as fire_bias
from whatwhere.reference.distance_bias import fire_ratio as fire_ratio
from whatwhere.reference.distance_bias import kerple_bias as kerple_bias
from whatwhere.reference.distance_bias import sandwich_bias as sandwich_bias
from whatwhere.reference.distance_bias import swin_bias as swin_bias
from whatwhere.reference.distance_bias import swin_v2_table as swin_v2_table
from whatwhere.reference.distance_bias import t5_bias as t5_bias
from whatwhere.reference.distance_bias import t5_bucket as t5_bucket
from whatwhere.reference.frequencies import dynamic_ntk_frequencies as dynamic_ntk_frequencies
from whatwhere.reference.frequencies import inverse_frequencies as inverse_frequencies
from whatwhere.reference.frequencies import linear_frequencies as linear_frequencies
from whatwhere.reference.frequencies import llama3_frequencies as llama3_frequencies
from whatwhere.reference.frequencies import longrope_frequencies as longrope_frequencies
from whatwhere.reference.frequencies import longrope_magnitude as longrope_magnitude
from whatwhere.reference.frequencies import ntk_frequencies as ntk_frequencies
from whatwhere.reference.frequencies import proportional_frequencies as proportional_frequencies
from whatwhere.reference.frequencies import tensor2tensor_frequencies as tensor2tensor_frequencies
from whatwhere.reference.frequencies import yarn_frequencies as yarn_frequencies
from whatwhere.reference.frequencies import yarn_magnitude as yarn_magnitude
from whatwhere.reference.input import axial_sinusoid as axial_sinusoid
from whatwhere.reference.input import fourier as fourier
from whatwhere.reference.input import learned as learned
from whatwhere.reference.input import learned_gradient as learned_gradient
from whatwhere.reference.input import resized_grid as resized_grid
from whatwhere.reference.input import resized_rows as resized_rows
from whatwhere.reference.input import sinusoid as sinusoid
from whatwhere.reference.query_key import carope as carope
from whatwhere.reference.query_key import carope_increments as carope_increments
from whatwhere.reference.query_key import clamped_log_temperature as clamped_log_temperature
from whatwhere.reference.query_key import fope as fope
from whatwhere.reference.query_key import log_n_temperature as log_n_temperature
from whatwhere.reference.query_key import pope as pope
from whatwhere.reference.query_key import power_temperature as power_temperature
from whatwhere.reference.query_key import query_temperature as query_temperature
from whatwhere.reference.query_key import selective_rope as selective_rope
from whatwhere.reference.query_key import selective_rope_increments as selective_rope_increments
from whatwhere.reference.query_key import ssmax as ssmax
from whatwhere.reference.query_key import stepped_log_temperature as stepped_log_temperature
from whatwhere.reference.rotation import axial_rotary as axial_rotary
from whatwhere.reference.rotation import dual_chunk_distance as dual_chunk_distance
from whatwhere.reference.rotation import mixed_rotary as mixed_rotary
from whatwhere.reference.rotation import multimodal_axes as multimodal_axes
from whatwhere.reference.rotation import multimodal_rotary as multimodal_rotary
from whatwhere.reference.rotation import rotary as rotary
from whatwhere.reference.rotation import rotary_scores as rotary_scores
from whatwhere.reference.rotation import self_extend_distance as self_extend_distance
from whatwhere.reference.rotation import xpos as xpos
from whatwhere.reference.what import adamw as adamw
from whatwhere.reference.what import cross_entropy as cross_entropy
from whatwhere.reference.what import expected_occupied as expected_occupied
from whatwhere.reference.what import factorized as factorized
from whatwhere.reference.what import factorized_readout as factorized_readout
from whatwhere.reference.what import lookup as lookup
from whatwhere.reference.what import lookup_gradient as lookup_gradient
from whatwhere.reference.what import mixed_values as mixed_values
from whatwhere.reference.what import ngram_row as ngram_row
from whatwhere.reference.what import ngram_rows as ngram_rows
from whatwhere.reference.what import per_layer as per_layer
from whatwhere.reference.what import readout as readout
from whatwhere.reference.what import readout_gradient as readout_gradient
from whatwhere.reference.what import skipped_motion as skipped_motion
