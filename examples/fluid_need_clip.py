"""Both programs on fluid's page about GradientClipByNorm with need_clip; only their import lines differ.

Each runs twice: as it stands, and with the filter that the page keeps in comments. Printed are the norms of the
gradients before and after the clip.
"""
# ruff: noqa
# fmt: off

import minigraph as fluid
import numpy as np

# Example 1: a static program

for only_weight in (False, True):
    main_prog = fluid.Program()
    startup_prog = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(
            main_program=main_prog, startup_program=startup_prog):
        image = fluid.data(
            name='x', shape=[-1, 2], dtype='float32')
        predict = fluid.layers.fc(input=image, size=3, act='relu') # trainable parameters: fc_0.w_0, fc_0.b_0
        loss = fluid.layers.mean(predict)

        # Clip all parameters of the network:
        clip = fluid.clip.GradientClipByNorm(clip_norm=1.0)

        # Clip fc_0.w_0 only: give need_clip a function fileter_func that takes a Parameter and returns a bool.
        def fileter_func(Parameter):
        # Parameter.name tells them apart (it can be set in fluid.ParamAttr; by default it is fc_0.w_0, fc_0.b_0)
          return Parameter.name=="fc_0.w_0"
        if only_weight:
            clip = fluid.clip.GradientClipByNorm(clip_norm=1.0, need_clip=fileter_func)

        sgd_optimizer = fluid.optimizer.SGDOptimizer(learning_rate=0.1, grad_clip=clip)
        sgd_optimizer.minimize(loss)

    place = fluid.CPUPlace()
    exe = fluid.Executor(place)
    x = np.random.uniform(-100, 100, (10, 2)).astype('float32')
    exe.run(startup_prog)
    out = exe.run(main_prog, feed={'x': x}, fetch_list=loss)

    # Not on the page: what the updates read, beside the gradients themselves.
    print("static,", "fc_0.w_0 clipped" if only_weight else "all clipped")
    for update in [op for op in main_prog.global_block().ops if op.type == "sgd"]:
        name = update.input("Param")[0]
        grad, clipped = exe.run(main_prog, feed={'x': x}, fetch_list=[name + "@GRAD", update.input("Grad")[0]])
        print(f"  {name}: {np.linalg.norm(grad):.4f} -> {np.linalg.norm(clipped):.4f}")

# Example 2: the imperative mode

for only_weight in (False, True):
    with fluid.unique_name.guard(), fluid.dygraph.guard():
        linear = fluid.dygraph.Linear(10, 10)  # trainable parameters: linear_0.w_0, linear_0.b_0
        inputs = fluid.layers.uniform_random([32, 10]).astype('float32')
        out = linear(fluid.dygraph.to_variable(inputs))
        loss = fluid.layers.reduce_mean(out)
        loss.backward()

        # Clip all parameters of the network:
        clip = fluid.clip.GradientClipByNorm(clip_norm=1.0)

        # Clip linear_0.w_0 only: give need_clip a function fileter_func that takes a ParamBase and returns a bool.
        def fileter_func(ParamBase):
        # linear.weight and linear.bias are the weight and the bias of the layer
          return ParamBase.name == linear.weight.name
        if only_weight:
            clip = fluid.clip.GradientClipByNorm(clip_norm=0.05, need_clip=fileter_func)

        sgd_optimizer = fluid.optimizer.SGD(
          learning_rate=0.1, parameter_list=linear.parameters(), grad_clip=clip)
        before = [param.numpy() for param in linear.parameters()]
        sgd_optimizer.minimize(loss)

        # Not on the page: the update was 0.1 times the clipped gradient. Gradients of this loss are below 1, so that
        # the second run clips at 0.05.
        print("imperative,", "linear_0.w_0 clipped at 0.05" if only_weight else "all clipped at 1")
        for param, old in zip(linear.parameters(), before):
            norms = np.linalg.norm(param.gradient()), np.linalg.norm((old - param.numpy()) / 0.1)
            print(f"  {param.name}: {norms[0]:.4f} -> {norms[1]:.4f}")
