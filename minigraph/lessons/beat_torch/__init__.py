"""Lesson 10: a pass that multiplies matrices in the cheaper order, and torch, which multiplies in the order written."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any

from minigraph import optimizer, unique_name
from minigraph.clip import GradientClipByGlobalNorm
from minigraph.ir import Program
from minigraph.ir.default_programs import program_guard
from minigraph.lessons.arrays import numbers
from minigraph.lessons.beat_torch.reference import reassociate
from minigraph.lessons.cases import Case, kept_cases, parsed
from minigraph.lessons.findings import Finding
from minigraph.lessons.savings import Timing, figures, saved
from minigraph.lessons.student_pass import Call, RoundingStudentPass, sound
from minigraph.passes import LOWERING

ROUNDS = 30
"""Number of steps of torch of which the shortest is shown."""

CASES = (
    Case(
        "the order of the factors stays",
        """
        block 0
          data x: float32[2, 8]
          param a: float32[8, 8]
          param b: float32[8, 8]
          w: float32[8, 8] = mul(X=a, Y=b)
          h: float32[2, 8] = mul(X=x, Y=w)
        """,
        ("h",),
        "x (a b) = (x a) b: brackets may move, factors may not.",
    ),
    Case(
        "the other way round",
        """
        block 0
          param a: float32[8, 8]
          param b: float32[8, 8]
          data x: float32[8, 2]
          w: float32[8, 8] = mul(X=a, Y=b)
          h: float32[8, 2] = mul(X=w, Y=x)
        """,
        ("h",),
        "(a b) x = a (b x): brackets may move, factors may not.",
    ),
    Case(
        "the inner product is read, too",
        """
        block 0
          data x: float32[2, 8]
          param a: float32[8, 1]
          param b: float32[1, 8]
          w: float32[8, 8] = mul(X=a, Y=b)
          h: float32[2, 8] = mul(X=x, Y=w)
        """,
        ("h", "w"),
        "w is fetched, so it has to be computed anyway.",
    ),
    Case(
        "an input of three dimensions",
        """
        block 0
          data x: float32[2, 3, 8]
          param a: float32[8, 1]
          param b: float32[1, 8]
          w: float32[8, 8] = mul(X=a, Y=b)
          h: float32[2, 3, 8] = mul(X=x, Y=w) {x_num_col_dims=2}
        """,
        ("h",),
        "With x_num_col_dims=2 the first factor is flattened otherwise: match the default only, or pass it on.",
    ),
)

CHEAP = (
    """
    block 0
      data x: float32[64, 4]
      param a: float32[4, 64]
      param b: float32[64, 1]
      w: float32[4, 1] = mul(X=a, Y=b)
      h: float32[64, 1] = mul(X=x, Y=w)
    """,
    """
    block 0
      data x: float32[1, 64]
      param a: float32[64, 4]
      param b: float32[4, 64]
      w: float32[1, 4] = mul(X=x, Y=a)
      h: float32[1, 64] = mul(X=w, Y=b)
    """,
    # Costs that leave out a dimension, add dimensions up, or leave out the second product are wrong about these.
    """
    block 0
      data x: float32[1, 4]
      param a: float32[4, 32]
      param b: float32[32, 4]
      w: float32[1, 32] = mul(X=x, Y=a)
      h: float32[1, 4] = mul(X=w, Y=b)
    """,
    """
    block 0
      data x: float32[4, 32]
      param a: float32[32, 4]
      param b: float32[4, 1]
      w: float32[32, 1] = mul(X=a, Y=b)
      h: float32[4, 1] = mul(X=x, Y=w)
    """,
    """
    block 0
      data x: float32[4, 16]
      param a: float32[16, 1]
      param b: float32[1, 2]
      w: float32[4, 1] = mul(X=x, Y=a)
      h: float32[4, 2] = mul(X=w, Y=b)
    """,
    """
    block 0
      data x: float32[2, 1]
      param a: float32[1, 16]
      param b: float32[16, 4]
      w: float32[1, 4] = mul(X=a, Y=b)
      h: float32[2, 4] = mul(X=x, Y=w)
    """,
)
"""Programs whose order is the cheaper one already."""

OPEN = """
    block 0
      data x: float32[-1, 8]
      param a: float32[8, 64]
      param b: float32[64, 8]
      w: float32[8, 8] = mul(X=a, Y=b)
      h: float32[-1, 8] = mul(X=x, Y=w)
"""
"""A program whose order is the cheaper one for a batch of more than four."""

NETWORK = """
    block 0
      data x: float32[32, 1024]
      data z: float32[1024, 4]
      param a: float32[1024, 8]
      param b: float32[8, 1024]
      param u: float32[32, 1024]
      param v: float32[1024, 1024]
      w: float32[1024, 1024] = mul(X=a, Y=b)
      h: float32[32, 1024] = mul(X=x, Y=w)
      uv: float32[32, 1024] = mul(X=u, Y=v)
      t: float32[32, 4] = mul(X=uv, Y=z)
      s: float32[32, 1024] = square(X=h)
      q: float32[32, 4] = square(X=t)
      p: float32[1] = mean(X=s)
      r: float32[1] = mean(X=q)
      loss: float32[1] = elementwise_add(X=p, Y=r)
"""
"""A layer whose weight is a product of two thin matrices, and a chain of products that ends in a thin one."""


def judge(call: Call) -> Iterator[Finding | Timing]:
    """Keep the results up to rounding, never make a program dearer, and save as much as the reference in training."""
    answer = RoundingStudentPass(call, "reassociate", reassociate)
    yield from kept_cases(CASES, answer)
    yield Finding("no program needs more arithmetic than before", _dearer(answer))
    for each in saved(answer, reassociate, parsed(NETWORK, ["loss"]), training):
        yield Timing(each.before, each.after, LOWERING.passes, torch_time) if isinstance(each, Timing) else each


def _dearer(answer: RoundingStudentPass) -> str:
    for text in CHEAP:
        program = parsed(text, ["h"])
        before, after = figures(program)["flops"], figures(sound(answer, program))["flops"]
        if after > before:
            return (
                f"{before:,} flops become {after:,}. Compare the costs of both orders in a condition, by .where: each "
                f"of the two products takes rows * inner * columns.\n{program}"
            )
    if not sound(answer, parsed(OPEN, ["h"])).equals(parsed(OPEN, ["h"])):
        return "The batch of x is -1, which is no number to compare: leave the order as it is if a size is not known."
    return ""


def training(program: Program) -> Program:
    """Append the gradients, a clip by the global norm and the updates."""
    with program_guard(program, Program()), unique_name.guard():
        loss = program.global_block().var("loss")
        optimizer.SGD(1e-6, grad_clip=GradientClipByGlobalNorm(1.0)).minimize(loss)
    return program


def torch_time() -> str:
    """Measure the same training step as it is written, in torch on one thread."""
    if find_spec("torch") is None:
        return "torch is not installed, so it is not measured."
    torch: Any = import_module("torch")
    torch.set_num_threads(1)

    def tensor(name: str, *shape: int, is_parameter: bool = True) -> Any:
        return torch.tensor(numbers(name, shape, "float32", not is_parameter), requires_grad=is_parameter)

    x, z = tensor("x", 32, 1024, is_parameter=False), tensor("z", 1024, 4, is_parameter=False)
    a, b = tensor("a", 1024, 8), tensor("b", 8, 1024)
    u, v = tensor("u", 32, 1024), tensor("v", 1024, 1024)
    sgd = torch.optim.SGD([a, b, u, v], 1e-6)
    best = float("inf")
    for _ in range(ROUNDS):
        started = perf_counter()
        sgd.zero_grad()
        loss = (x @ (a @ b)).square().mean() + ((u @ v) @ z).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([a, b, u, v], 1.0)
        sgd.step()
        best = min(best, perf_counter() - started)
    return f"The same step in torch {torch.__version__}, as it is written: {1e6 * best:,.0f} us."
