"""Programs: blocks, the state in which new operators are made, copies and text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from minigraph.errors import NotFoundError, WrongTypeError, caller_site, warn
from minigraph.ir.block import Block
from minigraph.ir.description import Description
from minigraph.ir.effects import reachable_blocks
from minigraph.ir.operator import Attrs, Operator, slot_names
from minigraph.ir.role import Role
from minigraph.ir.text.notation import PROGRAM_DEFAULTS, braces, fields_text
from minigraph.ir.variable import Parameter, Variable, name_of
from minigraph.opdef import SUB_BLOCK
from minigraph.support.gc_pause import without_collector
from minigraph.support.public import public_but
from minigraph.support.undo import note

if TYPE_CHECKING:
    import networkx


@public_but("block", "role_guard", "standing_for")
class Program:
    """A whole computation: blocks, the first of which is the global one.

    Examples
    --------
    >>> import minigraph as fluid
    >>> main = fluid.Program()
    >>> with fluid.program_guard(main), fluid.unique_name.guard():
    ...     x = fluid.data("x", [None, 4])
    ...     y = fluid.layers.scale(x, 2.0)
    >>> print(main)
    block 0
      data x: float32[-1, 4] {need_check_feed=True}
      scale_0.tmp_0: float32[-1, 4] = scale(X=x) {scale=2.0}
    """

    computes_at_once: ClassVar[bool] = False
    """Whether operators are computed as they are written: the imperative mode."""
    _serials = itertools.count()
    _first_seed = 0

    def __init__(self) -> None:
        self.gradient_blocks: dict[int, list[Block]] = {}
        """Blocks of gradients, by the index of the block that they differentiate."""
        self.blocks: list[Block] = [Block(self, 0)]
        self.current_block_idx = 0
        self.version = 0
        """Grows with every change."""
        self.noted_changes = 0
        """Number of changes that invalidated the caches of the changed blocks only."""
        self.serial = next(Program._serials)
        self.clone_of: tuple[int, ...] = ()
        """Serials of the programs of which this one is a clone, the nearest last."""
        """Number that no other program has; an `id` is reused once a program is gone."""
        self.current_role = Role.FORWARD
        self._role_vars: tuple[str, ...] = ()
        self._stands_for: dict[str, str] = {}
        self._random_seed = Program._first_seed
        self.backward_passes = 0
        """Number of times gradients were appended; later passes give their gradients other names."""
        self.roots: tuple[str, ...] | None = None
        """Names of the fetched variables, in an executor's private copy. None: a later run may fetch any variable."""
        self.loaders: list[Any] = []
        """Loaders that feed variables in each run, see `minigraph.io.DataLoader`; not part of text or files."""
        self.origin: bytes | None = None
        """The description that the program was read from, to be written again unless the program changes."""
        self.is_concrete = False
        """Whether each variable has values of one type only, as in an executor's private copy."""
        self.is_exact = False
        """Whether executors make only rewrites that keep every bit; not part of text or files."""

    @property
    def unnoted_changes(self) -> int:
        """Number of changes that may concern any block."""
        return self.version - self.noted_changes

    @property
    def num_blocks(self) -> int:
        return len(self.blocks)

    @property
    def random_seed(self) -> int:
        """Seed given to random operators made from now on; 0 means a fresh one in each run."""
        return self._random_seed

    @random_seed.setter
    def random_seed(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise WrongTypeError(f"random_seed must be an int, got {seed!r}")
        # Only the first seed may come too late: between two seeds a user may build operators on purpose.
        late = self._drawing_afresh() if seed and not self._random_seed else []
        if late:
            warn(
                f"random_seed = {seed} comes too late for {len(late)} operators that were made before, such as "
                f"{late[0]}: they draw other numbers in each run. Set it before the layers are built."
            )
        self._random_seed = seed

    def _drawing_afresh(self) -> list[Operator]:
        """The operators that draw other random numbers in each run."""
        return [
            op for block in self.blocks for op in block.ops if "seed" in op.definition.attrs and not op.attr("seed")
        ]  # fmt: skip

    def global_seed(self, seed: int = 0) -> None:
        """Set `random_seed` of this program and of all that are made from now on."""
        self.random_seed = seed
        Program._first_seed = seed

    def global_block(self) -> Block:
        return self.blocks[0]

    def block(self, index: int) -> Block:
        if not isinstance(index, int) or not 0 <= index < len(self.blocks):
            raise NotFoundError(
                f"the program has blocks 0 to {len(self.blocks) - 1}, not {index!r:.80}", site=caller_site(),
                hint="Give the index of one of program.blocks.",
            )  # fmt: skip
        return self.blocks[index]

    def current_block(self) -> Block:
        return self.blocks[self.current_block_idx]

    def create_block(self, parent_idx: int | None = None, forward_block_idx: int = -1) -> Block:
        """Make a sub-block, by default of the current one, and make it current; `rollback` goes back to its parent."""
        parent = self.current_block_idx if parent_idx is None else parent_idx
        made = Block(self, len(self.blocks), parent, forward_block_idx)
        self.add_block(made)
        note(setattr, self, "current_block_idx", self.current_block_idx)
        self.current_block_idx = made.idx
        return made

    def add_block(self, block: Block) -> None:
        """Append a block, whose index must be the number of blocks so far."""
        self.blocks.append(block)
        note(self._drop_block)
        self.version += 1
        self.noted_changes += 1

    def _drop_block(self) -> None:
        self.blocks.pop().forward_block_idx = -1
        self.version += 1

    def rollback(self) -> None:
        """Make the parent of the current block current again."""
        note(setattr, self, "current_block_idx", self.current_block_idx)
        self.current_block_idx = self.current_block().parent_idx

    _create_block = create_block
    _rollback = rollback

    def list_vars(self) -> Iterator[Variable]:
        """Every variable, block by block in order of creation."""
        for block in self.blocks:
            yield from block.vars.values()

    def all_parameters(self) -> list[Parameter]:
        """Every parameter in order of creation."""
        return [param for block in self.blocks for param in block.all_parameters()]

    def role_guard(self, role: Role, role_vars: Sequence[Variable | str] = ()) -> AbstractContextManager[None]:
        """Operators made inside have this role and serve these (parameter, gradient) names."""
        names = map(name_of, role_vars)
        return _RoleGuard(self, role, tuple([self._stands_for.get(name, name) for name in names]))

    def _optimized_guard(self, param_and_grads: Sequence[Variable | str]) -> AbstractContextManager[None]:
        """Operators made inside update, or prepare updates; within a clip or a decay they are part of that."""
        return self.role_guard(
            self.current_role if self.current_role & Role.OPTIMIZE else Role.OPTIMIZE, param_and_grads
        )

    def _lr_schedule_guard(self, is_with_opt: bool = False) -> AbstractContextManager[None]:
        """Operators made inside compute a learning rate."""
        return self.role_guard(Role.LR_SCHED | Role.OPTIMIZE if is_with_opt else Role.LR_SCHED)

    def _backward_role_guard(self) -> AbstractContextManager[None]:
        """Operators made inside are part of the backward pass."""
        return self.role_guard(Role.BACKWARD)

    @contextmanager
    def standing_for(self, names: Mapping[str, str]) -> Iterator[None]:
        """Inside, replace names in `role_vars` by the values of `names`, as for a gradient that is changed in steps."""
        old = self._stands_for
        self._stands_for = {**old, **{name: old.get(original, original) for name, original in names.items()}}
        try:
            yield
        finally:
            self._stands_for = old

    @without_collector
    def clone(self, for_test: bool = False) -> Program:
        """A copy that shares no object with this program and keeps every field and order.

        Parameters
        ----------
        for_test : bool
            Leave out backward and optimize operators and the variables that only they use, and set ``is_test`` on the
            operators that have it. Take such a clone before or after ``minimize``.
        """
        if not isinstance(for_test, int | np.bool_):
            raise WrongTypeError(
                f"clone: for_test must be True or False, got {for_test!r:.80}",
                hint="Give True for a program that only tests.",
            )  # fmt: skip
        twin = Program()
        twin.clone_of = (*self.clone_of, self.serial)
        twin._random_seed = self._random_seed
        twin.backward_passes = self.backward_passes
        twin.roots = self.roots
        twin.loaders, twin.is_exact, twin.origin = list(self.loaders), self.is_exact, self.origin
        twin.current_block_idx = self.current_block_idx
        for block in self.blocks:
            twin._copy_block(block, (Role.BACKWARD | Role.OPTIMIZE) if for_test else Role.FORWARD)
        if for_test:
            twin.drop_unused_blocks()
            _drop_unused(self, twin)
            twin._set_is_test()
        return twin

    def _copy_block(self, block: Block, left_out: Role = Role.FORWARD, private: bool = False) -> None:
        """Add a copy of a block of another program under its index, without operators of the roles `left_out`.

        Operators of a `private` copy may share what edits replace, see `Block.append_copies`.
        """
        copied = self.blocks[0]
        if block.idx:
            copied = Block(self, block.idx, block.parent_idx, block.forward_block_idx)
            self.blocks.append(copied)
        copied.vars = {name: var._copy_to(copied) for name, var in block.vars.items()}
        copied.append_copies([op for op in block.ops[:] if not op.role & left_out], private)

    def copy_blocks(self, blocks: Iterable[Block], private: bool = False) -> None:
        """Copy blocks to this program, which has only a global block so far; they keep their indices."""
        for block in blocks:
            while len(self.blocks) < block.idx:
                self.blocks.append(Block(self, len(self.blocks), 0))  # fills the gap until `drop_unused_blocks`
            self._copy_block(block, private=private)

    def drop_unused_blocks(self) -> None:
        """Remove the sub-blocks that no operator runs, and renumber the others."""
        if len(self.blocks) == 1:
            return
        used = [self.blocks[0], *reachable_blocks(list(self.blocks[0].ops))]
        if len(used) == len(self.blocks):
            return
        index_of = {block.idx: new for new, block in enumerate(used)}
        for block in self.blocks:
            if block.idx not in index_of:
                block.forward_block_idx = -1
        for block in used:
            for op in block.ops:
                if SUB_BLOCK in op.attrs:
                    op.attrs = Attrs.of(op.definition, {**op.attrs, SUB_BLOCK: index_of[op.attrs[SUB_BLOCK]]})
            # The parent of a used block may be unused, as that of a forward block of gradients.
            block.parent_idx = index_of.get(block.parent_idx, -1 if block.idx == 0 else 0)
            block.forward_block_idx = index_of.get(block.forward_block_idx, -1)
        for block in used:
            block.idx = index_of[block.idx]
        self.blocks[:] = used
        self.current_block_idx = index_of.get(self.current_block_idx, 0)
        self.version += 1

    def keep_needed(self, feeds: Set[str], fetches: Sequence[str]) -> set[str]:
        """Keep only the operators that compute `fetches` from `feeds`; return the other variables that need a value."""
        block, needed, required = self.global_block(), set(fetches), set(fetches)
        # Backwards, so that readers are known before writers; a list, because operators are removed on the way.
        for op in list(reversed(block.ops)):
            if needed.isdisjoint(op.output_arg_names):
                block.remove(op)
                continue
            # Written here, so that an earlier value of the name is of no use.
            needed.difference_update(op.output_arg_names)
            required.difference_update(op.output_arg_names)
            needed.update(name for name in op.input_arg_names if name not in feeds)
            required.update(name for name in slot_names(op.inputs) if name not in feeds)
        self.drop_unused_blocks()
        used = {name for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)} | feeds
        block.vars = {name: var for name, var in block.vars.items() if name in used}
        return required

    def _prune(self, targets: Any) -> Program:
        """A clone of only the operators that compute variables, names of variables or what operators write."""
        return self._prune_with_input([], targets)

    def _prune_with_input(self, feeded_var_names: str | list[str], targets: Any) -> Program:
        """`_prune` without the operators that compute what will be fed."""
        given = [feeded_var_names] if isinstance(feeded_var_names, str) else feeded_var_names
        feeds = {name_of(each) for each in given}
        names: list[str] = []
        for each in targets if isinstance(targets, list) else [targets]:
            names += each.output_arg_names if isinstance(each, Operator) else [name_of(each)]
        twin = self.clone()
        twin.keep_needed(feeds, [name for name in names if name not in feeds])
        return twin

    def _inference_optimize(self, prune_read_op: bool = True) -> Program:
        """A clone whose operators test, as in ``clone(for_test=True)``, but with all of them.

        With `prune_read_op` no loader feeds it.
        """
        twin = self.clone()
        if prune_read_op:
            twin.loaders = []
        twin._set_is_test()
        return twin

    def _set_is_test(self) -> None:
        for block in self.blocks:
            for op in block.ops:
                if "is_test" in op.definition.attrs:
                    op.set_attr("is_test", True)

    def __copy__(self) -> Program:
        return self.clone()

    def __deepcopy__(self, memo: Any) -> Program:
        return self.clone()

    def __reduce__(self) -> Any:
        """Pickle as text, without source lines."""
        return Program.parse, (str(self),)

    def structure(self) -> tuple[Any, ...]:
        """Everything in the program but source lines; equal for equal programs.

        The order of variables does not count, except that of parameters, which other orders derive from.
        """
        return (
            self._random_seed,
            self.backward_passes,
            tuple(
                (
                    block.idx, block.parent_idx, block.forward_block_idx, [p.name for p in block.all_parameters()],
                    {name: var.structure() for name, var in block.vars.items()}, [op.structure() for op in block.ops],
                )
                for block in self.blocks
            ),
        )  # fmt: skip

    def equals(self, other: Program) -> bool:
        """Whether both programs have the same `structure`."""
        return self.structure() == other.structure()

    def graph(self) -> networkx.DiGraph:
        """A networkx graph of operators and variables; see `minigraph.ir.graph.program_graph`."""
        from minigraph.ir.graph import program_graph

        return program_graph(self)

    @property
    def desc(self) -> Description:
        return Description(self)

    def serialize_to_string(self) -> bytes:
        """The bytes of fluid's description of the program; see `minigraph.io.serialize_program`."""
        from minigraph.io.program_bytes import serialize_program

        return serialize_program(self)

    @staticmethod
    def parse_from_string(binary_str: bytes) -> Program:
        """The program of a description; see `minigraph.io.deserialize_program`."""
        from minigraph.io.program_reading import deserialize_program

        return deserialize_program(binary_str)

    @staticmethod
    def parse(text: str) -> Program:
        """The program that `text`, as ``str(program)`` gives it, describes."""
        from minigraph.ir.text.parser import parse

        return parse(text)

    def __str__(self) -> str:
        header = braces(fields_text(self, PROGRAM_DEFAULTS))
        return "\n".join([f"program{header}", *map(str, self.blocks)] if header else map(str, self.blocks))

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from minigraph.ir.text.html import program_html

        return program_html("Program", self.blocks)

    def __repr__(self) -> str:
        return f"<Program of {sum(len(b.ops) for b in self.blocks)} operators>"


class _RoleGuard(AbstractContextManager[None]):
    """Context of `Program.role_guard`; a class, because clips enter one for each gradient."""

    __slots__ = ("_inside", "_outside", "_program")

    def __init__(self, program: Program, role: Role, role_vars: tuple[str, ...]) -> None:
        self._program = program
        self._inside = role, role_vars

    def __enter__(self) -> None:
        program = self._program
        self._outside = program.current_role, program._role_vars
        program.current_role, program._role_vars = self._inside

    def __exit__(self, *_: object) -> None:
        self._program.current_role, self._program._role_vars = self._outside


def _drop_unused(original: Program, twin: Program) -> None:
    """Drop the variables that only operators left out of the clone have used."""
    was_used, is_used = (
        {n for block in program.blocks for op in block.ops for n in (*op.input_arg_names, *op.output_arg_names)}
        for program in (original, twin)
    )
    for block in twin.blocks:
        block.vars = {name: var for name, var in block.vars.items() if name in is_used or name not in was_used}
