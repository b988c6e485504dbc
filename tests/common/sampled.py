"""What tests do with each row of samples: the program of its operator, with gradients."""

import inspect
import os
from collections import defaultdict
from functools import cache, cached_property, lru_cache, wraps
from itertools import count

import numpy as np
import pytest
from one_op import OneOp
from together import check_all

import minigraph as fluid
from minigraph.opdef.gradient_rules import FusedGrad
from minigraph.passes import EXACT
from minigraph.rewrite.random_programs.rows import SAMPLES

WITHOUT_SAMPLES = {
    "print": "layers/test_print.py",
    "py_func": "layers/test_py_func.py",  # does what a function says
    "while": "layers/test_loops.py",  # runs a block, like the next two
    "recurrent": "layers/test_recurrent_networks.py",
    **dict.fromkeys(
        ("sequence_pool", "join_offsets", "split_offsets"), "executor/test_lengths.py"
    ),  # rows of arrays have no lengths
    **dict.fromkeys(("beam_search", "beam_search_decode"), "layers/test_decoding.py"),
    **dict.fromkeys(
        (
            *("sequence_softmax", "sequence_expand", "sequence_expand_as", "sequence_concat", "sequence_slice"),
            *("sequence_reverse", "sequence_reshape", "sequence_pad", "sequence_unpad", "sequence_scatter"),
            *("sequence_enumerate", "sequence_erase", "sequence_conv", "lod_reset", "lstm", "lstmp", "gru"),
            *("lod_rank_table", "max_sequence_len", "lod_tensor_to_array", "array_to_lod_tensor"),
            *("shrink_rnn_memory", "reorder_lod_tensor_by_rank", "im2sequence", "match_matrix_tensor"),
            *("var_conv_2d", "sequence_topk_avg_pooling", "filter_by_instag"),
        ),
        "layers/test_sequences.py",
    ),
    **dict.fromkeys(("shard_sequences", "join_sequences"), "parallel/test_exact_blocks.py"),
    **dict.fromkeys(("feed", "fetch"), "io/test_feed_ops.py"),  # runs leave them out
    **dict.fromkeys(("conditional_block", "select_output"), "layers/test_branches.py"),  # outputs may have no value
    **dict.fromkeys(
        (
            *(f"c_allreduce_{reduction}" for reduction in ("sum", "max", "min", "prod")),
            *("c_broadcast", "c_allgather", "c_reducescatter", "c_sync_calc_stream", "c_sync_comm_stream"),
            *("merged_c_allreduce_sum", "shard_seed", "seed_draws", "c_gen_nccl_id", "c_comm_init", "c_comm_init_all"),
        ),
        "runtime/test_collective.py",  # results depend on other ranks
    ),
    **dict.fromkeys(
        (
            *("c_part", "c_reduce_parts", "c_gather_parts", "part_norms", "part_reduction"),
            *("clip_parts", "clip_parts_factor"),
        ),
        "runtime/test_parts_of_ranks.py",
    ),
    **dict.fromkeys(
        ("empty_array", "write_to_array", "read_from_array", "lod_array_length", "tensor_array_to_tensor"),
        "layers/test_arrays.py",
    ),
}
"""Operators that a row cannot describe, and where their tests are."""


def ids(samples):
    numbers = defaultdict(count)
    return [f"{each.op}-{next(numbers[each.op])}" for each in samples]


TAKES_ALL_TYPES = os.environ.get("HYPOTHESIS_PROFILE") == "explore"


def types_of(row, number):
    """One of the element types of the row of this number, another for the next row; an exploration takes all of them.

    Operators with one row begin with different types.
    """
    return row.dtypes if TAKES_ALL_TYPES else [row.dtypes[(number + len(row.op)) % len(row.dtypes)]]


def each(samples):
    """Decorate a law that takes a `sample`, to try it on each of the rows: one test for each operator, over its rows.

    A law that takes a `dtype`, too, is tried with `types_of` the row.

    A test for each row would take as long to collect and report as many laws take on the row. The laws of a file on
    one operator follow each other, then come those on the next.
    """
    by_operator = defaultdict(dict)
    for id, sample in zip(ids(samples), samples, strict=True):
        by_operator[sample.op][id] = sample

    def decorate(law):
        signature = inspect.signature(law)
        takes_type = "dtype" in signature.parameters

        @wraps(law)
        def on_rows(rows, **fixtures):
            if takes_type:
                numbered = enumerate(rows.items())
                typed = {f"{name} {d}": (row, d) for i, (name, row) in numbered for d in types_of(row, i)}
                check_all(lambda case: law(sample=case[0], dtype=case[1], **fixtures), typed)
            else:
                check_all(lambda sample: law(sample=sample, **fixtures), rows)

        others = [parameter for name, parameter in signature.parameters.items() if name not in ("sample", "dtype")]
        rows = inspect.Parameter("rows", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        on_rows.__signature__ = signature.replace(parameters=[rows, *others])
        cases = pytest.mark.parametrize("rows", by_operator.values(), ids=by_operator, scope="module")
        return pytest.mark.laws(cases(on_rows))

    return decorate


DETERMINISTIC = [s for s in SAMPLES if not s.is_random]


class Built(OneOp):
    """The program of a row."""

    def __init__(self, sample, dtype):
        super().__init__(sample.op, sample.inputs_as(dtype), sample.attrs, sample.outputs)
        self.sample = sample

    @cached_property
    def exact(self):
        """An executor that gives the bits of the interpreter."""
        return fluid.Executor(passes=EXACT) if self.sample.op in ROUNDED else self.executor

    @cached_property
    def first_results(self):
        """Results of the first run of `executor`, random numbers with the seed 5."""
        self.executor._rng = np.random.default_rng(5)
        return super().run()

    def run(self, executor=None, feed=None):
        if executor in (None, self.executor) and "first_results" not in vars(self):
            first = self.first_results
            if feed is None:
                return first
        return super().run(executor, feed)

    @property
    def targets(self):
        """The floating-point outputs whose gradients the rule reads."""
        rule = self.sample.definition.grad
        slots = rule.d_outputs if isinstance(rule, FusedGrad) else self.outputs_of
        return [var for slot in slots for var in self.outputs_of[slot] if var.dtype.is_floating]

    @property
    def first(self):
        """The gradients that there are."""
        return [grad for _, grad in self.gradients if grad is not None]

    def differentiate_row(self):
        """Append the gradients of the targets, for random gradients of those."""
        values = self.fetch(self.targets, fluid.Interpreter())
        self.differentiate(
            dict(zip([var.name for var in self.targets], drawn_like(values), strict=True)), self.sample.wrt
        )


def drawn_like(values, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, value.shape).astype(value.dtype) for value in values]


ROUNDED = {"elementwise_div_grad_grad", "elu_grad_grad", "instance_norm_grad_grad", "pool2d", "pow"}
"""Operators that passes of the executor write as others, or whose gradients have equal operators that passes share."""


@cache  # all of them take 60 MB, and the laws of most files try them
def with_gradients(sample, dtype):
    """The program of a row and, if its operator has any, of its gradients; shared, so nobody may change it."""
    built = Built(sample, dtype)
    if sample.wrt:
        built.differentiate_row()
    return built


@lru_cache(maxsize=256)
def without_gradients(sample, dtype):
    """The program of a row; shared, so nobody may change it."""
    return Built(sample, dtype)


WITHOUT_SECOND_GRADIENT = {
    "print": "its gradient is one of it",
    "py_func": "nothing says what the gradient of a backward function is",
    **dict.fromkeys(
        ("nce", "hierarchical_sigmoid", "grid_sampler", "deformable_conv", "deformable_conv_v1"),
        "its kernel finds the elements that it reads, no operator does",
    ),
    **dict.fromkeys(("cvm", "data_norm"), "what counts get for gradients is none"),
    "shuffle_batch": "where rows went is known only when it runs",
    "merge_lod_tensor": "how many rows a branch has is known only when it runs",
    **dict.fromkeys(
        (
            *("sequence_pool", "sequence_softmax", "sequence_expand", "sequence_expand_as", "sequence_concat"),
            *("sequence_slice", "sequence_reverse", "sequence_reshape", "sequence_pad", "sequence_unpad"),
            *("sequence_scatter", "sequence_conv", "lod_reset", "lstm", "lstmp", "gru", "lod_tensor_to_array"),
            *("array_to_lod_tensor", "shrink_rnn_memory", "reorder_lod_tensor_by_rank", "im2sequence"),
            *("linear_chain_crf", "warpctc", "match_matrix_tensor", "var_conv_2d", "sequence_topk_avg_pooling"),
            "filter_by_instag",
        ),
        "fluid has no second gradients of sequences",
    ),
    **dict.fromkeys(
        ("write_to_array", "read_from_array", "tensor_array_to_tensor"),
        "they serve loops; a loop over arrays has no second gradient",
    ),
}
"""Operators with a gradient that has none, with the reason."""

TWICE_DIFFERENTIABLE = [
    s for s in SAMPLES if s.wrt and not s.is_random and "float64" in s.dtypes and s.op not in WITHOUT_SECOND_GRADIENT
]


class Twice(Built):
    """The program of a row, its gradients, and the gradients of their sum with random weights."""

    def __init__(self, sample, dtype="float64"):
        super().__init__(sample, dtype)
        self.differentiate_row()
        self.sources = [var for var, _ in self.gradients]
        self.cotangents = [self.block.var(f"cotangent_of_{var.name}") for var in self.targets]
        # The gradient is linear in the cotangents, and these are inputs of it like any other.
        self.wanted = [*self.sources, *self.cotangents]
        self.weights = drawn_like(self.fetch(self.first, fluid.Interpreter()), seed=4)
        given = [self.declare(f"weight_{i}", weight) for i, weight in enumerate(self.weights)]
        self.second = fluid.gradients(self.first, self.wanted, given)

    def results(self, executor=None, feed=None):
        """The second gradients by the name of what they are for, from the interpreter or another executor."""
        there = [grad for grad in self.second if grad is not None]
        values = iter(self.fetch(there, executor or fluid.Interpreter(), feed))
        return {
            var.name: next(values) if grad is not None else np.zeros(self.feed[var.name].shape, var.dtype.numpy)
            for var, grad in zip(self.wanted, self.second, strict=True)
        }


@lru_cache(maxsize=256)
def differentiated_twice(sample, dtype="float64"):
    """The program of a row and of its second gradients; shared, so nobody may change it."""
    return Twice(sample, dtype)
