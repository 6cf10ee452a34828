// AdamW on the rows of a batch: rows brought up to date and looked up, and the step.
//
// The PyTorch implementations are in row_adamw.py, and numbers are computed as there, so they are equal to the bit.
#include "adamw_catch_up.h"
#include "group_by_row.h"

namespace {

constexpr int CHUNK = 64;  // features that are computed at once

// A float32 table is its own master; a 16-bit one has a master in float32, each number of which is valid as long as it
// rounds to the number in the table, which other code may have overwritten.
inline float whole(float w, const float*) { return w; }
inline float whole(bfloat16 w, const float* master) { return narrow<bfloat16>(*master).bits == w.bits ? *master : wide(w); }
inline float whole(float16 w, const float* master) { return narrow<float16>(*master).bits == w.bits ? *master : wide(w); }

template <class W> struct Table {
    W* weight;
    float *master, *first, *second;  // master is null where W is float
    int32_t* last;
    int64_t dim;
};

template <class W> inline void store(W* w, float*, int64_t i, float p) { w[i] = narrow<W>(p); }
template <> inline void store<bfloat16>(bfloat16* w, float* master, int64_t i, float p) {
    w[i] = narrow<bfloat16>(p);
    master[i] = p;
}
template <> inline void store<float16>(float16* w, float* master, int64_t i, float p) {
    w[i] = narrow<float16>(p);
    master[i] = p;
}

// Prefetch the same features of the next row: the processor itself prefetches only within a page.
template <class W> inline void prefetch(const W* x, int64_t count) {
    for (int64_t i = 0; i < count; i += 64 / int64_t(sizeof(W))) __builtin_prefetch(x + i, 1);
}
template <class W> inline void prefetch(const Table<W>& t, int64_t begin, int64_t count) {
    prefetch(t.weight + begin, count);
    prefetch(t.first + begin, count);
    prefetch(t.second + begin, count);
    if (t.master) prefetch(t.master + begin, count);
}

// p <- D p - m sum_i w_i / (x_i sqrt(v) + eps), m <- M m, v <- V v; what has no momentum does not change.
template <class W>
void catch_up_row(const Table<W>& t, int64_t row, int64_t next, const float* coefficients, int nodes, bool moments, float eps) {
    const float kept = coefficients[0], decay1 = coefficients[1], decay2 = coefficients[2];
    for (int64_t at = 0; at < t.dim; at += CHUNK) {
        const int64_t count = t.dim - at < CHUNK ? t.dim - at : CHUNK, begin = row * t.dim + at;
        W* weight = t.weight + begin;
        float *master = t.master + begin, *first = t.first + begin, *second = t.second + begin;
        prefetch(t, next * t.dim + at, count);
        if (!moments) {
            WHATWHERE_INDEPENDENT
            for (int64_t i = 0; i < count; i++) store(weight, master, i, whole(weight[i], master + i) * kept);
            continue;
        }
        float root[CHUNK], sum[CHUNK];
        for (int64_t i = 0; i < count; i++) root[i] = std::sqrt(second[i]);
        for (int64_t i = 0; i < count; i++) sum[i] = 0;
        for (int n = 0; n < nodes; n++) {
            const float x = coefficients[3 + n], w = coefficients[3 + MOST + n];
            for (int64_t i = 0; i < count; i++) sum[i] += w / (x * root[i] + eps);
        }
        WHATWHERE_INDEPENDENT
        for (int64_t i = 0; i < count; i++) {
            const float m = first[i], change = m == 0 ? 0 : m * sum[i];
            store(weight, master, i, whole(weight[i], master + i) * kept - change);
            first[i] = m * decay1;
            second[i] *= decay2;
        }
    }
}

template <class W>
void update_row(const Table<W>& t, int64_t row, int64_t next, const W* gradient, const float* c) {
    const float beta1 = c[0], rest1 = c[1], beta2 = c[2], rest2 = c[3], kept = c[4], rate = c[5], root = c[6], eps = c[7];
    for (int64_t at = 0; at < t.dim; at += CHUNK) {
        const int64_t count = t.dim - at < CHUNK ? t.dim - at : CHUNK, begin = row * t.dim + at;
        W* weight = t.weight + begin;
        float *master = t.master + begin, *first = t.first + begin, *second = t.second + begin;
        prefetch(t, next * t.dim + at, count);
        WHATWHERE_INDEPENDENT
        for (int64_t i = 0; i < count; i++) {
            const float g = wide(gradient[at + i]), m = beta1 * first[i] + rest1 * g;
            const float v = beta2 * second[i] + rest2 * g * g, change = rate * (m / (std::sqrt(v) * root + eps));
            store(weight, master, i, whole(weight[i], master + i) * kept - (m == 0 ? 0 : change));
            first[i] = m;
            second[i] = v;
        }
    }
}

template <class W> void copy_row(W* to, const W* from, int64_t dim, bool stream) {
    const int64_t bytes = dim * int64_t(sizeof(W));
    if (!stream) {
        std::memcpy(to, from, size_t(bytes));
        return;
    }
    for (int64_t i = 0; i < bytes; i += 64)
        stream_line(reinterpret_cast<char*>(to) + i, reinterpret_cast<const char*>(from) + i);
}

template <class W>
void catch_up_rows(const Table<W>& t, const History& h, const int64_t* rows, int64_t count, int64_t base, float eps,
                   const int64_t* starts, const int64_t* order, W* out, bool stream, int64_t threads) {
    parallel(out ? starts[count] : count, pieces(t.dim), threads, [&](int64_t begin, int64_t end) {
        const int64_t from = out ? row_from(starts, count, begin) : begin, until = out ? row_from(starts, count, end) : end;
        for (int64_t n = from; n < until; n++) {
            const int64_t later = n + 1 < until ? n + 1 : n, row = rows ? rows[n] : n, slot = t.last[row] - base;
            if (slot < h.now) {
                const bool moments = t.last[row] != 0;
                const float* coefficients = h.cached + slot * CACHED_COLUMNS;
                const int nodes = int(h.rules[slot * RULE_COLUMNS + COUNT]);
                if (moments || coefficients[0] != 1) catch_up_row(t, row, rows ? rows[later] : later, coefficients, nodes, moments, eps);
                t.last[row] = int32_t(base + h.now);
            }
            if (out)
                for (int64_t at = starts[n]; at < starts[n + 1]; at++)
                    copy_row(out + order[at] * t.dim, t.weight + row * t.dim, t.dim, stream);
        }
        if (stream) streamed();
    });
}

template <class W>
void update_rows(const Table<W>& t, const int64_t* rows, const W* gradient, int64_t count, const float* constants,
                 int32_t now, int64_t threads) {
    parallel(count, pieces(t.dim), threads, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; n++) {
            update_row(t, rows[n], rows[n + 1 < end ? n + 1 : n], gradient + n * t.dim, constants);
            t.last[rows[n]] = now;
        }
    });
}

}  // namespace

// Compute the rules of some slots, and write D, M, V, nodes and weights of each.
KERNEL(adamw_rules)(const int64_t* slots, int64_t count, const double* steps, double* rules, int64_t now, int64_t base,
                        double log_tail, double* out, int64_t threads) {
    const History h{steps, rules, nullptr, now, log_tail};
    parallel(count, 4, threads, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; n++) write_coefficients(h, slots[n], slots[n] + base != 0, out + n * CACHED_COLUMNS);
    });
}

// Bring rows up to date; with `out`, copy each to the token slots there that look it up. No rows means all. `slots` has
// room for `now` numbers; `changed` becomes the number of rows that were behind.
KERNEL(adamw_catch_up)(char* weight, float* master, float* first, float* second, int32_t* last, int64_t dim,
                           const int64_t* rows, int64_t count, const double* steps, double* rules, float* coefficients, int64_t now,
                           int64_t base, double log_tail, float eps, int64_t* slots, const int64_t* starts,
                           const int64_t* order, char* out, int64_t* changed, int type, int stream, int64_t threads) {
    const History h{steps, rules, coefficients, now, log_tail};
    int64_t wanted = 0;
    *changed = 0;
    for (int64_t n = 0; n < count; n++) {
        const int64_t slot = last[rows ? rows[n] : n] - base;
        if (slot >= now) continue;
        ++*changed;
        double& mark = rules[slot * RULE_COLUMNS + CACHED];
        if (mark == double(now)) continue;
        mark = double(now);
        slots[wanted++] = slot;
    }
    parallel(wanted, 4, threads, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; n++) write_coefficients(h, slots[n], slots[n] + base != 0, coefficients + slots[n] * CACHED_COLUMNS);
    });
    if (!*changed && !out) return;
#define ROWS(W)                                                                                                     \
    return catch_up_rows(Table<W>{reinterpret_cast<W*>(weight), master, first, second, last, dim}, h, rows, count, base, \
                         eps, starts, order, reinterpret_cast<W*>(out), stream, threads)
    switch (type) {
        case 0: ROWS(float);
        case 1: ROWS(bfloat16);
        case 2: ROWS(float16);
    }
#undef ROWS
}

// Update rows that are up to date by step `now`. Where some are not, `behind` becomes their number and nothing is done.
KERNEL(adamw_update)(char* weight, float* master, float* first, float* second, int32_t* last, int64_t dim,
                         const int64_t* rows, const char* gradient, int64_t count, const float* constants, int64_t now,
                         int64_t* behind, int type, int64_t threads) {
    *behind = 0;
    for (int64_t n = 0; n < count; n++) *behind += last[rows[n]] != int32_t(now - 1);
    if (*behind) return;
#define ROWS(W)                                                                                                       \
    return update_rows(Table<W>{reinterpret_cast<W*>(weight), master, first, second, last, dim}, rows,                \
                       reinterpret_cast<const W*>(gradient), count, constants, int32_t(now), threads)
    switch (type) {
        case 0: ROWS(float);
        case 1: ROWS(bfloat16);
        case 2: ROWS(float16);
    }
#undef ROWS
}
