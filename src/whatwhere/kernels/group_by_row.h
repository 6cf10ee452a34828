// How work on the places of a batch is handed out.
#pragma once

#include "native.h"

namespace {

// Places of a piece of work.
inline int64_t pieces(int64_t dim) { return 1 + (1 << 13) / dim; }

// The first row whose places begin at `place` or after. Work is handed out by places: a frequent token has many.
inline int64_t row_from(const int64_t* starts, int64_t rows, int64_t place) {
    int64_t low = 0, high = rows;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (starts[middle] < place) low = middle + 1;
        else high = middle;
    }
    return low;
}

}  // namespace
