"""A classifier made of one large table whose gradient is sparse, on the bundled digits; takes about 4 seconds.

A fern asks eleven questions of the kind "is this pixel brighter than that one" and so sorts images into 2,048 groups.
The table has a row for each group of each of 256 ferns, 524,288 in all; what an image scores for each digit is the sum
of its 256 rows. A batch looks up a few thousand rows, so the gradient, its norm, the clip and the update concern these
only: ``is_sparse=True`` says so. The first lines compare that with a dense gradient, which gives the same table.

M. Özuysal, P. Fua and V. Lepetit, Fast keypoint recognition in ten lines of code, CVPR 2007. There the rows are counts;
here they are learned.
"""

import time

import numpy as np

import minigraph as fluid
from minigraph.dataset import digits

FERNS, QUESTIONS, CLASSES = 256, 11, 10
ROWS = FERNS * 2**QUESTIONS
EPOCHS, BATCH_SIZE = 2, 50


def groups(images):
    """The row of the table for each image and fern, int64[n, 256]."""
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, images.shape[1], (2, FERNS, QUESTIONS))
    answers = images[:, one] > images[:, other] + 0.3
    return (answers << np.arange(QUESTIONS)).sum(axis=2) + np.arange(FERNS) * 2**QUESTIONS


def moved(images):
    """The images, and eight copies moved by less than half a pixel to all sides."""
    side = int(images.shape[1] ** 0.5)
    square = images.reshape(-1, side, side)
    padded = np.pad(square, ((0, 0), (1, 1), (1, 1)), constant_values=-1)
    shifts = [(y, x) for y in range(3) for x in range(3) if (y, x) != (1, 1)]
    copies = [0.6 * square + 0.4 * padded[:, y : y + side, x : x + side] for y, x in shifts]
    return np.concatenate([square, *copies]).reshape(-1, side * side)


class Classifier:
    """A program, and the scope that its table lives in."""

    def __init__(self, is_sparse=True):
        self.main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(self.main, startup), fluid.unique_name.guard():
            rows = fluid.data("rows", [None, FERNS], "int64")
            label = fluid.data("label", [None, 1], "int64")
            zeros = fluid.ParamAttr("table", fluid.initializer.Constant(0.0))
            found = fluid.embedding(rows, [ROWS, CLASSES], is_sparse=is_sparse, param_attr=zeros)
            self.scores = fluid.layers.reduce_sum(found, dim=1)
            self.loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(self.scores, label))
            self.test = self.main.clone(for_test=True)
            clip = fluid.clip.GradientClipByGlobalNorm(0.5)
            fluid.optimizer.Adagrad(0.02, grad_clip=clip).minimize(self.loss)
        self.executor, self.scope = fluid.Executor(), fluid.Scope()
        self.executor.run(startup, scope=self.scope)

    def step(self, rows, labels, fetch=()):
        """Train on a batch; returns the loss and what else is fetched."""
        feed = {"rows": rows, "label": labels}
        loss, *others = self.executor.run(self.main, feed, [self.loss, *fetch], scope=self.scope)
        return [loss.item(), *others]

    def accuracy(self, rows, labels):
        (scores,) = self.executor.run(self.test, {"rows": rows, "label": labels}, [self.scores], scope=self.scope)
        return float((scores.argmax(axis=1) == labels[:, 0]).mean())

    def table(self):
        return np.array(self.scope.find_var("table").get_tensor())


def compare(rows, labels, steps=20):
    """The same steps with a sparse and with a dense gradient; returns losses, seconds and tables of both."""
    found = {}
    for name, is_sparse in (("sparse", True), ("dense", False)):
        classifier = Classifier(is_sparse)
        losses, seconds = [], []
        for i in range(steps):
            batch = slice(i * BATCH_SIZE, (i + 1) * BATCH_SIZE)
            start = time.perf_counter()
            losses += classifier.step(rows[batch], labels[batch])
            seconds.append(time.perf_counter() - start)
        found[name] = np.array(losses), float(np.median(seconds)), classifier.table()
    return found


def main():
    """Compare, then train; prints what it finds and returns the shares of unseen digits known after each epoch."""
    images, labels = digits.load()
    labels = labels[:, None]
    rows = groups(images)
    ((sparse_losses, sparse, table), (losses, dense, expected)) = compare(rows, labels).values()
    print(f"a step with a sparse gradient takes {1e3 * sparse:.1f} ms, with a dense one {1e3 * dense:.1f} ms")
    print(f"losses differ by at most {np.abs(sparse_losses - losses).max():.0e}, ", end="")
    print(f"tables by {np.abs(table - expected).max():.0e}")

    classifier = Classifier()
    _, gradient = classifier.step(rows[:BATCH_SIZE], labels[:BATCH_SIZE], fetch=["table@GRAD"])
    print(f"the gradient of the first batch has {len(set(gradient.rows())):,} of {gradient.height():,} rows")
    seen, answers = groups(moved(images[:1500])), np.tile(labels[:1500], (9, 1))
    rng, known = np.random.default_rng(1), []
    for epoch in range(EPOCHS):
        for batch in np.array_split(rng.permutation(len(seen)), len(seen) // BATCH_SIZE):
            classifier.step(seen[batch], answers[batch])
        known.append(classifier.accuracy(rows[1500:], labels[1500:]))
        print(f"epoch {epoch + 1}: {known[-1]:.1%} of unseen digits known")
    return known


if __name__ == "__main__":
    main()
