"""Fluid's process-wide flags.

``FLAGS_check_nan_inf`` lets runs check every result. Others keep the values set, and have no effect; flags that would
have one are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minigraph.errors import NotFoundError, ProgramError, WrongTypeError, suggest
from minigraph.executor import nonfinite_check
from minigraph.support.public import public

__all__ = ["get_flags", "set_flags"]

DEFAULTS: dict[str, Any] = {
    "FLAGS_allocator_strategy": "auto_growth",
    "FLAGS_benchmark": False,
    "FLAGS_check_nan_inf": False,
    "FLAGS_conv_workspace_size_limit": 512,
    "FLAGS_cpu_deterministic": False,
    "FLAGS_cudnn_batchnorm_spatial_persistent": False,
    "FLAGS_cudnn_deterministic": False,
    "FLAGS_cudnn_exhaustive_search": False,
    "FLAGS_eager_delete_tensor_gb": 0.0,
    "FLAGS_enable_cublas_tensor_op_math": False,
    "FLAGS_enable_parallel_graph": False,
    "FLAGS_enable_rpc_profiler": False,
    "FLAGS_fraction_of_cpu_memory_to_use": 1.0,
    "FLAGS_fraction_of_gpu_memory_to_use": 0.92,
    "FLAGS_fuse_parameter_groups_size": 1,
    "FLAGS_fuse_parameter_memory_size": -1.0,
    "FLAGS_init_allocated_mem": False,
    "FLAGS_initial_cpu_memory_in_mb": 500,
    "FLAGS_initial_gpu_memory_in_mb": 0,
    "FLAGS_inner_op_parallelism": 0,
    "FLAGS_memory_fraction_of_eager_deletion": 1.0,
    "FLAGS_multiple_of_cupti_buffer_size": 1,
    "FLAGS_paddle_num_threads": 1,
    "FLAGS_pe_profile_fname": "",
    "FLAGS_print_sub_graph_dir": "",
    "FLAGS_reader_queue_speed_test_mode": False,
    "FLAGS_reallocate_gpu_memory_in_mb": 0,
    "FLAGS_selected_gpus": "",
    "FLAGS_sync_nccl_allreduce": True,
    "FLAGS_tracer_profile_fname": "xxgperf",
    "FLAGS_use_pinned_memory": True,
    "FLAGS_use_system_allocator": False,
}
"""Flags of fluid 1.8.5 for a processor and a GPU, with their defaults."""

_ASKING_FOR_MORE = {
    "FLAGS_init_allocated_mem": "Nothing is read before it was written here.",
    "FLAGS_reader_queue_speed_test_mode": "Measure a loader by looping over it.",
}
"""Flags that would change a run, with what to do instead."""

_flags = dict(DEFAULTS)


@public
def set_flags(flags: Mapping[str, Any]) -> None:
    """Set fluid's flags; those for memory, speed and devices have no effect here.

    With ``FLAGS_check_nan_inf`` runs and the imperative mode raise an `ExecutionError` that names the first operator
    whose result is NaN or infinite. Runs take several times as long.

    Parameters
    ----------
    flags : dict of str

    Raises
    ------
    NotFoundError
        For a name that is no flag.
    WrongTypeError
        If a value has another type than the flag, or `flags` is no dict.
    ProgramError
        For a flag that would change a run. No flag is set then.

    Examples
    --------
    >>> set_flags({"FLAGS_eager_delete_tensor_gb": 1})
    >>> get_flags("FLAGS_eager_delete_tensor_gb")
    {'FLAGS_eager_delete_tensor_gb': 1.0}
    """
    if not isinstance(flags, Mapping):
        raise WrongTypeError(f"set_flags takes a dict, got {flags!r:.60}")
    found = {name: _converted(name, value) for name, value in flags.items()}
    for name, value in found.items():
        if name in _ASKING_FOR_MORE and value != DEFAULTS[name]:
            raise ProgramError(f"{name} = {value} asks for what minigraph does not have", hint=_ASKING_FOR_MORE[name])
    _flags.update(found)
    nonfinite_check.is_on = _flags["FLAGS_check_nan_inf"]


@public
def get_flags(flags: str | Sequence[str]) -> dict[str, Any]:
    """Flags by name.

    Parameters
    ----------
    flags : str or list of str

    Raises
    ------
    NotFoundError
        For a name that is no flag.
    WrongTypeError
        If `flags` is neither.
    """
    names = [flags] if isinstance(flags, str) else flags
    if not isinstance(names, list | tuple):
        raise WrongTypeError(f"get_flags takes names of flags, got {flags!r:.60}")
    for name in names:
        _check_known(name)
    return {name: _flags[name] for name in names}


def _check_known(name: Any) -> None:
    if name not in DEFAULTS:
        raise NotFoundError(f"there is no flag {name!r:.60}", hint=suggest(str(name), DEFAULTS))


def _converted(name: Any, value: Any) -> Any:
    """`value` in the type of the flag; a number or bool of another type is taken if it is equal."""
    _check_known(name)
    wanted = type(DEFAULTS[name])
    is_number = isinstance(value, bool | int | float) and wanted is not str
    if not (is_number or isinstance(value, wanted)) or wanted(value) != value:
        raise WrongTypeError(f"{name} must be of type {wanted.__name__}, got {value!r:.60}")
    return wanted(value)
