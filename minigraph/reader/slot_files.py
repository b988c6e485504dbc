"""Data sets of slot files, made by ``fluid.DatasetFactory`` and read by ``Executor.train_from_dataset``.

A line of a file is a sample: for each variable in use the number of its values and the values. Each file goes through
a command first, such as a `minigraph.incubate.data_generator`. Batches come in the order of the files.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from minigraph.errors import DataError, NotFoundError, ProgramError, WrongTypeError, suggest
from minigraph.ir import Variable
from minigraph.lod_tensor import create_lod_tensor
from minigraph.reader import count
from minigraph.support.public import public
from minigraph.types import DType, product

__all__ = ["DatasetFactory", "InMemoryDataset", "QueueDataset"]

Sample: TypeAlias = list[list[str]]
"""The values of each variable, as they stand in the line."""


@public
class SlotFiles:
    """Base of data sets: where samples come from, and how many make a batch."""

    feed_type = "MultiSlotDataFeed"

    def __init__(self) -> None:
        self.pipe_command = "cat"
        self.batch_size = 1
        self.leading_words = 0
        """Number of texts in front of the slots of a line, each behind a 1."""
        self._described: dict[str, Any] = {}
        """Settings of `desc` that change nothing here."""
        self.thread_num = 1
        self.filelist: list[str] = []
        self.variables: list[Variable] = []

    def set_pipe_command(self, pipe_command: str) -> None:
        """Set the shell command that each file is piped through; ``cat`` by default."""
        self.pipe_command = pipe_command

    def set_batch_size(self, batch_size: int) -> None:
        """Set the number of samples in a batch."""
        self.batch_size = count("batch_size", batch_size)

    def set_thread(self, thread_num: int) -> None:
        """Set the number of threads, which changes nothing: the batches are trained one after the other."""
        self.thread_num = count("thread_num", thread_num)

    def set_filelist(self, filelist: Sequence[str]) -> None:
        """Set the files to read."""
        self.filelist = list(filelist)

    def set_use_var(self, var_list: Sequence[Variable]) -> None:
        """Set the variables to feed, in the order of the slots.

        Raises
        ------
        WrongTypeError
            If one is neither float32 nor int64.
        """
        for var in var_list:
            if not isinstance(var, Variable) or var.dtype not in (DType.FP32, DType.INT64):
                raise WrongTypeError(f"set_use_var takes variables of float32 and int64, got {var!r:.80}")
        self.variables = list(var_list)

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Set how to reach HDFS, which changes nothing: only files of this machine are read."""

    def set_download_cmd(self, download_cmd: str) -> None:
        """Set a command for remote files, which changes nothing: only files of this machine are read."""

    def set_rank_offset(self, rank_offset: str) -> None:
        """Set the name of the variable with the ranks of page views, which `desc` shows."""
        self._described["rank_offset"] = rank_offset

    def set_pv_batch_size(self, pv_batch_size: int) -> None:
        """Set the number of page views in a batch, which `desc` shows; samples are not merged into page views."""
        self._described["pv_batch_size"] = count("pv_batch_size", pv_batch_size)

    def desc(self) -> str:
        """The settings as the text of fluid's protobuf ``DataFeedDesc``.

        Examples
        --------
        >>> print(DatasetFactory().create_dataset().desc())
        name: "MultiSlotDataFeed"
        pipe_command: "cat"
        <BLANKLINE>
        """
        lines = [f'name: "{self.feed_type}"']
        if self.batch_size != 1:
            lines.append(f"batch_size: {self.batch_size}")
        if self.variables:
            slots = [line for var in self.variables for line in _slot(var)]
            lines += ["multi_slot_desc {", *slots, "}"]
        lines.append(f'pipe_command: "{self.pipe_command}"')
        for name, value in sorted(self._described.items(), reverse=True):
            lines.append(f'{name}: "{value}"' if isinstance(value, str) else f"{name}: {value}")
        return "\n".join(lines) + "\n"

    def batches(self, drop_last: bool = False) -> Iterator[dict[str, Any]]:
        """Feeds, one for each batch; a last one that is smaller may be left out."""
        if not self.variables:
            raise ProgramError("a data set must know its variables", hint="Call set_use_var([...]) first.")
        samples = iter(self._samples())
        while batch := list(islice(samples, self.batch_size)):
            if drop_last and len(batch) < self.batch_size:
                return
            slots = zip(self.variables, zip(*batch, strict=True), strict=True)
            yield {var.name: _fed(var, list(values)) for var, values in slots}

    def _samples(self) -> Iterable[Sample]:
        return self._read()

    def _read(self) -> Iterator[Sample]:
        for path in self.filelist:
            if path.startswith(("hdfs:", "afs:")):
                raise DataError(f"{path} cannot be read from here", hint="Copy it here, and name it in set_filelist.")
            with open(path, "rb") as file, subprocess.Popen(
                self.pipe_command, shell=True, stdin=file, stdout=subprocess.PIPE, encoding="utf-8", errors="replace"
            ) as process:  # fmt: skip
                assert process.stdout is not None
                for number, line in enumerate(process.stdout, 1):
                    yield self._parsed(line.split(), f"{path}, line {number}")
            if process.returncode:
                raise DataError(
                    f"the command {self.pipe_command!r} failed on {path} with status {process.returncode}",
                    hint=f"Try it in a shell: {self.pipe_command} < {path}",
                )  # fmt: skip

    def _parsed(self, words: list[str], where: str) -> Sample:
        sample, at = [], 2 * self.leading_words
        for var in self.variables:
            size = int(words[at]) if at < len(words) and words[at].isdecimal() else -1
            values = words[at + 1 : at + 1 + size]
            if size < 1 or len(values) < size:
                raise DataError(
                    f"{where}: there must be the number of values of {var.name} and as many values",
                    details=[f"found: {' '.join(words[at : at + 8])!r:.80}"],
                    hint="Write a line as '2 7 12 1 0.5': for each slot the number of values and the values.",
                )  # fmt: skip
            sample.append(values)
            at += 1 + size
        if at != len(words):
            raise DataError(f"{where}: {len(words) - at} words are left after the {len(sample)} slots")
        return sample


def _slot(var: Variable) -> list[str]:
    """The lines of a variable in the text of a ``DataFeedDesc``."""
    kind = "float" if var.dtype == DType.FP32 else "uint64"
    lines = [f'name: "{var.name}"', f'type: "{kind}"']
    if not var.lod_level:
        lines.append("is_dense: true")
    lines.append("is_used: true")
    if not var.lod_level:
        lines += [f"shape: {size}" for size in var.shape or ()]
    return ["  slots {", *(f"    {line}" for line in lines), "  }"]


def _fed(var: Variable, samples: list[list[str]]) -> Any:
    """The values of a variable in a batch: rows of its shape, or sequences if it has a `lod_level`."""
    assert var.shape is not None
    try:
        numbers = _numbers([value for sample in samples for value in sample], var.dtype)
        if var.lod_level:
            return create_lod_tensor(numbers.reshape(-1, 1), [[len(sample) for sample in samples]], None)
        return numbers.reshape(len(samples), *var.shape[1:])
    except ValueError as error:
        size = product(var.shape[1:])
        lengths = sorted({len(sample) for sample in samples})
        raise DataError(
            f"slot {var.name} does not fit: {error}", details=[f"numbers of values: {lengths}, for {size}"]
        ) from None


def _numbers(texts: list[str], dtype: DType) -> np.ndarray[Any, Any]:
    if dtype == DType.FP32:
        return np.array(texts, np.float32)
    try:
        return np.array(texts, np.int64)
    except OverflowError:  # hashes of features are unsigned, and keep their bits in fluid's int64
        return np.array(texts, np.uint64).view(np.int64)


def _is_zero(text: str) -> bool:
    """Whether a number of a sparse slot stands for no feature; the bound is fluid's."""
    try:
        return abs(float(text)) < 1e-6
    except ValueError:  # `_fed` says what does not fit
        return False


@public
class QueueDataset(SlotFiles):
    """A data set that reads its files anew in each epoch."""

    def local_shuffle(self) -> None:
        """Refuse to shuffle, because the samples are not in memory."""
        raise ProgramError("a QueueDataset cannot be shuffled", hint="Make an 'InMemoryDataset'.")

    def global_shuffle(self, fleet: Any = None) -> None:
        """Refuse to shuffle; see `local_shuffle`."""
        self.local_shuffle()


@public
class InMemoryDataset(SlotFiles):
    """A data set whose samples are read once, and can be shuffled."""

    feed_type = "MultiSlotInMemoryDataFeed"

    def __init__(self) -> None:
        super().__init__()
        self._memory: list[Sample] | None = None
        self._words: dict[str, bool] = {}
        self.fea_eval = False

    def set_feed_type(self, data_feed_type: str) -> None:
        """Set the name that `desc` shows."""
        self.feed_type = data_feed_type

    def set_parse_ins_id(self, parse_ins_id: bool) -> None:
        """Say whether lines begin with ``1 <name of the sample>``, which is skipped."""
        self._lead("ins_id", parse_ins_id)

    def set_parse_content(self, parse_content: bool) -> None:
        """Say whether ``1 <text>`` stands in front of the slots, behind the name of the sample; it is skipped."""
        self._lead("content", parse_content)

    def set_parse_logkey(self, parse_logkey: bool) -> None:
        """Say whether ``1 <key of a log>`` stands in front of the slots, which is skipped."""
        self._lead("logkey", parse_logkey)

    def _lead(self, name: str, is_there: bool) -> None:
        self._words[name] = bool(is_there)
        self.leading_words = sum(self._words.values())

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> None:
        """Say whether `slots_shuffle` has an effect; the number of candidates is that of all samples."""
        self.fea_eval = fea_eval

    def slots_shuffle(self, slots: Iterable[str]) -> None:
        """Exchange the values of some slots between the samples, at random, to see how much a training needs them."""
        if not self.fea_eval:
            return
        wanted, samples = set(slots), self._loaded()
        for at, var in enumerate(self.variables):
            if var.name in wanted:
                values = [sample[at] for sample in samples]
                random.shuffle(values)
                for sample, value in zip(samples, values, strict=True):
                    sample[at] = value

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """Set how many samples ranks send each other at once; there is one rank."""

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds: int = 0) -> None:
        """Set how long ranks wait between sending; there is one rank."""

    def set_merge_by_lineid(self, merge_size: int = 2) -> None:
        """Say that lines begin with ``1 <name>``; only parameter servers merge samples of one name, as in fluid."""
        self.set_parse_ins_id(True)

    def set_merge_by_sid(self, merge_by_sid: bool) -> None:
        """Say how samples become page views, which they do not here."""

    def set_enable_pv_merge(self, enable_pv_merge: bool) -> None:
        """Say whether `preprocess_instance` merges samples into page views, which it refuses."""

    def preprocess_instance(self) -> None:
        """Refuse to merge samples into page views, which ranks of a parameter server train on."""
        raise ProgramError("samples are not merged into page views", hint="Leave the call out: samples are batched.")

    def postprocess_instance(self) -> None:
        """Undo `preprocess_instance`, which did nothing."""

    def set_current_phase(self, current_phase: int) -> None:
        """Say whether samples (0) or page views (1) are trained on.

        Raises
        ------
        ProgramError
            For page views.
        """
        if current_phase:
            self.preprocess_instance()

    def get_pv_data_size(self) -> int:
        """Number of page views in memory, which is 0."""
        return 0

    def load_into_memory(self) -> None:
        """Read all samples; zeros of sequences are left out but for one where there is nothing else, as in fluid."""
        self._memory = [
            [
                ([text for text in values if not _is_zero(text)] or ["0"]) if var.lod_level else values
                for var, values in zip(self.variables, sample, strict=True)
            ]
            for sample in self._read()
        ]

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Read all samples; as `load_into_memory`."""
        self.load_into_memory()

    def wait_preload_done(self) -> None:
        """Wait for `preload_into_memory`, which has waited already."""

    def local_shuffle(self) -> None:
        """Put the samples in random order, drawn by Python's generator."""
        random.shuffle(self._loaded())

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Put the samples of all ranks in random order; there is one rank."""
        self.local_shuffle()

    def release_memory(self) -> None:
        """Forget the samples."""
        self._memory = None

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """Number of samples in memory."""
        return len(self._memory or ())

    def get_shuffle_data_size(self, fleet: Any = None) -> int:
        """Number of samples after shuffling."""
        return self.get_memory_data_size()

    def set_queue_num(self, queue_num: int) -> None:
        """Set the number of queues between threads; there are none."""

    def _samples(self) -> list[Sample]:
        return self._loaded()

    def _loaded(self) -> list[Sample]:
        if self._memory is None:
            raise ProgramError("the samples are not in memory", hint="Call load_into_memory() first.")
        return self._memory


_KINDS = {"QueueDataset": QueueDataset, "InMemoryDataset": InMemoryDataset}


@public
class DatasetFactory:
    """Maker of data sets of slot files.

    Examples
    --------
    >>> DatasetFactory().create_dataset("InMemoryDataset").get_memory_data_size()
    0
    """

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> SlotFiles:
        """A ``"QueueDataset"`` or an ``"InMemoryDataset"``.

        Raises
        ------
        NotFoundError
            For another name.
        """
        if datafeed_class not in _KINDS:
            raise NotFoundError(
                f"there is no data set {datafeed_class!r:.40}",
                hint=suggest(datafeed_class, _KINDS) or f"Take one of {', '.join(_KINDS)}.",
            )  # fmt: skip
        return _KINDS[datafeed_class]()
