"""`Executor`: where many independent calculations run; here, on this machine's cores, or on a Dask cluster.

One protocol with one method. A task is a module-level function of one argument, and both travel as pickles between
processes of ours only. Results come back in the order of the arguments, whatever worker had them and however often
a lost worker's tasks were run again; so a result depends on the arguments alone.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from calc.errors import InputError, RidgebeamError

Argument = TypeVar("Argument")
Result = TypeVar("Result")

CONNECT_S = 10.0


class Executor(Protocol):
    """Maps a function over arguments."""

    def map(self, task: Callable[[Argument], Result], arguments: Iterable[Argument]) -> list[Result]:
        """task(argument) for each argument, in their order. An exception of a task is raised here."""
        ...


class Serial:
    """In this process, one after the other."""

    def map(self, task: Callable[[Argument], Result], arguments: Iterable[Argument]) -> list[Result]:
        return [task(argument) for argument in arguments]


class WorkersLost(RidgebeamError):  # noqa: N818 - what it says is what happened
    """A process of this machine ended before its task did."""

    exit_code = 4


class LocalProcesses:
    """On this machine, in fresh processes that end with the call, and with the process that called.

    Each imports the main module of the program that asks, so that module must do its work under `__name__ == "__main__"`.
    """

    def __init__(self, workers: int | None = None) -> None:
        count = workers if workers is not None else os.cpu_count() or 1
        if not isinstance(count, int) or not 1 <= count <= 1024:
            raise InputError("workers", workers, "it must be a whole number from 1 to 1,024")
        self.workers = count

    def map(self, task: Callable[[Argument], Result], arguments: Iterable[Argument]) -> list[Result]:
        work = list(arguments)
        if self.workers == 1 or len(work) < 2:
            return Serial().map(task, work)
        processes = min(self.workers, len(work))
        context = get_context("spawn")
        lifeline, held = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with, initargs=(lifeline,))
        try:
            found = list(pool.map(task, work))
            pool.shutdown()
        except BrokenProcessPool:
            raise WorkersLost(
                f"One of {processes} processes ended before its task did.",
                next_step="Out of memory? Ask for less at a time. A script of your own? Call from under "
                "`if __name__ == '__main__':`.",
            ) from None
        finally:  # a task's error and an interruption wait for nobody
            held.close()
            pool.shutdown(wait=False, cancel_futures=True)
            lifeline.close()
        return found


def _end_with(lifeline: Connection) -> None:
    """In a worker: end when the other end of the lifeline closes, because whoever asked is done, interrupted or dead."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is for whoever asked

    def wait() -> None:
        with suppress(EOFError, OSError):
            lifeline.recv_bytes()
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


class SchedulerUnavailable(RidgebeamError):  # noqa: N818 - what it says is that it is not there
    """The Dask scheduler cannot be reached, or the library for it is missing."""

    exit_code = 4


class DaskCluster:
    """On the workers of a Dask scheduler that runs elsewhere. Tasks of a lost worker run again on another one."""

    def __init__(self, address: str) -> None:
        if "://" not in address:
            raise InputError("scheduler", address, "it must be an address such as tcp://host:8786")
        self.address = address

    def map(self, task: Callable[[Argument], Result], arguments: Iterable[Argument]) -> list[Result]:
        with self._client() as client:
            # pure=False: equal arguments are separate tasks, so that every one is run and counted once
            futures = client.map(task, list(arguments), pure=False, retries=2)
            return list(client.gather(futures))

    @contextmanager
    def _client(self) -> Iterator[Any]:
        try:
            distributed = import_module("distributed")
        except ImportError:
            raise SchedulerUnavailable(
                "Runs on a cluster need the library distributed.",
                next_step="In the checkout: pip install -e '.[cluster]'.",
            ) from None
        try:
            client = distributed.Client(self.address, timeout=CONNECT_S, set_as_default=False)
        except OSError as error:
            raise SchedulerUnavailable(
                f"No Dask scheduler at {self.address}: {error}.",
                next_step="Check the address; is it running?",
            ) from None
        try:
            yield client
        finally:
            client.close()


def executor_for(scheduler: str | None, *, workers: int | None = None) -> Executor:
    """The cluster at `scheduler`, or local processes when there is none."""
    return DaskCluster(scheduler) if scheduler else LocalProcesses(workers)
