// Cosine and sine of positions times frequencies: angles in float64, each result rounded to float32 once.
//
// The plain twin is `cos_sin` of `angles`, in where/frequencies.py. PyTorch makes the angles, the cosines, the sines and
// the rounded numbers one after another in memory; here nothing but the results leaves the cache.
//
// An angle is brought to |r| <= pi/4 by a multiple of pi/2, subtracted in three parts, two of them exactly; there Taylor's
// series are cut below 1e-16. So a result differs from the twin's only where float64 itself is at a tie: one in some 1e8.
#include "native.h"

namespace {

constexpr int64_t TILE = 128;                 // pairs at a time, in the fastest cache
constexpr double FAR = 1 << 30;               // up to this angle the first two products are exact
constexpr double ROUND = 6755399441055744.0;  // 1.5 * 2 ** 52: added and taken away, it rounds to a whole number
// pi / 2 in parts of 23, 21 and 53 bits
constexpr double HALF_PI_1 = 0x1.921fb4p+0, HALF_PI_2 = 0x1.4442d0p-24, HALF_PI_3 = 0x1.8469898cc5170p-48;

struct Turns {  // as turns.py packs it
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

inline void waves(const double* angles, float* cos, float* sin, double magnitude, int64_t count) {
    int far = 0;
    for (int64_t i = 0; i < count; i++) far |= (angles[i] > FAR) | (angles[i] < -FAR);
    for (int64_t i = 0; i < count; i++) {
        double c, s;
        cos_sin(angles[i], c, s);
        cos[i] = float(magnitude * c);
        sin[i] = float(magnitude * s);
    }
    for (int64_t i = 0; far && i < count; i++) {
        cos[i] = float(magnitude * std::cos(angles[i]));
        sin[i] = float(magnitude * std::sin(angles[i]));
    }
}

inline void put(float* to, const float* from, int64_t count, bool stream) {
    if (!stream) {
        std::memcpy(to, from, size_t(count) * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < count; i += 16) stream_line(to + i, from + i);
}

// The row of one token; interleaved, sin and cos of a pair stand side by side.
template <bool interleaved>
void row(const Turns& job, int64_t n) {
    const int64_t b = n / job.tokens, t = n % job.tokens;
    const int64_t* index = job.index + b * job.index_batch + t * job.index_token;
    const double* frequencies = job.frequencies + b * job.frequency_batch + t * job.frequency_token;
    double angles[TILE];
    alignas(64) float cos[TILE], sin[TILE], both[2 * TILE];
    for (int64_t first = 0; first < job.pairs; first += TILE) {
        const int64_t count = job.pairs - first < TILE ? job.pairs - first : TILE;
        if (job.axis_of_pair) {
            for (int64_t i = 0; i < count; i++)
                angles[i] = double(index[job.axis_of_pair[first + i] * job.index_axis]) * frequencies[first + i];
        } else {
            const double stands = double(*index);
            for (int64_t i = 0; i < count; i++) angles[i] = stands * frequencies[first + i];
        }
        waves(angles, cos, sin, job.magnitude, count);
        if (interleaved) {
            for (int64_t i = 0; i < count; i++) both[2 * i] = sin[i], both[2 * i + 1] = cos[i];
            put(job.sin + n * job.row + 2 * first, both, 2 * count, job.stream);
        } else {
            put(job.cos + n * job.row + first, cos, count, job.stream);
            put(job.sin + n * job.row + first, sin, count, job.stream);
        }
    }
}

}  // namespace

KERNEL(turns)(const Turns* given) {
    const Turns& job = *given;
    parallel(job.batch * job.tokens, 8192 / (job.pairs + 1) + 1, job.threads, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; n++) job.interleaved ? row<true>(job, n) : row<false>(job, n);
        if (job.stream) streamed();
    });
}
