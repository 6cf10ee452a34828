// A bias that is a polyline of each row's own ratio: told for a block of rows, and its gradient gathered from one.
//
// The plain twin is the scheme's formula by element. Rows of a block stand in reverse, the last query first.
#include "native.h"

namespace {

struct Block {
    int64_t heads, rows, keys;       // of the block
    int64_t bottom, left;            // the query after its last, and its first key
    int64_t segments;
    const int32_t* begins;           // (tokens, segments): the least distance of each; the first of each row is 0
};

// Call body(segment, first, last) for each piece of a row that lies in one segment; keys count from the block's first.
// What is left of the row are later keys.
template <class Body>
inline int64_t pieces(const Block& x, int64_t query, const Body& body) {
    const int32_t* begins = x.begins + query * x.segments;
    const int64_t own = query - x.left;  // the key at distance 0
    int64_t first = 0;
    for (int64_t s = x.segments - 1; s >= 0; s--) {  // from the farthest, as keys count
        int64_t last = own - (s ? begins[s] : 0) + 1;
        if (last > x.keys) last = x.keys;
        if (last > first) {
            body(s, first, last);
            first = last;
        }
    }
    return first;
}

}  // namespace

// out (heads, rows, keys) = slopes[h, s] climb[distance] / reach[query] + levels[h, s]; minus infinity at later keys.
// `climb` stands in reverse: climb[tokens - 1 - distance].
KERNEL(polyline_fill)(float* out, const float* climb, const float* reach, const int32_t* begins, const float* slopes,
                      const float* levels, int64_t tokens, int64_t segments, int64_t heads, int64_t rows, int64_t keys,
                      int64_t bottom, int64_t left, int64_t threads) {
    const Block x{heads, rows, keys, bottom, left, segments, begins};
    parallel(heads * rows, 1 + (1 << 14) / (keys + 1), threads, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; n++) {
            const int64_t head = n / rows, query = bottom - 1 - n % rows;
            float* row = out + n * keys;
            const float* at = climb + (tokens - 1 - query + left);
            int64_t seen = pieces(x, query, [&](int64_t s, int64_t first, int64_t last) {
                const float slope = slopes[head * segments + s] / reach[query], level = levels[head * segments + s];
                WHATWHERE_INDEPENDENT
                for (int64_t j = first; j < last; j++) row[j] = slope * at[j] + level;
            });
            for (; seen < keys; seen++) row[seen] = -INFINITY;
        }
    });
}

// sums (3, heads, rows, segments): of the gradient, of gradient * climb, of gradient * tangent, over all sequences and
// the keys of each segment. Sums are taken in 16 lanes, as many as a register has.
KERNEL(polyline_sums)(float* sums, const float* gradient, const float* climb, const float* tangent,
                      const int32_t* begins, int64_t tokens, int64_t segments, int64_t batch, int64_t heads,
                      int64_t rows, int64_t keys, int64_t bottom, int64_t left, int64_t threads) {
    constexpr int64_t LANES = 16;
    const Block x{heads, rows, keys, bottom, left, segments, begins};
    const int64_t size = heads * rows * segments;
    parallel(heads * rows, 1 + (1 << 14) / (keys + 1), threads, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; n++) {
            const int64_t query = bottom - 1 - n % rows, offset = tokens - 1 - query + left;
            const float *up = climb + offset, *rate = tangent + offset;
            float* to = sums + n * segments;
            for (int64_t s = 0; s < segments; s++) to[s] = to[s + size] = to[s + 2 * size] = 0;
            for (int64_t b = 0; b < batch; b++) {
                const float* row = gradient + (b * heads * rows + n) * keys;
                pieces(x, query, [&](int64_t s, int64_t first, int64_t last) {
                    float plain[LANES] = {}, rising[LANES] = {}, turning[LANES] = {};
                    int64_t j = first;
                    for (; j + LANES <= last; j += LANES)
                        for (int64_t l = 0; l < LANES; l++) {
                            plain[l] += row[j + l];
                            rising[l] += row[j + l] * up[j + l];
                            turning[l] += row[j + l] * rate[j + l];
                        }
                    for (int64_t l = 0; j < last; j++, l++) {
                        plain[l] += row[j];
                        rising[l] += row[j] * up[j];
                        turning[l] += row[j] * rate[j];
                    }
                    for (int64_t l = 0; l < LANES; l++) {
                        to[s] += plain[l];
                        to[s + size] += rising[l];
                        to[s + 2 * size] += turning[l];
                    }
                });
            }
        }
    });
}
