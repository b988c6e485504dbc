"""Both programs on fluid 1.8's page about GradientClipByNorm with need_clip; takes well under a second.

Only import lines differ from the page, and its comments are translated. Each program runs twice: as it stands, and
with the filter that the page keeps in comments. Printed are the norms of the gradients before and after the clip.
"""
# ruff: noqa
# fmt: off

import minigraph as fluid
import numpy as np


def static(only_weight):
    """Example 1, a static program; returns its result, and by parameter the gradient and what the update reads."""
    main_prog = fluid.Program()
    startup_prog = fluid.Program()
    with fluid.program_guard(
            main_program=main_prog, startup_program=startup_prog):
        image = fluid.data(
            name='x', shape=[-1, 2], dtype='float32')
        predict = fluid.layers.fc(input=image, size=3, act='relu') # trainable parameters: fc_0.w_0, fc_0.b_0
        loss = fluid.layers.mean(predict)

        # Clip all parameters of the network:
        clip = fluid.clip.GradientClipByNorm(clip_norm=1.0)

        # Clip fc_0.w_0 only:
        # give need_clip a function fileter_func, which takes a Parameter and returns a bool
        if only_weight:
            def fileter_func(Parameter):
            # Parameter.name tells them apart (it can be set in fluid.ParamAttr; by default it is fc_0.w_0, fc_0.b_0)
              return Parameter.name=="fc_0.w_0"
            clip = fluid.clip.GradientClipByNorm(clip_norm=1.0, need_clip=fileter_func)

        sgd_optimizer = fluid.optimizer.SGDOptimizer(learning_rate=0.1, grad_clip=clip)
        sgd_optimizer.minimize(loss)

    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    x = np.random.uniform(-100, 100, (10, 2)).astype('float32')
    exe.run(startup_prog)
    out = exe.run(main_prog, feed={'x': x}, fetch_list=loss)

    # Not on the page: one more step, which fetches the gradients and what the updates read in their place.
    names = [[op.input("Param")[0] + "@GRAD", op.input("Grad")[0]]
             for op in main_prog.global_block().ops if op.type == "sgd"]
    found = exe.run(main_prog, feed={'x': x}, fetch_list=sum(names, []))
    return out, {grad[:-len("@GRAD")]: pair for (grad, _), pair in zip(names, zip(found[::2], found[1::2]))}


def imperative(only_weight):
    """Example 2, the imperative mode; by parameter the gradient, and what two updates took off over 0.1."""
    with fluid.dygraph.guard():
        linear = fluid.dygraph.Linear(10, 10)  # trainable parameters: linear_0.w_0, linear_0.b_0
        inputs = fluid.layers.uniform_random([32, 10]).astype('float32')
        out = linear(fluid.dygraph.to_variable(inputs))
        loss = fluid.layers.reduce_mean(out)
        loss.backward()
        values = [[param.numpy() for param in linear.parameters()]]  # not on the page

        # Clip all parameters of the network:
        clip = fluid.clip.GradientClipByNorm(clip_norm=1.0)

        # Clip linear_0.w_0 only:
        # give need_clip a function fileter_func, which takes a ParamBase and returns a bool
        fileter_func = None
        if only_weight:
            def fileter_func(ParamBase):
            # ParamBase.name tells them apart (it can be set in fluid.ParamAttr; by default linear_0.w_0, linear_0.b_0)
              return ParamBase.name == "linear_0.w_0"
            # Note: linear.weight and linear.bias are the weight and the bias of the layer, which tells them apart too
              return ParamBase.name == linear.weight.name
            clip = fluid.clip.GradientClipByNorm(clip_norm=1.0, need_clip=fileter_func)

        sgd_optimizer = fluid.optimizer.SGD(
          learning_rate=0.1, parameter_list=linear.parameters(), grad_clip=clip)
        sgd_optimizer.minimize(loss)

        # Not on the page: no gradient of this loss is longer than 1. A second update has a threshold that they exceed.
        values.append([param.numpy() for param in linear.parameters()])
        clip = fluid.clip.GradientClipByNorm(clip_norm=0.05, need_clip=fileter_func)
        fluid.optimizer.SGD(learning_rate=0.1, parameter_list=linear.parameters(), grad_clip=clip).minimize(loss)
        values.append([param.numpy() for param in linear.parameters()])
        return {param.name: [param.gradient(), *((old - new) / 0.1 for old, new in zip(steps, steps[1:]))]
                for param, steps in zip(linear.parameters(), zip(*values))}


def main():
    """Each program as it stands, and with its filter; prints norms."""
    for only_weight in (False, True):
        with fluid.unique_name.guard():
            print("static,", "fc_0.w_0 clipped at 1" if only_weight else "all clipped at 1")
            for name, (grad, clipped) in static(only_weight)[1].items():
                print("  %s: %.4f -> %.4f" % (name, np.linalg.norm(grad), np.linalg.norm(clipped)))
    for only_weight in (False, True):
        with fluid.unique_name.guard():
            print("imperative,", "linear_0.w_0" if only_weight else "all", "clipped at 1, then at 0.05")
            for name, arrays in imperative(only_weight).items():
                print("  %s: %.4f -> %.4f, %.4f" % (name, *map(np.linalg.norm, arrays)))


if __name__ == "__main__":
    main()
