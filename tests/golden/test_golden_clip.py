"""Clipping as fluid 1.8.5 and Paddle 3.3.1 were recorded doing it, replayed in the mode that each has.

Fluid's strategies append to a static program, Paddle's compute in the imperative mode; both are called with pairs of a
parameter and its gradient. `golden_clip` says what counts as right.
"""

import pytest
from golden_clip import Case, Results, by_definition, cases, check, differences
from together import check_all

import minigraph as fluid
import minigraph as paddle

pytestmark = pytest.mark.numbers


def by_id(found):
    return {f"{case.system} {case.id}": case for case in found}


def clip_in_a_program(case: Case) -> Results:
    arguments = dict(case.args)
    if arguments.pop("not_clipped", None) is not None:
        arguments["need_clip"] = lambda param: case.clips(int(param.name[1:]))
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        block = main.global_block()
        pairs = [
            (
                block.create_parameter(f"p{i}", array.shape, array.dtype),
                block.create_var(name=f"g{i}", shape=array.shape, dtype=array.dtype, is_data=True),
            )
            for i, array in enumerate(case.inputs)
        ]
        clipped = getattr(fluid.clip, case.name)(**arguments)(pairs)
    feed = {grad.name: array for (_, grad), array in zip(pairs, case.inputs, strict=True)}
    values = fluid.Executor().run(main, feed=feed, fetch_list=[grad for _, grad in clipped], scope=fluid.Scope())
    return {f"out_{int(param.name[1:]):02}": value for (param, _), value in zip(clipped, values, strict=True)}


def clip_at_once(case: Case) -> Results:
    arguments = {name: value for name, value in case.args.items() if name != "need_clip"}
    strategy = getattr(paddle.nn, case.name)(**arguments)
    pairs, numbers = [], {}
    for i, array in enumerate(case.inputs):
        attr = paddle.ParamAttr(need_clip=case.clips(i))
        shape, dtype = ([1], "float32") if array is None else (list(array.shape), str(array.dtype))
        param = paddle.create_parameter(shape=shape, dtype=dtype, attr=attr)
        numbers[param.name] = i
        pairs.append((param, None if array is None else paddle.to_tensor(array)))
    clipped = strategy(pairs)
    order = [numbers[param.name] for param, _ in clipped]
    assert order == [i for i, array in enumerate(case.inputs) if array is not None]
    return {f"out_{numbers[param.name]:02}": grad.numpy() for param, grad in clipped}


@pytest.mark.slow
def test_a_strategy_of_fluid_clips_in_a_program():
    check_all(lambda case: check(case, clip_in_a_program), by_id(cases("paddle18")))


@pytest.mark.slow
def test_a_strategy_of_paddle_clips_at_once():
    check_all(lambda case: check(case, clip_at_once), by_id(cases("paddle3")))


ORDINARY = [case for case in cases() if case.set in ("mixed", "many", "one", "none", "need_clip", "f64", "axes3")]


@pytest.mark.slow
def test_the_definitions_are_those_of_the_originals_away_from_the_edges():
    def check_definition(case):
        assert not differences(case, case.results, by_definition(case))

    check_all(check_definition, by_id(case for case in ORDINARY if case.results and by_definition(case)))
