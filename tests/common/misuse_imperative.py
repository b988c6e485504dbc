"""Right calls of the imperative mode and of what runs on the host, each repeated with wrong arguments.

A case gets `call`, which makes the call that is misused; what the case does with the result shows that a value that was
accepted can be used.
"""

import inspect
import os
import tempfile

import numpy as np
from misuse import WRONG, fault_of

import minigraph as fluid
from minigraph.eager.guard import enabled
from minigraph.eager.tensor import Eager

D, N, T = fluid.dygraph, fluid.nn, fluid.to_tensor

VALUES = {name: value for name, value in WRONG.items() if name not in ("[None]", "empty text", "-2.5", "dict")}


def matrix():
    return T(np.arange(6, dtype="float32").reshape(2, 3) + 1, stop_gradient=False)


def square():
    return T(np.eye(2, dtype="float32"))


def image(channels=3):
    return T(np.ones((2, channels, 4, 4), "float32"))


def tree_nodes():
    return T(np.ones((2, 3, 3), "float32"))


def tree_edges():
    return T(np.array([[[1, 2], [1, 3]]] * 2, "int32"))


def volume(channels=3):
    return T(np.ones((2, channels, 4, 4, 4), "float32"))


def ids():
    return T(np.array([0, 1]))


def used(layer, *inputs):
    """Run a layer that was made, in both modes."""
    layer(*inputs)
    layer.eval()
    return layer(*inputs)


def trained(optimizer_of):
    """An optimizer of a model whose parameters have gradients, and the loss."""
    model = D.Linear(3, 2)
    loss = fluid.mean(model(matrix()))
    loss.backward()
    return optimizer_of(model.parameters()), loss


def steps(decay):
    """Take rates from a decay, and give it to an optimizer."""
    for _ in range(3):
        assert isinstance(decay.current(), float)
        if hasattr(decay, "epoch"):
            decay.epoch()
        decay() if not isinstance(decay, D.ReduceLROnPlateau) else decay.step(1.0)
    optimizer, _ = trained(lambda parameters: fluid.optimizer.SGD(decay, parameter_list=parameters))
    optimizer.step()


LAYERS = {
    "Linear": lambda call: used(call(D.Linear, 3, 2), matrix()),
    "Conv2D": lambda call: used(call(D.Conv2D, 3, 4, 3), image()),
    "Conv2DTranspose": lambda call: used(call(D.Conv2DTranspose, 3, 4, 3), image()),
    "Conv3D": lambda call: used(call(D.Conv3D, 3, 4, 3), volume()),
    "Conv3DTranspose": lambda call: used(call(D.Conv3DTranspose, 3, 4, 3), volume()),
    "BilinearTensorProduct": lambda call: used(call(D.BilinearTensorProduct, 3, 3, 2), matrix(), matrix()),
    "NCE": lambda call: used(call(D.NCE, 5, 3), matrix(), T(np.array([[1], [2]]))),
    "SpectralNorm": lambda call: used(call(D.SpectralNorm, [2, 3]), matrix()),
    "TreeConv": lambda call: used(call(D.TreeConv, 3, 2), tree_nodes(), tree_edges()),
    "Pool2D": lambda call: used(call(D.Pool2D, 2), image()),
    "Embedding": lambda call: used(call(D.Embedding, [5, 2]), ids()),
    "LayerNorm": lambda call: used(call(D.LayerNorm, 3), matrix()),
    "BatchNorm": lambda call: used(call(D.BatchNorm, 3), image()),
    "Dropout": lambda call: used(call(D.Dropout, 0.5), matrix()),
    "GroupNorm": lambda call: used(call(D.GroupNorm, 4, 2), image(4)),
    "InstanceNorm": lambda call: used(call(D.InstanceNorm, 3), image()),
    "PRelu": lambda call: used(call(D.PRelu, "all"), image()),
    "GRUUnit": lambda call: used(call(D.GRUUnit, 6), T(np.ones((2, 6), "float32")), square()),
    "MSELoss": lambda call: call(D.MSELoss)(square(), square()),
    "L1Loss": lambda call: call(D.L1Loss)(square(), square()),
    "BCELoss": lambda call: call(D.BCELoss)(square() * 0.5, square()),
    "NLLLoss": lambda call: call(D.NLLLoss)(square(), ids()),
    "Layer": lambda call: call(D.Layer),
    "Sequential": lambda call: used(call(D.Sequential, D.Linear(3, 2)), matrix()),
    "DataParallel": lambda call: used(call(D.DataParallel, D.Linear(3, 2), D.prepare_context()), matrix()),
    "declarative": lambda call: call(D.declarative, lambda x: x * 2.0),
    "prepare_context": lambda call: call(D.prepare_context, D.parallel.ParallelStrategy()),
    "LayerList": lambda call: call(D.LayerList, [D.Linear(3, 2)]),
    "ParameterList": lambda call: call(D.ParameterList, [D.Linear(3, 2).weight]),
    "nn.Linear": lambda call: used(call(N.Linear, 3, 2), matrix()),
    "nn.Conv2D": lambda call: used(call(N.Conv2D, 3, 4, 3), image()),
    "nn.MaxPool2D": lambda call: used(call(N.MaxPool2D, 2), image()),
    "nn.AvgPool2D": lambda call: used(call(N.AvgPool2D, 2), image()),
    "nn.AdaptiveAvgPool2D": lambda call: used(call(N.AdaptiveAvgPool2D, 2), image()),
    "nn.Embedding": lambda call: used(call(N.Embedding, 5, 2), ids()),
    "nn.LayerNorm": lambda call: used(call(N.LayerNorm, 3), matrix()),
    "nn.BatchNorm1D": lambda call: used(call(N.BatchNorm1D, 3), matrix()),
    "nn.BatchNorm2D": lambda call: used(call(N.BatchNorm2D, 3), image()),
    "nn.BatchNorm3D": lambda call: used(call(N.BatchNorm3D, 3), T(np.ones((2, 3, 2, 2, 2), "float32"))),
    "nn.SyncBatchNorm": lambda call: used(call(N.SyncBatchNorm, 3), image()),
    "nn.Dropout": lambda call: used(call(N.Dropout), matrix()),
    "nn.ReLU": lambda call: used(call(N.ReLU), matrix()),
    "nn.Sigmoid": lambda call: used(call(N.Sigmoid), matrix()),
    "nn.Tanh": lambda call: used(call(N.Tanh), matrix()),
    "nn.Softmax": lambda call: used(call(N.Softmax), matrix()),
    "nn.LogSoftmax": lambda call: used(call(N.LogSoftmax), matrix()),
    "nn.Flatten": lambda call: used(call(N.Flatten), image()),
    "nn.MSELoss": lambda call: call(N.MSELoss)(square(), square()),
    "nn.CrossEntropyLoss": lambda call: call(N.CrossEntropyLoss)(square(), ids()),
}  # fmt: skip

APPLIED = {
    "Linear": (lambda: D.Linear(3, 2), matrix),
    "Conv2D": (lambda: D.Conv2D(3, 4, 3), image),
    "Conv2DTranspose": (lambda: D.Conv2DTranspose(3, 4, 3), image),
    "Conv3D": (lambda: D.Conv3D(3, 4, 3), volume),
    "Conv3DTranspose": (lambda: D.Conv3DTranspose(3, 4, 3), volume),
    "BilinearTensorProduct": (lambda: D.BilinearTensorProduct(3, 3, 2), matrix, matrix),
    "NCE": (lambda: D.NCE(5, 3), matrix, lambda: T(np.array([[1], [2]]))),
    "SpectralNorm": (lambda: D.SpectralNorm([2, 3]), matrix),
    "TreeConv": (lambda: D.TreeConv(3, 2), tree_nodes, tree_edges),
    "Pool2D": (lambda: D.Pool2D(2), image),
    "Embedding": (lambda: D.Embedding([5, 2]), ids),
    "LayerNorm": (lambda: D.LayerNorm(3), matrix),
    "BatchNorm": (lambda: D.BatchNorm(3), image),
    "Dropout": (lambda: D.Dropout(), matrix),
    "GroupNorm": (lambda: D.GroupNorm(3, 3), image),
    "InstanceNorm": (lambda: D.InstanceNorm(3), image),
    "PRelu": (lambda: D.PRelu("all"), image),
    "MSELoss": (lambda: N.MSELoss(), square, square),
    "fluid's MSELoss": (lambda: D.MSELoss(), square, square),
    "L1Loss": (lambda: D.L1Loss(), square, square),
    "BCELoss": (lambda: D.BCELoss(), square, square),
    "NLLLoss": (lambda: D.NLLLoss(), square, ids),
    "CrossEntropyLoss": (lambda: N.CrossEntropyLoss(), square, ids),
    "ReLU": (lambda: N.ReLU(), matrix),
    "Softmax": (lambda: N.Softmax(), matrix),
    "LogSoftmax": (lambda: N.LogSoftmax(), matrix),
    "Flatten": (lambda: N.Flatten(), image),
    "BatchNorm1D": (lambda: N.BatchNorm1D(3), matrix),
    "AdaptiveAvgPool2D": (lambda: N.AdaptiveAvgPool2D(2), image),
    "Sequential": (lambda: N.Sequential(N.ReLU()), matrix),
    "GRUUnit": (lambda: D.GRUUnit(6), lambda: T(np.ones((2, 6), "float32")), square),
}

FUNCTIONS = {
    **{
        name: lambda call, name=name: call(getattr(fluid, name), matrix())
        for name in (
            "abs",
            "exp",
            "log",
            "sqrt",
            "square",
            "sign",
            "tanh",
            "mean",
            "sum",
            "max",
            "min",
            "norm",
            "t",
            "flatten",
            "clone",
            "scale",
            "ones_like",
            "zeros_like",
            "squeeze",
            "unbind",
            "unstack",
            "nonzero",
            "assign",
        )
    },
    **{
        name: lambda call, name=name: call(getattr(fluid, name), square(), square())
        for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "matmul", "pow", "expand_as")
    },
    **{
        name: lambda call, name=name: call(getattr(fluid, name), [2, 3])
        for name in ("ones", "zeros", "rand", "randn", "uniform")
    },
    **{
        name: lambda call, name=name, given=given: call(getattr(fluid, name), matrix(), *given)
        for name, given in {
            "full_like": [2.0],
            "reshape": [[3, 2]],
            "transpose": [[1, 0]],
            "cast": ["float64"],
            "topk": [1],
            "split": [3, 1],
            "chunk": [3, 1],
            "tile": [[2, 2]],
            "expand": [[4, 2, 3]],
            "flip": [[0]],
            "unsqueeze": [0],
            "slice": [[0], [0], [1]],
            "strided_slice": [[0], [0], [2], [1]],
        }.items()
    },
    "to_tensor": lambda call: call(fluid.to_tensor, [1.0]) + 1,
    "full": lambda call: call(fluid.full, [2, 3], 1.0),
    "arange": lambda call: call(fluid.arange, 0, 6, 2),
    "linspace": lambda call: call(fluid.linspace, 0, 1, 3),
    "eye": lambda call: call(fluid.eye, 2),
    "normal": lambda call: call(fluid.normal, 0.0, 1.0, [2]),
    "randint": lambda call: call(fluid.randint, 0, 5, [2]),
    "seed": lambda call: call(fluid.seed, 3),
    "create_parameter": lambda call: call(fluid.create_parameter, [2, 3], "float32"),
    "concat": lambda call: call(fluid.concat, [matrix(), matrix()]),
    "stack": lambda call: call(fluid.stack, [matrix(), matrix()]),
    "gather": lambda call: call(fluid.gather, matrix(), ids()),
    "index_select": lambda call: call(fluid.index_select, matrix(), ids()),
    "gather_nd": lambda call: call(fluid.gather_nd, matrix(), T(np.array([[0, 1]]))),
    "scatter": lambda call: call(fluid.scatter, matrix(), ids(), matrix()),
    "where": lambda call: call(fluid.where, matrix() > 1, matrix(), matrix()),
    "one_hot": lambda call: call(fluid.one_hot, T(np.array([[0], [1]])), 3),
    "grad": lambda call: call(fluid.grad, fluid.sum(x := matrix()), x),
    "no_grad": lambda call: call(fluid.no_grad, matrix),
    "functional.linear": lambda call: call(N.functional.linear, matrix(), T(np.ones((3, 2), "float32"))),
    **{
        f"functional.{name}": lambda call, name=name: call(getattr(N.functional, name), matrix())
        for name in ("relu", "sigmoid", "softmax", "log_softmax", "dropout", "flatten", "tanh")
    },
    "functional.mse_loss": lambda call: call(N.functional.mse_loss, square(), square()),
    "functional.cross_entropy": lambda call: call(N.functional.cross_entropy, square(), ids()),
    "to_variable": lambda call: call(D.to_variable, np.ones(2)) + 1,
    "guard": lambda call: enter(call(D.guard)),
    "TracedLayer.trace": lambda call: call(D.TracedLayer.trace, D.Linear(3, 2), [matrix()]),
    "enable_dygraph": lambda call: (call(fluid.enable_dygraph), fluid.disable_dygraph()),
}

DECAYS = {
    "NoamDecay": [4, 10], "PiecewiseDecay": [[1, 2], [0.1, 0.2, 0.3], 0], "NaturalExpDecay": [0.1, 2, 0.5],
    "ExponentialDecay": [0.1, 2, 0.5], "InverseTimeDecay": [0.1, 2, 0.5], "PolynomialDecay": [0.1, 2],
    "CosineDecay": [0.1, 2, 3], "LinearLrWarmup": [0.1, 2, 0.0, 0.1], "StepDecay": [0.1, 2],
    "MultiStepDecay": [0.1, [1, 2]], "LambdaDecay": [0.1, lambda epoch: 0.5**epoch], "ReduceLROnPlateau": [0.1],
}  # fmt: skip


def enter(manager):
    with manager:
        pass


def stopped(call):
    fluid.profiler.start_profiler("CPU")
    try:
        call(fluid.profiler.stop_profiler)
    except fluid.MinigraphError:
        fluid.profiler.stop_profiler(profile_path=None)  # it is still under way
        raise


def with_folder(function):
    """Call `function` with a path in a folder that goes afterwards, and is the current one until then."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return function(os.path.join(folder, "net"))
        finally:
            os.chdir(before)


def methods(call, make, name, *args):
    return call(getattr(make(), name), *args)


def optimizer():
    return trained(lambda parameters: fluid.optimizer.Adam(0.1, parameter_list=parameters))[0]


def traced():
    return D.TracedLayer.trace(D.Linear(3, 2), [matrix()])[1]


def state(layer):
    return {name: value.numpy() for name, value in layer.state_dict().items()}


def sequential():
    return D.Sequential(D.Linear(3, 2), D.Linear(2, 2))


def auc():
    return np.full((2, 2), 0.5), np.ones((2, 1), "int64")


METHODS = {
    **{
        f"Tensor.{name}": lambda call, name=name, args=args: methods(call, matrix, name, *args)
        for name, args in {
            "mean": [0],
            "sum": [0],
            "max": [0],
            "min": [0],
            "reshape": [[3, 2]],
            "transpose": [[1, 0]],
            "clip": [0.0, 1.0],
            "cast": ["float64"],
            "astype": ["float64"],
            "pow": [2.0],
            "norm": [2.0],
            "flatten": [0, 1],
            "scale": [2.0],
            "topk": [1],
            "split": [3, 1],
            "chunk": [3, 1],
            "tile": [[2, 2]],
            "expand": [[4, 2, 3]],
            "flip": [[0]],
            "unsqueeze": [0],
            "squeeze": [0],
            "slice": [[0], [0], [1]],
            "unstack": [0],
            "unbind": [0],
            "nonzero": [],
            "set_value": [np.ones((2, 3), "float32")],
            "clear_gradient": [True],
        }.items()
    },
    **{
        f"Tensor.{name}": lambda call, name=name: methods(call, square, name, square())
        for name in (
            "add",
            "subtract",
            "multiply",
            "divide",
            "maximum",
            "minimum",
            "matmul",
            "expand_as",
            "__add__",
            "__radd__",
            "__sub__",
            "__mul__",
            "__truediv__",
            "__pow__",
            "__mod__",
            "__lt__",
            "__ge__",
            "__matmul__",
        )
    },
    "Tensor.gather": lambda call: methods(call, matrix, "gather", ids()),
    "Tensor.__getitem__": lambda call: methods(call, matrix, "__getitem__", 0),
    "Tensor.__setattr__ grad": lambda call: (x := matrix(), call(lambda grad: setattr(x, "grad", grad), matrix())),
    "Tensor.backward": lambda call: (x := fluid.sum(matrix()), call(x.backward)),
    "Layer.add_sublayer": lambda call: methods(call, D.Layer, "add_sublayer", "a", D.Linear(3, 2)),
    "Layer.add_parameter": lambda call: methods(call, D.Layer, "add_parameter", "a", D.Linear(3, 2).weight),
    "Layer.register_buffer": lambda call: methods(call, D.Layer, "register_buffer", "a", matrix()),
    "Layer.create_parameter": lambda call: methods(call, D.Layer, "create_parameter", [2, 3]),
    "Layer.create_variable": lambda call: methods(call, D.Layer, "create_variable"),
    "Layer.apply": lambda call: methods(call, sequential, "apply", lambda layer: None),
    "Layer.sublayers": lambda call: methods(call, sequential, "sublayers"),
    "Layer.named_sublayers": lambda call: list(methods(call, sequential, "named_sublayers")),
    "Layer.named_parameters": lambda call: list(methods(call, sequential, "named_parameters")),
    "Layer.parameters": lambda call: methods(call, sequential, "parameters"),
    "Layer.state_dict": lambda call: methods(call, sequential, "state_dict"),
    "Layer.set_dict": lambda call: (layer := sequential(), call(layer.set_dict, state(layer))),
    "Layer.register_forward_pre_hook": lambda call: methods(
        call, sequential, "register_forward_pre_hook", lambda layer, inputs: None
    ),
    "Layer.register_forward_post_hook": lambda call: methods(
        call, sequential, "register_forward_post_hook", lambda layer, inputs, outputs: None
    ),
    "Layer.__setattr__": lambda call: (
        layer := D.Linear(3, 2),
        call(lambda weight: setattr(layer, "weight", weight), None),
    ),
    "Sequential.__getitem__": lambda call: methods(call, sequential, "__getitem__", 0),
    "Sequential.__setitem__": lambda call: methods(call, sequential, "__setitem__", 0, D.Linear(3, 2)),
    "Sequential.__delitem__": lambda call: methods(call, sequential, "__delitem__", 0),
    **{
        f"LayerList.{name}": lambda call, name=name, args=args: methods(
            call, lambda: D.LayerList([D.Linear(3, 2)]), name, *args()
        )
        for name, args in {
            "append": lambda: [D.Linear(3, 2)],
            "insert": lambda: [0, D.Linear(3, 2)],
            "extend": lambda: [[D.Linear(3, 2)]],
            "__getitem__": lambda: [0],
            "__setitem__": lambda: [0, D.Linear(3, 2)],
            "__delitem__": lambda: [0],
        }.items()
    },
    **{
        f"ParameterList.{name}": lambda call, name=name, args=args: methods(
            call, lambda: D.ParameterList([D.Linear(3, 2).weight]), name, *args()
        )
        for name, args in {
            "append": lambda: [D.Linear(3, 2).weight],
            "__getitem__": lambda: [0],
            "__setitem__": lambda: [0, D.Linear(3, 2).weight],
        }.items()
    },
    "Optimizer.minimize": lambda call: (
        pair := trained(lambda parameters: fluid.optimizer.Adam(0.1, parameter_list=parameters)),
        call(pair[0].minimize, pair[1]),
    ),
    "Optimizer.backward": lambda call: (
        pair := trained(lambda parameters: fluid.optimizer.Adam(0.1, parameter_list=parameters)),
        call(pair[0].backward, pair[1]),
    ),
    "Optimizer.clear_grad": lambda call: methods(call, optimizer, "clear_grad"),
    "Optimizer.set_lr": lambda call: methods(call, optimizer, "set_lr", 0.1),
    "Optimizer.set_state_dict": lambda call: (it := optimizer(), call(it.set_state_dict, it.state_dict()), it.step()),
    "Optimizer.apply_gradients": lambda call: (
        it := optimizer(),
        call(it.apply_gradients, [(p, p.grad) for p in it._parameter_list]),
    ),
    "Optimizer.parameter_list": lambda call: (
        model := D.Linear(3, 2),
        fluid.mean(model(matrix())).backward(),
        call(lambda parameter_list: fluid.optimizer.SGD(0.1, parameter_list=parameter_list).step(), model.parameters()),
    ),
    **{
        f"clip.{name}": lambda call, name=name: (
            model := D.Linear(3, 2),
            fluid.mean(model(matrix())).backward(),
            call(getattr(N, name)(1.0), [(p, p.grad) for p in model.parameters()]),
        )
        for name in ("ClipGradByValue", "ClipGradByNorm", "ClipGradByGlobalNorm")
    },
    "StepDecay.epoch": lambda call: (it := D.StepDecay(0.1, 2), call(it.epoch, 1), steps(it)),
    "ReduceLROnPlateau.step": lambda call: (it := D.ReduceLROnPlateau(0.1), call(it.step, 1.0), steps(it)),
    "NoamDecay.set_dict": lambda call: (it := D.NoamDecay(4, 10), call(it.set_dict, {"step_num": 2}), steps(it)),
    "NoamDecay.create_lr_var": lambda call: methods(call, lambda: D.NoamDecay(4, 10), "create_lr_var", 0.1),
    "TracedLayer.__call__": lambda call: call(traced(), [matrix()]),
    "TracedLayer.set_strategy": lambda call: (it := traced(), call(it.set_strategy), it([matrix()])),
    "TracedLayer.save_inference_model": lambda call: with_folder(
        lambda path: call(traced().save_inference_model, path)
    ),
}

CLIPS = {
    name: lambda call, name=name: (
        pair := trained(lambda parameters: fluid.optimizer.SGD(0.1, parameter_list=parameters)),
        setattr(pair[0], "_grad_clip", call(getattr(N, name), 1.0)),
        pair[0].step(),
    )
    for name in ("ClipGradByValue", "ClipGradByNorm", "ClipGradByGlobalNorm")
}

HOST = {
    **{
        f"metrics.{name}": lambda call, name=name: used_metric(call(getattr(fluid.metrics, name)))
        for name in ("Accuracy", "Precision", "Recall", "Auc", "ChunkEvaluator", "EditDistance", "CompositeMetric")
    },
    "metrics.Accuracy.update": lambda call: (it := fluid.metrics.Accuracy(), call(it.update, 0.5, 1), it.eval()),
    "metrics.Precision.update": lambda call: (
        it := fluid.metrics.Precision(),
        call(it.update, np.ones(2), np.ones(2)),
        it.eval(),
    ),
    "metrics.ChunkEvaluator.update": lambda call: (
        it := fluid.metrics.ChunkEvaluator(),
        call(it.update, 3, 3, 2),
        it.eval(),
    ),
    "metrics.EditDistance.update": lambda call: (
        it := fluid.metrics.EditDistance(),
        call(it.update, np.ones((2, 1)), 2),
        it.eval(),
    ),
    "metrics.Recall.update": lambda call: (
        it := fluid.metrics.Recall(),
        call(it.update, np.ones(2), np.ones(2)),
        it.eval(),
    ),
    "metrics.Auc.update": lambda call: (it := fluid.metrics.Auc(), call(it.update, *auc()), it.eval()),
    "metrics.Auc.trapezoid_area": lambda call: call(fluid.metrics.Auc.trapezoid_area, 0.0, 1.0, 0.0, 1.0),
    "metrics.CompositeMetric.add_metric": lambda call: (
        it := fluid.metrics.CompositeMetric(),
        call(it.add_metric, fluid.metrics.Recall()),
        it.update(np.ones(1), np.ones(1)),
    ),
    "average.WeightedAverage.add": lambda call: (
        it := fluid.average.WeightedAverage(),
        call(it.add, 1.0, 1.0),
        it.eval(),
    ),
    "profiler.profiler": lambda call: with_folder(lambda path: enter(call(fluid.profiler.profiler, "CPU"))),
    "profiler.start_profiler": lambda call: (
        call(fluid.profiler.start_profiler, "CPU"),
        fluid.profiler.stop_profiler(),
    ),
    "profiler.stop_profiler": lambda call: with_folder(lambda path: stopped(call)),
    "profiler.Profile.rows": lambda call: methods(call, fluid.profiler.Profile, "rows"),
    "profiler.Profile.table": lambda call: methods(call, fluid.profiler.Profile, "table"),
    "save_dygraph": lambda call: with_folder(lambda path: call(fluid.save_dygraph, D.Linear(3, 2).state_dict(), path)),
    "load_dygraph": lambda call: with_folder(
        lambda path: (fluid.save_dygraph(D.Linear(3, 2).state_dict(), path), call(fluid.load_dygraph, path))
    ),
}


def used_metric(metric):
    """Give a metric a batch, and ask it."""
    if isinstance(metric, fluid.metrics.Accuracy):
        metric.update(0.5, 1)
    elif isinstance(metric, fluid.metrics.Auc):
        metric.update(*auc())
    elif isinstance(metric, fluid.metrics.ChunkEvaluator):
        metric.update(3, 3, 2)
    elif isinstance(metric, fluid.metrics.EditDistance):
        metric.update(np.ones((2, 1)), 2)
    else:
        metric.update(np.ones(2), np.ones(2))
    str(metric), metric.eval(), metric.reset()


CASES = {
    **LAYERS, **FUNCTIONS, **METHODS, **CLIPS, **HOST,
    **{name: lambda call, n=name, a=args: steps(call(getattr(D, n), *a)) for name, args in DECAYS.items()},
    **{f"{name}()": lambda call, given=given: applied(call, *given) for name, given in APPLIED.items()},
}  # fmt: skip


def applied(call, make, first, second=None):
    """Call a layer, with names for its arguments."""
    layer = make()
    if second is None:
        return call(lambda input: layer(input), first())
    return call(lambda input, label: layer(input, label), first(), second())


class Change:
    """The `call` of a case: makes it with one argument replaced, and remembers its parts."""

    def __init__(self, name=None, value=None):
        self.name, self.value, self.is_under_way = name, value, False

    def __call__(self, function, *args, **kwargs):
        signature = self.signature = inspect.signature(function)
        given = signature.bind(*args, **kwargs).arguments
        if self.name is not None:
            given[self.name] = self.value
        bound = inspect.BoundArguments(signature, given)
        self.receiver = getattr(function, "__self__", None)
        self.before = picture(self.receiver)
        self.is_under_way = True
        made = function(*bound.args, **bound.kwargs)
        self.is_under_way = False
        return made


def misuse(title, case, faults):
    """Run a case with each argument of its call replaced in turn by wrong values."""
    right = Change()
    case(right)
    for name, parameter in right.signature.parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        for what, value in VALUES.items():
            change = Change(name, value)
            try:
                case(change)
                continue
            except Exception as error:
                fault = fault_of(error)
                if fault:
                    faults.append(f"{title} {name}={what} -> {fault}")
            if change.is_under_way and picture(change.receiver) != change.before:
                faults.append(f"{title} {name}={what} leaves something behind")
            if enabled():
                faults.append(f"{title} {name}={what} leaves the imperative mode on")
                fluid.disable_dygraph()


def picture(thing, depth=3):
    """What an object holds, as far as it can be compared."""
    if isinstance(thing, np.ndarray):
        return thing.dtype.str, thing.shape, thing.tobytes()
    if isinstance(thing, Eager):
        return id(thing.array), id(thing.grad), thing.stop_gradient
    if isinstance(thing, dict):
        return [(key, picture(value, depth - 1)) for key, value in thing.items()] if depth else len(thing)
    if isinstance(thing, list | tuple | set):
        return [picture(value, depth - 1) for value in thing] if depth else len(thing)
    if type(thing).__module__.startswith("minigraph") and hasattr(thing, "__dict__") and depth:
        return picture({k: v for k, v in vars(thing).items() if k not in ("_helper", "_executor")}, depth)
    return repr(thing)
