"""Losses over samples where the recorded cases, whose samples are given, do not reach: what is drawn."""

import numpy as np
import pytest
from one_op import run

import minigraph as fluid
from minigraph import layers
from minigraph.errors import ExecutionError, ProgramError
from minigraph.layers.sampled_losses import alias_tables

pytestmark = pytest.mark.numbers

CHANCES = [0.1, 0.2, 0.3, 0.15, 0.25]


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [(0, [0.2] * 5), (1, [*np.diff(np.log(np.arange(1, 6))) / np.log(5), 0]), (2, CHANCES)],
)
def test_samples_of_nce_have_the_probabilities_of_their_sampler(sampler, expected):
    rows = 20000
    inputs = {"Input": np.ones((rows, 1)), "Label": np.zeros((rows, 1), "int64"), "Weight": np.ones((5, 1))}
    tables = alias_tables(CHANCES, 5) if sampler == 2 else {}
    attrs = {"num_total_classes": 5, "num_neg_samples": 2, "sampler": sampler, "seed": 3}
    _, _, classes = run("nce", {**inputs, **tables}, **attrs)
    found = np.bincount(classes[:, 1:].ravel(), minlength=5) / (2 * rows)
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_all_rows_of_sample_logits_share_distinct_samples():
    logits, labels = np.zeros((3, 50)), np.array([[1], [7], [49]])
    samples, probabilities, *_, sampled, places = run(
        "sample_logits", {"Logits": logits, "Labels": labels}, num_samples=20, seed=5, remove_accidental_hits=False
    )
    assert np.array_equal(samples[:, :1], labels)
    assert (samples[0, 1:] == samples[:, 1:]).all() and len(set(samples[0, 1:])) == 20
    assert ((probabilities > 0) & (probabilities < 1)).all()
    assert (np.diff(probabilities[0, 1:][np.argsort(samples[0, 1:])]) < 0).all()
    np.testing.assert_allclose(sampled, -np.log(probabilities))
    assert not places.any()


@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_gradient_of_a_sparse_weight_is_a_whole_tensor(is_sparse):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        x, label = fluid.data("x", [2, 3]), fluid.data("label", [2, 1], "int64")
        cost = layers.nce(x, label, 5, num_neg_samples=2, seed=1, is_sparse=is_sparse)
        (_, gradient), *_ = fluid.backward.append_backward(layers.mean(cost))
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        feed = {"x": np.ones((2, 3), "float32"), "label": np.array([[0], [4]])}
        (found,) = executor.run(feed=feed, fetch_list=[gradient])
    assert found.shape == (5, 3) and found[[0, 4]].all()


def test_the_path_of_a_class_counts_log_2_for_each_node_by_which_it_is_shorter():
    x, weight = np.ones((2, 2)), np.zeros((4, 2))
    losses, *_ = run("hierarchical_sigmoid", {"X": x, "W": weight, "Label": np.array([[0], [4]])}, num_classes=5)
    np.testing.assert_allclose(losses, np.full((2, 1), 3 * np.log(2)))


def test_classes_and_samplers_that_are_none_are_refused():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, label = fluid.data("x", [2, 3]), fluid.data("label", [2, 1], "int64")
        for call, words in (
            (lambda: layers.nce(x, label, 5, sampler="normal"), "sampler must be uniform"),
            (lambda: layers.nce(x, label, 5, sampler="custom_dist"), "a probability for each of 5 classes"),
            (lambda: layers.hsigmoid(x, label, 1), "at least 2"),
            (lambda: layers.hsigmoid(x, label, 4, path_table=label), "is_custom=True"),
        ):
            with pytest.raises(ProgramError, match=words):
                call()
    with pytest.raises(ExecutionError, match=r"Label must be in \[0, 4\)"):
        inputs = {"X": np.ones((1, 2)), "W": np.ones((3, 2)), "Label": np.array([[4]])}
        run("hierarchical_sigmoid", inputs, num_classes=4)


def test_programs_that_name_the_weight_as_an_output_train_as_those_that_do_not():
    def losses(*more):
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            x, label = fluid.data("x", [3, 4]), fluid.data("label", [3, 1], "int64")
            weight = layers.create_parameter([4, 4], "float32", default_initializer=fluid.initializer.Constant(0.3))
            block = x.block
            out, scores = block.create_var(name="out"), block.create_var(name="scores")
            inputs, outputs = {"X": x, "W": weight, "Label": label}, {"Out": out, "PreOut": scores}
            outputs.update(dict.fromkeys(more, weight))
            block.append_op("hierarchical_sigmoid", inputs, outputs, {"num_classes": 5})
            loss = layers.mean(out)
            fluid.optimizer.SGD(0.5).minimize(loss)
            executor, scope = fluid.Executor(), fluid.Scope()
            executor.run(fluid.default_startup_program(), scope=scope)
            feed = {"x": np.arange(12, dtype="float32").reshape(3, 4) / 12, "label": np.array([[0], [1], [4]])}
            return [executor.run(feed=feed, fetch_list=[loss], scope=scope)[0].item() for _ in range(4)]

    assert losses("W_Out") == losses()
