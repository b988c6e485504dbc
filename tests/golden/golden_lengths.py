"""Record from Paddle 1.8.5 which results of an operator have the lengths of which of its inputs.

``python golden_lengths.py rows FILE`` with minigraph writes the rows of samples to a file, and with Paddle's Python
``golden_lengths.py record FILE`` writes what it does with them to lengths.json: for each operator and result, the input
slot whose lengths it has, ``rows X`` if only some rows have them. Results that have none are left out, but not
gradients, called ``X@GRAD``.
"""

import json
import os
import signal
import sys
from collections import OrderedDict

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_ROWS, MOST_SECONDS = 8, 20


def describe(array):
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": array.ravel().tolist()}


def write_rows(path):
    from minigraph.rewrite.random_programs.rows import SAMPLES

    def plain(value):
        if isinstance(value, (tuple, list)):
            return [plain(each) for each in value]
        return value.item() if isinstance(value, np.generic) else value

    with open(path, "w", encoding="utf-8") as file:
        for row in SAMPLES:
            inputs = row.inputs_as("float32")
            if sum(array.size for arrays in inputs.values() for array in arrays) > 200000:
                continue
            lists = [len(arrays) for slot, arrays in inputs.items() if row.definition.input_slots[slot].duplicable]
            outputs = {
                slot.name: row.outputs.get(slot.name, max(lists or [1]) if slot.duplicable else 1)
                for slot in row.definition.outputs
            }
            try:
                attrs = {name: plain(value) for name, value in row.attrs.items()}
                given = {slot: list(map(describe, arrays)) for slot, arrays in inputs.items()}
                shown = [slot.name for slot in row.definition.outputs if not slot.intermediate]
                fields = {
                    "op": row.op, "attrs": attrs, "outputs": outputs, "shown": shown, "wrt": list(row.wrt),
                    "inputs": given,
                }  # fmt: skip
                text = json.dumps(fields)
            except TypeError:  # an attribute that no file holds
                continue
            file.write(text + "\n")


def shares(fluid, row, chosen):
    """Whether each result of a row, and each gradient, has lengths if what is in the slot `chosen` has."""
    place, main = fluid.CPUPlace(), fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        block, feed, inputs = main.global_block(), {}, {}
        for slot, arrays in row["inputs"].items():
            inputs[slot] = []
            for number, array in enumerate(arrays):
                name, shape, has_lengths = f"{slot}_{number}", array["shape"], slot == chosen
                tensor = feed[name] = fluid.LoDTensor()
                tensor.set(np.array(array["data"], array["dtype"]).reshape(shape), place)
                if has_lengths:  # the number of empty sequences tells tensors apart
                    tensor.set_recursive_sequence_lengths([[0] * (1 + number) + [shape[0]]])
                inputs[slot].append(
                    block.create_var(
                        name=name,
                        shape=shape,
                        dtype=array["dtype"],
                        lod_level=int(has_lengths),
                        is_data=True,
                        stop_gradient=False,
                    )
                )
        outputs = {
            slot: [block.create_var(name=f"out_{slot}_{number}", dtype="float32") for number in range(count)]
            for slot, count in row["outputs"].items()
        }
        block.append_op(type=row["op"], inputs=inputs, outputs=outputs, attrs=row["attrs"])
        results = {slot: variables[0] for slot, variables in outputs.items() if variables}
        shown = [results[slot] for slot in row["shown"] if slot in results]
        first = next((var for var in shown if var.dtype == fluid.core.VarDesc.VarType.FP32), None)
        if row["wrt"] and first is not None:
            found = fluid.gradients(fluid.layers.mean(first), [inputs[slot][0] for slot in row["wrt"]])
            results.update({slot + "@GRAD": grad for slot, grad in zip(row["wrt"], found) if grad is not None})
        executor, result = fluid.Executor(place), {}
        for slot, var in results.items():
            try:
                (tensor,) = executor.run(main, feed=feed, fetch_list=[var.name], return_numpy=False)
            except Exception:  # such as a result that is not computed
                continue
            result[slot] = bool(tensor.lod())
        return result


def record(rows_path):
    import paddle.fluid as fluid

    with open(rows_path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    by_type = OrderedDict()
    for row in rows:
        by_type.setdefault(row["op"], []).append(row)
    table = {}
    for type, rows in sorted(by_type.items()):
        read, write = os.pipe()
        if not os.fork():  # some operators end the process
            signal.alarm(MOST_SECONDS)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with os.fdopen(write, "w") as pipe:
                for row in rows[:MOST_ROWS]:
                    for slot, arrays in row["inputs"].items():
                        if not arrays or not arrays[0]["shape"] or not all(a["shape"][:1] > [0] for a in arrays):
                            continue
                        try:
                            pipe.write(json.dumps([slot, shares(fluid, row, slot)]) + "\n")
                        except Exception:
                            continue
                        pipe.flush()
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            found = [json.loads(line) for line in pipe]
        os.wait()
        if found:
            table[type] = words(found)
    with open(os.path.join(HERE, "lengths.json"), "w", encoding="utf-8") as file:
        json.dump(table, file, indent=1, sort_keys=True)
        file.write("\n")


def words(found):
    seen = {}
    for given, results in found:
        for result, is_shared in results.items():
            seen.setdefault((result, given), []).append(is_shared)
    table = {result: "" for result, _ in seen if result.endswith("@GRAD")}
    for (result, given), flags in sorted(seen.items()):
        if any(flags):
            table[result] = given if all(flags) else "rows " + given
    return table


if __name__ == "__main__":
    {"rows": write_rows, "record": record}[sys.argv[1]](sys.argv[2])
