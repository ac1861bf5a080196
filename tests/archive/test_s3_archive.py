"""The archive in a bucket of S3, on a local server: written, read, checked, away and damaged."""

import subprocess
import sys

import numpy as np
import pytest
from support.archive_cases import KEPT, Log
from support.command import recrawl  # noqa: F401 - a fixture
from support.processes import ROOT, environment
from support.s3_server import CREDENTIALS, installed, serving

from service.archive.log_archive import LogArchive
from service.model.errors import ArchiveDamaged, ArchiveUnavailable
from service.storage.clock import system_clock

pytestmark = [pytest.mark.slow, pytest.mark.external]

BUCKET = "recrawl-log"
ADDRESS = f"s3://{BUCKET}/old days"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return installed(tmp_path_factory.mktemp("moto") / "venv")


@pytest.fixture
def s3(program, monkeypatch):
    from s3fs import S3FileSystem

    with serving(program) as server:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": server.url}.items():
            monkeypatch.setenv(name, value)
        S3FileSystem.clear_instance_cache()  # those that know the address of another server
        server.make(BUCKET)
        yield server


@pytest.fixture
def log(s3, database_url):
    one = Log(database_url, ADDRESS)
    yield one
    one.store.close()


def test_days_move_into_the_bucket_and_are_read_as_before(log):
    log.run()
    log.assert_done()
    log.assert_once()
    names = {file.name for file in log.files()}
    assert len(names) > 5
    assert log.store.archive.names() == names
    other = log.again()
    try:
        with other.begin(write=False) as tx:
            assert len(tx.log_of(log.ids)) == len(log.whole)
    finally:
        other.close()
    log.store.archive.delete(log.files()[:1])
    assert len(log.store.archive.names()) == len(names) - 1


def test_a_missing_and_a_damaged_object_are_named(log):
    log.run()
    archive, (first, second) = log.store.archive, log.files()[:2]
    data = bytearray(archive.files.cat_file(archive.path(first.name)))
    data[len(data) // 3] ^= 16
    archive.files.pipe_file(archive.path(first.name), bytes(data))
    with pytest.raises(ArchiveDamaged, match=first.name):
        archive.check(first)
    archive.files.rm_file(archive.path(second.name))
    with pytest.raises(ArchiveUnavailable, match=f"no file {second.name}"):
        archive.log_of([second], np.array([1]))


def test_a_server_that_is_away_drops_nothing_and_days_move_later(log, s3):
    s3.end()
    with pytest.raises(ArchiveUnavailable, match="nothing was dropped"):
        log.run()
    assert len(log.stored()) == len(log.whole)
    s3.start()
    s3.make(BUCKET)
    log.run()
    log.assert_done()
    log.assert_once()


def test_a_bucket_that_cannot_be_made_is_refused_in_a_sentence(s3):
    archive = LogArchive("s3://b/log")  # names have three characters at least
    with pytest.raises(ArchiveUnavailable, match="archive"), archive.created("a.parquet") as sink:
        sink.write(b"x")


def test_the_command_moves_and_checks_days_in_a_process_of_its_own(s3, database_url, recrawl):  # noqa: F811
    log = Log(database_url, ADDRESS, clock=system_clock)
    log.store.close()
    settings = {"database_url": database_url, "archive": ADDRESS, "retention_days": KEPT.days}

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "service", "archive", *arguments],
            cwd=ROOT,
            env=environment(**settings),
            capture_output=True,
            text=True,
            check=False,
        )

    moved = run()
    assert moved.returncode == 0, moved.stderr
    assert "entries archived in" in moved.stdout
    checked = run("--check")
    assert checked.returncode == 0, checked.stderr
    assert "files are as they were written" in checked.stdout
