"""Small programs that train or clip, with scopes for several executors."""

import threading

import numpy as np

import minigraph as fluid
from minigraph import layers
from minigraph.runtime.place import CPUPlace

OPTIMIZERS = {
    "sgd": lambda clip: fluid.optimizer.SGD(0.1, grad_clip=clip),
    "momentum": lambda clip: fluid.optimizer.Momentum(0.1, 0.9, grad_clip=clip),
    "adam": lambda clip: fluid.optimizer.Adam(0.1, grad_clip=clip),
    "adamw": lambda clip: fluid.optimizer.AdamW(0.1, grad_clip=clip),
    "adamax": lambda clip: fluid.optimizer.Adamax(0.1, grad_clip=clip),
    "adagrad": lambda clip: fluid.optimizer.Adagrad(0.1, grad_clip=clip),
    "decayed_adagrad": lambda clip: fluid.optimizer.DecayedAdagrad(0.1, grad_clip=clip),
    "adadelta": lambda clip: fluid.optimizer.Adadelta(0.1, grad_clip=clip),
    "rmsprop": lambda clip: fluid.optimizer.RMSProp(0.1, centered=True, grad_clip=clip),
    "ftrl": lambda clip: fluid.optimizer.Ftrl(0.1, grad_clip=clip),
}


CLIPS = {
    "no clip": None,
    "value": fluid.clip.GradientClipByValue(0.01),
    "norm": fluid.clip.GradientClipByNorm(0.01),
    "global norm": fluid.clip.GradientClipByGlobalNorm(0.01),
    "global norm, never reached": fluid.clip.GradientClipByGlobalNorm(1e6),
}


class Network:
    """A program that trains, and a scope for each executor."""

    def __init__(self, optimizer="adam", clip="global norm", sizes=(5, 7, 300, 3), dtype="float32"):
        self.main, self.startup = fluid.Program(), fluid.Program()
        self.startup.random_seed = 3
        with fluid.program_guard(self.main, self.startup), fluid.unique_name.guard():
            x = h = fluid.data("x", [None, sizes[0]], dtype)
            for size in sizes[1:]:
                h = layers.fc(h, size, act="tanh")
            self.output = h
            self.loss = layers.mean(layers.square(h))
            self.test = self.main.clone(for_test=True)
            _, self.params_grads = OPTIMIZERS[optimizer](CLIPS[clip]).minimize(self.loss)
        self.feed = {x.name: np.random.default_rng(0).uniform(-1, 1, (4, sizes[0])).astype(dtype)}

    def scope(self):
        scope = fluid.Scope()
        fluid.Executor().run(self.startup, scope=scope)
        return scope

    def run(self, executor, scope, fetch=(), steps=3):
        for _ in range(steps):
            found = executor.run(self.main, self.feed, [self.loss, *fetch], scope=scope)
        return dict(enumerate(found)) | {n: np.array(scope.find_var(n).get_tensor()) for n in scope.local_var_names()}

    def plan(self, executor):
        return executor.plans[-1]


class GradientsInScope:
    """Gradients in the scope, clipped there again and again."""

    def __init__(self, shapes, clip, dtype="float32"):
        self.main = fluid.Program()
        self.names = [f"g{i}" for i in range(len(shapes))]
        rng = np.random.default_rng(0)
        self.start = {n: rng.uniform(-1, 1, s).astype(dtype) for n, s in zip(self.names, shapes, strict=True)}
        with fluid.program_guard(self.main, fluid.Program()), fluid.unique_name.guard():
            block = self.main.global_block()
            grads = [block.create_var(n, list(x.shape), dtype, persistable=True) for n, x in self.start.items()]
            params = [fluid.layers.create_parameter(list(x.shape), dtype) for x in self.start.values()]
            pairs = clip(list(zip(params, grads, strict=True)))
            for grad, (_, clipped) in zip(grads, pairs, strict=True):
                fluid.layers.assign(clipped, output=grad)

    def run(self, executor, fetch=(), steps=3):
        scope, found = fluid.Scope(), []
        for name, array in self.start.items():
            scope.var(name).get_tensor().set(array, CPUPlace())
        for _ in range(steps):
            found += [x.tobytes() for x in executor.run(self.main, {}, list(fetch), scope=scope)]
            found += [np.array(scope.find_var(name).get_tensor()).tobytes() for name in self.names]
        return found


CLIPS_IN_SCOPE = {
    "value": fluid.clip.GradientClipByValue(0.1),
    "norm": fluid.clip.GradientClipByNorm(0.1),
    "global norm": fluid.clip.GradientClipByGlobalNorm(0.1),
    "never reached": fluid.clip.GradientClipByGlobalNorm(1e6),
}


SHAPES = [(3,), (2, 2), (9000,), (5,), (1,), (100, 100), (0, 3), (4,), (4,)]


def at_the_same_time(works):
    """What each of the functions returns, all of them begun together in threads."""
    found, begin = {}, threading.Barrier(len(works))

    def work(number):
        begin.wait()
        found[number] = works[number]()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found.get(number) for number in range(len(works))]


def rnn(steps, rows=6, inputs=4, hidden=5, bias_attr=False):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        layers = fluid.layers
        state = layers.fill_constant([rows, hidden], "float32", 0.0)
        for t in range(steps):
            given = layers.fc(fluid.data(f"x{t}", [rows, inputs]), hidden, param_attr="w", bias_attr=False)
            state = layers.tanh(given + layers.fc(state, hidden, param_attr="u", bias_attr=bias_attr))
        loss = layers.mean(layers.square(state))
        grads = [grad for _, grad in fluid.append_backward(loss)]
    return main, startup, loss, grads
