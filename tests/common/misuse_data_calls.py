"""Right calls of what reads, saves and loads, and of what other libraries' names clip with.

Each takes a module whose functions record their calls, see `misuse.Recording`, and works in the current folder.
"""

import numpy as np
import pytest

import minigraph
import minigraph.compat.tensorflow
import minigraph.compat.torch

CALLS = []


def calls(function):
    CALLS.append(function)
    return function


def numbers():
    return iter(range(4))


def rows():
    return iter([[(np.ones(3, "float32"),)], [(np.ones(3, "float32"),)]])


def network(fluid):
    """A program whose parameters have values, and an executor."""
    hidden = minigraph.layers.fc(minigraph.data("x", [None, 3]), 2)
    minigraph.optimizer.Momentum(0.1, 0.9).minimize(minigraph.layers.mean(hidden))
    executor = minigraph.Executor(minigraph.CPUPlace())
    executor.run(minigraph.default_startup_program())
    return minigraph.default_main_program(), hidden, executor


@calls
def readers(fluid):
    for module in (fluid.io, fluid.reader):
        module.batch(numbers, 2), module.shuffle(numbers, 2), module.firstn(numbers, 2), module.buffered(numbers, 2)
        module.cache(numbers), module.chain(numbers, numbers), module.compose(numbers, numbers, check_alignment=True)
        module.map_readers(lambda x, y: x + y, numbers, numbers), module.xmap_readers(abs, numbers, 2, 2)
        module.multiprocess_reader([numbers], False, 2)
    fluid.io.default_collate_fn([[np.zeros(2), 1], [np.ones(2), 2]])


@calls
def data_sets(fluid):
    fluid.dataset.digits.train(8), fluid.dataset.digits.test(8), fluid.dataset.digits.load(8)
    mnist = fluid.dataset.mnist
    mnist.train(False), mnist.test(False), mnist.fetch()
    mnist.reader_creator("images-idx3-ubyte", "labels-idx1-ubyte", 2)


@calls
def loaders(fluid):
    x = minigraph.data("x", [None, 3])
    place = minigraph.CPUPlace()
    for loader in (
        fluid.recorded(minigraph.io.DataLoader).from_generator([x], 2),
        minigraph.io.DataLoader.from_generator([x], 2, iterable=False),
        fluid.io.PyReader([x], 2),
    ):
        made = fluid.recorded(loader)
        for prefix in ("set", "decorate") if hasattr(loader, "variables") else ("set",):
            getattr(made, f"{prefix}_sample_generator")(lambda: ((row,) for row in np.ones((4, 3))), 2, places=place)
            getattr(made, f"{prefix}_batch_generator")(lambda: iter([[np.ones((2, 3), "float32")]]), place)
            getattr(made, f"{prefix}_sample_list_generator")(rows, place)

    class Rows(minigraph.io.Dataset):
        def __getitem__(self, idx):
            return np.ones(3, "float32")

        def __len__(self):
            return 5

    fluid.io.DataLoader(Rows(), [x], place, batch_size=2)
    fluid.io.BatchSampler(Rows(), batch_size=2), fluid.io.BatchSampler(indices=[1, 2])
    dataset = minigraph.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_use_var([x])
    fluid.recorded(minigraph.io.DataLoader).from_dataset(dataset, [place])
    feeder = fluid.recorded(fluid.DataFeeder([x], place, minigraph.default_main_program()))
    feeder.feed([(np.ones(3),)])
    feeder.feed_parallel([[(np.ones(3),)]], 1)
    feeder.decorate_reader(rows, False)


@calls
def files_of_variables(fluid):
    main, hidden, executor = network(fluid)
    for what, more in (("vars", {"predicate": minigraph.io.is_persistable}), ("params", {}), ("persistables", {})):
        getattr(fluid.io, f"save_{what}")(executor, what, main, filename="all", **more)
        getattr(fluid.io, f"load_{what}")(executor, what, main, filename="all", **more)
    fluid.io.is_parameter(hidden), fluid.io.is_persistable(hidden), fluid.io.is_belong_to_optimizer(hidden)
    fluid.io.get_parameter_value(main.all_parameters()[0], executor)
    fluid.io.get_parameter_value_by_name(main.all_parameters()[0].name, executor, main)
    fluid.io.get_program_parameter(main), fluid.io.get_program_persistable_vars(main)


@calls
def files_of_programs(fluid):
    main, hidden, executor = network(fluid)
    fluid.io.save_inference_model("model", ["x"], [hidden], executor, main)
    fluid.io.load_inference_model("model", executor)
    fluid.io.prepend_feed_ops(main.clone(), ["x"]), fluid.io.append_fetch_ops(main.clone(), [hidden.name])
    fluid.io.deserialize_program(fluid.io.serialize_program(main))
    for module in (fluid, fluid.io):
        module.save(main, "net"), module.load(main, "net", executor)
        module.set_program_state(main, module.load_program_state("net"))


@calls
def safetensors_files(fluid):
    pytest.importorskip("safetensors", reason="needs the extra [safetensors]")
    fluid.io.save_safetensors({"w": np.ones(2, "float32")}, "state.safetensors", {"made": "now"})
    fluid.io.load_safetensors("state.safetensors")


@calls
def files_of_dictionaries(fluid):
    with minigraph.dygraph.guard():
        layer = minigraph.dygraph.Linear(2, 1)
        fluid.io.save_dygraph(layer.state_dict(), "layer"), fluid.io.load_dygraph("layer")
        fluid.save(layer.state_dict(), "object"), fluid.load("object")


@calls
def names_of_torch(fluid):
    utils = fluid.compat.torch.nn.utils
    with minigraph.dygraph.guard():
        layer = minigraph.dygraph.Linear(2, 1)
        minigraph.layers.reduce_sum(layer(minigraph.dygraph.to_variable(np.ones((3, 2), "float32")))).backward()
        params = layer.parameters()
        utils.clip_grad_norm_(params, 1.0), utils.clip_grad_norm(params, 1.0), utils.clip_grad_value_(params, 1.0)
        utils.clip_grads_with_norm_(params, 1.0, utils.get_total_norm([each.grad for each in params]))
        grad = fluid.recorded(params[0].grad)
        grad.norm(2), grad.mul_(0.5)


@calls
def names_of_tensorflow(fluid):
    tf, x = fluid.compat.tensorflow, minigraph.data("x", [2, 3])
    tf.clip_by_norm(x, 1.0, [0]), tf.clip_by_value(x, -1.0, 1.0), tf.clip_by_average_norm(x, 1.0)
    tf.clip_by_global_norm([x], 1.0), tf.clip_by_global_norm([x], 1.0, 2.0), tf.global_norm([x])
    tf.linalg.global_norm([x])
    loss = minigraph.layers.mean(minigraph.layers.fc(x, 2))
    tf.trainable_variables("fc")
    tf.gradients(loss, x)
    for made in (
        tf.train.GradientDescentOptimizer(0.1), tf.train.MomentumOptimizer(0.1, 0.9), tf.train.AdamOptimizer(0.1)
    ):  # fmt: skip
        optimizer = fluid.recorded(made)
        optimizer.apply_gradients(optimizer.compute_gradients(loss))
        optimizer.minimize(loss)
