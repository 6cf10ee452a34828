// Threads and the level of the processor: compiled once, for the baseline.
//
// Kernels run on the pool that PyTorch has already started. A pool of our own would wait beside PyTorch's, whose threads
// spin for a while after each of their tasks, and two cores would serve four threads.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "native.h"

namespace {

// GOMP_parallel(function, data, threads, flags), which GNU's, LLVM's and Intel's OpenMP all have.
using Fork = void (*)(void (*)(void*), void*, unsigned, unsigned);
Fork fork_ = nullptr;

struct Work {
    void (*body)(void*, int64_t, int64_t);
    void* job;
    int64_t count, grain;
    std::atomic<int64_t> next;
};

void take_pieces(void* given) {
    Work& work = *static_cast<Work*>(given);
    for (;;) {
        int64_t begin = work.next.fetch_add(work.grain, std::memory_order_relaxed);
        if (begin >= work.count) return;
        int64_t end = begin + work.grain < work.count ? begin + work.grain : work.count;
        work.body(work.job, begin, end);
    }
}

}  // namespace

EXPORT void whatwhere_use_pool(void* gomp_parallel) { fork_ = reinterpret_cast<Fork>(gomp_parallel); }

EXPORT void whatwhere_parallel(void (*body)(void*, int64_t, int64_t), void* job, int64_t count, int64_t grain,
                               int64_t threads) {
    if (count <= 0) return;
    if (grain < 1) grain = 1;
    int64_t pieces = (count + grain - 1) / grain;
    if (threads > pieces) threads = pieces;
    if (threads <= 1) return body(job, 0, count);
    Work work{body, job, count, grain, {0}};
    if (fork_) return fork_(take_pieces, &work, unsigned(threads), 0);
    std::vector<std::thread> others;
    try {
        for (int64_t n = 1; n < threads; n++) others.emplace_back(take_pieces, &work);
    } catch (...) {
        // The system gives no more threads: those that are there take all the pieces.
    }
    take_pieces(&work);
    for (std::thread& other : others) other.join();
}

// Ask for huge pages for memory that is about to be written: a hint, which the system may ignore.
EXPORT void whatwhere_huge(void* address, int64_t bytes) {
#if defined(MADV_HUGEPAGE)
    constexpr uintptr_t PAGE = 2 << 20;  // only whole ones, so nothing beside the memory is touched
    uintptr_t begin = (reinterpret_cast<uintptr_t>(address) + PAGE - 1) / PAGE * PAGE;
    uintptr_t end = (reinterpret_cast<uintptr_t>(address) + uintptr_t(bytes)) / PAGE * PAGE;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
    (void)address, (void)bytes;
#endif
}

// 0 baseline, 1 avx2, 2 avx512: what this processor, and the system that it runs under, can do.
EXPORT int whatwhere_level() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx2 ? (avx512 ? 2 : 1) : 0;
#else
    return 0;
#endif
}

// The numbers that the sources of this library hash to: a library that is older than its sources is found out.
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
EXPORT const char* whatwhere_sources() { return TEXT(WHATWHERE_SOURCES); }
