// Norms of order 2 over all arrays of a table, and clipping by them. A row of the table is an array:
//   first piece, elements, type (0 float32, 1 float64), address, address of the result
// Blocks take pieces of PIECE elements in turn; `pieces` is how many there are in all.

// A sum with what roundings took from it (D. E. Knuth, The Art of Computer Programming, volume 2, 4.2.2).
struct Sum {
    double total, rest;

    __device__ __forceinline__ void add(double x, double its_rest = 0) {
        const double longer = total + x, added = longer - total;
        rest += (total - (longer - added)) + (x - added) + its_rest;
        total = longer;
    }

    __device__ __forceinline__ double value() const {
        return fabs(total) <= 1.7976931348623157e308 ? total + rest : total;
    }
};

// Sums of squares by size, so that none overflows or underflows (J. L. Blue, A portable Fortran program to find the
// Euclidean norm of a vector, 1978). NaN is added to the middle one, infinity to the large one.
struct Squares {
    Sum small, middle, large;

    __device__ __forceinline__ void add(const Squares& other) {
        small.add(other.small.total, other.small.rest);
        middle.add(other.middle.total, other.middle.rest);
        large.add(other.large.total, other.large.rest);
    }
};

__device__ __forceinline__ void add_square(Squares& sums, double x) {
    const double size = fabs(x);
    if (size > 0x1p+480) {
        const double y = size * 0x1p-540;
        sums.large.add(y * y);
    } else if (size < 0x1p-480) {
        const double y = size * 0x1p+540;
        sums.small.add(y * y);
    } else {
        sums.middle.add(x * x);
    }
}

// The norm as scale * ratio. The scale is 1, or where that is not safe a power of two that leaves a ratio about 1.
__device__ __forceinline__ void root(const Squares& sums, double* scale, double* ratio) {
    const double small = sums.small.value(), middle = sums.middle.value(), large = sums.large.value();
    int power = 0;
    if (large > 0) {
        power = 540;
        *ratio = sqrt(large + middle * 0x1p-540 * 0x1p-540);
    } else if (middle < 0x1p-900) {
        power = -540;
        *ratio = sqrt(small + middle * 0x1p+540 * 0x1p+540);
    } else {
        *ratio = sqrt(middle + small * 0x1p-540 * 0x1p-540);
    }
    *scale = 1;
    if (power && *ratio > 0 && *ratio <= 1.7976931348623157e308) {
        int exponent;
        frexp(*ratio, &exponent);
        power += exponent - 1;
        power = power > 1023 ? 1023 : power;
        *ratio = ldexp(*ratio, (large > 0 ? 540 : -540) - power);
        *scale = ldexp(1.0, power);
    }
}

// The sums of a block's threads, in thread 0.
__device__ __forceinline__ Squares sum_of_block(Squares sums) {
    __shared__ Squares all[BLOCK];
    all[threadIdx.x] = sums;
    for (unsigned half = BLOCK / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) all[threadIdx.x].add(all[threadIdx.x + half]);
    }
    __syncthreads();
    return all[0];
}

extern "C" __global__ void partial_sums(const long long* table, long long rows, long long pieces, Squares* partial) {
    Squares sums = {};
    for (long long piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const long long* row = row_of(table, rows, 5, piece);
        const long long start = (piece - row[0]) * PIECE;
        const long long end = start + PIECE < row[1] ? start + PIECE : row[1];
        if (row[2]) {
            const double* x = (const double*)row[3];
            for (long long i = start + threadIdx.x; i < end; i += BLOCK) add_square(sums, x[i]);
        } else {  // squares of float32 are exact and in range, and float64 loses nothing of their sum that matters
            const float* x = (const float*)row[3];
            for (long long i = start + threadIdx.x; i < end; i += BLOCK) sums.middle.total += (double)x[i] * x[i];
        }
    }
    sums = sum_of_block(sums);
    if (threadIdx.x == 0) partial[blockIdx.x] = sums;
}

// factor: threshold, scale, ratio. The threshold is read from `given`, of type `wide`, unless that is null.
extern "C" __global__ void finish(const Squares* partial, long long count, const void* given, long long wide,
                                  double threshold, double* factor, void* total) {
    Squares sums = {};
    for (long long i = threadIdx.x; i < count; i += BLOCK) sums.add(partial[i]);
    sums = sum_of_block(sums);
    if (threadIdx.x == 0) {
        double scale, ratio;
        root(sums, &scale, &ratio);
        if (given) threshold = wide ? *(const double*)given : *(const float*)given;
        factor[0] = threshold, factor[1] = scale, factor[2] = ratio;
        if (total && wide) *(double*)total = scale * ratio;
        if (total && !wide) *(float*)total = (float)(scale * ratio);
    }
}

extern "C" __global__ void scale_down(const long long* table, long long rows, long long pieces, const double* factor) {
    const Shrinking<float> narrow(factor, 1e-30);
    const Shrinking<double> wide(factor, 1e-290);
    for (long long piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        const long long* row = row_of(table, rows, 5, piece);
        const long long start = (piece - row[0]) * PIECE;
        const long long end = start + PIECE < row[1] ? start + PIECE : row[1];
        if (row[2]) {
            const double* x = (const double*)row[3];
            double* y = (double*)row[4];
            for (long long i = start + threadIdx.x; i < end; i += BLOCK) y[i] = wide(x[i]);
        } else {
            const float* x = (const float*)row[3];
            float* y = (float*)row[4];
            for (long long i = start + threadIdx.x; i < end; i += BLOCK) y[i] = narrow(x[i]);
        }
    }
}
