"""Base of the executors: checks the arguments of a run and returns its results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from minigraph.errors import EOFException, ProgramError, WrongTypeError
from minigraph.executor.compiled_program import CompiledProgram
from minigraph.executor.feeds import feed_of_one, prepare_feed, with_batches
from minigraph.executor.fetch_handler import Watch
from minigraph.executor.fetches import fetch_names, results_of
from minigraph.executor.replicas import merged
from minigraph.ir import Program
from minigraph.ir.default_programs import default_main_program
from minigraph.runtime.place import CPUPlace, Place
from minigraph.runtime.scope import Scope, global_scope
from minigraph.support.communicator import in_order, sums_in_order
from minigraph.support.public import public


class Runner(ABC):
    """Check the arguments of a run; a subclass computes it in `_run`."""

    @public
    def __init__(self, place: Place | None = None) -> None:
        if place is not None and not isinstance(place, Place):
            raise WrongTypeError(f"an {type(self).__name__} needs a Place, got {place!r:.80}")
        self.place = place or CPUPlace()
        # Touching xp now reports a missing GPU here and not in the first run.
        self._rng = self.place.rng()
        self._closed = False

    def run(
        self,
        program: Program | CompiledProgram | None = None,
        feed: Any = None,
        fetch_list: Any = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
        return_merged: bool = True,
        use_prune: bool = False,
    ) -> list[Any]:
        """Run a program once.

        Only what is fetched or persisted is computed. `feed_var_name`, `fetch_var_name`, `use_program_cache` and
        `use_prune` are accepted because fluid has them; they change nothing here.

        Parameters
        ----------
        program : Program, optional
            Default: the default main program.
        feed : dict, optional
            Variable name to array.
        fetch_list : list of Variable or str, optional
            What to return.
        scope : Scope, optional
            Where persistable variables live. Default: the global scope.
        return_numpy : bool
            Return NumPy arrays; otherwise `LoDTensor`. Selected rows are returned as `SelectedRows` in any case.
        return_merged : bool
            For a program compiled `with_data_parallel`: join what the places fetch along the first dimension. False
            returns a list by place for each entry.

        Returns
        -------
        list
            One array (or `SelectedRows`) per entry of `fetch_list`, each the caller's own; for an array of tensors a
            list of arrays, None where nothing was written.

        Raises
        ------
        FeedError
            What is fed does not fit, or something is missing.
        NotFoundError
            A fetched name is unknown.
        ExecutionError
            A persistable variable has no value (was the startup program run?), or a kernel failed.
        EOFException
            A `minigraph.io.DataLoader` that feeds the program has no batch left.

        Notes
        -----
        A run that an error or an interrupt ends, such as Ctrl-C or what the handler of another signal raises, has
        changed nothing: neither the scope nor the generator of random numbers, and a loader still has its batch, unless
        it was an error of the run itself. An interrupt that comes while what was computed is stored is raised when all
        is stored. Only an `EOFException` counts as a step of learning-rate schedules, as in fluid, where a
        `CompiledProgram` does not count it.
        """
        if self._closed:
            self._check_open()
        if not (isinstance(feed_var_name, str) and isinstance(fetch_var_name, str)):
            wrong = fetch_var_name if isinstance(feed_var_name, str) else feed_var_name
            raise WrongTypeError(
                f"feed_var_name and fetch_var_name must be str, got {type(wrong).__name__}",
                hint="They are the fourth and fifth argument, as in fluid: write scope=scope, return_numpy=False.",
            )
        if isinstance(program, CompiledProgram):
            scope = program.scope_for(self.place, scope or global_scope())
            runner = self._for_compiled(program)
            replicas = program.replicas_on(self.place)
            if replicas is not None:
                apart = zip(*replicas.run(runner, feed, fetch_list, scope, return_numpy), strict=True)
                return [merged(values) if return_merged else list(values) for values in apart]
            values = runner._run_loaded(program.program, feed, fetch_list, scope, return_numpy)
            return [[value] for value in values] if program.is_data_parallel and not return_merged else values
        program = check_program(program)
        scope = scope or global_scope()
        try:
            return self._run_loaded(program, feed, fetch_list, scope, return_numpy)
        except EOFException:
            _count_run(program, scope)
            raise

    def _run_loaded(self, program: Program, feed: Any, fetch_list: Any, scope: Scope, return_numpy: bool) -> list[Any]:
        """Run a program on what is fed and on a batch of each of its loaders."""
        if not isinstance(scope, Scope):
            raise WrongTypeError(f"scope must be a Scope, got {scope!r:.80}", hint="Leave it out for the global scope.")
        if program.is_exact and not sums_in_order():
            with in_order():
                return self._run_loaded(program, feed, fetch_list, scope, return_numpy)
        if not program.loaders:
            return self._run_fed(program, feed, fetch_list, scope, return_numpy)
        return with_batches(
            program,
            [dict(feed_of_one(feed))],
            lambda feeds, go_on: self._run_fed(program, feeds[0], fetch_list, scope, return_numpy, then=go_on),
        )

    @public
    def train_from_dataset(
        self,
        program: Program | CompiledProgram | None = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Sequence[Any] | None = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: Any = None,
    ) -> None:
        """Run a program once for each batch of a data set of `minigraph.reader.slot_files`.

        Parameters
        ----------
        program, scope
            As for `run`.
        dataset : QueueDataset or InMemoryDataset
        thread, debug
            Accepted because fluid has them; batches run one after the other.
        fetch_list, fetch_info : sequence, optional
            Variables to print every `print_period` batches, and what to call them. Default: their names.
        print_period : int
        fetch_handler : FetchHandler, optional
            It is given the values of its variables every so often, and at the end.

        Raises
        ------
        WrongTypeError
            If `dataset` is none.
        DataError
            If a file does not fit the variables.
        """
        if not hasattr(dataset, "batches"):
            raise WrongTypeError(
                f"train_from_dataset needs a dataset, got {dataset!r:.60}",
                hint="Make one: fluid.DatasetFactory().create_dataset().",
            )  # fmt: skip
        watch = Watch(fetch_handler, scope or global_scope())
        names = fetch_info or [getattr(each, "name", each) for each in fetch_list or ()]
        for number, feed in enumerate(dataset.batches()):
            values = self.run(program, feed, fetch_list, scope=scope)
            if values and number % max(print_period, 1) == 0:
                found = zip(names, values, strict=True)
                print(f"batch {number}: " + ", ".join(f"{name} {value}" for name, value in found))
            watch.look()
        watch.end()

    infer_from_dataset = train_from_dataset

    def _run_fed(
        self,
        program: Program,
        feed: Any,
        fetch_list: Any,
        scope: Scope,
        return_numpy: bool,
        then: Callable[[], None] | None = None,
    ) -> list[Any]:
        names = fetch_names(program, fetch_list)
        feeds = prepare_feed(program, feed, self.place, scope)
        values = self._run(program, feeds, names, scope, then, return_numpy)
        return results_of(values, self.place, return_numpy, names)

    @abstractmethod
    def _run(
        self,
        program: Program,
        feeds: dict[str, Any],
        names: tuple[str, ...],
        scope: Scope,
        then: Callable[[], None] | None = None,
        as_arrays: bool = True,
    ) -> list[Any]:
        """Compute the fetches `names` from checked arrays and store the new state; an error leaves all as it was.

        `then` is called when the scope changes. Results with lengths are refused `as_arrays`.
        """

    def twin(self) -> Runner:
        """Another runner with the same options and a generator of random numbers of its own."""
        return type(self)(self.place)

    def _for_compiled(self, program: CompiledProgram) -> Runner:
        """Return the runner for the options of a compiled program."""
        return self

    def compute(
        self,
        program: Program,
        feed: dict[str, Any],
        fetch: Sequence[str],
        scope: Scope,
        then: Callable[[], None] | None = None,
    ) -> list[Any]:
        """Like `run` for arrays of the place by name, which are not checked; returns arrays of the place.

        `then` is called when the scope changes; no interrupt comes between the two.
        """
        self._check_open()
        return self._run(program, feed, tuple(fetch), scope, then)

    def _check_open(self) -> None:
        if self._closed:
            raise ProgramError("this Executor was closed", hint="Make a new one.")

    def close(self) -> None:
        """Refuse further runs."""
        self._closed = True

    def _draws_so_far(self) -> Any:
        """Return the state of the generator for `_draw_again`; None on a GPU."""
        return self._rng.bit_generator.state if self.place.kind == "cpu" else None

    def _draw_again(self, drawn: Any) -> None:
        if drawn is not None:
            self._rng.bit_generator.state = drawn


def _count_run(program: Program, scope: Scope) -> None:
    """Count a run that found no batch; in fluid the counters at the start of a program run before its readers."""
    for op in program.global_block().ops:
        if op.type != "increment":
            return
        holder = scope.find_var(op.output("Out")[0])
        if holder is not None and holder.value is not None:
            holder.value = holder.value + holder.value.dtype.type(op.attr("step"))


def check_program(program: Program | None) -> Program:
    if program is None:
        return default_main_program()
    if not isinstance(program, Program):
        raise WrongTypeError(f"an Executor runs Programs, got {type(program).__name__}")
    return program
