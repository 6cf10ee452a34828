// Rows of a table as float64 numbers, less the mean, and sums over them.
//
// What is exact is a sum in LANES lanes, in one order at every level, and in its plain twin, kernels/nearest.py.
#pragma once

#include "native.h"

namespace {

constexpr int64_t LANES = 16;
constexpr int64_t SOME = 64;  // numbers at a time: more than the compiler unrolls, so that it makes vectors of them

// As kernels/scan.py lays it out, like every struct that a kernel is given.
struct Table {
    const void* numbers;
    const double* mean;     // is taken from each row
    const double* lengths;  // of the rows, after that
    int64_t rows, dim, stride;  // stride counts numbers
    int64_t wide, centered;     // numbers are float64; the mean is not zero
};

template <class T, bool CENTERED>
struct Row {
    const T* numbers;
    const double* mean;
    int64_t dim;
    Row(const Table& table, int64_t id)
        : numbers(static_cast<const T*>(table.numbers) + id * table.stride), mean(table.mean), dim(table.dim) {}
    double operator[](int64_t j) const { return CENTERED ? double(numbers[j]) - mean[j] : double(numbers[j]); }
};

// Call body(first, lanes) for each LANES numbers of a row, and for the rest.
template <class Body>
inline void by_lanes(int64_t dim, const Body& body) {
    int64_t j = 0;
    for (; j + LANES <= dim; j += LANES) body(j, LANES);
    if (j < dim) body(j, dim - j);
}

// Put `count` numbers, a power of two, into one: halves upon each other.
template <class X, class Join>
inline X folded(X* lanes, int64_t count, const Join& join) {
    for (int64_t half = count / 2; half; half /= 2)
        for (int64_t l = 0; l < half; l++) lanes[l] = join(lanes[l], lanes[l + half]);
    return lanes[0];
}

// Sum term(number, place) over a row.
template <class R, class Term>
inline double sum(const R& row, const Term& term) {
    double lanes[LANES] = {};
    by_lanes(row.dim, [&](int64_t first, int64_t some) {
        for (int64_t l = 0; l < some; l++) lanes[l] += term(row[first + l], first + l);
    });
    return folded(lanes, LANES, [](double a, double b) { return a + b; });
}

}  // namespace
