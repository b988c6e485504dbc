"""Walk through a table of calls of C functions, and functions for it.

Each function has the type of NumPy's inner loops: pointers to its operands, sizes, strides in bytes, and one word of
its own. Addresses are integers here, and each word of the table has 8 bytes.
"""

# mypy: disable-error-code="call-arg, attr-defined"

import numpy as np

from minigraph.kernels.jit.loops.layout import HEAD, WORDS_OF_ARRAY, WORDS_OF_CALL, WORDS_OF_MOVE

INTRINSICS = ("load", "store", "load_as", "store_as", "pointer", "array_at", "call", "call_c")

try:
    from numba import carray
except ImportError:  # modules can be listed and imported without the extra; nothing is called then
    carray = None

ROW_MAJOR = 101
"""Order of the matrices, as BLAS counts orders."""


def load(context, address):
    """The word at an address."""
    from numba.core import types

    def generate(context, builder, signature, arguments):
        word = context.get_value_type(types.int64)
        return builder.load(builder.inttoptr(arguments[0], word.as_pointer()))

    return types.int64(types.int64), generate


def store(context, address, value):
    """Put a word at an address."""
    from numba.core import types

    def generate(context, builder, signature, arguments):
        builder.store(arguments[1], builder.inttoptr(arguments[0], arguments[1].type.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def load_as(context, address, like):
    """The number at an address, of the type of `like`."""
    from numba.core import types

    def generate(context, builder, signature, arguments):
        return builder.load(builder.inttoptr(arguments[0], arguments[1].type.as_pointer()))

    return like(types.int64, like), generate


def store_as(context, address, value):
    """Put a number at an address."""
    from numba.core import types

    def generate(context, builder, signature, arguments):
        builder.store(arguments[1], builder.inttoptr(arguments[0], arguments[1].type.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, value), generate


def pointer(context, address, like):
    """The address as a pointer to numbers of the type of `like`."""
    from numba.core import types

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(like)(types.int64, like), generate


def array_at(context, address, size, like):
    """The numbers from an address on as an array of as many numbers of the type of `like`."""
    from numba.core import types

    def generate(context, builder, signature, arguments):
        from numba.np.arrayobj import make_array, populate_array

        array = make_array(signature.return_type)(context, builder)
        data = builder.inttoptr(arguments[0], array.data.type)
        step = context.get_constant(types.intp, context.get_abi_sizeof(data.type.pointee))
        populate_array(array, data, [arguments[1]], [step], step, meminfo=None)
        return array._getvalue()

    return types.Array(like, 1, "C")(types.int64, types.int64, like), generate


def call(context, function, operands, sizes, strides, own):
    """Call one of NumPy's inner loops, or a function of their type."""
    from llvmlite import ir
    from numba.core import types

    def generate(context, builder, signature, arguments):
        type = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 4)
        builder.call(builder.inttoptr(arguments[0], type.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


def call_c(context, function, arguments, like):
    """Call a function of C with a tuple of numbers of the types that it takes; its result has the type of `like`."""
    from llvmlite import ir
    from numba.core import types

    def generate(context, builder, signature, arguments):
        given = [builder.extract_value(arguments[1], i) for i in range(len(signature.args[1]))]
        result = ir.VoidType() if like is types.none else context.get_value_type(like)
        type = ir.FunctionType(result, [each.type for each in given])
        found = builder.call(builder.inttoptr(arguments[0], type.as_pointer()), given)
        return context.get_dummy_value() if like is types.none else found

    return like(types.int64, arguments, like), generate


def are_as_expected(table, arrays):
    """Look at the arrays of a tuple, and note in the table where their elements are; both are addresses."""
    items, head = arrays + load(table + 40), load(table + 48)
    at = table + 8 * HEAD
    for i in range(load(table)):
        fields = load(items + 8 * i) + head
        # Neither type nor dtype may differ.
        if load(fields - 8) != load(table + 56) or load(fields + 40) != load(at):
            return False
        size, shape = 1, load(fields + 16)
        for axis in range(load(fields + 8) & 0xFFFFFFFF):
            size *= load(shape + 8 * axis)
        if size != load(at + 8) or load(fields + 48) & load(at + 16) != load(at + 16):
            return False
        store(at + 24, load(fields))
        at += 8 * WORDS_OF_ARRAY
    return True


def call_often(function, operands, sizes, strides, own, times, count):
    """Make one call for each row of `count` operands, whose steps from row to row follow the strides."""
    for i in range(times):
        call(function, operands, sizes, strides, own)
        for j in range(0, 8 * count, 8):
            step = load(strides + 8 * count + j)
            store(operands + j, load(operands + j) + (step if i < times - 1 else (1 - times) * step))


def walk(table, arrays):
    """Make the calls of a table on the arrays of a tuple, of which both are addresses.

    Returns
    -------
    int
        0; or -1, before any call, if an array is not as the table expects it; or the number of the call, from 1 on,
        that left something other than 0 in the table's status.
    """
    if not are_as_expected(table, arrays):
        return -1
    bases = table + 8 * HEAD + 24
    at = bases - 24 + 8 * WORDS_OF_ARRAY * load(table)
    for _ in range(load(table + 8)):
        store(load(at), load(bases + 8 * WORDS_OF_ARRAY * load(at + 8)) + load(at + 16))
        at += 8 * WORDS_OF_MOVE
    status = table + 32
    store(status, 0)
    for i in range(load(table + 16)):
        function, operands, sizes = load(at), load(at + 8), load(at + 16)
        strides, own, times = load(at + 24), load(at + 32), load(at + 40)
        if times == 1:
            call(function, operands, sizes, strides, own)
        else:
            call_often(function, operands, sizes, strides, own, times, load(at + 48))
        if load(status):
            return i + 1
        at += 8 * WORDS_OF_CALL
    return 0


def copy(operands, sizes, strides, own):
    """Copy bytes, as many as the first size says."""
    move(load(operands), load(operands + 8), load(sizes))


def move(x, y, size):
    """Copy `size` bytes from one address to another."""
    i = 0
    while i + 8 <= size:
        store(y + i, load(x + i))
        i += 8
    while i < size:
        store_as(y + i, load_as(x + i, np.int8(0)))
        i += 1


def copy_rows(operands, sizes, strides, own):
    """Copy bytes row by row: their number in a row is the second size, and the strides lead to the next rows."""
    x, y, size = load(operands), load(operands + 8), load(sizes + 8)
    words = size // 8
    for _ in range(load(sizes)):
        row, copied = carray(pointer(x, np.int64(0)), (words,)), carray(pointer(y, np.int64(0)), (words,))
        for i in range(words):
            copied[i] = row[i]
        for i in range(8 * words, size):
            store_as(y + i, load_as(x + i, np.int8(0)))
        x += load(strides)
        y += load(strides + 8)


def choose(operands, sizes, strides, like):
    """Write the first number where a byte is true, else the second one."""
    size, z = load(sizes), array_at(load(operands + 24), load(sizes), like)
    first, second = load(strides + 8), load(strides + 16)
    is_dense = load(strides) == 1 and load(strides + 24) == z.itemsize
    if is_dense and first in (0, z.itemsize) and second in (0, z.itemsize):
        # Loops without steps, which the compiler makes of instructions for several numbers at once.
        condition = array_at(load(operands), size, np.int8(0))
        x = array_at(load(operands + 8), size if first else 1, like)
        y = array_at(load(operands + 16), size if second else 1, like)
        if first and second:
            choose_each(condition, x, y, z)
        elif first:
            choose_or_one(condition, x, y[0], z)
        elif second:
            choose_one_or(condition, x[0], y, z)
        else:
            choose_one(condition, x[0], y[0], z)
    else:
        choose_apart(operands, sizes, strides, like)


def choose_each(condition, x, y, z):
    for i in range(z.size):
        z[i] = x[i] if condition[i] != 0 else y[i]


def choose_or_one(condition, x, y, z):
    for i in range(z.size):
        z[i] = x[i] if condition[i] != 0 else y


def choose_one_or(condition, x, y, z):
    for i in range(z.size):
        z[i] = x if condition[i] != 0 else y[i]


def choose_one(condition, x, y, z):
    for i in range(z.size):
        z[i] = x if condition[i] != 0 else y


def choose_apart(operands, sizes, strides, like):
    """As `choose`, for numbers with steps in between."""
    condition, x, y, z = load(operands), load(operands + 8), load(operands + 16), load(operands + 24)
    for i in range(load(sizes)):
        is_true = load_as(condition + i * load(strides), np.int8(0)) != 0
        first, second = load_as(x + i * load(strides + 8), like), load_as(y + i * load(strides + 16), like)
        store_as(z + i * load(strides + 24), first if is_true else second)


def add_row(operands, sizes, strides, like):
    """``z = x + y`` for each row of a matrix `x`; one loop for all is quicker than one of NumPy's for each row."""
    rows, columns = load(sizes), load(sizes + 8)
    x = carray(pointer(load(operands), like), (rows, columns))
    y = array_at(load(operands + 8), columns, like)
    z = carray(pointer(load(operands + 16), like), (rows, columns))
    for i in range(rows):
        for j in range(columns):
            z[i, j] = x[i, j] + y[j]


def check_same(operands, sizes, status, like):
    """Set the status if the words of a vector are not the same."""
    x = array_at(load(operands), load(sizes), like)
    for i in range(1, x.size):
        if x[i] != x[0]:
            store(status, 1)


def draw(operands, sizes, strides, function):
    """Let a function fill an array with numbers of the generator whose address the first operand holds."""
    call_c(function, (load(load(operands)), load(sizes), load(operands + 8)), None)


def root(operands, sizes, strides, power):
    """Write a number to the power of a half."""
    store_as(load(operands + 8), call_c(power, (load_as(load(operands), 0.0), 0.5), 0.0))


def rounded_float32(operands, sizes, strides, own):
    store_as(load(operands + 8), np.float32(load_as(load(operands), 0.0)))


def rounded_float64(operands, sizes, strides, own):
    store_as(load(operands + 8), load_as(load(operands), 0.0))


def factor(operands, like):
    """Write threshold, scale and ratio as numbers of float64, from the first and the last of them."""
    numbers = array_at(load(operands + 16), 3, np.float64(0))
    numbers[0], numbers[1], numbers[2] = load_as(load(operands), like), 1.0, load_as(load(operands + 8), 0.0)


def shrink(operands, status, one):
    """Write the factor that the threshold, scale and ratio of a `clip_factor` stand for, if no digit of it is lost."""
    factor = array_at(load(operands), 3, np.float64(0))
    threshold, scale, ratio = factor[0], factor[1], factor[2]
    number = threshold / ratio / scale
    if ratio <= threshold / scale:
        store_as(load(operands + 16), one)
    elif number > load_as(load(operands + 8), np.float64(0)):
        array_at(load(operands + 16), 1, one)[0] = number
    else:
        store(status, 1)


def place_at(labels, i, sizes, strides, label):
    """Begin, in bytes, of the element of row `i` that its label picks; -1 if the label is no class."""
    at = np.int64(load_as(labels + i * load(strides), label))
    return at * load(strides + 8) + i * load(strides + 16) if 0 <= at < load(sizes + 8) else -1


def pick(operands, sizes, strides, status, like, label):
    """Take the element of each row that its label picks."""
    labels, x, y = load(operands), load(operands + 8), load(operands + 16)
    for i in range(load(sizes)):
        at = place_at(labels, i, sizes, strides, label)
        if at < 0:
            store(status, 1)
            return
        store_as(y + i * load(strides + 24), load_as(x + at, like))


def put(operands, sizes, strides, own, like, label):
    """Write a number for each row over the element that its label picks, which is a class."""
    labels, x, y = load(operands), load(operands + 8), load(operands + 16)
    for i in range(load(sizes)):
        at = place_at(labels, i, sizes, strides, label)
        store_as(y + at, load_as(x + i * load(strides + 24), like))


def take_rows(operands, sizes, status, label):
    """Copy the rows of a table that numbers tell; zeros where a number is that of the padding.

    The sizes are how many numbers there are and how many rows, the bytes of a row, and the padding.
    """
    numbers, x, y = array_at(load(operands), load(sizes), label), load(operands + 8), load(operands + 16)
    rows, size, padding = load(sizes + 8), load(sizes + 16), load(sizes + 24)
    for i in range(numbers.size):
        at = np.int64(numbers[i])
        if padding != -1 and at == padding:
            for j in range(size):
                store_as(y + i * size + j, np.int8(0))
        elif 0 <= at < rows:
            move(x + at * size, y + i * size, size)
        else:
            store(status, 1)
            return


def put_rows(operands, sizes, status, label):
    """Write each row over that of a table that its number tells; the last one stays."""
    numbers, x, y = array_at(load(operands), load(sizes), label), load(operands + 8), load(operands + 16)
    rows, size = load(sizes + 8), load(sizes + 16)
    for i in range(numbers.size):
        at = np.int64(numbers[i])
        if not 0 <= at < rows:
            store(status, 1)
            return
        move(x + i * size, y + at * size, size)


def add_rows(operands, sizes, status, like, label):
    """Add each row to that of a table that its number tells, but for the padding.

    The sizes are those of `take_rows`, and the columns.
    """
    numbers, rows, padding = array_at(load(operands), load(sizes), label), load(sizes + 8), load(sizes + 24)
    columns = load(sizes + 32)
    x = carray(pointer(load(operands + 8), like), (numbers.size, columns))
    y = carray(pointer(load(operands + 16), like), (rows, columns))
    for i in range(numbers.size):
        at = np.int64(numbers[i])
        if padding != -1 and at == padding:
            continue
        if not 0 <= at < rows:
            store(status, 1)
            return
        for j in range(columns):
            y[at, j] += x[i, j]


def matmul(operands, sizes, strides, loop):
    """Call NumPy's loop for `numpy.matmul`, which moves the pointers to its operands, and put them back."""
    x, y, z = load(operands), load(operands + 8), load(operands + 16)
    call(loop, operands, sizes, strides, 0)
    store(operands, x)
    store(operands + 8, y)
    store(operands + 16, z)


def gemm(operands, sizes, strides, blas, one, like):
    """``c = a @ b``; the sizes are m, n and k, and the strides the forms and the rows' lengths as BLAS takes them."""
    I = type(like)
    call_c(blas, (
        np.int32(ROW_MAJOR), np.int32(load(strides)), np.int32(load(strides + 8)),
        I(load(sizes)), I(load(sizes + 8)), I(load(sizes + 16)), one,
        load(operands), I(load(strides + 16)), load(operands + 8), I(load(strides + 24)), one - one,
        load(operands + 16), I(load(strides + 32)),
    ), None)  # fmt: skip


def gemv(operands, sizes, strides, blas, one, like):
    """``y = a' @ x`` for a matrix of these sizes.

    The strides are the order of the matrix, the length of its rows or columns, its form, and the step of the vector.
    """
    I = type(like)
    call_c(blas, (
        np.int32(load(strides)), np.int32(load(strides + 16)), I(load(sizes)), I(load(sizes + 8)), one,
        load(operands), I(load(strides + 8)), load(operands + 8), I(load(strides + 24)),
        one - one, load(operands + 16), I(1),
    ), None)  # fmt: skip


def dot(operands, sizes, strides, blas, one, like):
    """``z = x @ y`` for two vectors."""
    I = type(like)
    total = call_c(blas, (
        I(load(sizes)), load(operands), I(load(strides)), load(operands + 8), I(load(strides + 8)),
    ), one)  # fmt: skip
    store_as(load(operands + 16), total + (one - one))


def axpy(operands, sizes, strides, blas, one, like):
    """``y = 0 + a * x`` for a number and a vector."""
    I, size = type(like), load(sizes)
    y = array_at(load(operands + 16), size, one)
    for i in range(size):
        y[i] = one - one
    a = load_as(load(operands), one)
    call_c(blas, (I(size), a, load(operands + 8), I(load(strides)), load(operands + 16), I(1)), None)
