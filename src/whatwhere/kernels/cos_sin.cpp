// Cosine and sine of positions times frequencies: angles in float64, each result rounded to float32 once.
//
// The PyTorch implementation is `cos_sin` of `angles`, in where/frequencies.py. PyTorch writes angles, cosines, sines and rounded
// numbers to memory one after another; here only the results leave the cache.
//
// A position is a multiple of STRIDE plus a rest, and rotates by both, one after the other, as complex numbers:
//
//     p = m + r        exp(i p w) = exp(i m w) exp(i r w)
//
// So a long table needs few cosines: those of the rests, and those of m whenever it changes. A short one is computed the
// same way, since the result of a position must not depend on how many others are computed.
#include <cstdlib>

#include "native.h"

namespace {

constexpr int64_t STRIDE = 64;                // a power of two
constexpr int64_t TILE = 128;                 // pairs at a time, in the fastest cache
constexpr double FAR = 1 << 30;               // up to this angle the first two products below are exact
constexpr double ROUND = 6755399441055744.0;  // 1.5 * 2 ** 52: added and subtracted, it rounds to a whole number
// pi / 2 in parts of 23, 21 and 53 bits
constexpr double HALF_PI_1 = 0x1.921fb4p+0, HALF_PI_2 = 0x1.4442d0p-24, HALF_PI_3 = 0x1.8469898cc5170p-48;

struct Job {  // as cos_sin.py packs it
    const int64_t* index;
    const double* frequencies;
    const int64_t* axis_of_pair;  // null where there is one axis
    float *cos, *sin;
    double magnitude;
    int64_t interleaved, stream;
    int64_t batch, tokens, pairs;
    int64_t index_axis, index_batch, index_token;  // strides, in elements
    int64_t frequency_batch, frequency_token, row;
    int64_t threads;
};

inline uint64_t bits_of(double x) { uint64_t bits; std::memcpy(&bits, &x, 8); return bits; }
inline double with_bits(uint64_t bits) { double x; std::memcpy(&x, &bits, 8); return x; }

// To the last bits of float64. The C library's functions take one number at a time; this is vector code. The angle is
// brought to |r| <= pi/4 by a multiple of pi/2, subtracted in three parts, two of them exactly; there Taylor's series
// are cut below 1e-16.
inline void cos_sin(double angle, double& cos, double& sin) {
    const double shifted = angle * 0.63661977236758134308 + ROUND, quarters = shifted - ROUND;  // 2 / pi
    const double r = ((angle - quarters * HALF_PI_1) - quarters * HALF_PI_2) - quarters * HALF_PI_3, z = r * r;
    const double s =
        r + r * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800 +
        z * (1.0 / 6227020800 + z * (-1.0 / 1307674368000)))))));
    const double c =
        1.0 + z * (-1.0 / 2 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 +
        z * (1.0 / 479001600 + z * (-1.0 / 87178291200 + z * (1.0 / 20922789888000))))))));
    const uint64_t quarter = bits_of(shifted), sign = uint64_t(1) << 63;
    const bool odd = quarter & 1;
    cos = with_bits(bits_of(odd ? s : c) ^ ((quarter + 1) << 62 & sign));
    sin = with_bits(bits_of(odd ? c : s) ^ (quarter << 62 & sign));
}

void waves(const double* angles, double* cos, double* sin, int64_t count) {
    int far = 0;
    for (int64_t i = 0; i < count; i++) far |= (angles[i] > FAR) | (angles[i] < -FAR);
    for (int64_t i = 0; i < count; i++) cos_sin(angles[i], cos[i], sin[i]);
    for (int64_t i = 0; far && i < count; i++) cos[i] = std::cos(angles[i]), sin[i] = std::sin(angles[i]);
}

inline int64_t rest(int64_t position) { return position & (STRIDE - 1); }

// Cosines and sines of the first rests, `pairs` of each, one after another: what all rows of a long table share.
struct Rests {
    double *cos = nullptr, *sin = nullptr;

    Rests(const Job& job, bool wanted) {
        const size_t numbers = size_t(STRIDE * job.pairs);
        if (!wanted || !(cos = static_cast<double*>(std::malloc(2 * numbers * sizeof(double))))) return;
        sin = cos + numbers;
        double angles[TILE];
        for (int64_t n = 0; n < STRIDE * job.pairs; n += TILE) {
            const int64_t count = STRIDE * job.pairs - n < TILE ? STRIDE * job.pairs - n : TILE;
            for (int64_t i = 0; i < count; i++)
                angles[i] = double((n + i) / job.pairs) * job.frequencies[(n + i) % job.pairs];
            waves(angles, cos + n, sin + n, count);
        }
    }
    ~Rests() { std::free(cos); }
    Rests(const Rests&) = delete;
};

inline void put(float* to, const float* from, int64_t count, bool stream) {
    if (!stream) {
        std::memcpy(to, from, size_t(count) * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < count; i += 16) stream_line(to + i, from + i);
}

// One tile of pairs, for rows begin .. end. Interleaved, sin and cos of a pair are adjacent.
template <bool interleaved, bool several>
void tile(const Job& job, const Rests& rests, int64_t begin, int64_t end, int64_t first, int64_t count) {
    double angles[TILE], far_cos[TILE], far_sin[TILE], near_cos[TILE], near_sin[TILE];
    alignas(64) float cos[TILE], sin[TILE], both[2 * TILE];
    int64_t positions[TILE], held[TILE];  // of each pair; held are those of which far_cos and far_sin were computed
    const double* held_frequencies = nullptr;
    for (int64_t n = begin; n < end; n++) {
        const int64_t b = n / job.tokens, t = n % job.tokens;
        const int64_t* index = job.index + b * job.index_batch + t * job.index_token;
        const double* frequencies = job.frequencies + b * job.frequency_batch + t * job.frequency_token + first;
        const int64_t numbers = several ? count : 1;  // how many positions a row has
        int64_t changed = held_frequencies != frequencies;
        for (int64_t i = 0; i < numbers; i++) {
            positions[i] = several ? index[job.axis_of_pair[first + i] * job.index_axis] : *index;
            changed |= (positions[i] - rest(positions[i])) ^ (held_frequencies ? held[i] : 0);
        }
        if (changed) {
            for (int64_t i = 0; i < numbers; i++) held[i] = positions[i] - rest(positions[i]);
            for (int64_t i = 0; i < count; i++) angles[i] = double(held[several ? i : 0]) * frequencies[i];
            waves(angles, far_cos, far_sin, count);
            for (int64_t i = 0; i < count; i++) far_cos[i] *= job.magnitude, far_sin[i] *= job.magnitude;
            held_frequencies = frequencies;
        }
        const double *c = near_cos, *s = near_sin;
        if (rests.cos && !several) {
            c = rests.cos + rest(*positions) * job.pairs + first;
            s = rests.sin + rest(*positions) * job.pairs + first;
        } else if (rests.cos) {
            for (int64_t i = 0; i < count; i++) {
                near_cos[i] = rests.cos[rest(positions[i]) * job.pairs + first + i];
                near_sin[i] = rests.sin[rest(positions[i]) * job.pairs + first + i];
            }
        } else {
            for (int64_t i = 0; i < count; i++) angles[i] = double(rest(positions[several ? i : 0])) * frequencies[i];
            waves(angles, near_cos, near_sin, count);
        }
        for (int64_t i = 0; i < count; i++) {
            cos[i] = float(far_cos[i] * c[i] - far_sin[i] * s[i]);
            sin[i] = float(far_cos[i] * s[i] + far_sin[i] * c[i]);
        }
        if (interleaved) {
            for (int64_t i = 0; i < count; i++) both[2 * i] = sin[i], both[2 * i + 1] = cos[i];
            put(job.sin + n * job.row + 2 * first, both, 2 * count, job.stream);
        } else {
            put(job.cos + n * job.row + first, cos, count, job.stream);
            put(job.sin + n * job.row + first, sin, count, job.stream);
        }
    }
}

template <bool interleaved, bool several>
void fill(const Job& job) {
    const bool shared = job.frequency_batch == 0 && job.frequency_token == 0;
    const Rests rests(job, shared && job.batch * job.tokens > 2 * STRIDE);
    parallel(job.batch * job.tokens, 16384 / (job.pairs + 1) + 1, job.threads, [&](int64_t begin, int64_t end) {
        for (int64_t first = 0; first < job.pairs; first += TILE) {
            const int64_t count = job.pairs - first < TILE ? job.pairs - first : TILE;
            tile<interleaved, several>(job, rests, begin, end, first, count);
        }
        if (job.stream) streamed();
    });
}

}  // namespace

KERNEL(cos_sin)(const Job* job) {
    if (job->interleaved) return fill<true, false>(*job);
    job->axis_of_pair ? fill<false, true>(*job) : fill<false, false>(*job);
}
