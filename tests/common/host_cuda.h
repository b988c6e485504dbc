// Enough of CUDA's C++ to run kernels on the processor: the threads of a block take turns, one block after the other.
// A thread gives up its turn at __syncthreads() and gets it back when all others of its block have come there or ended.
#include <math.h>
#include <ucontext.h>
#include <vector>

struct Dimension { unsigned x, y, z; };
static Dimension threadIdx, blockIdx, blockDim, gridDim;

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __restrict__

static std::vector<ucontext_t> turns;
static std::vector<bool> ended;
static ucontext_t scheduler;
static unsigned current;
static void (*body)(void**);
static void** arguments;

static void __syncthreads() { swapcontext(&turns[current], &scheduler); }
static void __threadfence() {}
static unsigned atomicAdd(unsigned* address, unsigned more) { unsigned old = *address; *address += more; return old; }

static void one_thread() {
    body(arguments);
    ended[current] = true;
}

static void run_blocks(void (*kernel)(void**), const unsigned* grid, const unsigned* block, void** args) {
    const size_t room = 1 << 16;
    body = kernel, arguments = args;
    gridDim = {grid[0], 1, 1}, blockDim = {block[0], 1, 1};
    std::vector<char> stacks(room * block[0]);
    for (unsigned b = 0; b < grid[0]; b++) {
        turns.assign(block[0], ucontext_t());
        ended.assign(block[0], false);
        for (unsigned t = 0; t < block[0]; t++) {
            getcontext(&turns[t]);
            turns[t].uc_stack.ss_sp = &stacks[room * t];
            turns[t].uc_stack.ss_size = room;
            turns[t].uc_link = &scheduler;
            makecontext(&turns[t], one_thread, 0);
        }
        for (unsigned left = block[0]; left;) {
            left = 0;
            for (unsigned t = 0; t < block[0]; t++) {
                if (ended[t]) continue;
                current = t;
                threadIdx = {t, 0, 0}, blockIdx = {b, 0, 0};
                swapcontext(&scheduler, &turns[t]);
                left += !ended[t];
            }
        }
    }
}
