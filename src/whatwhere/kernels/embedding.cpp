// Rows of the token table, scaled, plus the rows of their positions, in one pass over the memory.
//
// The PyTorch implementation is `_in_pytorch` in embedding.py. Products and sums are rounded as there, so the results
// are equal to the bit.
#include "native.h"

namespace {

constexpr int64_t AHEAD = 4096;  // bytes of rows that are prefetched
constexpr int64_t CHUNK = 512;   // bytes that are assembled before they are streamed

struct Embedding {
    char* out;                                          // (batch, tokens, dim), contiguous
    const char* weight;
    const void* ids;
    const char* added;                                  // null where nothing is
    const int64_t* index;                               // positions; null where the rows are those of the tokens
    float scale;
    int64_t batch, tokens, dim, vocab, weight_row;      // strides are in elements
    int64_t wide_ids, ids_batch, ids_token;
    int64_t added_batch, added_row;
    int64_t positions, offset, index_batch, index_token;  // 0 <= index < positions
};

// Two bfloat16 are one word of 32 bits: shifts and masks split them, where lanes would have to be shuffled.
struct Two { float first, second; };
inline Two two(const float* x) { return {x[0], x[1]}; }
inline Two two(const bfloat16* x) {
    uint32_t both;
    std::memcpy(&both, x, 4);
    return {bits_to_float(both << 16), bits_to_float(both & 0xffff0000)};
}

// The product of a bfloat16, rounded to one. It needs no care for NaN: that of a bfloat16 ends in zeros, so nothing is
// carried into its upper half.
inline float rounded(float product) {
    const uint32_t bits = float_to_bits(product);
    return bits_to_float((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000);
}

template <class P, bool scaled>
inline void sum_pairs(bfloat16* out, const bfloat16* e, const P* p, float scale, int64_t pairs) {
    WHATWHERE_INDEPENDENT
    for (int64_t i = 0; i < pairs; i++) {
        const Two x = two(e + 2 * i), y = two(p + 2 * i);
        const float first = (scaled ? rounded(x.first * scale) : x.first) + y.first;
        const float second = (scaled ? rounded(x.second * scale) : x.second) + y.second;
        const uint32_t both = (rounded_upper(first) >> 16) | (rounded_upper(second) & 0xffff0000);
        std::memcpy(out + 2 * i, &both, 4);
    }
}

// What of a row is computed so, of any types; the rest is left to the loop below.
template <bool scaled, class T, class P>
inline int64_t sum_first(T*, const T*, const P*, float, int64_t) { return 0; }
#if defined(WHATWHERE_SIXTEEN)
// The same for sixteen at once: what the compiler makes of the loop above takes half as long again.
inline __m256 product(__m256 x, __m256 scale, bool exact) {
    x = _mm256_mul_ps(x, scale);
    const __m256 upper = _mm256_castsi256_ps(_mm256_set1_epi32(int(0xffff0000)));
    return exact ? x : _mm256_and_ps(carried(x), upper);
}
template <bool scaled, bool exact, class P>
inline int64_t sum_sixteens(bfloat16* out, const bfloat16* e, const P* p, float scale, int64_t count) {
    const __m256 factor = _mm256_set1_ps(scale);
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        Sixteen x = sixteen(e + i), y = sixteen(p + i);
        if (scaled) x = {product(x.first, factor, exact), product(x.second, factor, exact)};
        store_sixteen(out + i, _mm256_add_ps(x.first, y.first), _mm256_add_ps(x.second, y.second));
    }
    return i;
}
template <bool scaled, class P>
inline int64_t sum_first(bfloat16* out, const bfloat16* e, const P* p, float scale, int64_t count) {
    // A product with a power of two from 1 on, the root of 256, 1,024 or 4,096 features, is a bfloat16 already.
    const bool exact = scale >= 1 && (float_to_bits(scale) & 0x7fffff) == 0;
    return exact ? sum_sixteens<scaled, true>(out, e, p, scale, count)
                 : sum_sixteens<scaled, false>(out, e, p, scale, count);
}
#else
template <bool scaled, class P>
inline int64_t sum_first(bfloat16* out, const bfloat16* e, const P* p, float scale, int64_t count) {
    sum_pairs<P, scaled>(out, e, p, scale, count / 2);
    return count / 2 * 2;
}
#endif
#if defined(__F16C__)
inline __m256 eight(const float* x) { return _mm256_loadu_ps(x); }
inline __m256 eight(const float16* x) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))); }
template <bool scaled, class P>
inline int64_t sum_first(float16* out, const float16* e, const P* p, float scale, int64_t count) {
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 x = eight(e + i);
        if (scaled) x = _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_mul_ps(x, _mm256_set1_ps(scale)), 0));
        const __m128i y = _mm256_cvtps_ph(_mm256_add_ps(x, eight(p + i)), 0);  // 0: to the nearest
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), y);
    }
    return i;
}
#endif

// s e + p of some features, rounded after each operation.
template <class T, class P, bool scaled, bool summed>
inline void sum(T* out, const T* e, const P* p, float scale, int64_t count) {
    int64_t i = summed ? sum_first<scaled>(out, e, p, scale, count) : 0;
    WHATWHERE_INDEPENDENT
    for (; i < count; i++) {
        if (!summed) out[i] = scaled ? narrow<T>(wide(e[i]) * scale) : e[i];
        else out[i] = narrow<T>((scaled ? wide(narrow<T>(wide(e[i]) * scale)) : wide(e[i])) + wide(p[i]));
    }
}

// One row; `next` is one that will be read soon.
template <class T, class P, bool scaled, bool summed>
inline void sum_row(T* out, const T* e, const P* p, const T* next, float scale, int64_t dim, bool stream) {
    constexpr int64_t LINE = 64 / sizeof(T), PIECE = CHUNK / sizeof(T);
    alignas(64) T piece[PIECE];
    int64_t i = 0;
    if (stream) {  // up to the border of a line
        i = int64_t(-reinterpret_cast<uintptr_t>(out) % 64 / sizeof(T));
        if (i > dim) i = dim;
        sum<T, P, scaled, summed>(out, e, p, scale, i);
    }
    while (i < dim) {
        const int64_t count = dim - i < PIECE ? dim - i : PIECE, streaming = stream ? count / LINE * LINE : 0;
        for (int64_t n = 0; n < count; n += LINE) __builtin_prefetch(next + i + n);
        const T* from = scaled || summed ? piece : e + i;
        if (scaled || summed) sum<T, P, scaled, summed>(piece, e + i, p + i, scale, streaming);
        for (int64_t n = 0; n < streaming; n += LINE) stream_line(out + i + n, from + n);
        sum<T, P, scaled, summed>(out + i + streaming, e + i + streaming, p + i + streaming, scale, count - streaming);
        i += count;
    }
}

// A walk through all slots. Where all sequences have the same positions it goes along the batch first: the row of a
// position is then read once, and not once for each sequence.
struct Walk {
    int64_t b, t;
    Walk(const Embedding& x, int64_t n, bool alike)
        : b(alike ? n % x.batch : n / x.tokens), t(alike ? n / x.batch : n % x.tokens) {}
    void step(const Embedding& x, bool alike) {
        if (alike && ++b == x.batch) b = 0, t++;
        if (!alike && ++t == x.tokens) t = 0, b++;
    }
};

// The row of a token; -1 where the table has none.
inline int64_t token(const Embedding& x, const Walk& at) {
    const int64_t n = at.b * x.ids_batch + at.t * x.ids_token;
    const int64_t id = x.wide_ids ? static_cast<const int64_t*>(x.ids)[n] : static_cast<const int32_t*>(x.ids)[n];
    return id >= 0 && id < x.vocab ? id : -1;
}

// Where the row of a position begins; -1 where the table has none.
inline int64_t position(const Embedding& x, const Walk& at) {
    if (!x.index) return at.b * x.added_batch + at.t * x.added_row;
    const int64_t p = x.index[at.b * x.index_batch + at.t * x.index_token];
    return p >= 0 && p < x.positions ? (p + x.offset) * x.added_row : -1;
}

// Return whether all slots from begin to end have their rows; a missing one is not read.
template <class T, class P, bool scaled, bool summed>
bool sum_slots(const Embedding& x, int64_t begin, int64_t end, bool alike, bool stream) {
    const T* weight = reinterpret_cast<const T*>(x.weight);
    const P* added = reinterpret_cast<const P*>(summed ? x.added : x.weight);
    const int64_t ahead = 1 + AHEAD / (x.dim * int64_t(sizeof(T)));
    Walk at(x, begin, alike), later(x, begin + ahead, alike);
    bool inside = true;
    for (int64_t n = begin; n < end; n++, at.step(x, alike), later.step(x, alike)) {
        const int64_t id = token(x, at), row = summed ? position(x, at) : 0;
        if (id < 0 || row < 0) {
            inside = false;
            continue;
        }
        const int64_t soon = n + ahead < end ? token(x, later) : id;
        T* out = reinterpret_cast<T*>(x.out) + (at.b * x.tokens + at.t) * x.dim;
        const T *e = weight + id * x.weight_row, *next = weight + (soon < 0 ? id : soon) * x.weight_row;
        sum_row<T, P, scaled, summed>(out, e, added + row, next, x.scale, x.dim, stream);
    }
    if (stream) streamed();
    return inside;
}

template <class T, class P, bool scaled, bool summed>
void sum_all(const Embedding& x, int64_t* outside, bool stream, int64_t threads) {
    const bool alike = summed && x.added_batch == 0 && x.index_batch == 0;
    const int64_t grain = 1 + (1 << 16) / (x.dim * int64_t(sizeof(T)));
    parallel(x.batch * x.tokens, grain, threads, [&](int64_t begin, int64_t end) {
        if (!sum_slots<T, P, scaled, summed>(x, begin, end, alike, stream))
            __atomic_store_n(outside, 1, __ATOMIC_RELAXED);
    });
}

template <class T, class P, bool summed>
void sum_scaled(const Embedding& x, bool scaled, int64_t* outside, bool stream, int64_t threads) {
    scaled ? sum_all<T, P, true, summed>(x, outside, stream, threads)
           : sum_all<T, P, false, summed>(x, outside, stream, threads);
}

template <class T>
void sum_type(const Embedding& x, bool scaled, bool like, int64_t* outside, bool stream, int64_t threads) {
    if (!x.added) return sum_scaled<T, T, false>(x, scaled, outside, stream, threads);
    like ? sum_scaled<T, T, true>(x, scaled, outside, stream, threads)
         : sum_scaled<T, float, true>(x, scaled, outside, stream, threads);
}

}  // namespace

// `like`: `added` has the type of the weight; else it is float32. `outside` becomes 1 where an id or a position has no
// row: the output is then unfinished.
KERNEL(embed)(char* out, const char* weight, const void* ids, const char* added, const int64_t* index, int64_t* outside,
              float scale, int scaled, int type, int like, int stream, int64_t threads, int64_t batch, int64_t tokens,
              int64_t dim, int64_t vocab, int64_t weight_row, int64_t wide_ids, int64_t ids_batch, int64_t ids_token,
              int64_t added_batch, int64_t added_row, int64_t positions, int64_t offset, int64_t index_batch,
              int64_t index_token) {
    Embedding x{out, weight, ids, added, index, scale, batch, tokens, dim, vocab, weight_row, wide_ids, ids_batch,
                ids_token, added_batch, added_row, positions, offset, index_batch, index_token};
    switch (type) {
        case 0: return sum_type<float>(x, scaled, like, outside, stream, threads);
        case 1: return sum_type<bfloat16>(x, scaled, like, outside, stream, threads);
        case 2: return sum_type<float16>(x, scaled, like, outside, stream, threads);
    }
}
