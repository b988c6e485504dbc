// Rows combined with those rows of a total that have their numbers: total[numbers[i]] = operation(..., rows[i]).
// One thread combines all that one element of the total gets, in the order of `rows`: the same bits in each launch.
// `order` sorts `numbers`, equal ones by place. Numbers outside of [0, height) are left out.

enum { ADD, MAXIMUM, MINIMUM };

template <typename T>
__device__ __forceinline__ T combined(long long operation, T total, T x) {
    if (operation == ADD) return total + x;
    if (total != total) return total;  // NaN
    if (operation == MAXIMUM) return total >= x ? total : x;
    return total <= x ? total : x;
}

template <typename T>
__device__ __forceinline__ void combine(long long operation, const long long* numbers, const long long* order,
                                        const T* rows, T* total, long long count, long long width, long long height) {
    const long long threads = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count * width; i += threads) {
        const long long first = i / width, column = i % width, number = numbers[order[first]];
        if (first && numbers[order[first - 1]] == number) continue;  // the thread of the first row adds this one, too
        if (number < 0 || number >= height) continue;
        T result = total[number * width + column];
        for (long long at = first; at < count && numbers[order[at]] == number; ++at)
            result = combined(operation, result, rows[order[at] * width + column]);
        total[number * width + column] = result;
    }
}

extern "C" __global__ void combine_float32(long long operation, const long long* numbers, const long long* order,
                                      const float* rows, float* total, long long count, long long width, long long height) {
    combine(operation, numbers, order, rows, total, count, width, height);
}

extern "C" __global__ void combine_float64(long long operation, const long long* numbers, const long long* order,
                                      const double* rows, double* total, long long count, long long width, long long height) {
    combine(operation, numbers, order, rows, total, count, width, height);
}

extern "C" __global__ void combine_int32(long long operation, const long long* numbers, const long long* order,
                                      const int* rows, int* total, long long count, long long width, long long height) {
    combine(operation, numbers, order, rows, total, count, width, height);
}

extern "C" __global__ void combine_int64(long long operation, const long long* numbers, const long long* order,
                                      const long long* rows, long long* total, long long count, long long width, long long height) {
    combine(operation, numbers, order, rows, total, count, width, height);
}
