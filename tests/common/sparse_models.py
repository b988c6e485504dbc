"""Programs and layers that look rows up in a table, and what they are trained with."""

import numpy as np

import minigraph as fluid
from minigraph import clip, layers
from minigraph.clip import ClipPipeline

SIZE = [11, 4]
IDS = [
    np.array(ids)
    for ids in ([[3, 1], [3, 3], [10, 0]], [[1, 1], [2, 9], [3, 3]], [[5, 5], [5, 5], [5, 5]], [[9, 2], [0, 7], [3, 1]])
]


def starting_from(array):
    return fluid.ParamAttr(name="table", initializer=fluid.initializer.NumpyArrayInitializer(array))


class Model:
    """A table, what a layer makes of its rows, and a loss."""

    def __init__(self, is_sparse=True, dtype="float64", padding_idx=None, **param_fields):
        rng = np.random.default_rng(5)
        self.main, self.startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(self.main, self.startup):
            self.ids = fluid.data("ids", [None, 2], "int64")
            initial = fluid.initializer.NumpyArrayInitializer(rng.standard_normal(SIZE).astype(dtype))
            attr = fluid.ParamAttr(name="table", initializer=initial, **param_fields)
            self.found = fluid.embedding(
                self.ids, SIZE, is_sparse=is_sparse, padding_idx=padding_idx, param_attr=attr, dtype=dtype
            )
            weight = fluid.initializer.NumpyArrayInitializer(rng.standard_normal((8, 3)).astype(dtype))
            bias = fluid.initializer.Constant(0.5)
            hidden = layers.fc(
                layers.reshape(self.found, [-1, 8]),
                3,
                param_attr=fluid.ParamAttr("weight", weight),
                bias_attr=fluid.ParamAttr("bias", bias),
            )
            self.loss = layers.reduce_sum(layers.square(hidden))
        self.table = self.main.global_block().var("table")

    def minimize(self, optimizer):
        with fluid.program_guard(self.main, self.startup):
            optimizer.minimize(self.loss)
        return self

    def train(self, kind_of_executor=fluid.Executor, fetch=(), prepare=lambda scope: None):
        """Everything in the scope after a step for each of `IDS`, and what was fetched in each."""
        executor, scope, fetched = kind_of_executor(), fluid.Scope(), []
        executor.run(self.startup, scope=scope)
        prepare(scope)
        for ids in IDS:
            fetched.append(executor.run(self.main, {"ids": ids}, list(fetch), scope=scope))
        return {name: np.array(scope.find_var(name).get_tensor()) for name in scope.local_var_names()}, fetched


CLIPS = {
    "none": None,
    "value": clip.GradientClipByValue(0.5),
    "norm": clip.GradientClipByNorm(0.5),
    "global norm": clip.GradientClipByGlobalNorm(0.5),
    "long global norm": clip.GradientClipByGlobalNorm(1e6),
    "p-norm": clip.GradientClipByPNorm(0.5, p=3.0),
    "largest": clip.GradientClipByPNorm(0.5, p=float("inf")),
    "global p-norm": clip.GradientClipByGlobalPNorm(0.5, p=1.0),
    "rows": clip.GradientClipByAxisNorm(0.5, axes=[1]),
    "columns": clip.GradientClipByAxisNorm(0.5, axes=[0]),
    "whole": clip.GradientClipByAxisNorm(0.5, axes=[0, 1]),
    "rms": clip.GradientClipByBlockRMS(0.05),
    "adaptive": clip.AdaptiveGradientClip(0.01, clip_final_layer=True),
    "autoclip": clip.AutoClip(50.0),
    "zclip": clip.ZClip(z_threshold=0.5, warmup_steps=1),
    "pipeline": ClipPipeline([clip.GradientClipByValue(1.0), clip.GradientClipByGlobalNorm(0.5)]),
    "telemetry": clip.GradientClipByGlobalNorm(0.5, telemetry=True),
    "zero": clip.GradientClipByNorm(0.5, nonfinite="zero", telemetry=True),
    "skip": clip.GradientClipByGlobalNorm(0.5, nonfinite="skip"),
    "raise": clip.GradientClipByValue(0.5, nonfinite="raise"),
}

OPTIMIZERS = {
    "sgd": lambda **options: fluid.optimizer.SGD(0.1, **options),
    "momentum": lambda **options: fluid.optimizer.Momentum(0.1, 0.9, **options),
    "nesterov": lambda **options: fluid.optimizer.Momentum(0.1, 0.9, use_nesterov=True, **options),
    "adagrad": lambda **options: fluid.optimizer.Adagrad(0.1, **options),
    "rmsprop": lambda **options: fluid.optimizer.RMSProp(0.1, momentum=0.5, **options),
    "centered": lambda **options: fluid.optimizer.RMSProp(0.1, centered=True, **options),
    "lamb": lambda **options: fluid.optimizer.Lamb(0.1, **options),
    "adamw": lambda **options: fluid.optimizer.AdamW(0.1, **options),
}
