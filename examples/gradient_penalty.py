"""Training with a penalty on the gradient of the loss with respect to the image; takes about 4 seconds.

A small convolutional network learns the bundled digits twice: once from the loss alone, once from the loss and the
squared length of its gradient with respect to the pixels (double backpropagation). The penalty is part of the program,
so its gradient is a gradient of a gradient: through convolution, pooling and cross entropy. The second network knows
unseen digits better. And its flatter loss changes less where an image does: when every pixel is moved a little in the
direction that hurts most (the fast gradient sign method), it keeps its answers longer.

H. Drucker and Y. LeCun, Improving generalization performance using double backpropagation, IEEE Transactions on Neural
Networks 3(6), 1992. I. Goodfellow, J. Shlens and C. Szegedy, Explaining and harnessing adversarial examples, ICLR 2015.
"""

import numpy as np

import minigraph as fluid
from minigraph.dataset import digits

SIDE, CLASSES = 8, 10
EPOCHS, BATCH_SIZE = 20, 50
STRENGTHS = (0.0, 0.1, 0.2, 0.3)  # how far each pixel, in [-1, 1], is moved


def build(weight):
    """The network with the penalty times `weight`; returns its programs, and the variables to fetch."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image = fluid.data("image", [None, 1, SIDE, SIDE])
        image.stop_gradient = False
        label = fluid.data("label", [None, 1], "int64")
        hidden = fluid.layers.conv2d(image, num_filters=12, filter_size=3, padding=1, act="tanh")
        hidden = fluid.layers.pool2d(hidden, pool_size=2, pool_stride=2)
        hidden = fluid.layers.fc(hidden, 32, act="tanh")
        logits = fluid.layers.fc(hidden, CLASSES)
        losses = fluid.layers.softmax_with_cross_entropy(logits, label)
        (slope,) = fluid.gradients(losses, image)  # one image's loss knows nothing of the other images
        loss = fluid.layers.mean(losses)
        penalty = fluid.layers.mean(fluid.layers.reduce_sum(fluid.layers.square(slope), dim=[1, 2, 3]))
        total = loss + weight * penalty if weight else loss
        optimizer = fluid.optimizer.Momentum(0.02, 0.9, grad_clip=fluid.clip.GradientClipByGlobalNorm(2.0))
        test = main.clone()  # for_test=True would leave gradients out
        optimizer.minimize(total)
    return main, startup, test, (loss, penalty, logits, slope)


def train(weight):
    """Train with the penalty times `weight`; returns mean loss, mean penalty and the accuracy for each strength."""
    images, labels = digits.load()
    images, labels = images.reshape(-1, 1, SIDE, SIDE), labels[:, None]
    main, startup, test, (loss, penalty, logits, slope) = build(weight)
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    rng = np.random.default_rng(3)
    for _ in range(EPOCHS):
        for rows in np.array_split(rng.permutation(1500), 1500 // BATCH_SIZE):
            exe.run(main, feed={"image": images[rows], "label": labels[rows]}, scope=scope)

    unseen = {"image": images[1500:], "label": labels[1500:]}
    mean_loss, mean_penalty, direction = exe.run(test, unseen, [loss, penalty, slope], scope=scope)
    accuracies = []
    for strength in STRENGTHS:
        moved = {**unseen, "image": unseen["image"] + np.float32(strength) * np.sign(direction)}
        (found,) = exe.run(test, moved, [logits], scope=scope)
        accuracies.append(float((found.argmax(1) == unseen["label"][:, 0]).mean()))
    return mean_loss.item(), mean_penalty.item(), accuracies


def main():
    """Train without and with the penalty; prints a table and returns its rows."""
    rows = {name: train(weight) for name, weight in (("loss alone", 0.0), ("with penalty", 1.0))}
    strengths = "".join(f"{f'moved by {strength:g}' if strength else 'as it is':>14}" for strength in STRENGTHS)
    print(f"{'':14}{'loss':>8}{'penalty':>9}   share of unseen digits known:{strengths}")
    for name, (loss, penalty, accuracies) in rows.items():
        known = "".join(f"{accuracy:14.1%}" for accuracy in accuracies)
        print(f"{name:14}{loss:8.3f}{penalty:9.3f}{'':31}{known}")
    return rows


if __name__ == "__main__":
    main()
