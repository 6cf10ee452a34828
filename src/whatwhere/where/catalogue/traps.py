"""What goes wrong with each scheme, with the claim, statement or test of this repository that shows it."""

from collections.abc import Mapping
from types import MappingProxyType

from whatwhere.where.catalogue.score_traps import SCORE_TRAPS
from whatwhere.where.catalogue.trap import Trap

_INPUT, _QUERY_KEY = "tests/where/input", "tests/where/query_key"
_SCALING, _LAWS = "tests/where/scaling/test_scaling.py", "tests/laws/test_all.py"
_FREQUENCIES = "tests/where/test_frequencies.py"
_ORACLES = "tests/oracles/test_transformers_temperature.py"

_DIVIDES_ALL = Trap("It divides the fastest pair too, so the angle between neighbors shrinks by the factor.", ("E5.3",))
_REGIMES = (
    Trap(
        "Frequencies change when a sequence grows beyond the trained length, so keys that a KV cache stored before "
        "have the wrong rotation; rotating them again is exact in the first layer only. State one `regime_length`.",
        (
            f"{_SCALING}::test_keys_of_one_regime_are_rotated_to_another",
            f"{_SCALING}::test_cached_decoding_beyond_the_trained_length_is_exact_in_one_layer_only",
        ),
    ),
    Trap(
        "In a batch each document must follow its own length; taking the longest for all changes the others.",
        (f"{_LAWS}::test_law_3_each_sequence_by_its_own_length", f"{_SCALING}::test_each_document_has_its_own_regime"),
    ),
)

_SHORT = Trap(
    "Texts up to its window or chunk have the scores of plain rotary, so only a test on longer ones shows a fault.",
    (f"{_QUERY_KEY}/test_region_maps.py::test_short_texts_cost_and_compute_what_plain_rotary_does",),
)

TRAPS: Mapping[str, tuple[Trap, ...]] = MappingProxyType(
    {
        "none": (
            Trap(
                "An encoder, or a single causal layer, cannot tell orders apart; two causal layers can, because the "
                "mask has an order.",
                ("0.18", "3.2"),
            ),
        ),
        "sinusoidal": (
            Trap(
                "In the formula i counts pairs of features. With the index of the feature in its place norms vary and "
                "no linear map shifts positions, yet a model trains to full accuracy all the same.",
                ("1.7", "3.3", "E13.3"),
            ),
            Trap(
                "Its vectors have the norm sqrt(dim / 2), far above that of usual initial token rows: multiply the "
                "rows by sqrt(dim), as the original Transformer does.",
                ("0.22", "3.6"),
            ),
            Trap(
                "It is defined at every position, but beyond the trained length most features leave the range that "
                "training has seen.",
                ("0.20", "3.8"),
            ),
            Trap("Accuracy can fall when all positions are shifted by one.", ("E1.3",)),
            Trap(
                "Tensor2tensor's layout has other frequencies, not only another order of the features.",
                (f"{_FREQUENCIES}::test_sinusoid_tensor2tensor_has_other_frequencies",),
            ),
        ),
        "sinusoidal-axial": (
            Trap(
                "Positions must have as many axes as the scheme, or one, which then serves as all of them.",
                (
                    f"{_INPUT}/test_axial_sinusoidal.py::test_positions_of_other_axes_are_refused",
                    f"{_INPUT}/test_axial_sinusoidal.py::test_one_axis_is_expanded_to_all",
                ),
            ),
            Trap(
                "Where dim does not divide by the axes, the last axis lacks its slowest pairs.",
                (f"{_INPUT}/test_axial_sinusoidal.py::test_all_axes_have_the_same_frequencies",),
            ),
        ),
        "fourier": (
            Trap(
                "`max_length` is the unit of distance and no end: a model with another `max_length` gives the same "
                "positions other vectors.",
                (f"{_INPUT}/test_fourier.py::test_max_length_is_a_scale_and_not_an_end",),
            ),
            Trap(
                "`width` decides within which distance positions start out similar.",
                (f"{_INPUT}/test_fourier.py::test_width_is_the_distance_within_which_tokens_are_similar",),
            ),
        ),
        "learned": (
            Trap(
                "A position beyond the table is an error, and rows beyond the training sequences keep their random "
                "values.",
                ("0.32", "2.1", f"{_LAWS}::test_a_table_ends_with_an_error"),
            ),
            Trap("Accuracy can fall when all positions are shifted by one.", ("E1.3",)),
            Trap(
                "Some checkpoints, such as OPT's, read row p + 2 for position p: pass their `offset`.",
                (f"{_INPUT}/test_learned.py::test_a_position_reads_the_row_of_its_offset",),
            ),
        ),
        "rotary": (
            Trap(
                "Two pair layouts circulate, interleaved and half. Weights of one in code of the other give wrong "
                "scores with equal norms and no error.",
                ("2.5", "tests/where/test_schemes.py::test_rotary_rotates_the_pairs_of_its_layout_and_no_others"),
            ),
            Trap("The sign: a score is q^T R_(n-m) k. Where q = k the error cannot be seen.", ("2.6",)),
            Trap(
                "It is defined at every position, but training has seen only short distances: beyond them accuracy can "
                "fall, and has to be measured.",
                ("2.8",),
            ),
            Trap(
                "DeepSeek-V4 rotates the last features of a head, most others the first: `rotary_start`.",
                ("tests/oracles/test_transformers_deepseek_v4.py::test_the_last_features_are_rotated",),
            ),
        ),
        "rotary-linear": (_DIVIDES_ALL,),
        "rotary-ntk": (
            Trap(
                "Only the slowest pair is divided by the whole factor; the others by less, so they reach angles beyond "
                "those of the trained length.",
                (
                    "E5.3",
                    f"{_SCALING}::test_ntk_keeps_the_fastest_pair_and_divides_the_slowest_by_exactly_the_factor",
                ),
            ),
        ),
        "rotary-dynamic-ntk": _REGIMES,
        "rotary-yarn": (
            Trap(
                "Queries and keys are multiplied by a magnitude, so scores by its square; features that do not rotate "
                "are left as they are.",
                (
                    f"{_SCALING}::test_lengths_are_multiplied_by_the_magnitude_and_scores_by_its_square",
                    f"{_SCALING}::test_features_that_do_not_rotate_have_no_magnitude",
                ),
            ),
            Trap(
                "Implementations differ in whether the ends of the ramp are rounded to whole pairs: `truncate`.",
                (f"{_SCALING}::test_yarn_without_rounding_has_a_ramp_that_ends_at_the_exact_pair",),
            ),
        ),
        "rotary-longrope": (
            *_REGIMES,
            Trap(
                "The second list of factors begins one token beyond the trained length, not at it.",
                (f"{_SCALING}::test_longrope_changes_over_beyond_the_trained_length_not_at_it",),
            ),
        ),
        "rotary-llama3": (
            Trap(
                "Pairs of three bands are treated differently, by their wavelength relative to the trained length: a "
                "checkpoint's `original_length` is part of its weights.",
                (f"{_SCALING}::test_llama3_has_three_bands",),
            ),
        ),
        "rotary-proportional": (
            Trap(
                "The rotated pairs are the fastest of the whole head, not those of its first features, as with "
                "`rotary_dim`.",
                (f"{_SCALING}::test_proportional_leaves_the_slow_pairs_still",),
            ),
        ),
        "rotary-learned": (
            Trap(
                "An alpha rounded to bfloat16 changes the frequency, and the angle error grows with the position: far "
                "tokens are rotated at random. Keep it in float32.",
                (f"{_QUERY_KEY}/test_learned_rotary.py::test_bfloat16_of_alpha_moves_far_angles",),
            ),
            Trap(
                "Frequencies are weights: a reader of the configuration alone builds plain rotary, which is right at "
                "the start of training only.",
                (f"{_QUERY_KEY}/test_learned_rotary.py::test_it_starts_as_rotary_and_leaves_it",),
            ),
            Trap(
                "Keys in a KV cache have the frequencies of their time: after a step of training they are wrong.",
                (f"{_QUERY_KEY}/test_learned_rotary.py::test_cached_keys_have_the_old_frequencies",),
            ),
        ),
        "rotary-axial": (
            Trap(
                "A head whose pairs do not divide by the axes needs `sections`.",
                (f"{_QUERY_KEY}/test_axial_rotary.py::test_the_way_out_of_an_uneven_head_works",),
            ),
            Trap(
                "Text has the same position on all axes, which is the diagonal of a grid.",
                (f"{_QUERY_KEY}/test_axial_rotary.py::test_text_has_the_same_position_on_all_axes",),
            ),
            Trap(
                "DINOv3's coordinates are real numbers between -1 and 1, times 2 pi: at whole rows and columns its "
                "weights see other angles. `Positions.centered_grid`.",
                ("tests/oracles/test_transformers_dinov3.py::test_whole_rows_and_columns_are_other_angles",),
            ),
        ),
        "rotary-mixed": (
            Trap(
                "With grouped queries the frequencies belong to the key heads: query heads with others of their own "
                "would see positions, not distances. `sets`.",
                (f"{_QUERY_KEY}/test_mixed_rotary.py::test_query_heads_have_the_frequencies_of_their_key_head",),
            ),
        ),
        "rotary-multimodal": (
            Trap(
                "Models assign pairs to axes in blocks or in turn: pass the layout of the checkpoint.",
                (
                    f"{_QUERY_KEY}/test_multimodal_rotary.py::test_each_axis_rotates_its_own_pairs_and_no_others",
                    f"{_QUERY_KEY}/test_multimodal_rotary.py::test_interleaved_sections_of_real_models",
                ),
            ),
            Trap(
                "After an image or a video the text goes on one above the largest coordinate, which may be the time, "
                "not by the number of tokens; in decoding the cache's length is not the position: "
                "`Positions.multimodal`, `next_text`.",
                (
                    "tests/oracles/test_transformers_multimodal_positions.py::test_the_position_is_not_the_slot",
                    "tests/oracles/test_transformers_multimodal_positions.py::test_text_behind_a_long_video",
                ),
            ),
        ),
        "rotary-self-extend": (
            _SHORT,
            Trap(
                "Groups count from position 0, so shifting all positions by less than a group changes scores: padded "
                "and packed texts need the positions that they have alone.",
                (f"{_LAWS}::test_relative_iff_declared", f"{_LAWS}::test_law_3_padded_between"),
            ),
        ),
        "rotary-dual-chunk": (
            _SHORT,
            Trap(
                "Only the nearest M - s + 1 distances are exact for every query; others jump where a chunk begins.",
                (f"{_QUERY_KEY}/test_region_maps.py::test_no_distance_is_beyond_what_the_model_was_trained_for",),
            ),
        ),
        "xpos": (
            Trap(
                "Its factors grow with the distance from the center and leave the range of the dtype: the maximum "
                "distance is an error to exceed, and float16 reaches it sooner.",
                (
                    f"{_QUERY_KEY}/test_xpos.py::test_factors_stay_finite_up_to_the_maximum_distance_and_beyond_it_is_an_error",
                    f"{_QUERY_KEY}/test_xpos.py::test_float16_ends_earlier",
                ),
            ),
        ),
        "pope": (
            Trap(
                "Mapped queries and keys have twice the features, but the softmax scale is that of the head before: "
                "attention that takes the root of their size is wrong.",
                (f"{_QUERY_KEY}/test_pope.py::test_the_scale_is_that_of_the_original_head",),
            ),
        ),
        "fope": (
            Trap(
                "Slow pairs are not rotated at all. Padding their sines with 1 in place of 0 mixes the two features of "
                "a pair.",
                (f"{_QUERY_KEY}/test_fope.py::test_slow_pairs_are_unchanged",),
            ),
        ),
        "carope": (
            Trap(
                "The equation of the paper has no bias, so no weights give plain rotary for all tokens, from which it "
                "starts: here there is one.",
                (f"{_QUERY_KEY}/test_carope.py::test_it_starts_as_rotary",),
            ),
            Trap(
                "Angles are sums over all tokens so far: in float32 they lose digits far from the start, and a cache "
                "that forgets tokens loses their angles.",
                (
                    f"{_QUERY_KEY}/test_carope.py::test_angles_far_from_the_start_are_exact",
                    "tests/laws/test_windows.py::test_law_2_decoding_with_forgetting",
                ),
            ),
        ),
        "selective-rope": (
            Trap(
                "A convolution over slots reads the end of the document before, or padding: here it reads the tokens "
                "before in the same document, wherever their slots are.",
                (
                    f"{_QUERY_KEY}/test_selective_rope.py::test_convolution_and_sums_begin_with_each_document",
                    "tests/laws/test_sequence_shards.py::test_gathered_keys_need_no_order",
                ),
            ),
            Trap(
                "Increments are of either sign and no token counts by itself: with all weights near 0, as the authors' "
                "language models start, no position differs from another.",
                (f"{_QUERY_KEY}/test_selective_rope.py::test_no_weights_are_no_positions",),
            ),
        ),
        "ssmax": (
            Trap(
                "n is the number of tokens that the query sees, so a query of a KV cache needs its true position.",
                (f"{_QUERY_KEY}/test_ssmax.py::test_attention_is_a_softmax_to_the_base_of_what_is_seen",),
            ),
            Trap(
                "Alone it has no positions of its own: pass `then`, another map, or a score bias beside it.",
                (
                    f"{_QUERY_KEY}/test_ssmax.py::test_another_map_can_be_wrapped",
                    f"{_QUERY_KEY}/test_ssmax.py::test_it_combines_with_a_score_bias",
                ),
            ),
        ),
        "temperature": (
            Trap(
                "Llama 4 counts positions from 1 and Ministral 3 from 0, so a step comes one token earlier or later: "
                "`offset`.",
                (
                    f"{_ORACLES}::test_llama4_counts_from_one_and_ministral3_from_zero",
                    f"{_QUERY_KEY}/test_query_temperature.py::test_a_step_comes_one_token_earlier_when_counted_from_one",
                ),
            ),
            Trap(
                "Llama 4 and Inkling in transformers take the slot in the cache, not the position: with padding on the "
                "left the same token has another factor. Here it is the position.",
                (f"{_ORACLES}::test_llama4_with_left_padding_takes_the_slot",),
            ),
            Trap(
                "Within the trained length most curves are 1: a port that leaves the factor out is right in every "
                "short test.",
                (f"{_QUERY_KEY}/test_query_temperature.py::test_within_its_length_a_curve_changes_nothing",),
            ),
        ),
        **SCORE_TRAPS,
    }
)
"""By the name of the scheme, in the order of the catalogue."""
