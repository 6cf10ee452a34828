// Groups the token slots of a batch by embedding row, and sums their gradients by row (segment sum).
//
// The PyTorch implementations are in group_by_row.py; sums are in the order of the slots, as there, so they are equal to
// the bit.
#include "group_by_row.h"

namespace {

constexpr int SUM = 512;  // features that are summed at once

template <class W>
void sum_rows(const W* gradient, const int64_t* starts, const int64_t* order, W* out, int64_t rows, int64_t dim,
              int64_t threads) {
    const int64_t slots = starts[rows];
    parallel(slots, pieces(dim), threads, [&](int64_t begin, int64_t end) {
        const int64_t until = row_from(starts, rows, end);
        for (int64_t n = row_from(starts, rows, begin); n < until; n++)
            for (int64_t at = 0; at < dim; at += SUM) {
                const int64_t count = dim - at < SUM ? dim - at : SUM;
                W* to = out + n * dim + at;
                float sum[SUM];
                for (int64_t slot = starts[n]; slot < starts[n + 1]; slot++) {
                    const W* g = gradient + order[slot] * dim + at;
                    const W* next = gradient + order[slot + 1 < slots ? slot + 1 : slot] * dim + at;
                    for (int64_t i = 0; i < count; i += 64 / int64_t(sizeof(W))) __builtin_prefetch(next + i);
                    if (slot == starts[n])
                        for (int64_t i = 0; i < count; i++) sum[i] = wide(g[i]);
                    else
                        for (int64_t i = 0; i < count; i++) sum[i] += wide(g[i]);
                }
                for (int64_t i = 0; i < count; i++) to[i] = narrow<W>(sum[i]);
            }
    });
}

}  // namespace

// Sort ids and group their slots: rows, ascending and each once; the slots of row n are order[starts[n] .. starts[n + 1]].
// `spare` has the length of `order`; `found` becomes the number of rows, or -1 where an id is outside the table.
KERNEL(group_by_row)(const int64_t* ids, int64_t count, int64_t vocab_size, int64_t* rows, int64_t* starts, int64_t* order,
                     int64_t* spare, int64_t* found) {
    *found = 0;
    starts[0] = 0;
    int64_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= vocab_size) {
            *found = -1;
            return;
        }
        largest = ids[i] > largest ? ids[i] : largest;
    }
    int64_t *from = spare, *to = order;
    for (int64_t i = 0; i < count; i++) from[i] = i;
    const int digit = count < 512 ? 6 : 11;  // bits of an id that are sorted at once
    const int64_t mask = (1 << digit) - 1;
    for (int shift = 0; shift == 0 || largest >> shift; shift += digit) {
        int64_t counts[(1 << 11) + 1];
        std::memset(counts, 0, size_t(mask + 2) * sizeof(int64_t));
        for (int64_t i = 0; i < count; i++) counts[((ids[i] >> shift) & mask) + 1]++;
        for (int64_t i = 0; i < mask; i++) counts[i + 1] += counts[i];
        for (int64_t i = 0; i < count; i++) to[counts[(ids[from[i]] >> shift) & mask]++] = from[i];
        int64_t* other = from;
        from = to;
        to = other;
    }
    if (from != order) std::memcpy(order, from, size_t(count) * sizeof(int64_t));
    int64_t row = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t id = ids[order[i]];
        if (i == 0 || id != rows[row - 1]) {
            starts[row] = i;
            rows[row++] = id;
        }
    }
    starts[row] = count;
    *found = row;
}

// Sum the gradients of the slots of each row, in float32.
KERNEL(sum_by_row)(const char* gradient, const int64_t* starts, const int64_t* order, char* out, int64_t rows, int64_t dim,
                   int type, int64_t threads) {
#define ROWS(W) \
    return sum_rows(reinterpret_cast<const W*>(gradient), starts, order, reinterpret_cast<W*>(out), rows, dim, threads)
    switch (type) {
        case 0: ROWS(float);
        case 1: ROWS(bfloat16);
        case 2: ROWS(float16);
    }
#undef ROWS
}
