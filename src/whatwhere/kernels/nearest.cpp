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
    double share, square;    // the bounds are of share * score, of a distance of share * (square - distance * distance)
    const int64_t* without;  // ids, rising, that are no answer
    int64_t left_out;
    float offset, alpha, beta, delta;  // a score is alpha (product - offset) factor - beta half, give or take delta
    float least;    // a row whose score cannot reach this is not among the nearest
    int32_t blank;  // all scores are 0
    int64_t count, kept;  // entries; answers
    int64_t due;          // so many entries are sifted
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

inline void raise(Asked& asked, double reached) {
    if (reached > asked.least) asked.least = float(reached);
}

// Raise `least` to what the entries have reached, and drop those that cannot reach it. Gives the lower bound that as
// many as are wanted have.
inline double sifted(const Search& search, int64_t n) {
    Asked& asked = search.asked[n];
    Entry* entries = search.entries + n * search.room;
    double reached = -INFINITY;
    if (asked.count >= search.wanted) {
        double* lows = search.spare + n * search.room;
        for (int64_t i = 0; i < asked.count; i++) lows[i] = entries[i].low;
        reached = ranked(lows, asked.count, search.wanted - 1);
        raise(asked, reached);
    }
    int64_t left = 0;
    for (int64_t i = 0; i < asked.count; i++)
        if (entries[i].high >= asked.least) entries[left++] = entries[i];
    asked.count = left;
    return reached;
}

// Score the entries, those first that have `reached` most: then few of the others can still be among the nearest. No
// entries are left.
inline void settled(const Search& search, int64_t n, double reached, Exact score) {
    Asked& asked = search.asked[n];
    const Entry* entries = search.entries + n * search.room;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < asked.count; i++)
            if ((entries[i].low >= reached) == !pass && entries[i].high >= asked.least)
                answered(search, n, entries[i].id, score(search, asked.query, entries[i].id));
        if (asked.kept < search.wanted) continue;
        const double worst = search.scores[n * search.wanted];
        raise(asked, asked.share * (search.metric == EUCLIDEAN ? asked.square - worst * worst : worst));
    }
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
    if (asked.count < asked.due) return;
    const double reached = sifted(search, n);
    // Too many are too close to tell apart. Scored now, they take no room.
    if (asked.count > search.room / 2) settled(search, n, reached, score);
    asked.due = 2 * (asked.count + search.wanted) + SOME;
    if (asked.due > search.room) asked.due = search.room;
}

// Bounds of a query's score of a row, by their product.
template <bool DISTANCE>
struct Bounds {
    const float *factors, *errors, *halves;
    float offset, alpha, beta, delta;
    Bounds(const Search& search, const Asked& asked, int64_t first)
        : factors(search.factors + first), errors(search.errors + first), halves(search.halves + first),
          offset(asked.offset), alpha(asked.alpha), beta(asked.beta), delta(asked.delta) {}
    float low(float product, int64_t j) const {
        const float own = (product - offset) * factors[j] - errors[j];
        return DISTANCE ? (alpha * own - beta * halves[j] * MORE) - delta : own;
    }
    float high(float product, int64_t j) const {
        const float own = (product - offset) * factors[j] + errors[j];
        return DISTANCE ? (alpha * own - beta * halves[j] * LESS) + delta : own;
    }
};

template <bool DISTANCE>
inline void selected(const Search& search, int64_t n, const float* products, int64_t first, int64_t count, Exact score) {
    const Asked& asked = search.asked[n];
    const Bounds<DISTANCE> bounds(search, asked, first);
    int64_t begin = 0;
    for (; begin + SOME <= count; begin += SOME) {
        const float least = asked.least;
        int32_t any = 0;
        for (int64_t j = begin; j < begin + SOME; j++) any |= bounds.high(products[j], j) >= least;
        if (any)
            for (int64_t j = begin; j < begin + SOME; j++) {
                const float high = bounds.high(products[j], j);
                if (high >= asked.least) entered(search, n, {bounds.low(products[j], j), high, first + j}, score);
            }
    }
    for (int64_t j = begin; j < count; j++) {
        const float high = bounds.high(products[j], j);
        if (high >= asked.least) entered(search, n, {bounds.low(products[j], j), high, first + j}, score);
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
            settled(*search, n, sifted(*search, n), score);
            Answers answers = answers_of(*search, n);
            for (int64_t left = search->asked[n].kept; left > 1; answers.sink(0, left)) answers.swap(0, --left);
        }
    });
}
