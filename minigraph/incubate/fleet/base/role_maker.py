"""Find out which rank a process is, from the launcher's environment variables or as a script says."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from minigraph.errors import ProgramError
from minigraph.support.public import public, refuse_unknown_names

__all__ = [
    "GeneralRoleMaker", "PaddleCloudRoleMaker", "Role", "RoleMakerBase", "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
]  # fmt: skip


class Role:
    """Kinds of ranks."""

    WORKER = 1
    SERVER = 2


class RoleMakerBase:
    """The role of this process: a worker, by default the only one."""

    def __init__(self) -> None:
        self._worker_endpoints: list[str] = []
        self._server_endpoints: list[str] = []
        self._role = Role.WORKER
        self._current_id = 0
        self._worker_num = 1

    def generate_role(self) -> None:
        """Look the role up; `Fleet.init` calls this."""

    def is_worker(self) -> bool:
        return self._role == Role.WORKER

    def is_server(self) -> bool:
        return self._role == Role.SERVER

    def is_first_worker(self) -> bool:
        return self.is_worker() and self._current_id == 0

    def worker_index(self) -> int:
        return self._current_id

    def server_index(self) -> int:
        return self._current_id

    def worker_num(self) -> int:
        return self._worker_num

    def _read_role(self) -> None:
        """Take the role, its number and the servers from the environment."""
        self._server_endpoints = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
        self._role = {"TRAINER": Role.WORKER, "PSERVER": Role.SERVER}[os.environ["TRAINING_ROLE"]]
        if self._role == Role.WORKER:
            self._current_id = int(os.environ["PADDLE_TRAINER_ID"])
        else:
            here = f"{os.environ['POD_IP']}:{os.environ['PADDLE_PORT']}"
            self._current_id = self._server_endpoints.index(here)

    def get_trainer_endpoints(self) -> list[str]:
        return self._worker_endpoints

    def get_pserver_endpoints(self) -> list[str]:
        return self._server_endpoints


@public
class PaddleCloudRoleMaker(RoleMakerBase):
    """The role that the launcher's environment variables give: ``PADDLE_TRAINER_ID`` and ``PADDLE_TRAINER_ENDPOINTS``.

    Parameters
    ----------
    is_collective : bool
        Whether the ranks are workers only. If not, the variables are ``PADDLE_PSERVERS_IP_PORT_LIST``,
        ``PADDLE_TRAINERS_NUM``, ``TRAINING_ROLE``, and ``POD_IP`` and ``PADDLE_PORT`` or ``PADDLE_TRAINER_ID``.
    """

    def __init__(self, is_collective: bool = False) -> None:
        super().__init__()
        self._is_collective = is_collective

    def generate_role(self) -> None:
        """Read the variables.

        Raises
        ------
        ProgramError
            If they are missing or make no sense; without a launcher a collective script is the only rank.
        """
        if self._is_collective:
            self._worker_endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:6170").split(",")
            self._worker_num = len(self._worker_endpoints)
            self._current_id = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
            return
        with _from_environment():
            self._worker_num = int(os.environ["PADDLE_TRAINERS_NUM"])
            self._read_role()


@public
class GeneralRoleMaker(RoleMakerBase):
    """The role that environment variables give, which a script may set itself.

    They are ``PADDLE_PSERVERS_IP_PORT_LIST``, ``PADDLE_TRAINER_ENDPOINTS``, ``TRAINING_ROLE``, and
    ``PADDLE_TRAINER_ID``, or ``PADDLE_PSERVER_ID`` of a server.

    Parameters
    ----------
    kwargs
        Where fluid's ranks would meet, such as `path` or `http_ip_port`; without effect here.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()

    def generate_role(self) -> None:
        """Read the variables.

        Raises
        ------
        ProgramError
            If they are missing or make no sense.
        """
        with _from_environment():
            self._worker_endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
            self._worker_num = len(self._worker_endpoints)
            if os.environ["TRAINING_ROLE"] == "PSERVER" and "PADDLE_PSERVER_ID" in os.environ:
                self._server_endpoints = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
                self._role, self._current_id = Role.SERVER, int(os.environ["PADDLE_PSERVER_ID"])
            else:
                self._read_role()


@public
class UserDefinedRoleMaker(RoleMakerBase):
    """The role that a script gives.

    Parameters
    ----------
    current_id : int
        Number of this worker or server.
    role : int
        ``Role.WORKER`` or ``Role.SERVER``.
    worker_num : int
    server_endpoints : list of str
        Addresses of the servers.
    """

    def __init__(
        self,
        current_id: int = 0,
        role: int = Role.WORKER,
        worker_num: int = 0,
        server_endpoints: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._server_endpoints = _addresses("server_endpoints", server_endpoints)
        if role not in (Role.WORKER, Role.SERVER) or worker_num < 1:
            raise ProgramError(f"there is no role {role!r:.40} among {worker_num!r:.40} workers")
        self._role, self._worker_num = role, worker_num
        self._current_id = _numbered(current_id, len(self._server_endpoints) if role == Role.SERVER else worker_num)


@public
class UserDefinedCollectiveRoleMaker(RoleMakerBase):
    """A worker among workers only, as a script says.

    Parameters
    ----------
    current_id : int
        Number of this worker.
    worker_endpoints : list of str
        Addresses of the workers.
    """

    def __init__(self, current_id: int = 0, worker_endpoints: Sequence[str] | None = None) -> None:
        super().__init__()
        self._worker_endpoints = _addresses("worker_endpoints", worker_endpoints)
        self._worker_num = len(self._worker_endpoints)
        self._current_id = _numbered(current_id, self._worker_num)


@contextmanager
def _from_environment() -> Iterator[None]:
    try:
        yield
    except (KeyError, ValueError) as error:
        raise ProgramError(
            f"the launcher's environment variables do not give a role: {type(error).__name__} {error}",
            hint="Start the script with Paddle's launcher, or use PaddleCloudRoleMaker(is_collective=True).",
        ) from None


def _addresses(name: str, given: Sequence[str] | None) -> list[str]:
    if not isinstance(given, list) or not given or len(set(given)) < len(given):
        raise ProgramError(f"{name} must be a list of different addresses, got {given!r:.80}")
    return list(given)


def _numbered(number: int, of: int) -> int:
    if not 0 <= number < of:
        raise ProgramError(f"current_id must be from 0 to {of - 1}, got {number!r:.40}")
    return number


refuse_unknown_names(__name__)
