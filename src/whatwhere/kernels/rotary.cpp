// Pairs of features rotated by their angles, (a, b) -> (a cos - b sin, a sin + b cos), in one pass over the memory.
//
// The PyTorch implementation is `rotate_in_pytorch` in rotary.py. Products and sums are rounded as there, in float32 at
// least, so the results are equal to the bit.
#include "native.h"

namespace {

constexpr int64_t ROW = 4096;        // bytes of the row that is assembled before it is streamed
constexpr int64_t TABLES = 1 << 16;  // bytes of cosines and sines that stay in the cache from head to head
constexpr int64_t PIECE = 1 << 15;   // bytes of one piece of a thread
constexpr int64_t TILE = 256;        // pairs of float16 at a time

struct Rotation {  // as rotary.py packs it
    const char* x;
    char* y;
    const float *cos, *sin;
    int64_t type, interleaved, back, stream;
    int64_t batch, heads, tokens, pairs, rest;  // rest: features after the pairs, which are copied
    int64_t x_batch, x_head, x_token;           // strides, in elements
    int64_t y_batch, y_head, y_token;
    int64_t table_batch, table_head, table_token;
    int64_t threads;
};

template <bool back> inline float signed_sine(float sin) { return back ? -sin : sin; }

// Pairs first .. pairs of a row. A pair is (2i, 2i + 1) where interleaved, else (i, i + other). `x` may be `y`.
template <bool interleaved, bool back, class T>
inline void rotate_each(const T* x, T* y, const float* cos, const float* sin, int64_t first, int64_t pairs,
                      int64_t other) {
    const int64_t step = interleaved ? 2 : 1;
    WHATWHERE_INDEPENDENT
    for (int64_t i = first; i < pairs; i++) {
        auto a = wide(x[step * i]), b = wide(x[step * i + other]);
        float c = cos[i], s = signed_sine<back>(sin[i]);
        y[step * i] = narrow<T>(a * c - b * s);
        y[step * i + other] = narrow<T>(a * s + b * c);
    }
}

template <bool interleaved, bool back, class T>
inline void rotate_pairs(const T* x, T* y, const float* cos, const float* sin, int64_t pairs) {
    rotate_each<interleaved, back>(x, y, cos, sin, 0, pairs, interleaved ? 1 : pairs);
}

// Two bfloat16 are one word of 32 bits: a shift and a mask split them, where lanes would have to be shuffled.
inline uint32_t word(const bfloat16* x) {
    uint32_t both;
    std::memcpy(&both, x, 4);
    return both;
}
inline float lower(uint32_t both) { return bits_to_float(both << 16); }
inline float upper(uint32_t both) { return bits_to_float(both & 0xffff0000); }
inline void put(bfloat16* y, float low, float up) {
    uint32_t both = (rounded_upper(low) >> 16) | (rounded_upper(up) & 0xffff0000);
    std::memcpy(y, &both, 4);
}

// Pairs (i, i + pairs) from the first on that are rotated sixteen at a time, by the processor's instructions.
template <bool back>
inline int64_t rotate_first(const bfloat16* x, bfloat16* y, const float* cos, const float* sin, int64_t pairs) {
    int64_t i = 0;
#if defined(WHATWHERE_SIXTEEN)
    const __m256 sign = _mm256_set1_ps(back ? -0.0f : 0.0f);
    const auto real = [](__m256 a, __m256 b, __m256 c, __m256 s) {
        return _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s));
    };
    const auto imaginary = [](__m256 a, __m256 b, __m256 c, __m256 s) {
        return _mm256_add_ps(_mm256_mul_ps(a, s), _mm256_mul_ps(b, c));
    };
    for (; i + 16 <= pairs; i += 16) {
        const Sixteen a = sixteen(x + i), b = sixteen(x + pairs + i), c = sixteen(cos + i);
        Sixteen s = sixteen(sin + i);
        s = {_mm256_xor_ps(s.first, sign), _mm256_xor_ps(s.second, sign)};
        store_sixteen(y + i, real(a.first, b.first, c.first, s.first), real(a.second, b.second, c.second, s.second));
        store_sixteen(y + pairs + i, imaginary(a.first, b.first, c.first, s.first),
                      imaginary(a.second, b.second, c.second, s.second));
    }
#endif
    return i;
}

template <bool interleaved, bool back>
inline void rotate_pairs(const bfloat16* x, bfloat16* y, const float* cos, const float* sin, int64_t pairs) {
    if (interleaved) {
        WHATWHERE_INDEPENDENT
        for (int64_t i = 0; i < pairs; i++) {
            uint32_t pair = word(x + 2 * i);
            float a = lower(pair), b = upper(pair), c = cos[i], s = signed_sine<back>(sin[i]);
            put(y + 2 * i, a * c - b * s, a * s + b * c);
        }
        return;
    }
    WHATWHERE_INDEPENDENT
    for (int64_t i = rotate_first<back>(x, y, cos, sin, pairs) / 2; i < pairs / 2; i++) {
        uint32_t firsts = word(x + 2 * i), seconds = word(x + pairs + 2 * i);
        float a0 = lower(firsts), a1 = upper(firsts), b0 = lower(seconds), b1 = upper(seconds);
        float c0 = cos[2 * i], c1 = cos[2 * i + 1];
        float s0 = signed_sine<back>(sin[2 * i]), s1 = signed_sine<back>(sin[2 * i + 1]);
        put(y + 2 * i, a0 * c0 - b0 * s0, a1 * c1 - b1 * s1);
        put(y + pairs + 2 * i, a0 * s0 + b0 * c0, a1 * s1 + b1 * c1);
    }
    rotate_each<interleaved, back>(x, y, cos, sin, pairs / 2 * 2, pairs, pairs);
}

// float16 is made wide by the processor's own instructions, for a tile.
template <bool interleaved, bool back>
inline void rotate_pairs(const float16* x, float16* y, const float* cos, const float* sin, int64_t pairs) {
    float tile[2 * TILE];
    for (int64_t i = 0; i < pairs; i += TILE) {
        const int64_t n = pairs - i < TILE ? pairs - i : TILE;
        const int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + n : i + pairs;
        widen(x + first, tile, n);
        widen(x + second, tile + n, n);
        rotate_pairs<interleaved, back>(tile, tile, cos + i, sin + i, n);
        narrow_down(tile, y + first, n);
        narrow_down(tile + n, y + second, n);
    }
}

template <bool interleaved, bool back, bool stream, class T>
inline void rotate_row(const Rotation& r, const T* x, T* y, const float* cos, const float* sin) {
    if (!stream) {
        rotate_pairs<interleaved, back>(x, y, cos, sin, r.pairs);
        if (x != y) std::memcpy(y + 2 * r.pairs, x + 2 * r.pairs, size_t(r.rest) * sizeof(T));
        return;
    }
    alignas(64) T row[ROW / sizeof(T)];
    rotate_pairs<interleaved, back>(x, row, cos, sin, r.pairs);
    std::memcpy(row + 2 * r.pairs, x + 2 * r.pairs, size_t(r.rest) * sizeof(T));
    const int64_t bytes = (2 * r.pairs + r.rest) * int64_t(sizeof(T));
    for (int64_t n = 0; n < bytes; n += 64)
        stream_line(reinterpret_cast<char*>(y) + n, reinterpret_cast<const char*>(row) + n);
}

// Tokens first .. last of one sequence, all heads, in memory order.
template <bool interleaved, bool back, bool stream, class T>
void rotate_block(const Rotation& r, int64_t b, int64_t first, int64_t last) {
    const T* x = reinterpret_cast<const T*>(r.x) + b * r.x_batch;
    T* y = reinterpret_cast<T*>(r.y) + b * r.y_batch;
    const float *cos = r.cos + b * r.table_batch, *sin = r.sin + b * r.table_batch;
    const auto one = [&](int64_t h, int64_t t) {
        const int64_t row = h * r.table_head + t * r.table_token;
        rotate_row<interleaved, back, stream>(r, x + h * r.x_head + t * r.x_token, y + h * r.y_head + t * r.y_token,
                                            cos + row, sin + row);
    };
    if (r.x_head < r.x_token) {
        for (int64_t t = first; t < last; t++)
            for (int64_t h = 0; h < r.heads; h++) one(h, t);
    } else {
        for (int64_t h = 0; h < r.heads; h++)
            for (int64_t t = first; t < last; t++) one(h, t);
    }
    if (stream) streamed();
}

template <bool interleaved, bool back, bool stream, class T>
void rotate_all(const Rotation& r) {
    const int64_t bytes = r.heads * (2 * r.pairs + r.rest) * int64_t(sizeof(T));  // of one token
    const int64_t enough = r.batch * r.tokens / (4 * r.threads) + 1;              // tokens, that all threads have work
    int64_t block = TABLES / (8 * r.pairs + 1) + 1;
    if (block > enough) block = enough;
    if (block * bytes < PIECE) block = PIECE / (bytes + 1) + 1;
    const int64_t blocks = (r.tokens + block - 1) / block;
    const int64_t threads = r.batch * r.tokens * bytes < 4 * PIECE ? 1 : r.threads;
    parallel(r.batch * blocks, 1, threads, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; n++) {
            const int64_t first = n % blocks * block, last = first + block < r.tokens ? first + block : r.tokens;
            rotate_block<interleaved, back, stream, T>(r, n / blocks, first, last);
        }
    });
}

template <bool interleaved, bool back, class T>
void rotate_directed(const Rotation& r) {
    r.stream ? rotate_all<interleaved, back, true, T>(r) : rotate_all<interleaved, back, false, T>(r);
}

template <class T>
void rotate_typed(const Rotation& r) {
    if (r.interleaved)
        r.back ? rotate_directed<true, true, T>(r) : rotate_directed<true, false, T>(r);
    else
        r.back ? rotate_directed<false, true, T>(r) : rotate_directed<false, false, T>(r);
}

}  // namespace

KERNEL(rotate)(const Rotation* r) {
    switch (r->type) {
        case 0: return rotate_typed<float>(*r);
        case 1: return rotate_typed<bfloat16>(*r);
        case 2: return rotate_typed<float16>(*r);
        case 3: return rotate_typed<double>(*r);
    }
}
