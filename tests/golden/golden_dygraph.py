"""Layers of the imperative mode whose results on Paddle 1.8.5 are recorded.

Running this file with Paddle, ``python golden_dygraph.py``, writes the recording; so it is written for Python 3.7.
"""

from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "layers" / "dygraph.npz"


def started(layer):
    """A spectral norm whose vectors are not random."""
    for vector in layer.parameters():
        vector.set_value((1.2 + np.sin(np.arange(np.prod(vector.shape)))).astype("float32"))
    return layer


CASES = {
    "transposed": (
        lambda d, a: d.Conv2DTranspose(4, 6, 3, stride=2, padding=1, groups=2, act="tanh", **a(2)),
        ["2,4,5,4"],
    ),
    "transposed_to_size": (lambda d, a: d.Conv2DTranspose(2, 3, [3, 2], [10, 7], stride=2, **a(2)), ["1,2,4,3"]),
    "volumes": (lambda d, a: d.Conv3D(2, 4, [2, 3, 2], 2, 1, groups=2, act="tanh", **a(2)), ["2,2,3,4,5"]),
    "volumes_transposed": (
        lambda d, a: d.Conv3DTranspose(2, 3, [2, 3, 2], stride=[1, 2, 2], padding=1, **a(2)),
        ["1,2,3,2,3"],
    ),
    "bilinear": (lambda d, a: d.BilinearTensorProduct(2, 3, 4, act="tanh", **a(2)), ["5,2", "5,3"]),
    "spectral_norm": (lambda d, a: started(d.SpectralNorm([3, 4])), ["3,4"]),
    "spectral_norm_images": (lambda d, a: started(d.SpectralNorm([2, 3, 2, 2], 1, 2, 0.1)), ["2,3,2,2"]),
    "spectral_norm_without_iterations": (lambda d, a: started(d.SpectralNorm([3, 4], 1, 0)), ["3,4"]),
    "instance_norm": (lambda d, a: d.InstanceNorm(3, 1e-3, **a(2)), ["2,3,4,4"]),
    "group_norm": (lambda d, a: d.GroupNorm(4, 2, **a(2)), ["2,4,3,3"]),
    "prelu_all": (lambda d, a: d.PRelu("all", **a(1)), ["2,3,4"]),
    "prelu_channel": (lambda d, a: d.PRelu("channel", channel=3, **a(1)), ["2,3,4,2"]),
    "prelu_element": (lambda d, a: d.PRelu("element", input_shape=[2, 3, 4], **a(1)), ["2,3,4"]),
    "gru": (lambda d, a: d.GRUUnit(12, **a(2)), ["3,12", "3,4"]),
    "mse": (lambda d, a: d.MSELoss(), ["3,4", "3,4"]),
    "mse_sum": (lambda d, a: d.MSELoss("sum"), ["3,4", "3,4"]),
    "mse_none": (lambda d, a: d.MSELoss("none"), ["3,4", "3,4"]),
    "l1": (lambda d, a: d.L1Loss(), ["3,4", "3,4"]),
    "l1_none": (lambda d, a: d.L1Loss(reduction="none"), ["3,4", "3,4"]),
    "bce": (lambda d, a: d.BCELoss(), ["p3,4", "p3,4"]),
    "bce_weighted": (lambda d, a: d.BCELoss(a("4"), "sum"), ["p3,4", "p3,4"]),
    "nll": (lambda d, a: d.NLLLoss(), ["5,3", "i5"]),
    "nll_weighted": (lambda d, a: d.NLLLoss(a("3"), ignore_index=1), ["5,3", "i5"]),
    "nll_none": (lambda d, a: d.NLLLoss(reduction="none"), ["2,3,4", "i2,4"]),
    "nll_images": (lambda d, a: d.NLLLoss(reduction="sum"), ["2,3,2,2", "i2,2,2"]),
}


WITHOUT_GRADIENT = {"spectral_norm", "spectral_norm_images", "spectral_norm_without_iterations"}
"""Cases whose gradients are not recorded, because the original's are wrong."""


def run(fluid, name):
    """Results and gradients of a case by name."""
    make, specs = CASES[name]
    state = np.random.RandomState(sum(map(ord, name)))

    class Waves(fluid.initializer.Initializer):
        def _array(self, var):
            values = 1.2 + np.sin(np.arange(np.prod(var.shape))).reshape(var.shape)
            return fluid.initializer.NumpyArrayInitializer(values.astype("float32"))

        def __call__(self, var, block):
            return self._array(var)(var, block)

        def op_for(self, var, block):
            return self._array(var).op_for(var, block)

    def attributes(what):
        """So many attributes of parameters; or for a shape as text a tensor."""
        if isinstance(what, str):
            shape = [int(size) for size in what.split(",")]
            return fluid.dygraph.to_variable(state.uniform(0.5, 2, shape).astype("float32"))
        return {key: fluid.ParamAttr(initializer=Waves()) for key in ("param_attr", "bias_attr")[:what]}

    with fluid.dygraph.guard(fluid.CPUPlace()):
        layer, inputs = make(fluid.dygraph, attributes), []
        for spec in specs:
            shape = [int(size) for size in spec.lstrip("pi").split(",")]
            if spec.startswith("i"):
                inputs.append(fluid.dygraph.to_variable(state.randint(0, 3, shape).astype("int64")))
                continue
            values = state.uniform(0.1, 0.9, shape) if spec.startswith("p") else state.standard_normal(shape)
            inputs.append(fluid.dygraph.to_variable(values.astype("float32")))
            inputs[-1].stop_gradient = len(inputs) > 1
        results = layer(*inputs)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        found = {f"out/{i}": result.numpy() for i, result in enumerate(results)}
        fluid.layers.reduce_sum(fluid.layers.square(results[0])).backward()
        if name not in WITHOUT_GRADIENT:
            found["grad/input"] = inputs[0].gradient()
        for i, param in enumerate(layer.parameters()):
            if not param.stop_gradient:
                found[f"grad/{i}"] = param.gradient()
    return {key: np.asarray(value) for key, value in found.items()}


if __name__ == "__main__":
    import paddle.fluid

    recorded = {}
    for case in CASES:
        recorded.update({f"{case}/{key}": value for key, value in run(paddle.fluid, case).items()})
    np.savez_compressed(str(FILE), **recorded)
