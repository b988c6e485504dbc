"""Fluid's older way to train in several processes; imports the passes that change programs for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.errors import NotFoundError, ProgramError, suggest
from minigraph.ir import Program
from minigraph.ir.default_programs import default_startup_program
from minigraph.support.public import public
from minigraph.transpiler import collective

__all__ = ["DistributeTranspiler", "DistributeTranspilerConfig"]

_FIELDS: dict[str, Any] = {
    "collective_mode": None, "completely_not_async": False, "enable_dc_asgd": False, "geo_sgd_mode": False,
    "geo_sgd_need_push_nums": 100, "half_async": False, "hierarchical_allreduce_inter_nranks": 0,
    "min_block_size": 8192, "mode": "pserver", "nccl_comm_num": 1, "print_log": False,
    "runtime_split_send_recv": False, "slice_var_up": True, "split_method": None, "sync_mode": True,
    "use_hierarchical_allreduce": False, "wait_port": True,
}  # fmt: skip
"""Fluid's fields and their defaults."""


@public
class DistributeTranspilerConfig:
    """Options of `DistributeTranspiler`.

    Attributes
    ----------
    mode : {'nccl2', 'collective', 'pserver'}
        The first two are here. Fluid's default is 'pserver'.
    collective_mode : {'grad_allreduce', 'local_sgd'}
        With the mode 'collective', what ranks exchange.
    nccl_comm_num : int
        With the mode 'collective', the number of groups of connections, which exchanges take in turns.

    Fields about parameter servers and connections have no effect.
    """

    def __init__(self) -> None:
        self.__dict__.update(_FIELDS)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _FIELDS:
            raise NotFoundError(
                f"DistributeTranspilerConfig has no field {name!r:.60}", hint=suggest(str(name), _FIELDS)
            )
        self.__dict__[name] = value


@public
class DistributeTranspiler:
    """Make programs those of one of several ranks.

    With the mode 'nccl2' the startup program checks who runs, and the sums are made by a `CompiledProgram` whose
    strategy has `num_trainers`; with 'collective' they are operators of the program.

    Parameters
    ----------
    config : DistributeTranspilerConfig

    Examples
    --------
    >>> import minigraph as fluid
    >>> config = fluid.DistributeTranspilerConfig()
    >>> config.mode = "nccl2"
    >>> startup = fluid.Program()
    >>> fluid.DistributeTranspiler(config).transpile(
    ...     0, trainers="127.0.0.1:6170,127.0.0.1:6171", current_endpoint="127.0.0.1:6170", startup_program=startup)
    >>> [op.type for op in startup.global_block().ops]
    ['c_gen_nccl_id', 'c_comm_init']
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        self.config = config or DistributeTranspilerConfig()

    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: str | Sequence[str] | int = 1,
        sync_mode: bool = True,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
    ) -> None:
        """Change the programs in place.

        Parameters
        ----------
        trainer_id : int
            Number of this rank, from 0.
        program, startup_program : Program, optional
            Default: the default programs.
        trainers : str or list of str
            Addresses of all ranks in order; a string has commas between them.
        current_endpoint : str
            Address of this rank.
        pservers, sync_mode
            Not used without parameter servers.

        Raises
        ------
        ProgramError
            If the mode needs parameter servers, or the ranks do not fit.
        """
        config = vars(self.config)
        if config["mode"] not in ("nccl2", "collective") or isinstance(trainers, int):
            raise ProgramError(
                f"DistributeTranspiler got mode {config['mode']!r:.40} and trainers {trainers!r:.80}, and parameter "
                "servers are out of scope",
                hint="Set config.mode = 'nccl2', and give the addresses of the ranks as trainers.",
            )
        endpoints = trainers.split(",") if isinstance(trainers, str) else list(trainers)
        if config["mode"] == "collective":
            kinds = {"grad_allreduce": collective.GradAllReduce, "local_sgd": collective.LocalSGD}
            if config["collective_mode"] not in kinds:
                raise ProgramError(
                    f"collective_mode must be {' or '.join(kinds)}, got {config['collective_mode']!r:.60}"
                )
            made = kinds[config["collective_mode"]](config["nccl_comm_num"])
            made.transpile(startup_program, program, trainer_id, endpoints, current_endpoint, config["wait_port"])
        elif len(endpoints) > 1:
            startup = startup_program or default_startup_program()
            collective.init_communicators(startup, current_endpoint, endpoints, trainer_id, rings=1)
