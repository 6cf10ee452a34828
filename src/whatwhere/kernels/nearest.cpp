// The nearest rows: those whose bounds say that they may be among them, scored in float64.
//
// The plain twin is kernels/nearest.py.
#include "scan.h"

namespace {

constexpr float LESS = 1 - 0x1p-20f, MORE = 1 + 0x1p-20f;

enum Metric : int64_t { COSINE, DOT, EUCLIDEAN };

struct Entry {  // a row that may be among the nearest, and between what its score lies
    float low, high;
    int64_t id;
};

struct Asked {
    const double* query;     // as scores are taken of
    const int64_t* without;  // ids, rising, that are no answer
    int64_t left_out;
    float offset, alpha, beta, delta;  // a score is alpha (product - offset) factor - beta half, give or take delta
    float least;    // a row whose score cannot reach this is not among the nearest
    int32_t blank;  // all scores are 0
    int64_t count, kept;  // entries; answers, nearest first
};

struct Search {
    Table table;
    const float *factors, *errors, *halves;  // of the rows
    Asked* asked;
    Entry* entries;  // (queries, room)
    double* spare;   // (queries, room)
    int64_t* ids;    // (queries, wanted)
    double* scores;
    int64_t queries, wanted, room, metric;
};

template <class T, bool CENTERED>
double exact(const Search& search, const double* query, int64_t id) {
    const Row<T, CENTERED> row(search.table, id);
    if (search.metric == EUCLIDEAN)
        return -std::sqrt(sum(row, [=](double x, int64_t j) { return (x - query[j]) * (x - query[j]); }));
    const double inner = sum(row, [=](double x, int64_t j) { return x * query[j]; });
    if (search.metric == DOT) return inner;
    const double length = search.table.lengths[id], cosine = length > 0 ? inner / length : 0;
    return cosine > 1 ? 1 : cosine < -1 ? -1 : cosine;
}

using Exact = double (*)(const Search&, const double*, int64_t);
inline Exact exact_for(const Table& table) {
    if (table.wide) return table.centered ? exact<double, true> : exact<double, false>;
    return table.centered ? exact<float, true> : exact<float, false>;
}

// The number that has `rank` others at or before it in falling order; the numbers change places.
inline double ranked(double* numbers, int64_t count, int64_t rank) {
    int64_t left = 0, right = count - 1;
    while (left < right) {
        const double pivot = numbers[left + (right - left) / 2];
        int64_t i = left, j = right;
        while (i <= j) {
            while (numbers[i] > pivot) i++;
            while (numbers[j] < pivot) j--;
            if (i > j) break;
            const double other = numbers[i];
            numbers[i++] = numbers[j];
            numbers[j--] = other;
        }
        if (rank <= j) right = j;
        else if (rank >= i) left = i;
        else break;
    }
    return numbers[rank];
}

// The answers of one query: a heap with the worst on top, where greater scores are better, and of equal ones lower ids.
struct Answers {
    int64_t* ids;
    double* scores;
    bool worse(int64_t a, int64_t b) const { return scores[a] < scores[b] || (scores[a] == scores[b] && ids[a] > ids[b]); }
    void swap(int64_t a, int64_t b) {
        const int64_t id = ids[a];
        const double score = scores[a];
        ids[a] = ids[b], scores[a] = scores[b];
        ids[b] = id, scores[b] = score;
    }
    void rise(int64_t at) {
        for (int64_t above; at && worse(at, above = (at - 1) / 2); at = above) swap(at, above);
    }
    void sink(int64_t at, int64_t count) {
        for (int64_t below; (below = 2 * at + 1) < count; at = below) {
            if (below + 1 < count && worse(below + 1, below)) below++;
            if (!worse(below, at)) return;
            swap(at, below);
        }
    }
};

inline Answers answers_of(const Search& search, int64_t n) {
    return {search.ids + n * search.wanted, search.scores + n * search.wanted};
}

inline void answered(const Search& search, int64_t n, int64_t id, double score) {
    Answers answers = answers_of(search, n);
    int64_t& kept = search.asked[n].kept;
    if (kept < search.wanted) {
        answers.ids[kept] = id, answers.scores[kept] = score;
        answers.rise(kept++);
    } else if (score > answers.scores[0] || (score == answers.scores[0] && id < answers.ids[0])) {
        answers.ids[0] = id, answers.scores[0] = score;
        answers.sink(0, kept);
    }
}

// Raise `least` to what the entries have reached, and drop those that cannot reach it.
inline void sifted(const Search& search, int64_t n) {
    Asked& asked = search.asked[n];
    Entry* entries = search.entries + n * search.room;
    if (asked.count >= search.wanted) {
        double* lows = search.spare + n * search.room;
        for (int64_t i = 0; i < asked.count; i++) lows[i] = entries[i].low;
        const double reached = ranked(lows, asked.count, search.wanted - 1);
        if (reached > asked.least) asked.least = float(reached);
    }
    int64_t left = 0;
    for (int64_t i = 0; i < asked.count; i++)
        if (entries[i].high >= asked.least) entries[left++] = entries[i];
    asked.count = left;
}

// Score the entries; then there are none.
inline void settled(const Search& search, int64_t n, Exact score) {
    Asked& asked = search.asked[n];
    const Entry* entries = search.entries + n * search.room;
    for (int64_t i = 0; i < asked.count; i++)
        answered(search, n, entries[i].id, score(search, asked.query, entries[i].id));
    asked.count = 0;
}

inline void entered(const Search& search, int64_t n, const Entry& entry, Exact score) {
    Asked& asked = search.asked[n];
    int64_t left = 0, right = asked.left_out;
    while (left < right) {
        const int64_t middle = (left + right) / 2;
        if (asked.without[middle] < entry.id) left = middle + 1;
        else right = middle;
    }
    if (left < asked.left_out && asked.without[left] == entry.id) return;
    if (asked.blank && asked.count + asked.kept == search.wanted) return;  // all are alike: the first ids win
    search.entries[n * search.room + asked.count++] = entry;
    if (asked.count < search.room) return;
    sifted(search, n);
    // Too many are too close to tell apart. Scored now, they take no room.
    if (asked.count > search.room / 2) settled(search, n, score);
}

// Bounds of `some` rows from the row `first`.
template <bool DISTANCE>
inline void bounds(const Search& search, const Asked& asked, const float* products, int64_t first, int64_t some,
                   float* low, float* high) {
    const float *factors = search.factors + first, *errors = search.errors + first, *halves = search.halves + first;
    for (int64_t j = 0; j < some; j++) {
        const float middle = (products[j] - asked.offset) * factors[j];
        low[j] = middle - errors[j], high[j] = middle + errors[j];
        if (DISTANCE) {
            low[j] = (asked.alpha * low[j] - asked.beta * halves[j] * MORE) - asked.delta;
            high[j] = (asked.alpha * high[j] - asked.beta * halves[j] * LESS) + asked.delta;
        }
    }
}

template <bool DISTANCE>
inline void selected(const Search& search, int64_t n, const float* products, int64_t first, int64_t count, Exact score) {
    float low[SOME], high[SOME];
    for (int64_t begin = 0; begin < count; begin += SOME) {
        const int64_t some = count - begin < SOME ? count - begin : SOME;
        if (some == SOME) bounds<DISTANCE>(search, search.asked[n], products + begin, first + begin, SOME, low, high);
        else bounds<DISTANCE>(search, search.asked[n], products + begin, first + begin, some, low, high);
        const float least = search.asked[n].least;
        int32_t any = 0;
        for (int64_t j = 0; j < some; j++) any |= high[j] >= least;
        if (!any) continue;
        for (int64_t j = 0; j < some; j++)
            if (high[j] >= search.asked[n].least) entered(search, n, {low[j], high[j], first + begin + j}, score);
    }
}

}  // namespace

// Take the products of all queries with the rows first .. first + count into account; a query's begin `stride` apart.
KERNEL(nearest_select)(const Search* search, const float* products, int64_t stride, int64_t first, int64_t count,
                    int64_t threads) {
    const Exact score = exact_for(search->table);
    auto run = search->metric == EUCLIDEAN ? selected<true> : selected<false>;
    parallel(search->queries, 1 + (1 << 15) / (count + 1), threads, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; n++) run(*search, n, products + n * stride, first, count, score);
    });
}

// Score what is left: then ids and scores hold the answers.
KERNEL(nearest_finish)(const Search* search, int64_t threads) {
    const Exact score = exact_for(search->table);
    parallel(search->queries, 1, threads, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; n++) {
            sifted(*search, n);
            settled(*search, n, score);
            Answers answers = answers_of(*search, n);
            for (int64_t left = search->asked[n].kept; left > 1; answers.sink(0, left)) answers.swap(0, --left);
        }
    });
}
