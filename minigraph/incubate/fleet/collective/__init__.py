"""Fleet's collective mode: each rank runs the same program, and gradients are summed over the ranks.

``fleet.init``, ``fleet.distributed_optimizer(optimizer, strategy).minimize(loss)``, then runs of
``fleet.main_program``: the program compiled with the strategy.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from minigraph import io
from minigraph.contrib.mixed_precision import decorate
from minigraph.errors import MissingFileError, ProgramError, WrongTypeError, warn
from minigraph.executor import Executor
from minigraph.executor.compiled_program import BuildStrategy, CompiledProgram, ExecutionStrategy
from minigraph.executor.replicas import Exchange
from minigraph.incubate.fleet.base.role_maker import RoleMakerBase
from minigraph.ir import Operator, Program, Variable
from minigraph.ir.default_programs import default_startup_program
from minigraph.optimizer import RecomputeOptimizer
from minigraph.optimizer.state import Parameters
from minigraph.passes.ranks.collective import broadcast_parameters
from minigraph.passes.ranks.sync_batch_norm import SyncBatchNorm
from minigraph.support.communicator import current
from minigraph.support.public import public, refuse_unknown_names
from minigraph.transpiler import collective

__all__ = ["Collective", "CollectiveOptimizer", "DistributedStrategy", "TrainStatus", "fleet"]


_FIELDS: dict[str, Any] = {
    **BuildStrategy._defaults(), "amp_loss_scaling": 2**15, "collective_mode": None, "dist_fc_config": None,
    "exec_strategy": ExecutionStrategy(), "forward_recompute": False, "mode": "nccl2", "recompute_checkpoints": [],
    "use_amp": False, "use_dist_fc": False, "use_local_sgd": False,
}  # fmt: skip


class DistributedStrategy(BuildStrategy):
    """A `BuildStrategy` with fleet's fields.

    Attributes
    ----------
    forward_recompute : bool
        Recompute what lies between `recompute_checkpoints`.
    recompute_checkpoints : list of Variable or str
    exec_strategy : ExecutionStrategy
    mode : {'nccl2', 'collective'}
        Whether the exchanges are in the compiled program only, or in the program of the loss, too.
    collective_mode : {'grad_allreduce', 'local_sgd'}, optional
        With the mode 'collective', what ranks exchange: gradients by default, or parameters.
    use_local_sgd : bool
        The same as the modes 'collective' and 'local_sgd'.
    use_amp : bool
        Train with mixed precision, see `minigraph.contrib.mixed_precision.decorate`, from the scale `amp_loss_scaling`.
    amp_loss_scaling : float
    use_dist_fc, dist_fc_config
        Not here; they keep their defaults.
    """

    _SWITCHES = ("forward_recompute", "use_amp", "use_local_sgd")
    _FREE = ("amp_loss_scaling", "collective_mode", "exec_strategy", "mode", "recompute_checkpoints")

    @classmethod
    def _defaults(cls) -> Mapping[str, Any]:
        return _FIELDS

    def _check(self, name: str, value: Any) -> None:
        if name in self._FREE or (name in self._SWITCHES and isinstance(value, bool)):
            return
        if name in BuildStrategy._defaults():
            super()._check(name, value)
        elif value != _FIELDS[name]:
            raise ProgramError(
                f"DistributedStrategy.{name} = {value!r:.60} asks for what minigraph does not have",
                hint=f"Leave it at {_FIELDS[name]!r}.",
            )


@public
class TrainStatus:
    """The last epoch that was trained, -1 for none."""

    def __init__(self, epoch_no: int = -1) -> None:
        self._epoch_no = epoch_no

    def next(self) -> int:
        """The epoch to train next."""
        return self._epoch_no + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainStatus) and self._epoch_no == other._epoch_no

    __hash__ = None  # type: ignore[assignment]


@public
class Collective:
    """The running rank, and the programs of the optimizer that it has made.

    Attributes
    ----------
    main_program : CompiledProgram
        The program of the loss that was minimized last, to be run.
    startup_program : Program
    """

    def __init__(self) -> None:
        self.main_program: CompiledProgram | None = None
        self.startup_program: Program | None = None
        self._origin_program: Program | None = None
        self._role_maker = RoleMakerBase()

    def init(self, role_maker: RoleMakerBase | None = None) -> None:
        """Say which rank this is.

        Raises
        ------
        ProgramError
            If the role maker knows of another number of ranks than run.
        """
        if role_maker is not None and not isinstance(role_maker, RoleMakerBase):
            raise WrongTypeError(f"fleet.init takes a role maker, got {role_maker!r:.60}")
        self._role_maker = role_maker or RoleMakerBase()
        self._role_maker.generate_role()
        ranks, run = self._role_maker.worker_num(), current().size
        if ranks != run:
            raise ProgramError(
                f"the role maker says that there are {ranks} ranks, but {run} {'run' if run > 1 else 'runs'}",
                hint=f"Start the script by `python -m minigraph launch -n {ranks} SCRIPT`.",
            )

    def is_worker(self) -> bool:
        return self._role_maker.is_worker()

    def is_server(self) -> bool:
        return self._role_maker.is_server()

    def is_first_worker(self) -> bool:
        return self._role_maker.is_first_worker()

    def worker_index(self) -> int:
        return self._role_maker.worker_index()

    def worker_num(self) -> int:
        return self._role_maker.worker_num()

    def worker_endpoints(self, to_string: bool = False) -> Any:
        """Addresses of the ranks, as a list or joined by commas."""
        found = self._role_maker.get_trainer_endpoints()
        return ",".join(found) if to_string else found

    def server_num(self) -> int:
        return len(self._role_maker.get_pserver_endpoints())

    def server_index(self) -> int:
        return self._role_maker.server_index()

    def server_endpoints(self, to_string: bool = False) -> Any:
        """Addresses of the servers, as a list or joined by commas."""
        found = self._role_maker.get_pserver_endpoints()
        return ",".join(found) if to_string else found

    def split_files(self, files: Sequence[str]) -> list[str]:
        """The files of this rank: neighbours, as many as others have or one more."""
        ranks, rank = self.worker_num(), self.worker_index()
        ends = [0, *accumulate(len(files) // ranks + (i < len(files) % ranks) for i in range(ranks))]
        return list(files[ends[rank] : ends[rank + 1]])

    def barrier_worker(self) -> None:
        """Wait for the other ranks."""
        current().barrier()

    def init_worker(self) -> None:
        """Warn: a collective script has no parameter servers, as do the methods `init_server` to `stop_worker`."""
        warn("fleet's collective mode has no servers: init_worker, init_server, run_server and stop_worker do nothing")

    run_worker = run_server = stop_worker = init_worker

    def init_server(self, model_dir: str | None = None) -> None:
        """Warn, as `init_worker`."""
        self.init_worker()

    def distributed_optimizer(self, optimizer: Any, strategy: DistributedStrategy | None = None) -> CollectiveOptimizer:
        """The optimizer, whose `minimize` also sets `main_program`."""
        return CollectiveOptimizer(optimizer, strategy, self)

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: Sequence[str] | None = None,
        target_vars: Sequence[Variable] | None = None,
        main_program: Program | None = None,
        export_for_deployment: bool = True,
    ) -> None:
        """`io.save_inference_model` of the program that was minimized."""
        io.save_inference_model(
            dirname, list(feeded_var_names or ()), list(target_vars or ()), executor, main_program or self._origin(),
            export_for_deployment=export_for_deployment,
        )  # fmt: skip

    def save_persistables(
        self, executor: Executor, dirname: str, main_program: Program | None = None, filename: str | None = None
    ) -> None:
        """`io.save_persistables` of the program that was minimized."""
        io.save_persistables(executor, dirname, main_program or self._origin(), filename=filename)

    def save_check_point(
        self,
        executor: Executor,
        path: str,
        train_status: TrainStatus,
        main_program: Program | None = None,
        fs: None = None,
        local_cache_path: str = ".cache",
        remain_all_checkpoint: bool = True,
    ) -> None:
        """Save the persistable variables and the number of the epoch to a new folder in `path`, whole or not at all.

        Parameters
        ----------
        executor : Executor
        path : str
        train_status : TrainStatus
        main_program : Program, optional
            Default: the program that was minimized.
        fs, local_cache_path
            For other file systems, which are not here.
        remain_all_checkpoint : bool
            Whether to keep the check points that were saved before.
        """
        _refuse_file_system(fs)
        folder = Path(path) / f"{_CHECK_POINT}.{max(_check_points(path), default=-1) + 1}"
        unfinished = folder.with_name(f"{folder.name}.tmp")
        shutil.rmtree(unfinished, ignore_errors=True)
        self.save_persistables(executor, str(unfinished), main_program, filename=_VALUES)
        (unfinished / _STATUS).write_text(json.dumps({"epoch_no": train_status._epoch_no}), encoding="utf-8")
        unfinished.replace(folder)
        if not remain_all_checkpoint:
            self.clean_redundant_check_points(path)

    def load_check_point(
        self,
        executor: Executor,
        path: str,
        trainer_id: int,
        main_program: Program | None = None,
        fs: None = None,
        local_cache_path: str = ".cache",
        ignore_empty: bool = True,
    ) -> TrainStatus | None:
        """Load what `save_check_point` saved last in `path`; None if there is nothing.

        Parameters
        ----------
        ignore_empty : bool
            Whether nothing is no error.
        executor, path, main_program, fs, local_cache_path
            As for `save_check_point`.
        trainer_id : int
            Not used: ranks read the same files.

        Raises
        ------
        MissingFileError
            If there is nothing and `ignore_empty` is false.
        """
        _refuse_file_system(fs)
        numbers = _check_points(path)
        if not numbers:
            if not ignore_empty:
                raise MissingFileError(f"there is no checkpoint in {path}")
            return None
        folder = Path(path) / f"{_CHECK_POINT}.{max(numbers)}"
        io.load_persistables(executor, str(folder), main_program or self._origin(), filename=_VALUES)
        return TrainStatus(json.loads((folder / _STATUS).read_text(encoding="utf-8"))["epoch_no"])

    def clean_redundant_check_points(self, root_path: str, fs: None = None, checkpoint_num: int = 1) -> None:
        """Delete all but the last `checkpoint_num` that `save_check_point` saved in `root_path`, at least one."""
        _refuse_file_system(fs)
        for number in sorted(_check_points(root_path))[: -max(1, checkpoint_num)]:
            shutil.rmtree(Path(root_path) / f"{_CHECK_POINT}.{number}")

    def _origin(self) -> Program:
        if self._origin_program is None:
            raise ProgramError(
                "fleet has minimized no loss yet", hint="Call distributed_optimizer(...).minimize(loss)."
            )
        return self._origin_program


_CHECK_POINT, _VALUES, _STATUS = "__paddle_fleet_checkpoint__", "_paddle_fleet_param__", "fleet_train_status"
"""Names of the folders of checkpoints, before their numbers, and of the files in them."""


def _check_points(path: str) -> list[int]:
    """The numbers of the checkpoints in a folder."""
    found = [re.fullmatch(rf"{_CHECK_POINT}\.(\d+)", each.name) for each in Path(path).glob(f"{_CHECK_POINT}.*")]
    return [int(each[1]) for each in found if each]


def _refuse_file_system(fs: Any) -> None:
    if fs is not None:
        raise ProgramError(f"fs must be None, got {fs!r:.60}", hint="Save to a folder that every rank can read.")


@public
class CollectiveOptimizer:
    """An optimizer for each rank, which sums what ranks exchange; with one rank the updates are the optimizer's own."""

    def __init__(
        self, optimizer: Any, strategy: DistributedStrategy | None = None, of: Collective | None = None
    ) -> None:
        if strategy is not None and not isinstance(strategy, DistributedStrategy):
            raise WrongTypeError(f"strategy must be a DistributedStrategy, got {strategy!r:.60}")
        self._optimizer, self._strategy, self._fleet = optimizer, strategy or DistributedStrategy(), of or fleet

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)  # `backward` and `apply_gradients` among them

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Parameters = None,
        no_grad_set: Iterable[Variable | str] | None = None,
    ) -> tuple[list[Operator], list[tuple[Any, Any]]]:
        """`Optimizer.minimize`; `Collective.main_program` becomes the program of the loss, compiled."""
        optimizer, strategy = self._optimizer, vars(self._strategy)
        if strategy["forward_recompute"]:
            optimizer = RecomputeOptimizer(optimizer)
            optimizer._set_checkpoints(strategy["recompute_checkpoints"])
        if strategy["use_amp"]:
            optimizer = decorate(optimizer, init_loss_scaling=strategy["amp_loss_scaling"])
        found: tuple[list[Operator], list[tuple[Any, Any]]] = optimizer.minimize(
            loss, startup_program, parameter_list, no_grad_set
        )
        program = loss.block.program
        self._fleet.startup_program = startup = startup_program or default_startup_program()
        self._fleet._origin_program = program.clone()
        if self._fleet.worker_num() > 1:
            self._fleet.main_program = CompiledProgram(self._of_rank(program, startup), self._strategy)
        else:
            self._fleet.main_program = CompiledProgram(program).with_data_parallel(
                loss_name=loss.name, build_strategy=self._strategy, exec_strategy=strategy["exec_strategy"]
            )
        return found

    def _of_rank(self, program: Program, startup: Program) -> Program:
        """The program with what the ranks exchange; the startup program makes them start alike."""
        ranks, rank = self._fleet.worker_num(), self._fleet.worker_index()
        strategy = vars(self._strategy)
        is_local = strategy["use_local_sgd"] or strategy["collective_mode"] == "local_sgd"
        if strategy["mode"] != "collective" and not is_local:
            broadcast_parameters(startup, rings=1)
            twin = program.clone()
            Exchange(strategy["gradient_scale_strategy"], strategy["sync_batch_norm"]).apply(twin, ranks)
            return twin
        endpoints = self._fleet.worker_endpoints()
        made = collective.LocalSGD(1) if is_local else collective.GradAllReduce(1)
        made.transpile(startup, program, rank, endpoints, endpoints[rank], wait_port=False)
        if strategy["sync_batch_norm"] and ranks > 1:
            SyncBatchNorm().apply(program)
        return program


fleet = Collective()

refuse_unknown_names(__name__)
