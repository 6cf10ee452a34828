// Gauss rules of the updates that a row misses while it is skipped: computed from the previous rule and the steps since.
//
// The Python implementation, which computes them from all steps, is adamw_catch_up.py; both agree to the rounding of float64.
#pragma once

#include "native.h"

namespace {

// Columns of StepHistory.steps and .rules.
enum { RATE, ROOT, KEPT, FIRST, HALF, NODES, STEP };
enum { MADE, COUNT, ENDED, CACHED, RULE };
constexpr int MOST = 16;   // nodes of a rule
constexpr int BATCH = 64;  // steps that are added to a rule at once

struct History {
    const double* steps;
    double* rules;  // of each slot; see adamw_catch_up.py
    float* cached;  // D, M, V, nodes, weights, as of the step in rules[CACHED]
    int64_t now;    // the last slot
    double log_tail;
};

constexpr int64_t RULE_COLUMNS = RULE + 2 * MOST, CACHED_COLUMNS = 3 + 2 * MOST;

// The eigenvalues of a symmetric tridiagonal matrix, and the first components of its eigenvectors, by the implicit QL
// method: Golub and Welsch 1969. `beside` has one unused number at its end.
void eigenvalues(int size, double* diagonal, double* beside, double* first) {
    for (int i = 0; i < size; i++) first[i] = i == 0;
    beside[size - 1] = 0;
    for (int l = 0; l < size; l++) {
        for (int pass = 0; pass < 60; pass++) {
            int m = l;
            for (; m < size - 1; m++) {
                const double around = std::fabs(diagonal[m]) + std::fabs(diagonal[m + 1]);
                if (std::fabs(beside[m]) <= 1.1102230246251565e-16 * around) break;
            }
            if (m == l) break;
            double g = (diagonal[l + 1] - diagonal[l]) / (2 * beside[l]), r = std::sqrt(g * g + 1);
            g = diagonal[m] - diagonal[l] + beside[l] / (g + (g < 0 ? -r : r));
            double s = 1, c = 1, p = 0;
            int i = m - 1;
            for (; i >= l; i--) {
                double f = s * beside[i];
                const double b = c * beside[i];
                r = std::sqrt(f * f + g * g);
                beside[i + 1] = r;
                if (r == 0) {
                    diagonal[i + 1] -= p;
                    beside[m] = 0;
                    break;
                }
                s = f / r;
                c = g / r;
                g = diagonal[i + 1] - p;
                r = (diagonal[i] - g) * s + 2 * c * b;
                p = s * r;
                diagonal[i + 1] = g + p;
                g = c * r - b;
                f = first[i + 1];
                first[i + 1] = s * first[i] + c * f;
                first[i] = c * first[i] - s * f;
            }
            if (i >= l) continue;
            diagonal[l] -= p;
            beside[l] = g;
            beside[m] = 0;
        }
    }
}

// Replace points and masses by at most `size` nodes and weights: the Gauss rule of masses / points^3.
int compress(double* x, double* w, int points, int size) {
    double vectors[MOST][MOST + BATCH], rest[MOST + BATCH], diagonal[MOST], beside[MOST], first[MOST], total = 0;
    for (int i = 0; i < points; i++) total += w[i] / (x[i] * x[i] * x[i]);
    for (int i = 0; i < points; i++) vectors[0][i] = std::sqrt(w[i] / (x[i] * x[i] * x[i]) / total);
    int found = 0;
    for (;;) {
        const double* v = vectors[found];
        double sum = 0;
        for (int i = 0; i < points; i++) rest[i] = x[i] * v[i];
        for (int i = 0; i < points; i++) sum += rest[i] * v[i];
        diagonal[found++] = sum;
        if (found == size) break;
        for (int pass = 0; pass < 2; pass++)  // twice, or the vectors lose orthogonality
            for (int n = 0; n < found; n++) {
                double dot = 0;
                for (int i = 0; i < points; i++) dot += rest[i] * vectors[n][i];
                for (int i = 0; i < points; i++) rest[i] -= dot * vectors[n][i];
            }
        double square = 0;
        for (int i = 0; i < points; i++) square += rest[i] * rest[i];
        const double length = std::sqrt(square);
        if (!(length > 1e-14 * diagonal[0])) break;
        beside[found - 1] = length;
        for (int i = 0; i < points; i++) vectors[found][i] = rest[i] / length;
    }
    eigenvalues(found, diagonal, beside, first);
    int kept = 0;
    for (int i = 0; i < found; i++) {
        const double node = diagonal[i], weight = first[i] * first[i] * total * node * node * node;
        if (!(weight > 0)) continue;
        int at = kept++;
        for (; at && x[at - 1] > node; at--) {  // ascending, as in Python
            x[at] = x[at - 1];
            w[at] = w[at - 1];
        }
        x[at] = node;
        w[at] = weight;
    }
    return kept;
}

// Add the steps since a rule was computed.
void make_rule(const History& h, int64_t slot) {
    double* rule = h.rules + slot * RULE_COLUMNS;
    const double* start = h.steps + slot * STEP;
    const int size = int(start[NODES]);
    double x[MOST + BATCH], w[MOST + BATCH];
    int64_t made = rule[MADE] > slot ? int64_t(rule[MADE]) : slot;
    int points = int(rule[COUNT]);
    bool ended = rule[ENDED] != 0;
    std::memcpy(x, rule + RULE, sizeof(double) * points);
    std::memcpy(w, rule + RULE + MOST, sizeof(double) * points);
    while (!ended && made < h.now) {
        int64_t last = made + BATCH < h.now ? made + BATCH : h.now;
        const double* fading = h.steps + (made + 1) * STEP;
        for (int64_t s = made + 1; s <= last; s++, fading += STEP)
            if (fading[FIRST] - start[FIRST] - (fading[HALF] - start[HALF]) < h.log_tail) {
                ended = true;
                last = s - 1;
            }
        const double* end = h.steps + last * STEP;
        const double kept = std::exp(end[KEPT] - h.steps[made * STEP + KEPT]);
        for (int i = 0; i < points; i++) w[i] *= kept;
        for (int64_t s = made + 1; s <= last; s++) {
            const double* step = h.steps + s * STEP;
            const double mass = step[RATE] * std::exp(step[FIRST] - start[FIRST] + end[KEPT] - step[KEPT]);
            const double point = step[ROOT] * std::exp(step[HALF] - start[HALF]);
            if (!(mass > 0)) continue;
            if (size) {
                x[points] = point;
                w[points++] = mass;
            } else {  // eps is zero, where one node is exact
                x[0] = 1;
                w[0] = (points ? w[0] : 0) + mass / point;
                points = 1;
            }
        }
        if (size && points > size) points = compress(x, w, points, size);
        made = last;
    }
    rule[MADE] = double(made);
    rule[COUNT] = points;
    rule[ENDED] = ended;
    for (int i = 0; i < MOST; i++) {
        rule[RULE + i] = i < points ? x[i] : 1;
        rule[RULE + MOST + i] = i < points ? w[i] : 0;
    }
}

// Bring a rule up to date, and write the coefficients of its rows.
template <class T> void write_coefficients(const History& h, int64_t slot, bool moments, T* out) {
    double* rule = h.rules + slot * RULE_COLUMNS;
    const double *start = h.steps + slot * STEP, *end = h.steps + h.now * STEP;
    if (moments) make_rule(h, slot);
    out[0] = T(std::exp(end[KEPT] - start[KEPT]));
    out[1] = T(std::exp(end[FIRST] - start[FIRST]));
    out[2] = T(std::exp(2 * (end[HALF] - start[HALF])));
    const double kept = std::exp(end[KEPT] - h.steps[int64_t(rule[MADE]) * STEP + KEPT]);
    for (int i = 0; i < MOST; i++) {
        out[3 + i] = T(moments ? rule[RULE + i] : 1);
        out[3 + MOST + i] = T(moments ? rule[RULE + MOST + i] * kept : 0);
    }
}

}  // namespace
