"""The code on a page about TensorFlow's ``clip_by_norm``, run on minigraph; takes well under a second.

First the page's numbers: ten of them, of norm 8.06, are scaled down to norm 5, by the page's formula and by the
function; then a matrix, row by row and column by column, as the function's documentation has it. Then the page's
training loop as it stands there: a small network learns with Adam which points lie outside a circle.
"""

import numpy as np

import minigraph as fluid
import minigraph.compat.tensorflow as tf

STEPS, BATCH_SIZE = 60, 32


def clip_the_numbers(t, clip_norm):
    """Scale `t` by the page's formula and by the function; prints and returns what the function gives."""
    l2norm4t = np.linalg.norm(t)
    transformed_t = t *clip_norm/l2norm4t  # fmt: skip
    clipped = clip(t, clip_norm)
    print(f"t                    {t}")
    print(f"norm of t            {l2norm4t:.8f}")
    for name, array in {"t*clip_norm/l2norm4t": transformed_t, f"clip_by_norm(t, {clip_norm})": clipped}.items():
        shown = np.array2string(array, precision=8, max_line_width=90, prefix=" " * 21)
        print(f"{name:20} {shown}\nnorm after           {np.linalg.norm(array):.8f}")
    return clipped


def clip(t, clip_norm, axes=None):
    """``tf.clip_by_norm`` of an array, as an array."""
    with fluid.dygraph.guard():
        return tf.clip_by_norm(fluid.dygraph.to_variable(t.astype("float64")), clip_norm, axes).numpy()


def clip_a_matrix(t, clip_norm):
    """Clip as a whole, by rows and by columns; prints norms of rows and columns and returns what became of `t`."""
    found = {name: clip(t, clip_norm, axes) for name, axes in {"None": None, "[1]": [1], "[0]": [0]}.items()}
    print(f"\nnorms of a matrix    {'rows':22} columns")
    for name, array in {"before": t, **{f"after, axes={axes}": array for axes, array in found.items()}}.items():
        rows, columns = ("".join(f"{norm:7.3f}" for norm in np.linalg.norm(array, axis=axis)) for axis in (1, 0))
        print(f"{name:18}{rows:25}{columns}")
    return found


def make_data(rows=512):
    """Points around the origin; the label says whether one lies outside the circle of radius 1."""
    points = np.random.default_rng(5).normal(size=(rows, 2)).astype("float32")
    return points, (np.hypot(*points.T) > 1).astype("int64")[:, None]


def build(learning_rate):
    """The network, its cost and the updates; returns the programs and what to fetch."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        points = fluid.data("points", [None, 2])
        labels = fluid.data("labels", [None, 1], "int64")
        hidden = fluid.layers.fc(points, 16, act="tanh")
        logits = fluid.layers.fc(hidden, 2)
        # A hundred times the usual cost, so that gradients are long enough to be clipped.
        cost = 100.0 * fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(logits, labels))

        optimizer = tf.train.AdamOptimizer(learning_rate, beta1=0.5)
        grads = optimizer.compute_gradients(cost)
        raw = [g for g, _ in grads]
        for i, (g, v) in enumerate(grads):
            if g is not None:
                grads[i] = (tf.clip_by_norm(g, 5), v)  # clip gradients
        train_op = optimizer.apply_gradients(grads)

        clipped = [g for g, _ in grads]
    print(f"\nappended: {sum(op.type == 'clip_by_norm' for op in main.global_block().ops)} clip_by_norm, "
          f"{len(train_op)} {train_op[0].type}")  # fmt: skip
    return main, startup, [cost, *raw, *clipped]


def train(learning_rate=0.05):
    """Run the program; prints cost and gradient norms before and after, and returns them by step."""
    main, startup, fetches = build(learning_rate)
    points, labels = make_data()
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    exe.run(startup, scope=scope)
    history = []
    for step in range(1, STEPS + 1):
        rows = np.arange(step * BATCH_SIZE, (step + 1) * BATCH_SIZE) % len(points)
        feed = {"points": points[rows], "labels": labels[rows]}
        cost, *grads = exe.run(main, feed=feed, fetch_list=fetches, scope=scope)
        norms = [np.linalg.norm(grad) for grad in grads]
        before, after = norms[: len(norms) // 2], norms[len(norms) // 2 :]
        history.append((cost.item(), before, after))
        if step in (1, 2, 5, 20, STEPS):
            print(f"step {step:2}   cost {cost.item():7.3f}"
                  f"   norms before {' '.join(f'{norm:7.3f}' for norm in before)}"
                  f"   after {' '.join(f'{norm:6.3f}' for norm in after)}")  # fmt: skip
    return history


def main():
    """The page's numbers, then its loop; returns the clipped numbers, the training's history, the clipped matrices."""
    clipped = clip_the_numbers(np.array([1, 1, 3, 4, 2, 2, 1, 4, 2, 3]), 5)  # what the page drew at random
    matrices = clip_a_matrix(np.array([[3.0, 4.0, 12.0], [1.0, 2.0, 2.0]]), 5)
    return clipped, train(), matrices


if __name__ == "__main__":
    main()
