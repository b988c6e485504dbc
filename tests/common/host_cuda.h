// Enough of CUDA's C++ to run kernels on the processor: the threads of a block take turns, one block after the other.
// A thread gives up its turn at __syncthreads() and gets it back when all others of its block have come there or ended.
// Containers of the standard library would double the time that g++ takes for a kernel.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

struct Dimension { unsigned x, y, z; };
static Dimension threadIdx, blockIdx, blockDim, gridDim;

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __restrict__

enum { MOST_THREADS = 1024, STACK = 1 << 16 };
static ucontext_t turns[MOST_THREADS];
static bool ended[MOST_THREADS];
static char* stacks;
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
    body = kernel, arguments = args;
    gridDim = {grid[0], 1, 1}, blockDim = {block[0], 1, 1};
    if (!stacks) stacks = (char*)malloc((size_t)MOST_THREADS * STACK);
    for (unsigned b = 0; b < grid[0]; b++) {
        memset(ended, 0, sizeof ended);
        for (unsigned t = 0; t < block[0]; t++) {
            getcontext(&turns[t]);
            turns[t].uc_stack.ss_sp = &stacks[(size_t)STACK * t];
            turns[t].uc_stack.ss_size = STACK;
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
