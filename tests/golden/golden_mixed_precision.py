"""Record the operators of programs with float16 that Paddle 1.8.5 builds: python golden_mixed_precision.py, here."""

import json
from pathlib import Path


def build(fluid, kind, dynamic):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        if kind == "conv":
            x, y = fluid.data("x", [None, 1, 8, 8]), fluid.data("y", [None, 1], "int64")
            h = fluid.layers.pool2d(fluid.layers.conv2d(x, 4, 3, act="relu"), 2, "max", 2)
            p = fluid.layers.fc(fluid.layers.batch_norm(h), 3, act="softmax")
            loss = fluid.layers.mean(fluid.layers.cross_entropy(p, y))
        else:
            x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
            h = fluid.layers.fc(x, 3, act="relu")
            loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(h, 1), y))
        optimizer = fluid.contrib.mixed_precision.decorate(
            fluid.optimizer.SGD(0.1), init_loss_scaling=8.0, use_dynamic_loss_scaling=dynamic
        )
        optimizer.minimize(loss)
    return main, startup, loss, optimizer


def operators(program):
    """Type, inputs and outputs of each operator; names that only one of the two generates are left out."""
    found = []
    for op in program.global_block().ops:
        reads = [name for slot in op.input_names for name in op.input(slot)]
        writes = [name for slot in op.output_names for name in op.output(slot)]
        writes = [name for name in writes if not name.startswith("_generated_var")]
        found.append([op.type, sorted(reads), sorted(writes)])
    return found


if __name__ == "__main__":
    import paddle.fluid

    cases = [(kind, dynamic) for kind in ("mlp", "conv") for dynamic in (False, True)]
    recorded = [[kind, dynamic, operators(build(paddle.fluid, kind, dynamic)[0])] for kind, dynamic in cases]
    Path("mixed_precision.json").write_text(json.dumps(recorded) + "\n", encoding="utf-8")
