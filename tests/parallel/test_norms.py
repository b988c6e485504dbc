"""`compare_norms` against norms by NumPy of gradients that are fetched."""

import numpy as np
import pytest

import minigraph as fluid
from minigraph import layers, parallel
from minigraph.errors import ProgramError
from minigraph.parallel import DataParallel


@pytest.mark.parametrize("is_made_for_ranks", [False, True])
def test_norms_and_factors(is_made_for_ranks):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        words, y = fluid.data("words", [None, 3], "int64"), fluid.data("y", [None, 1])
        hidden = layers.reduce_mean(fluid.embedding(words, [20, 4], is_sparse=True, param_attr="table"), 1)
        loss = layers.mean(layers.square_error_cost(layers.fc(hidden, 1, param_attr="w", bias_attr=False), y))
        clip = fluid.clip.GradientClipByGlobalNorm(0.5)
        fluid.optimizer.SGD(0.1, grad_clip=clip).minimize(loss)
        executor = fluid.Executor()
        executor.run(startup)
        rng = np.random.default_rng(0)
        feeds = [
            {"words": rng.integers(0, 20, (4, 3)), "y": 3 * rng.normal(size=(4, 1)).astype("float32")} for _ in range(3)
        ]
        given = DataParallel(3)(main) if is_made_for_ranks else main
        before = np.array(fluid.global_scope().find_var("w").get_tensor())
        report = parallel.compare_norms(given, feeds, clip_norm=0.5)
        assert np.array_equal(before, np.array(fluid.global_scope().find_var("w").get_tensor()))

        def norm_of(feed):
            grads = executor.run(main, feed, ["table@GRAD", "w@GRAD"], scope=snapshot())
            return np.sqrt(
                sum(float(np.sum(np.float64(each.numpy() if i == 0 else each) ** 2)) for i, each in enumerate(grads))
            )

        def snapshot():
            copy = fluid.Scope()
            for name in ("table", "w", "learning_rate_0"):
                copy.var(name).get_tensor().set(np.array(fluid.global_scope().find_var(name).get_tensor()))
            return copy

        everything = {key: np.concatenate([feed[key] for feed in feeds]) for key in feeds[0]}
        np.testing.assert_allclose(report.local, [norm_of(feed) for feed in feeds], rtol=1e-5)
        np.testing.assert_allclose(report.joint, norm_of(everything), rtol=1e-5)
        assert report.factor == 0.5 / max(report.joint, 0.5)
        assert report.local_factors == tuple(0.5 / max(norm, 0.5) for norm in report.local)
        assert str(report).splitlines()[1].split()[:3] == ["rank", "0", "alone"]
        assert f"<td>{report.joint:.6g}</td>" in report._repr_html_()


def test_programs_without_gradients_are_refused():
    with pytest.raises(ProgramError, match="no backward pass"):
        parallel.compare_norms(fluid.Program(), [{}], 1.0)
    with pytest.raises(ProgramError, match="at least one rank"):
        parallel.compare_norms(fluid.Program(), [], 1.0)
