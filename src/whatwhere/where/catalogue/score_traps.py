"""What goes wrong with the schemes of the score door, see traps.py."""

from collections.abc import Mapping

from whatwhere.where.catalogue.trap import Trap

_SCORE, _ORACLE = "tests/where/score", "tests/oracles"

SCORE_TRAPS: Mapping[str, tuple[Trap, ...]] = {
    "alibi": (
        Trap(
            "Slopes of a number of heads that is no power of two are not one geometric series: the authors take "
            "those of the power of two below, and then every other slope of twice as many heads.",
            ("2.10", "tests/where/test_schemes.py::test_slopes_of_other_numbers_are_the_authors"),
        ),
        Trap("Slopes are positive where distances are negative: a second minus rewards far keys.", ("2.11",)),
        Trap("Scores are divided by the root of head_dim, the bias is not.", ("2.9",)),
    ),
    "kerple": (
        Trap(
            "Both parameters must stay positive: here they are functions of free ones, the authors clamp them.",
            (f"{_SCORE}/test_kerple.py::test_no_step_leads_out_of_the_range",),
        ),
    ),
    "sandwich": (
        Trap(
            "It falls about as a logarithm, but not steadily: a farther key can have the greater bias.",
            (f"{_SCORE}/test_sandwich.py::test_it_falls_about_as_a_logarithm",),
        ),
        Trap(
            "A circulating form sums the angles in place of their cosines, which is a straight line.",
            (f"{_SCORE}/test_sandwich.py::test_the_cosine_is_included",),
        ),
    ),
    "fire": (
        Trap(
            "The divisor is the position of the query within its document, not its slot: packing, left padding and "
            "a KV cache need true positions.",
            (f"{_SCORE}/test_fire.py::test_the_query_counts_within_its_document",),
        ),
        Trap(
            "Below the threshold it is a function of the distance, beyond it of the ratio to the query's position.",
            (
                f"{_SCORE}/test_fire.py::test_below_the_threshold_it_is_a_function_of_the_distance",
                f"{_SCORE}/test_fire.py::test_beyond_the_threshold_every_length_is_the_same_range",
            ),
        ),
    ),
    "fox": (
        Trap(
            "A score needs the gates of all tokens between key and query, so a cache keeps gates beside keys.",
            (f"{_SCORE}/test_fox.py::test_one_query_against_a_cache_of_gates",),
        ),
    ),
    "cope": (
        Trap(
            "Counts beyond the last row of its table are the last row: far keys look alike.",
            (f"{_SCORE}/test_cope.py::test_counts_beyond_the_last_row_are_the_last",),
        ),
        Trap(
            "It starts at zero, so an untrained model has no positions.",
            (f"{_SCORE}/test_cope.py::test_it_starts_at_zero_as_the_papers_listing_does",),
        ),
    ),
    "inkling": (
        Trap(
            "Gates are those of the queries, whereas FoX's are those of the keys: a cache need not keep them.",
            (f"{_SCORE}/test_inkling.py::test_one_query_needs_its_own_gates_only",),
        ),
        Trap(
            "In layers with a temperature it multiplies the bias too; QueryTemperature alone leaves it as it is.",
            (f"{_ORACLE}/test_transformers_inkling.py::test_the_temperature_multiplies_the_bias_too",),
        ),
    ),
    "t5": (
        Trap(
            "The softmax scale is 1: with the usual division by the root of head_dim, T5's weights are wrong.",
            (f"{_SCORE}/test_t5.py::test_it_sets_the_softmax_scale",),
        ),
        Trap(
            "An encoder's table has other buckets: `bidirectional=True`.",
            (f"{_SCORE}/test_t5.py::test_an_encoder_must_be_declared_bidirectional",),
        ),
        Trap(
            "All distances from `max_distance` on share one bucket.",
            (f"{_SCORE}/test_t5.py::test_near_distances_have_a_bucket_each_and_far_ones_share_the_last",),
        ),
    ),
    "shaw": (
        Trap(
            "All distances beyond the clip share one row.",
            (f"{_SCORE}/test_shaw.py::test_distances_beyond_the_clip_are_one",),
        ),
    ),
    "swin": (
        Trap(
            "The table's row is the query's distance from the key, rows first: read the other way round it is the "
            "image mirrored, with no error.",
            (f"{_SCORE}/test_swin.py::test_query_minus_key_rows_first",),
        ),
        Trap(
            "All distances beyond the window share its largest: another resolution needs attention within windows.",
            (f"{_SCORE}/test_swin.py::test_distances_beyond_the_window_are_its_largest",),
        ),
    ),
    "swin-v2": (
        Trap(
            "Distances are in units of the window of training: at a larger window, `trained_size` keeps the bias "
            "of a distance, and without it every bias moves.",
            (f"{_SCORE}/test_swin.py::test_the_trained_size_keeps_the_bias_of_a_distance",),
        ),
    ),
    "sam": (
        Trap(
            "Queries are not divided by sqrt(head_dim) here, whereas Shaw's are: with the scale the bias is too small.",
            (f"{_SCORE}/test_sam.py::test_the_query_is_not_scaled",),
        ),
        Trap(
            "All distances beyond the window share its largest: another resolution needs attention within windows.",
            (f"{_SCORE}/test_sam.py::test_distances_beyond_the_window_are_its_largest",),
        ),
    ),
    "transformer-xl": (
        Trap(
            "Past and future of one distance differ: the sine is odd, so the sign of the distance matters.",
            (f"{_SCORE}/test_transformer_xl.py::test_past_and_future_differ",),
        ),
    ),
    "deberta": (
        Trap(
            "The softmax scale counts the terms: sqrt(3 head_dim) with both, sqrt(2 head_dim) with one.",
            (f"{_SCORE}/test_deberta.py::test_the_scale_counts_the_terms",),
        ),
        Trap(
            "With position buckets far distances share rows, and beyond the maximum all are one.",
            (
                f"{_SCORE}/test_deberta.py::test_shared_rows_are_wider_by_one_factor",
                f"{_SCORE}/test_deberta.py::test_clipping_maps_each_distance_to_a_row",
            ),
        ),
    ),
}
"""By the name of the scheme, in the order of the catalogue."""
