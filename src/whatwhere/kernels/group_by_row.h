// How the slots of a batch are divided among threads.
#pragma once

#include "native.h"

namespace {

// Slots of one piece.
inline int64_t pieces(int64_t dim) { return 1 + (1 << 13) / dim; }

// The first row whose slots begin at `slot` or after. Pieces are divided by slots, since a frequent token has many.
inline int64_t row_from(const int64_t* starts, int64_t rows, int64_t slot) {
    int64_t low = 0, high = rows;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (starts[middle] < slot) low = middle + 1;
        else high = middle;
    }
    return low;
}

}  // namespace
