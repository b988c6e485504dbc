// What the kernels share. The host writes BLOCK, the threads of a block, and PIECE in front of this.

#ifndef NAN
#define NAN (0.0 / 0.0)
#endif

// The row whose pieces contain `piece`: the last one whose first piece is not behind it.
__device__ __forceinline__ const long long* row_of(const long long* table, long long rows, long long width,
                                                   long long piece) {
    long long low = 0, high = rows - 1;
    while (low < high) {
        const long long middle = (low + high + 1) / 2;
        if (table[middle * width] <= piece)
            low = middle;
        else
            high = middle - 1;
    }
    return table + low * width;
}

// What a factor (threshold, scale, ratio) does to a number of type T: nothing up to the threshold, else a product with
// one number rounded to T, or, where that would lose digits, its parts one after the other in float64.
template <typename T>
struct Shrinking {
    bool keeps, is_simple;
    T number;
    double threshold, scale, ratio;

    __device__ Shrinking(const double* factor, double least) {
        keeps = true, is_simple = true, number = T(1), threshold = scale = ratio = 1;
        if (!factor) return;
        threshold = factor[0], scale = factor[1], ratio = factor[2];
        keeps = ratio <= threshold / scale;
        const double whole = threshold / ratio / scale;
        is_simple = whole > least;
        number = T(whole);
    }

    __device__ T operator()(T x) const {
        if (keeps) return x;
        if (is_simple) return x * number;
        return T((double)x / scale / (ratio == 0 ? NAN : ratio) * threshold);
    }
};
