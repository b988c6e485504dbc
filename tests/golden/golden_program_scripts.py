"""Scripts that edit programs or train from files, as they are written for fluid 1.8; see `golden_scripts`.

Running this file with Paddle, ``python golden_program_scripts.py``, records them beside those of `golden_scripts`.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from golden_scripts import SCRIPTS, begin, record, script

OTHERS = list(SCRIPTS)


@script
def slot_files(fluid):
    """A network for clicks, trained by data sets of slot files: in memory, without sparse zeros, and queued."""
    label = fluid.layers.data(name="label", shape=[1], dtype="int64")
    dense = fluid.layers.data(name="dense", shape=[2], dtype="float32")
    ids = fluid.layers.data(name="ids", shape=[1], dtype="int64", lod_level=1)
    table = fluid.ParamAttr(name="SparseFeatFactors")
    words = fluid.layers.embedding(input=ids, size=[12, 4], is_sparse=True, param_attr=table)
    hidden = fluid.layers.concat([fluid.layers.sequence_pool(words, "sum"), dense], axis=1)
    predict = fluid.layers.fc(fluid.layers.fc(hidden, 6, act="relu"), 2, act="softmax")
    cost = fluid.layers.reduce_sum(fluid.layers.cross_entropy(predict, label))
    fluid.optimizer.Adam(learning_rate=0.01, lazy_mode=True).minimize(cost)
    exe = begin(fluid)
    state = np.random.RandomState(9)
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / f"part-{i}") for i in range(2)]
        for path in files:
            lines = []
            for _ in range(7):
                numbers = state.randint(0, 12, state.randint(1, 4)) * state.randint(0, 2)
                slots = [[state.randint(0, 2)], [f"{value:.3f}" for value in state.uniform(size=2)], numbers]
                lines.append(" ".join(" ".join(str(word) for word in [len(slot), *slot]) for slot in slots) + "\n")
            Path(path).write_text("".join(lines), encoding="utf-8")
        found = {}
        for kind, epochs in (("InMemoryDataset", 2), ("QueueDataset", 1)):
            dataset = fluid.DatasetFactory().create_dataset(kind)
            dataset.set_use_var([label, dense, ids])
            dataset.set_batch_size(3)
            dataset.set_thread(1)
            dataset.set_filelist(files)
            dataset.set_pipe_command("cat")
            if kind == "InMemoryDataset":
                dataset.load_into_memory()
            for _ in range(epochs):
                exe.train_from_dataset(fluid.default_main_program(), dataset)
            for name in ("SparseFeatFactors", "fc_0.w_0", "fc_1.b_0"):
                found[kind + name] = np.array(fluid.global_scope().find_var(name).get_tensor())
    return found


@script
def decayed_weights(fluid):
    """A warm-up in a Switch, and a decay of weights that is written behind the updates, as for BERT."""
    layers = fluid.layers
    x = fluid.data("x", [None, 6], "float32")
    y = fluid.data("y", [None, 1], "int64")
    hidden = layers.layer_norm(layers.fc(x, 8, act="gelu", name="encoder"), name="post_layer_norm")
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 3, name="head"), y))
    main = fluid.default_main_program()
    with main._lr_schedule_guard():
        rate = layers.tensor.create_global_var(
            shape=[1], value=0.0, dtype="float32", persistable=True, name="scheduled_learning_rate"
        )
        step = layers.learning_rate_scheduler._decay_step_counter()
        with layers.control_flow.Switch() as switch:
            with switch.case(step < 3):
                layers.tensor.assign(0.05 * (step / 3), rate)
            with switch.default():
                decayed = layers.learning_rate_scheduler.polynomial_decay(0.05, 8, 0.0, power=1.0)
                layers.tensor.assign(decayed, rate)
    fluid.clip.set_gradient_clip(clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=0.5))
    before = {}
    for param in main.global_block().all_parameters():
        before[param.name] = param * 1.0
        before[param.name].stop_gradient = True
    for param, grad in fluid.optimizer.Adam(learning_rate=rate).minimize(loss)[1]:
        if "layer_norm" in param.name or param.name.endswith(".b_0"):
            continue
        with param.block.program._optimized_guard([param, grad]), fluid.framework.name_scope("weight_decay"):
            layers.assign(output=param, input=param - before[param.name] * 0.01 * rate)
    exe = begin(fluid)
    state = np.random.RandomState(10)
    steps = []
    for _ in range(6):
        feed = {"x": state.standard_normal((5, 6)).astype("float32"), "y": state.randint(0, 3, (5, 1))}
        steps.append(np.concatenate(exe.run(feed=feed, fetch_list=[loss, rate])))
    return {"steps": steps, "weight": np.array(fluid.global_scope().find_var("encoder.w_0").get_tensor())}


@script
def edited_program(fluid):
    """Frozen layers, an operator put in between, a renamed parameter, an operator removed, a part taken out."""
    layers, place = fluid.layers, fluid.CPUPlace()
    x = fluid.data("x", [None, 6], "float32")
    y = fluid.data("y", [None, 1], "int64")
    hidden = layers.fc(layers.fc(x, 8, act="relu", name="frozen"), 8, act="relu", name="tuned")
    logits = layers.fc(hidden, 3, name="head")
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, y))
    main = fluid.default_main_program()
    for param in main.global_block().all_parameters():
        if param.name.startswith("frozen"):
            param.trainable, param.stop_gradient = False, True
    test = main.clone(for_test=True)
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss, no_grad_set={"head.b_0"})
    block = main.global_block()
    at = next(i for i, op in enumerate(block.ops) if op.type == "momentum")
    grad = block.var(block.ops[at].input("Grad")[0])
    block._insert_op(
        at, type="scale", inputs={"X": [grad]}, outputs={"Out": [grad]}, attrs={"scale": 0.5, "op_role": 2}
    )
    exe = begin(fluid)
    state = np.random.RandomState(11)

    def feed():
        return {"x": state.standard_normal((5, 6)).astype("float32"), "y": state.randint(0, 3, (5, 1))}

    found = {"losses": [exe.run(main, feed=feed(), fetch_list=[loss])[0] for _ in range(4)]}
    renamed = test.clone()
    renamed.global_block()._rename_var("head.w_0", "doubled")
    weight = np.array(fluid.global_scope().find_var("head.w_0").get_tensor())
    fluid.global_scope().var("doubled").get_tensor().set(2 * weight, place)
    found["doubled"] = exe.run(renamed, feed=feed(), fetch_list=[logits.name])[0]
    part = test._prune(targets=[hidden])
    part.global_block()._remove_op(len(part.global_block().ops) - 1)
    found["ops"] = len(part.global_block().ops)
    last = part.global_block().ops[-1].output("Out")[0]
    found["before_relu"] = exe.run(part, feed={"x": feed()["x"]}, fetch_list=[last])[0]
    return found


if __name__ == "__main__":
    record(sys.argv[1:] or [name for name in SCRIPTS if name not in OTHERS])
