"""Archiving killed by SIGKILL at each step: no entry is lost, none is there twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.archive_cases import KEPT, NOW, Log
from support.store_cases import same

pytestmark = pytest.mark.slow

KILLED = """
import os, signal, sys
from datetime import datetime, timedelta
from service.archive.log_archive import FileWriter, LogArchive
from service.storage import open_store
from service.transfer.archiving import archive_log

url, address, now, kept, step, after = sys.argv[1:]
left = int(after)

def killing(act, late):
    def acted(*arguments, **named):
        global left
        left -= 1
        if left <= 0 and not late:
            os.kill(os.getpid(), signal.SIGKILL)
        result = act(*arguments, **named)
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return acted

now = datetime.fromisoformat(now)
store = open_store(url, 2, clock=lambda: now, archive=LogArchive(address))
owner, name, late = {
    "before sealing": (None, "seal_log", False),
    "after sealing": (None, "seal_log", True),
    "before a file is written": (FileWriter, "add", False),
    "within a file": (FileWriter, "_flush", True),
    "between writing and reading back": (LogArchive, "check", False),
    "between reading back and dropping": (LogArchive, "check", True),
    "before the names are written": ("tx", "drop_part", False),
    "before the commit": ("tx", "drop_part", True),
}[step]
with store.archiving() as lead, store.begin(write=False) as tx:
    owner = {None: type(lead), "tx": type(tx)}.get(owner, owner)
setattr(owner, name, killing(getattr(owner, name), late))
for done in archive_log(store, timedelta(seconds=float(kept))):
    pass
"""
STEPS = (
    "before sealing",
    "after sealing",
    "before a file is written",
    "within a file",
    "between writing and reading back",
    "between reading back and dropping",
    "before the names are written",
    "before the commit",
)


def test_a_process_that_is_killed_at_any_step_loses_and_doubles_nothing(database_url, tmp_path):
    log = Log(database_url, tmp_path / "archive")
    program = Path(tmp_path / "killed.py")
    program.write_text(KILLED, "utf-8")
    for after, steps in ((1, STEPS[:2]), (2, STEPS[2:])):
        for step in steps:
            command = [
                sys.executable,
                str(program),
                database_url,
                str(log.address),
                NOW.isoformat(),
                str(KEPT.total_seconds()),
                step,
                str(after),
            ]
            ended = subprocess.run(command, check=False, timeout=120, env=dict(os.environ))
            assert ended.returncode == -signal.SIGKILL, step
            log.assert_once()
            same(log.read(), log.whole)
    assert log.files(), "some parts were archived before a kill"
    log.run()
    log.assert_done()
    log.assert_once()
    named = {file.name for file in log.files()}
    assert named < log.store.archive.names(), "killed processes leave files that no reader opens"
    log.store.close()
