"""Check any implementation of a positional encoding, a function or a Where, against the float64 reference and laws.

report = check_rotary(fn, head_dim=64)                        fn(x, positions) -> x rotated
report = check_bias(fn, num_heads=12, expected="alibi")       fn(query_positions, key_positions) -> a table
report = check_input_encoding(fn, dim=64)                     fn(positions) -> vectors
report = check_ngram_rows(fn, hashes, vocab_size=9, padding_id=0)    fn(ids, segments) -> rows of hashed n-grams
report = check_lookup(fn, weight, ids, rows)                  fn(ids) -> vectors, whose gradients reach these rows
report = check_where(build)                                    build() -> a Where, with schemes of your own at any door
print(report)                                                 which law passes, which fails, where, by how much
report = check_rotary(of_arrays(fn), head_dim=64)              a function of NumPy's, JAX's or other arrays
report.require()                                              raises AssertionError with that table
"""

from whatwhere.testing.bias import check_bias as check_bias
from whatwhere.testing.harness import of_arrays as of_arrays
from whatwhere.testing.input import check_input_encoding as check_input_encoding
from whatwhere.testing.report import Finding as Finding
from whatwhere.testing.report import Report as Report
from whatwhere.testing.rotary import check_rotary as check_rotary
from whatwhere.testing.token_tables import check_lookup as check_lookup
from whatwhere.testing.token_tables import check_ngram_rows as check_ngram_rows
from whatwhere.testing.where import check_where as check_where
