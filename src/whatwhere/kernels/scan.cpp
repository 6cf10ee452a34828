// A copy of a table in eight bits, made in the pass that finds the lengths of its rows, and its products with queries.
//
// What a copy leaves of a row is told, so a product is known to lie between bounds. The plain twin multiplies float32.
#include "scan.h"

namespace {

// Call body(first, number of them) for SOME numbers of a row at a time, and for the rest.
template <class Body>
inline void by_some(int64_t dim, const Body& body) {
    int64_t first = 0;
    for (; first + SOME <= dim; first += SOME) body(first, SOME);
    if (first < dim) body(first, dim - first);
}

// Write a row of this length in codes: row / length = step * codes + rest. Gives a bound of the length of the rest.
template <class R>
inline float coded(const R& row, double length, int8_t* codes, float* step) {
    constexpr float WHOLE = 12582912.0f;  // 1.5 * 2 ** 23: what is added to it is rounded to a whole number
    const float inverse = float(1 / length);
    if (!(length > 1e-30 && length < 1e30)) {  // its inverse is no good float32
        std::memset(codes, 0, row.dim);
        *step = 0;
        return 1;
    }
    float tops[SOME] = {};
    by_some(row.dim, [&](int64_t first, int64_t some) {
        for (int64_t l = 0; l < some; l++) {
            const float x = std::fabs(float(row[first + l]) * inverse);
            tops[l] = x > tops[l] ? x : tops[l];
        }
    });
    const float top = folded(tops, SOME, [](float a, float b) { return a > b ? a : b; });
    const float up = 127 / top, back = top / 127;
    float squares[SOME] = {};
    by_some(row.dim, [&](int64_t first, int64_t some) {
        int32_t whole[SOME];  // in between, for bytes may lie over anything, and nothing would become vectors
        for (int64_t l = 0; l < some; l++) {
            const float x = float(row[first + l]) * inverse, code = (x * up + WHOLE) - WHOLE, rest = x - code * back;
            squares[l] += rest * rest;
            whole[l] = int32_t(code);
        }
        for (int64_t l = 0; l < some; l++) codes[first + l] = int8_t(whole[l]);
    });
    *step = back;
    const float square = folded(squares, SOME, [](float a, float b) { return a + b; });
    return std::sqrt(square) * 1.001f + 1e-6f;  // numbers of a unit row were rounded to float32, and their rests
}

template <class T, bool CENTERED>
void measured(const Table& table, double* lengths, int8_t* codes, int64_t width, float* steps, float* rests,
              int64_t threads) {
    parallel(table.rows, 1 + (1 << 18) / table.dim, threads, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; n++) {
            const Row<T, CENTERED> row(table, n);
            lengths[n] = std::sqrt(sum(row, [](double x, int64_t) { return x * x; }));
            if (!codes) continue;
            int8_t* own = codes + n * width;
            rests[n] = coded(row, lengths[n], own, steps + n);
            std::memset(own + table.dim, 0, width - table.dim);
        }
    });
}

// WIDTH codes at a time, widened once for several queries, and sums of their products with a query's numbers.
#if defined(__AVX512BW__)
constexpr int64_t WIDTH = 32;
using Whole = __m512i;
inline Whole read(const int8_t* codes) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
}
inline Whole added(Whole sums, Whole codes, const int16_t* query) {
    return _mm512_add_epi32(sums, _mm512_madd_epi16(codes, _mm512_loadu_si512(query)));
}
#elif defined(__AVX2__)
constexpr int64_t WIDTH = 16;
using Whole = __m256i;
inline Whole read(const int8_t* codes) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
}
inline Whole added(Whole sums, Whole codes, const int16_t* query) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(codes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(query))));
}
#elif defined(__SSE2__)
constexpr int64_t WIDTH = 8;
using Whole = __m128i;
inline Whole read(const int8_t* codes) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
    return _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
}
inline Whole added(Whole sums, Whole codes, const int16_t* query) {
    return _mm_add_epi32(sums, _mm_madd_epi16(codes, _mm_loadu_si128(reinterpret_cast<const __m128i*>(query))));
}
#else
constexpr int64_t WIDTH = 16;
struct Whole { int32_t numbers[WIDTH]; };
inline Whole read(const int8_t* codes) {
    Whole wide;
    for (int64_t j = 0; j < WIDTH; j++) wide.numbers[j] = codes[j];
    return wide;
}
inline Whole added(Whole sums, const Whole& codes, const int16_t* query) {
    for (int64_t j = 0; j < WIDTH; j++) sums.numbers[j] += codes.numbers[j] * query[j];
    return sums;
}
#endif

constexpr int64_t AHEAD = 4096;  // bytes

// The products of one row and as many queries as COUNT, whose codes are read once.
template <int64_t COUNT>
inline void multiplied(const int8_t* row, float step, const int16_t* asked, const float* scales, int64_t width,
                       float* products, int64_t stride) {
    constexpr int64_t PARTS = sizeof(Whole) / sizeof(int32_t);
    Whole sums[COUNT] = {};
    for (int64_t j = 0; j < width; j += WIDTH) {
        // One query is done before the memory is: told of what comes, it waits less, for the processor looks no farther
        // than the page.
        if (COUNT == 1) __builtin_prefetch(row + j + AHEAD);
        const Whole codes = read(row + j);
        for (int64_t q = 0; q < COUNT; q++) sums[q] = added(sums[q], codes, asked + q * width + j);
    }
    for (int64_t q = 0; q < COUNT; q++) {
        int32_t parts[PARTS];
        const Whole own = sums[q];
        std::memcpy(parts, &own, sizeof(Whole));
        const int32_t sum = folded(parts, PARTS, [](int32_t a, int32_t b) { return a + b; });
        products[q * stride] = scales[q] * step * float(sum);
    }
}

}  // namespace

// lengths (rows); and, unless codes is null, the copy: codes (rows, width), steps and lengths of rests (rows).
KERNEL(scan_copy)(const Table* table, double* lengths, int8_t* codes, int64_t width, float* steps, float* rests,
                  int64_t threads) {
    auto run = table->wide ? table->centered ? measured<double, true> : measured<double, false>
                           : table->centered ? measured<float, true> : measured<float, false>;
    run(*table, lengths, codes, width, steps, rests, threads);
}

// products (queries, rows) = scales[query] steps[row] <asked[query], codes[row]>; width is a multiple of 64.
KERNEL(scan_products)(const int8_t* codes, const float* steps, float* products, const int16_t* asked,
                      const float* scales, int64_t rows, int64_t queries, int64_t width, int64_t threads) {
    constexpr int64_t TOGETHER = 4;
    const int64_t near = 1 + (1 << 14) / width;  // rows that the nearest cache keeps for the next queries
    parallel(rows, 1 + (1 << 18) / width, threads, [&](int64_t begin, int64_t end) {
        for (int64_t first = begin; first < end; first += near)
            for (int64_t q = 0; q < queries; q += queries - q < TOGETHER ? 1 : TOGETHER)
                for (int64_t n = first; n < end && n < first + near; n++) {
                    const auto run = queries - q < TOGETHER ? multiplied<1> : multiplied<TOGETHER>;
                    run(codes + n * width, steps[n], asked + q * width, scales + q, width, products + q * rows + n, rows);
                }
    });
}
