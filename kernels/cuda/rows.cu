// Rows combined with those rows of a total that have their numbers: total[numbers[i]] = operation(..., rows[i]).
// `order` sorts `numbers`, equal ones by place: the rows of one number are a run of positions. The first launch combines
// each RUN rows of a run, the next each RUN results of the one before, and so on, so that the order is the same in each
// run of the program and no thread has long to do. Numbers outside of [0, height) are left out. The host writes RUN in
// front of this.

enum { ADD, MAXIMUM, MINIMUM };

template <typename T>
__device__ __forceinline__ T combined(long long operation, T total, T x) {
    if (operation == ADD) return total + x;
    if (total != total) return total;  // NaN
    if (operation == MAXIMUM) return total >= x ? total : x;
    return total <= x ? total : x;
}

// The first position, at most `position`, of the run that this one is in.
__device__ __forceinline__ long long start_of_run(const long long* numbers, const long long* order,
                                                  long long position) {
    const long long number = numbers[order[position]];
    long long low = 0, high = position;
    while (low < high) {
        const long long middle = (low + high) / 2;
        if (numbers[order[middle]] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// `step` is the distance of the positions that hold results of earlier launches in `partial`; 1 in the first launch.
template <typename T>
__device__ __forceinline__ void combine(long long operation, const long long* numbers, const long long* order,
                                        const T* rows, T* partial, T* total, long long count, long long width,
                                        long long height, long long step, long long is_last) {
    const long long threads = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count * width; i += threads) {
        const long long position = i / width, column = i % width, number = numbers[order[position]];
        const long long start = start_of_run(numbers, order, position);
        if ((position - start) % (step * RUN)) continue;  // another thread combines it
        T result = step == 1 ? rows[order[position] * width + column] : partial[i];
        for (long long k = 1, at = position + step; k < RUN && at < count; ++k, at += step) {
            if (numbers[order[at]] != number) break;
            const T other = step == 1 ? rows[order[at] * width + column] : partial[at * width + column];
            result = combined(operation, result, other);
        }
        if (!is_last)
            partial[i] = result;
        else if (number >= 0 && number < height)
            total[number * width + column] = combined(operation, total[number * width + column], result);
    }
}

extern "C" __global__ void combine_float32(long long operation, const long long* numbers, const long long* order,
                                       const float* rows, float* partial, float* total, long long count,
                                       long long width, long long height, long long step, long long is_last) {
    combine(operation, numbers, order, rows, partial, total, count, width, height, step, is_last);
}

extern "C" __global__ void combine_float64(long long operation, const long long* numbers, const long long* order,
                                       const double* rows, double* partial, double* total, long long count,
                                       long long width, long long height, long long step, long long is_last) {
    combine(operation, numbers, order, rows, partial, total, count, width, height, step, is_last);
}

extern "C" __global__ void combine_int32(long long operation, const long long* numbers, const long long* order,
                                       const int* rows, int* partial, int* total, long long count,
                                       long long width, long long height, long long step, long long is_last) {
    combine(operation, numbers, order, rows, partial, total, count, width, height, step, is_last);
}

extern "C" __global__ void combine_int64(long long operation, const long long* numbers, const long long* order,
                                       const long long* rows, long long* partial, long long* total, long long count,
                                       long long width, long long height, long long step, long long is_last) {
    combine(operation, numbers, order, rows, partial, total, count, width, height, step, is_last);
}
