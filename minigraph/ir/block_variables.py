"""The variables of a block: find, create and remove them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from minigraph import unique_name
from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, caller_site, not_a_name, suggest
from minigraph.ir.block_arguments import as_dims, check_flags, check_lod_level, declared_type, require_initializer
from minigraph.ir.variable import Parameter, Variable
from minigraph.support.undo import note
from minigraph.types import TensorType, VarKind, as_dtype, dense_type

if TYPE_CHECKING:
    from minigraph.ir.block import Block
    from minigraph.ir.program import Program

V = TypeVar("V", bound=Variable)


class BlockVariables:
    """The variables of a `Block` by name, and the blocks around it, whose variables it sees, too."""

    variable_type = Variable
    parameter_type = Parameter
    program: Program
    idx: int
    parent_idx: int
    forward_block_idx: int
    vars: dict[str, Variable]

    def _changed(self) -> None:
        """Invalidate what is cached of the block."""
        raise NotImplementedError

    @property
    def parent_block(self) -> Block | None:
        return self.program.blocks[self.parent_idx] if self.parent_idx >= 0 else None

    @property
    def depth(self) -> int:
        """The number of blocks that this one is in."""
        parent = self.parent_block
        return 0 if parent is None else 1 + parent.depth

    @property
    def forward_block(self) -> Block | None:
        """The block that a block of gradients differentiates; None for another block."""
        return self.program.blocks[self.forward_block_idx] if self.forward_block_idx >= 0 else None

    def has_var(self, name: str) -> bool:
        try:
            return name in self.vars
        except TypeError:
            raise not_a_name(name) from None

    def var(self, name: str) -> Variable:
        """The variable of this block with this name.

        Raises
        ------
        NotFoundError
            If the block has none; the message suggests similar names.
        """
        if not isinstance(name, str):
            raise not_a_name(name)
        found = self.vars.get(name)
        if found is None:
            raise NotFoundError(
                f"block {self.idx} has no variable {name!r}", site=caller_site(),
                hint=suggest(name, self.vars) or "Read the names in block.vars.",
            )  # fmt: skip
        return found

    def find_var(self, name: str) -> Variable | None:
        """The variable with this name in this block or the nearest parent that has it, else None.

        A block of gradients looks into the block that it differentiates before its parent.
        """
        block: BlockVariables | None = self
        try:
            while block is not None:
                found = block.vars.get(name)
                if found is None and block.forward_block_idx >= 0:
                    found = block.program.blocks[block.forward_block_idx].vars.get(name)
                if found is not None:
                    return found
                block = block.parent_block
        except TypeError:
            raise not_a_name(name) from None
        return None

    def create_var(
        self,
        name: str | None = None,
        shape: Sequence[int | None] | None = None,
        dtype: Any = None,
        type: VarKind | None = None,
        persistable: bool = False,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        error_clip: Any = None,
        lod_level: int | None = None,
        initializer: Any = None,
    ) -> Variable:
        """Make a variable, or return the one that already has this name, type and shape.

        Parameters
        ----------
        name : str, optional
            Default: ``_generated_var_<n>``.
        shape : sequence of int, optional
            -1 or None where unknown. Left out: known once an operator writes the variable.
        dtype : str or DType, optional
            float32 by default.
        type : VarKind, optional
            A dense tensor by default.

        Raises
        ------
        ProgramError
            If the name is taken by a variable of another type or shape.
        """
        if name is None:
            name = self.free_name("_generated_var")
        elif not isinstance(name, str):
            raise not_a_name(name)
        # One comparison of types, and not a call, because each tensor of the imperative mode is made here, too.
        if not (
            persistable.__class__ is stop_gradient.__class__ is is_data.__class__ is need_check_feed.__class__ is bool
        ):
            check_flags(name, persistable, stop_gradient, is_data, need_check_feed)
        if initializer is not None:
            require_initializer(initializer)
        tensor_type = None if shape is None and dtype is None else declared_type(name, shape, dtype)
        levels = 0 if lod_level is None else check_lod_level(name, lod_level)
        if type is not None and not isinstance(type, VarKind):
            raise WrongTypeError(f"{name}: type must be a VarKind, got {type!r:.80}", hint="Leave it out for a tensor.")
        kind = type or VarKind.LOD_TENSOR
        existing = self.vars.get(name)
        if existing is not None:
            self._check_same(existing, tensor_type and tensor_type.held_as(type or existing.kind))
            if lod_level is not None and levels != existing.lod_level:
                raise ProgramError(
                    f"{name} has lod_level {existing.lod_level} already, it cannot also have {levels}",
                    hint="Choose another name, or give both the same lod_level to share it.",
                )
            return existing
        var = self._new(
            self.variable_type, name, tensor_type, kind=kind, persistable=persistable,
            stop_gradient=stop_gradient, is_data=is_data, need_check_feed=need_check_feed, error_clip=error_clip,
            lod_level=levels,
        )  # fmt: skip
        if initializer is not None:
            initializer(var, self)
        return var

    def temporary(self, name: str) -> Variable:
        """`create_var` for the result of an operator: only the name is given."""
        existing = self.vars.get(name)
        return self._new(self.variable_type, name) if existing is None else existing

    def fresh(self, key: str) -> Variable:
        """`temporary` with a name generated from `key`."""
        return self.temporary(unique_name.generate(key))

    def create_parameter(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any = "float32",
        initializer: Any = None,
        type: VarKind = VarKind.LOD_TENSOR,
        **fields: Any,
    ) -> Parameter:
        """Make a parameter, or return the one that already has this name, type and shape (it is then shared).

        `fields` are those of `Parameter`; a shared one takes the latest, as in fluid. `initializer`, when given,
        appends its operator to this block.
        """
        if type is not VarKind.LOD_TENSOR:
            raise ProgramError(
                f"parameter {name}: a parameter is a tensor, got type {type!r:.80}", hint="Leave the type out."
            )
        if not isinstance(name, str):
            raise not_a_name(name)
        if initializer is not None:
            require_initializer(initializer)
        dims = as_dims(shape)
        if min(dims, default=0) < 0:
            raise ProgramError(
                f"parameter {name}: every dimension must be known, got {list(shape)}",
                hint="Give every dimension a size: a parameter cannot depend on the batch.",
            )  # fmt: skip
        tensor_type = dense_type(as_dtype(dtype), dims)
        existing = self.vars.get(name)
        if existing is not None:
            if not isinstance(existing, Parameter):
                raise ProgramError(f"{existing} is not a parameter", hint="Choose another name.")
            self._check_same(existing, tensor_type)
            existing.take_attributes(self.parameter_type(self, name, tensor_type, **fields))  # type: ignore[arg-type]
            return existing
        param = self._new(self.parameter_type, name, tensor_type, **fields)
        if initializer is not None:
            initializer(param, self)
        return param

    def declare(self, name: str, tensor_type: TensorType) -> Variable:
        """Make a variable of a known type; the name must be free."""
        return self._new(self.variable_type, name, tensor_type, kind=tensor_type.kind)

    def _new(self, made_as: type[V], name: str, tensor_type: TensorType | None = None, **fields: Any) -> V:
        var = made_as(self, name, tensor_type, **fields)  # type: ignore[arg-type]  # because each is a Block
        self._add(var)
        return var

    def _add(self, var: Variable) -> None:
        self.vars[var.name] = var
        if not self.program.computes_at_once:
            note(self.vars.pop, var.name)
        if self.program.gradient_blocks.get(self.idx):
            self.program.version += 1  # blocks of gradients see the variable, and are no parents of this block
        else:
            self._changed()

    def _check_same(self, existing: Variable, wanted: TensorType | None) -> None:
        if wanted is not None and existing.tensor_type is not None and wanted != existing.tensor_type:
            raise ProgramError(
                f"{existing.name} is already a {existing.tensor_type}, it cannot also be a {wanted}",
                hint="Choose another name, or give both the same shape and dtype to share it.",
            )

    def remove_var(self, name: str) -> None:
        """Remove a variable that no operator uses."""
        note(self.vars.__setitem__, name, self.var(name))
        del self.vars[name]
        self.program.version += 1

    def free_name(self, key: str) -> str:
        """A generated name that no variable has, even if the program was built under another `unique_name.guard`."""
        name = unique_name.generate(key)
        while self.find_var(name) is not None:
            name = unique_name.generate(key)
        return name

    def all_parameters(self) -> list[Parameter]:
        """The block's parameters in order of creation."""
        return [var for var in self.vars.values() if isinstance(var, Parameter)]

    def iter_parameters(self) -> Iterator[Parameter]:
        return iter(self.all_parameters())

    def _var_recursive(self, name: str) -> Variable:
        """`find_var`, but a name that is not there is an error.

        Raises
        ------
        NotFoundError
            If neither the block nor a parent has the variable.
        """
        found = self.find_var(name)
        if found is None:
            raise NotFoundError(
                f"neither block {self.idx} nor a parent of it has a variable {name!r}", site=caller_site(),
                hint=suggest(name, self.vars),
            )  # fmt: skip
        return found

    def _clone_variable(self, var: Variable, force_persistable: bool = True) -> Variable:
        """Make a variable like `var` in this block, by default one that is kept from run to run."""
        return self.create_var(
            name=var.name, shape=var.shape, dtype=None if var.tensor_type is None else var.dtype, type=var.kind,
            persistable=force_persistable or var.persistable, is_data=var.is_data, need_check_feed=var.need_check_feed,
        )  # fmt: skip

    # Fluid's spellings
    _find_var_recursive = find_var
    _remove_var = remove_var
