"""The program on fluid 1.x's page about GradientClipByNorm, run on MNIST; takes about a second.

Only import lines differ from the page. One program is cloned, the clone's gradients are clipped, and both are run on
the same batches. Printed after the page's output are the norms of the last batch's gradients without and with the clip.
"""
# ruff: noqa
# fmt: off

import minigraph as fluid
import minigraph.core as core
import minigraph as paddle


def main():
    """The page's program; returns the gradients of the last batch by parameter, without and with the clip."""
    place = core.CPUPlace()
    prog = fluid.framework.Program()
    startup_program = fluid.framework.Program()
    with fluid.program_guard(
                main_program=prog, startup_program=startup_program):
        image = fluid.layers.data(name='x', shape=[784], dtype='float32')
        label = fluid.layers.data(name='y', shape=[1], dtype='int64')
        hidden1 = fluid.layers.fc(input=image, size=128, act='relu')
        hidden2 = fluid.layers.fc(input=hidden1, size=64, act='relu')
        predict = fluid.layers.fc(input=hidden2, size=10, act='softmax')
        cost = fluid.layers.cross_entropy(input=predict, label=label)
        avg_cost = fluid.layers.mean(cost)
    prog_clip = prog.clone()
    avg_cost_clip = prog_clip.block(0).var(avg_cost.name)
    p_g = fluid.backward.append_backward(loss=avg_cost)
    p_g_clip = fluid.backward.append_backward(loss=avg_cost_clip)
    with fluid.program_guard(main_program=prog_clip, startup_program=startup_program):
        fluid.clip.set_gradient_clip(
            fluid.clip.GradientClipByNorm(clip_norm=2.0))
        p_g_clip = fluid.clip.append_gradient_clip_ops(p_g_clip)
    grad_list = [elem[1] for elem in p_g]
    grad_clip_list = [elem[1] for elem in p_g_clip]
    train_reader = paddle.batch(
        paddle.reader.shuffle(
            paddle.dataset.mnist.train(), buf_size=8192),
        batch_size=128)

    exe = fluid.Executor(place)
    feeder = fluid.DataFeeder(feed_list=[image, label], place=place)
    exe.run(startup_program)

    count = 0
    for data in train_reader():
        count += 1
        print("count:%s" % count)
        if count > 5:
           break
        out = exe.run(prog, feed=feeder.feed(data), fetch_list=grad_list)
        out_clip = exe.run(prog_clip,
                           feed=feeder.feed(data),
                           fetch_list=grad_clip_list)

    # Not on the page. Fluid gives the clone's pairs in another order than the original's.
    raw = {param.name: grad for (param, _), grad in zip(p_g, out)}
    clipped = {param.name: grad for (param, _), grad in zip(p_g_clip, out_clip)}
    print("norms of the last batch, without and with the clip")
    for name in sorted(raw):
        norms = [(gradients[name].astype("float64") ** 2).sum() ** 0.5 for gradients in (raw, clipped)]
        print("  %s: %.4f -> %.4f" % (name, norms[0], norms[1]))
    return raw, clipped


if __name__ == "__main__":
    main()
