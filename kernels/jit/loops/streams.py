"""Products written past the caches, for results that are longer than those.

A store of the usual kind first reads what it writes over into the cache, and there displaces what is read next.
"""

INTRINSICS = ("store_line",)


def store_line(context, x, number, y, start):
    """``y[start : start + n] = x[start : start + n] * number`` for the n elements of a line of 64 bytes.

    The line must begin at a multiple of 64. Read by LLVM as one vector whose store is marked as nontemporal.
    """
    from llvmlite import ir
    from numba.core import cgutils, types

    def generate(context, builder, signature, arguments):
        x, number, y, start = arguments
        element, index = context.get_value_type(signature.args[1]), ir.IntType(32)
        line = ir.VectorType(element, 64 // context.get_abi_sizeof(element))

        def place(array, type):
            data = cgutils.create_struct_proxy(type)(context, builder, array).data
            return builder.bitcast(builder.gep(data, [start]), line.as_pointer())

        undefined = ir.Constant(line, ir.Undefined)
        first = builder.insert_element(undefined, number, index(0))
        numbers = builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(index, line.count), None))
        values = builder.load(place(x, signature.args[0]), align=element.get_abi_alignment(context.target_data))
        store = builder.store(builder.fmul(values, numbers), place(y, signature.args[2]), align=64)
        store.set_metadata("nontemporal", builder.module.add_metadata([index(1)]))
        return context.get_dummy_value()

    return types.void(x, number, y, start), generate


def write_products(x, number, y):
    """``y = x * number``."""
    line, size = 64 // y.itemsize, y.size
    head = min(-(y.ctypes.data // y.itemsize) % line, size)  # before the first line that is whole
    tail = head + (size - head) // line * line
    for i in range(head):
        y[i] = x[i] * number
    for i in range(head, tail, line):
        store_line(x, number, y, i)  # type: ignore[call-arg]  # the compiler gives the context
    for i in range(tail, size):
        y[i] = x[i] * number
