"""Descriptions of operators by fluid's interface; they are the definitions of `minigraph.opdef`."""

from __future__ import annotations

from typing import NamedTuple

from minigraph.opdef import Attr, Slot, all_definitions, definition_of
from minigraph.support.public import public

__all__ = ["OpProto", "OpProtoHolder"]


class OpProto(NamedTuple):
    """Inputs, outputs and attributes of an operator; each has a ``name``."""

    type: str
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    attrs: tuple[Attr, ...]
    comment: str


@public
class OpProtoHolder:
    """The descriptions of all operators.

    Examples
    --------
    >>> proto = OpProtoHolder.instance().get_op_proto("scale")
    >>> [slot.name for slot in proto.inputs], [attr.name for attr in proto.attrs]
    (['X', 'ScaleTensor'], ['scale', 'bias', 'bias_after_scale'])
    """

    @classmethod
    def instance(cls) -> OpProtoHolder:
        return _HOLDER

    def get_op_proto(self, type: str) -> OpProto:
        """The description of an operator.

        Raises
        ------
        NotFoundError
            If there is no such operator.
        """
        found = definition_of(type)
        return OpProto(found.type, tuple(found.inputs), tuple(found.outputs), tuple(found.attrs.values()), found.doc)

    @property
    def op_proto_map(self) -> dict[str, OpProto]:
        """All descriptions by type."""
        return {each.type: self.get_op_proto(each.type) for each in all_definitions()}


_HOLDER = OpProtoHolder()
