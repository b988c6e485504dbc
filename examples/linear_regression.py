"""Linear regression on data with gross errors, with and without gradient clipping; takes well under a second.

House prices depend on four features; one price in fifty was typed in wrong. A batch that holds such a price has a huge
gradient that points astray. Clipping leaves its direction but limits its say, and the weights are found nevertheless.
"""

import numpy as np

import minigraph as fluid

WEIGHTS = np.array([3.0, -2.0, 0.5, 1.5], dtype=np.float32)
BIAS = 20.0
EPOCHS, BATCH_SIZE = 20, 10


def make_data(rows=1000):
    """Features of mean 0 and variance 1, and prices, some of them wrong."""
    rng = np.random.default_rng(13)
    features = rng.normal(size=(rows, len(WEIGHTS))).astype(np.float32)
    prices = features @ WEIGHTS + BIAS + rng.normal(scale=0.5, size=rows).astype(np.float32)
    wrong = rng.choice(rows, rows // 50, replace=False)
    prices[wrong] *= 10
    is_right = np.ones(rows, dtype=bool)
    is_right[wrong] = False
    return features, prices, is_right


def fit(features, prices, is_right, grad_clip=None):
    """Train ``features @ w + b`` by stochastic gradient descent; returns w and b."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        x = fluid.layers.data("x", shape=[len(WEIGHTS)])
        y = fluid.layers.data("y", shape=[1])
        predict = fluid.layers.fc(x, size=1)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(predict, y))
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(learning_rate=0.02, grad_clip=grad_clip).minimize(loss)

        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(startup)
        for epoch in range(1, EPOCHS + 1):
            for rows in np.array_split(np.arange(len(prices)), len(prices) // BATCH_SIZE):
                exe.run(main, feed={"x": features[rows], "y": prices[rows, None]})
            if epoch in (1, 2, 5, 10, 20):
                feed = {"x": features[is_right], "y": prices[is_right, None]}
                (mean,) = exe.run(test, feed=feed, fetch_list=[loss])
                print(f"  after {epoch:2} epochs: mean squared error {mean[0]:9.4f} on the right prices")
        return [
            np.array(fluid.global_scope().find_var(param.name).get_tensor()).ravel() for param in main.all_parameters()
        ]


def main():
    """Fit without and with the clip; prints and returns weights and bias of both."""
    data = make_data()
    print("Without clipping")
    plain = fit(*data)
    print("With GradientClipByGlobalNorm(clip_norm=2.0)")
    clipped = fit(*data, grad_clip=fluid.clip.GradientClipByGlobalNorm(clip_norm=2.0))

    print("\n                    weights                          bias")
    for name, weights, bias in [("true", WEIGHTS, [BIAS]), ("without clipping", *plain), ("with clipping", *clipped)]:
        print(f"{name:>16}: " + "".join(f"{value:8.3f}" for value in [*weights, *bias]))
    return plain, clipped


if __name__ == "__main__":
    main()
