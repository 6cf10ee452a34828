// What every kernel of this folder shares: names by level, threads, numbers of sixteen bits, streaming stores.
//
// Each kernel file is compiled once for each level of the processor (baseline, avx2, avx512), and backend.py picks
// one when the library is loaded. So nothing here may leave a symbol that the linker could take from another level:
// everything is in an unnamed namespace, and no template of the standard library is used.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

// What others may call; a library of Windows exports nothing else, once it exports something so.
#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

// KERNEL(rotate) is rotate_avx512 in the file compiled for that level.
#define WHATWHERE_JOIN_(name, level) name##_##level
#define WHATWHERE_JOIN(name, level) WHATWHERE_JOIN_(name, level)
#define KERNEL(name) EXPORT WHATWHERE_RESULT WHATWHERE_JOIN(name, WHATWHERE_LEVEL)
#define WHATWHERE_RESULT void

// Before a loop whose iterations are independent, even where a target is also a source.
#if defined(__clang__)
#define WHATWHERE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define WHATWHERE_INDEPENDENT _Pragma("GCC ivdep")
#endif

// Call body(job, begin, end) over 0 .. count, in pieces of `grain`, on up to `threads` threads of PyTorch's own pool.
// Defined in native.cpp.
extern "C" void whatwhere_parallel(void (*body)(void*, int64_t, int64_t), void* job, int64_t count, int64_t grain,
                                   int64_t threads);

namespace {

// The same for a lambda: parallel(count, grain, threads, [&](int64_t begin, int64_t end) {...}).
template <class Body>
inline void parallel(int64_t count, int64_t grain, int64_t threads, const Body& body) {
    whatwhere_parallel(
        [](void* job, int64_t begin, int64_t end) { (*static_cast<const Body*>(job))(begin, end); },
        const_cast<Body*>(&body), count, grain, threads);
}

struct bfloat16 { uint16_t bits; };
struct float16 { uint16_t bits; };

inline float bits_to_float(uint32_t bits) { float x; std::memcpy(&x, &bits, 4); return x; }
inline uint32_t float_to_bits(float x) { uint32_t bits; std::memcpy(&bits, &x, 4); return bits; }

inline float wide(float x) { return x; }
inline double wide(double x) { return x; }
inline float wide(bfloat16 x) { return bits_to_float(uint32_t(x.bits) << 16); }
// Without branches, so that loops over it become vector code: the exponent is shifted by a product, and infinities and
// NaN, whose exponent is all ones, are restored.
inline float wide(float16 x) {
    uint32_t magnitude = uint32_t(x.bits & 0x7fff) << 13, sign = uint32_t(x.bits & 0x8000) << 16;
    uint32_t shifted = float_to_bits(bits_to_float(magnitude) * 5.192296858534828e+33f);  // 2 ** 112
    uint32_t special = magnitude | 0x7f800000;
    return bits_to_float(sign | (magnitude >= 0x0f800000 ? special : shifted));
}

// To the nearest, ties to even, as PyTorch rounds.
template <class To> inline To narrow(float x);
template <class To> inline To narrow(double x);
template <> inline float narrow<float>(float x) { return x; }
template <> inline double narrow<double>(double x) { return x; }
// The bits of a float, rounded so that its upper sixteen are those of the bfloat16; the lower ones are meaningless.
inline uint32_t rounded_upper(float x) {
    uint32_t bits = float_to_bits(x), rounded = bits + 0x7fff + ((bits >> 16) & 1);
    return x != x ? 0x7fc00000 : rounded;
}
template <> inline bfloat16 narrow<bfloat16>(float x) { return {uint16_t(rounded_upper(x) >> 16)}; }
template <> inline float16 narrow<float16>(float x) {
    uint32_t bits = float_to_bits(x), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Adding 0.5 puts what is below 2 ** -14 into the last bits of the mantissa, rounded by the addition itself.
    uint32_t small = float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000;
    uint32_t half = magnitude < 0x38800000 ? small : normal;
    half = magnitude >= 0x477ff000 ? 0x7c00 : half;
    half = magnitude > 0x7f800000 ? 0x7e00 : half;
    return {uint16_t(sign | half)};
}

// A run of float16, by the processor's own instructions where it has them.
inline void widen(const float16* from, float* to, int64_t count) {
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
#elif defined(__F16C__)
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
    for (; i < count; i++) to[i] = wide(from[i]);
}
inline void narrow_down(const float* from, float16* to, int64_t count) {
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= count; i += 16)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm512_cvtps_ph(_mm512_loadu_ps(from + i), 0));
#elif defined(__F16C__)
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
#endif
    for (; i < count; i++) to[i] = narrow<float16>(from[i]);
}

// Sixteen bfloat16, or float32 beside them, as the first and the second of each pair: as two words of 32 bits they are
// split by a shift and a mask, where lanes would have to be shuffled. Compilers make less of the same loops.
#if defined(__AVX2__) && !defined(__AVX512F__)
#define WHATWHERE_SIXTEEN
struct Sixteen { __m256 first, second; };
inline Sixteen sixteen(const bfloat16* x) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    const __m256i upper = _mm256_set1_epi32(int(0xffff0000));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(both, 16)), _mm256_castsi256_ps(_mm256_and_si256(both, upper))};
}
inline Sixteen sixteen(const float* x) {
    const __m256 a = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x)), _mm_loadu_ps(x + 8), 1);
    const __m256 b = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(x + 4)), _mm_loadu_ps(x + 12), 1);
    return {_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd)};
}
inline __m256 carried(__m256 x) {  // rounded_upper without its care for NaN
    const __m256i bits = _mm256_castps_si256(x), one = _mm256_set1_epi32(1), half = _mm256_set1_epi32(0x7fff);
    const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
    return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_add_epi32(last, half)));
}
inline __m256i rounded_upper(__m256 x) {
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_castps_si256(_mm256_blendv_ps(carried(x), nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
inline void store_sixteen(bfloat16* y, __m256 first, __m256 second) {
    const __m256i both = _mm256_blend_epi16(_mm256_srli_epi32(rounded_upper(first), 16), rounded_upper(second), 0xaa);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), both);
}
#endif

// Stores past the caches: a plain store reads the line first, so that a copy takes three transfers instead of two.
// The address must be aligned to 64 bytes; call `streamed` when a piece of work is done with them.
inline void streamed() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}
inline void stream_line(void* to, const void* from) {
#if defined(__AVX512F__)
    _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX2__)
    const __m256i* source = static_cast<const __m256i*>(from);
    __m256i* target = static_cast<__m256i*>(to);
    _mm256_stream_si256(target, _mm256_loadu_si256(source));
    _mm256_stream_si256(target + 1, _mm256_loadu_si256(source + 1));
#elif defined(__SSE2__)
    const __m128i* source = static_cast<const __m128i*>(from);
    __m128i* target = static_cast<__m128i*>(to);
    for (int i = 0; i < 4; i++) _mm_stream_si128(target + i, _mm_loadu_si128(source + i));
#else
    std::memcpy(to, from, 64);
#endif
}

}  // namespace
