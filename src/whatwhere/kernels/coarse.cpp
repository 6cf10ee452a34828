// Products of the copy in eight bits with many queries in eight bits, by the instruction that processors have for it.
//
// What both leave out is told, as for the few queries of scan.cpp. Where there is no such instruction, products of
// float32 serve many queries better.
#include "scan.h"

#if defined(__AVX512BW__) && (defined(__GNUC__) || defined(__clang__))
#define WHATWHERE_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#endif

namespace {

#if defined(WHATWHERE_VNNI)
constexpr int64_t PARTS = 2, ROWS = 16 * PARTS;  // of a tile
constexpr int64_t QUERIES = 12;                  // at a time: their sums fill 24 registers, and leave some

// Put rows beside each other by fours of their codes, which are raised by 128: the instruction takes no sign there.
inline void packed(const int8_t* codes, int64_t rows, int64_t width, uint32_t* tile) {
    for (int64_t r = 0; r < ROWS; r++) {
        const int8_t* row = codes + (r < rows ? r : 0) * width;
        for (int64_t j = 0; j < width / 4; j++) {
            uint32_t four;
            std::memcpy(&four, row + 4 * j, 4);
            tile[j * ROWS + r] = four ^ 0x80808080u;
        }
    }
}

// sums (QUERIES, ROWS) of products of raised codes and a query's.
WHATWHERE_VNNI inline void summed(const uint32_t* tile, const int8_t* asked, int64_t width, int32_t* sums) {
    __m512i all[QUERIES][PARTS];
    for (int64_t q = 0; q < QUERIES; q++)
        for (int64_t p = 0; p < PARTS; p++) all[q][p] = _mm512_setzero_si512();
    for (int64_t j = 0; j < width / 4; j++) {
        __m512i rows[PARTS];
        for (int64_t p = 0; p < PARTS; p++) rows[p] = _mm512_loadu_si512(tile + j * ROWS + 16 * p);
        for (int64_t q = 0; q < QUERIES; q++) {
            int32_t four;
            std::memcpy(&four, asked + q * width + 4 * j, 4);
            const __m512i query = _mm512_set1_epi32(four);
            for (int64_t p = 0; p < PARTS; p++) all[q][p] = _mm512_dpbusd_epi32(all[q][p], rows[p], query);
        }
    }
    for (int64_t q = 0; q < QUERIES; q++)
        for (int64_t p = 0; p < PARTS; p++) _mm512_storeu_si512(sums + q * ROWS + 16 * p, all[q][p]);
}

struct Coarse {
    const int8_t* codes;
    const float* steps;
    const int8_t* asked;     // (queries, width), of which there are as many as QUERIES divides
    const float* scales;
    const int32_t* raised;   // 128 times the sum of each query's codes
    float* products;
    int64_t rows, queries, width;
};

WHATWHERE_VNNI void multiplied(const Coarse& x, int64_t first, uint32_t* tile) {
    const int64_t rows = x.rows - first < ROWS ? x.rows - first : ROWS;
    packed(x.codes + first * x.width, rows, x.width, tile);
    int32_t sums[QUERIES * ROWS];
    for (int64_t q = 0; q < x.queries; q += QUERIES) {
        summed(tile, x.asked + q * x.width, x.width, sums);
        for (int64_t n = q; n < q + QUERIES && n < x.queries; n++) {
            const int32_t* own = sums + (n - q) * ROWS;
            float* to = x.products + n * x.rows + first;
            for (int64_t r = 0; r < rows; r++) to[r] = x.scales[n] * x.steps[first + r] * float(own[r] - x.raised[n]);
        }
    }
}
#endif

}  // namespace

// Whether this processor has the instruction.
KERNEL(coarse_can)(int64_t* can) {
#if defined(WHATWHERE_VNNI)
    __builtin_cpu_init();
    *can = __builtin_cpu_supports("avx512vnni") != 0;
#else
    *can = 0;
#endif
}

// products (queries, rows) = scales[query] steps[row] <asked[query], codes[row]>; `tiles` has room for 32 rows a piece.
KERNEL(coarse_products)(const int8_t* codes, const float* steps, float* products, const int8_t* asked,
                        const float* scales, const int32_t* raised, uint32_t* tiles, int64_t rows, int64_t queries,
                        int64_t width, int64_t threads) {
#if defined(WHATWHERE_VNNI)
    const Coarse x{codes, steps, asked, scales, raised, products, rows, queries, width};
    const int64_t pieces = (rows + ROWS - 1) / ROWS, share = (pieces + threads - 1) / threads;
    parallel(threads, 1, threads, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; t++)
            for (int64_t piece = t * share; piece < pieces && piece < (t + 1) * share; piece++)
                multiplied(x, piece * ROWS, tiles + t * ROWS * width / 4);
    });
#else
    (void)codes, (void)steps, (void)asked, (void)scales, (void)raised, (void)products, (void)tiles;
    (void)rows, (void)queries, (void)width, (void)threads;
#endif
}
