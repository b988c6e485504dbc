"""Operators on sequences of different lengths, whose offsets are host arrays; nothing loops over the sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigraph.errors import ExecutionError
from minigraph.kernels.indexing import combine_rows
from minigraph.kernels.rank_table import on_host
from minigraph.kernels.registry import kernel
from minigraph.kernels.segments import numbers, of_rows, reduced
from minigraph.kernels.sequence_rows import chosen, copied, joined, lengths_of, offsets_of, ranges


@kernel("sequence_softmax")
def sequence_softmax(xp, x, x_lod):
    offsets = x_lod[-1]
    y = x - of_rows(xp, reduced(xp, "maximum", x, offsets, 0), offsets)
    xp.exp(y, out=y)
    y /= of_rows(xp, reduced(xp, "add", y, offsets, 1), offsets)
    return y


@kernel("sequence_softmax_grad")
def sequence_softmax_grad(xp, x, y, d_y, x_lod):
    d_x = d_y * y
    d_x -= y * of_rows(xp, reduced(xp, "add", d_x, x_lod[-1], 0), x_lod[-1])
    return d_x


# Repetition


@kernel("sequence_expand")
def sequence_expand(xp, x, y, x_lod, y_lod, *, ref_level):
    rows, offsets = _expansion(x, x_lod, y_lod[ref_level])
    out = x[xp.asarray(rows)]
    return (out, [offsets]) if x_lod else out


@kernel("sequence_expand_grad")
def sequence_expand_grad(xp, x, y, d_out, x_lod, y_lod, *, ref_level):
    if not x_lod:
        return reduced(xp, "add", d_out, y_lod[ref_level], 0)
    rows, _ = _expansion(x, x_lod, y_lod[ref_level])
    return _added_up(xp, d_out, rows, x)


def _expansion(x, x_lod, y_offsets) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the sequences of `x`, each as often as one of `y` is long; and their offsets."""
    offsets = x_lod[0] if x_lod else np.arange(len(x) + 1)
    counts = lengths_of(y_offsets)
    if len(counts) != len(offsets) - 1:
        raise ExecutionError(
            f"X has {len(offsets) - 1} sequences, but Y has {len(counts)} on the level that says how often",
            hint="Feed as many sequences of Y as of X, or set ref_level to another level of Y.",
        )
    which = np.repeat(np.arange(len(counts)), counts)
    lengths = lengths_of(offsets)[which]
    return ranges(offsets[which], lengths), offsets_of(lengths)


def _added_up(xp, d_out, rows, x) -> Any:
    """The gradient of ``x[rows]``: the rows are brought together and added in one go."""
    d_x = xp.zeros_like(x)
    order = np.argsort(rows, kind="stable")
    found, starts = np.unique(rows[order], return_index=True)
    if len(found):
        d_x[xp.asarray(found)] = xp.add.reduceat(d_out[xp.asarray(order)], xp.asarray(starts), 0)
    return d_x


@kernel("sequence_expand_as")
def sequence_expand_as(xp, x, y, y_lod):
    _check_count(x, y_lod[0])
    return of_rows(xp, x, y_lod[0])


@kernel("sequence_expand_as_grad")
def sequence_expand_as_grad(xp, x, y, d_out, y_lod):
    return reduced(xp, "add", d_out, y_lod[0], 0)


def _check_count(x, offsets) -> None:
    if len(x) != len(offsets) - 1:
        raise ExecutionError(
            f"X has {len(x)} rows, but Y has {len(offsets) - 1} sequences",
            hint="Give X one row for each sequence of Y.",
        )


# Order


@kernel("sequence_concat")
def sequence_concat(xp, xs, offsets):
    rows, joined = _interleaving(offsets)
    return xp.concatenate(xs)[xp.asarray(rows)], [joined]


@kernel("sequence_concat_grad")
def sequence_concat_grad(xp, xs, d_out, offsets):
    rows, _ = _interleaving(offsets)
    d_all = xp.empty_like(d_out)
    d_all[xp.asarray(rows)] = d_out
    ends = np.cumsum([len(x) for x in xs]).tolist()
    return [d_all[end - len(x) : end].copy() for x, end in zip(xs, ends, strict=True)]


def _interleaving(all_offsets) -> tuple[np.ndarray, np.ndarray]:
    """The rows, of inputs one after the other, of their first sequences, then of their second ones, and so on.

    And the offsets of the joined sequences.
    """
    counts = {len(offsets) - 1 for offsets in all_offsets}
    if len(counts) > 1:
        raise ExecutionError(f"the inputs differ in their number of sequences: {sorted(counts)}")
    lengths = np.stack([lengths_of(offsets) for offsets in all_offsets], 1)
    before = offsets_of([offsets[-1] for offsets in all_offsets])[:-1]
    starts = np.stack([offsets[:-1] for offsets in all_offsets], 1) + before
    return ranges(starts.reshape(-1), lengths.reshape(-1)), offsets_of(lengths.sum(1))


@kernel("sequence_slice")
def sequence_slice(xp, x, offset, length, x_lod):
    rows, lengths = _parts(offset, length, x_lod[-1])
    return x[xp.asarray(rows)], [offsets_of(lengths)]


@kernel("sequence_slice_grad")
def sequence_slice_grad(xp, x, offset, length, d_out, x_lod):
    rows, _ = _parts(offset, length, x_lod[-1])
    d_x = xp.zeros_like(x)
    d_x[xp.asarray(rows)] = d_out
    return d_x


def _parts(offset, length, offsets) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the parts of sequences, and the lengths of the parts."""
    first, count = (np.array(each.tolist(), np.int64).reshape(-1) for each in (offset, length))
    if len(first) != len(offsets) - 1 or len(count) != len(first):
        raise ExecutionError(
            f"there are {len(offsets) - 1} sequences, but {len(first)} offsets and {len(count)} lengths",
            hint="Give Offset and Length the shape [sequences, 1].",
        )
    wrong = ((first < 0) | (count < 0) | (first + count > lengths_of(offsets))).nonzero()[0]
    if len(wrong):
        i = int(wrong[0])
        raise ExecutionError(
            f"sequence {i} has {lengths_of(offsets)[i]} rows, so a part from {first[i]} of {count[i]} is not in it",
            hint="Feed an Offset and a Length whose sum is at most the length of the sequence.",
        )
    return ranges(offsets[:-1] + first, count), count


@kernel("sequence_reverse")
def sequence_reverse(xp, x, like, x_lod=None, like_lod=None):
    if not (x_lod or like_lod):
        raise ExecutionError("X has no sequences", hint="Feed it, or what it is computed from, as a LoDTensor.")
    offsets = (x_lod or like_lod)[-1]
    rows = np.repeat(offsets[:-1] + offsets[1:] - 1, lengths_of(offsets)) - np.arange(offsets[-1])
    return x[xp.asarray(rows)]


@kernel("sequence_reshape")
def sequence_reshape(xp, x, x_lod, *, new_dim):
    offsets = x_lod[-1] * x.shape[1]
    if (offsets % new_dim).any():
        i = int((offsets % new_dim).nonzero()[0][0]) - 1
        raise ExecutionError(
            f"sequence {i} has {lengths_of(offsets)[i]} elements, which are no rows of new_dim={new_dim}",
            hint="Choose a new_dim that divides the number of elements of each sequence.",
        )
    return x.reshape(-1, new_dim).copy(), [offsets // new_dim]


@kernel("sequence_reshape_grad")
def sequence_reshape_grad(xp, x, d_out, x_lod, *, new_dim):
    return d_out.reshape(x.shape).copy()


# Padding


def _places_in_padded(lengths, padded_length) -> np.ndarray:
    """The places of the rows where each sequence has `padded_length` of them."""
    return ranges(np.arange(len(lengths)) * padded_length, lengths)


@kernel("sequence_pad")
def sequence_pad(xp, x, pad_value, x_lod, *, padded_length):
    lengths = lengths_of(x_lod[-1])
    longest = int(lengths.max(initial=0))
    if 0 <= padded_length < longest:
        raise ExecutionError(
            f"a sequence has {longest} rows, which is more than padded_length={padded_length}",
            hint="Set maxlen to at least the length of the longest sequence, or to None.",
        )
    whole = longest if padded_length < 0 else padded_length
    out = xp.empty((len(lengths), whole, *x.shape[1:]), x.dtype)
    out[...] = pad_value if pad_value.size > 1 else pad_value.reshape(())
    out.reshape(-1, *x.shape[1:])[xp.asarray(_places_in_padded(lengths, whole))] = x
    return out, xp.asarray(lengths)


@kernel("sequence_pad_grad")
def sequence_pad_grad(xp, x, d_out, x_lod, *, padded_length):
    places = _places_in_padded(lengths_of(x_lod[-1]), d_out.shape[1])
    return d_out.reshape(-1, *x.shape[1:])[xp.asarray(places)]


@kernel("sequence_unpad")
def sequence_unpad(xp, x, length):
    lengths = _checked_lengths(x, length)
    rows = x.reshape(-1, *(x.shape[2:] or (1,)))
    return rows[xp.asarray(_places_in_padded(lengths, x.shape[1]))], [offsets_of(lengths)]


@kernel("sequence_unpad_grad")
def sequence_unpad_grad(xp, x, length, d_out):
    d_x = xp.zeros_like(x)
    places = _places_in_padded(_checked_lengths(x, length), x.shape[1])
    d_x.reshape(-1, *d_out.shape[1:])[xp.asarray(places)] = d_out
    return d_x


def _checked_lengths(x, length) -> np.ndarray:
    lengths = np.array(length.tolist(), np.int64).reshape(-1)
    if len(lengths) != len(x) or (lengths < 0).any() or (lengths > x.shape[1]).any():
        raise ExecutionError(
            f"Length must hold {len(x)} numbers from 0 to {x.shape[1]}, got {lengths.tolist()!r:.80}",
            hint="Feed the length of each sequence, without its padding.",
        )
    return lengths


# Numbers


@kernel("sequence_enumerate")
def sequence_enumerate(xp, x, x_lod, *, win_size, pad_value):
    offsets = x_lod[-1]
    places = np.arange(len(x))[:, None] + np.arange(win_size)
    inside = xp.asarray(places < np.repeat(offsets[1:], lengths_of(offsets))[:, None])
    found = x.reshape(-1)[xp.asarray(np.minimum(places, max(len(x) - 1, 0)))]
    return xp.where(inside, found, x.dtype.type(pad_value))


@kernel("sequence_erase")
def sequence_erase(xp, x, x_lod, *, tokens):
    numbers = np.array(x.reshape(-1).tolist(), np.int64)
    stays = ~np.isin(numbers, np.array(tokens, np.int64))
    return x[xp.asarray(stays)], [*copied(x_lod[:-1]), offsets_of(stays)[x_lod[-1]]]


@kernel("sequence_scatter")
def sequence_scatter(xp, x, ids, updates, ids_lod):
    out = x.copy()
    rows, columns = _targets(xp, x, ids, ids_lod[-1])
    combine_rows(xp, "add", out.reshape(-1), rows * x.shape[1] + columns, updates.reshape(-1))
    return out


@kernel("sequence_scatter_grad")
def sequence_scatter_grad(xp, ids, updates, d_out, ids_lod):
    return d_out.copy(), d_out[_targets(xp, d_out, ids, ids_lod[-1])].reshape(updates.shape)


def _targets(xp, x, ids, offsets) -> tuple[Any, Any]:
    """The rows and columns that the numbers of sequences are added to."""
    _check_count(x, offsets)
    columns = ids.reshape(-1)
    if columns.size and (int(columns.min()) < 0 or int(columns.max()) >= x.shape[1]):
        raise ExecutionError(
            f"Ids must be columns of X, in [0, {x.shape[1]}), got {columns.min()} to {columns.max()}",
            hint="Feed ids that name columns of X.",
        )
    return xp.asarray(numbers(offsets)), columns


# Lengths themselves


@kernel("lod_reset", view="x")
def lod_reset(xp, x, y, x_lod, y_lod, *, target_lod, append):
    if y_lod:
        levels = y_lod
    else:
        level = np.array(target_lod if y is None else y.tolist(), np.int64).reshape(-1)
        levels = [*x_lod, level] if append and x_lod else [level]
    _check_levels(levels, len(x))
    return x, copied(levels)


def _check_levels(levels, rows) -> None:
    """Each level divides the sequences of the next one, and the last one the rows."""
    counts = [*(len(level) - 1 for level in levels[1:]), rows]
    for level, count in zip(levels, counts, strict=True):
        if level[0] != 0 or level[-1] != count or (np.diff(level) < 0).any():
            raise ExecutionError(
                f"the offsets {level.tolist()!r:.80} do not divide {count} rows",
                hint="Give offsets that begin with 0, never fall, and end with the number of rows.",
            )


@kernel("lod_reset_grad", view="d_out")
def lod_reset_grad(xp, x, d_out, x_lod, *, target_lod, append):
    return d_out


@kernel("join_offsets")
def join_offsets(xp, levels):
    return joined(levels)


@kernel("split_offsets")
def split_offsets(xp, levels, mask):
    holds = on_host(mask).reshape(-1)
    return tuple(chosen(np.flatnonzero(part), levels)[1] for part in (holds, ~holds))


@kernel("shard_sequences")
def shard_sequences(xp, x, x_lod=None, *, shard, shards):
    count = len(x_lod[0]) - 1 if x_lod else len(x)
    if count % shards:
        what = "sequences" if x_lod else "rows"
        raise ExecutionError(
            f"{count} {what} cannot be divided into {shards} equal shards",
            hint=f"Feed each rank a multiple of {shards} {what}.",
        )
    length = count // shards
    rows, levels = chosen(np.arange(shard * length, (shard + 1) * length), x_lod or ())
    part = x[xp.asarray(rows)]
    return (part, levels) if x_lod else part


@kernel("join_sequences")
def join_sequences(xp, x, y, x_lod=None, y_lod=None):
    whole = xp.concatenate([x, y])
    return (whole, [joined(each) for each in zip(x_lod, y_lod, strict=True)]) if x_lod else whole
