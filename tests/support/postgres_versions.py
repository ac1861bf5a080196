"""Servers of several major versions of Postgres, from npm; root runs them as another user."""

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.live_server import PATIENCE_S
from support.npm import ENVIRONMENT, NODE
from support.processes import ROOT, free_port

NOBODY = "nobody"
"""User that runs a server, because Postgres refuses to run as root."""


def installed(folder: Path) -> Path:
    """Install the servers of tools/postgres in a folder; return the folder that has them."""
    shutil.copytree(ROOT / "tools/postgres", folder, ignore=shutil.ignore_patterns("node_modules"))
    command = [NODE.parent / "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(command, cwd=folder, env=ENVIRONMENT, check=True, capture_output=True)
    for native in folder.glob("node_modules/*/native"):
        for link in json.loads((native / "pg-symlinks.json").read_text()):  # npm keeps none
            path = native.parent / link["target"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.symlink_to(os.path.relpath(native.parent / link["source"], path.parent))
        for program in (native / "bin").iterdir():
            program.chmod(0o755)
    return folder / "node_modules"


@contextmanager
def serving(native: Path) -> Iterator[str]:
    """Run a new cluster with the programs of a version; yield its address."""
    # not in pytest's own directory, which the other user may not enter
    with tempfile.TemporaryDirectory(prefix="recrawl-versions-", dir="/tmp") as path:
        folder, port = Path(path), free_port()
        data, programs = folder / "data", folder / "native"
        shutil.copytree(native, programs, symlinks=True)
        data.mkdir(mode=0o700)
        owner = ()
        if os.geteuid() == 0:
            user = pwd.getpwnam(NOBODY)
            owner = (
                "setpriv",
                f"--reuid={user.pw_uid}",
                f"--regid={user.pw_gid}",
                "--clear-groups",
            )
            folder.chmod(0o755)
            os.chown(data, user.pw_uid, user.pw_gid)

        def run(program: str, *arguments: str) -> None:
            command = [*owner, str(programs / "bin" / program), "-D", str(data), *arguments]
            subprocess.run(
                command,
                check=True,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": str(programs / "lib")},
                timeout=PATIENCE_S,
            )

        run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        options = f"-h 127.0.0.1 -p {port} -k {data} -c fsync=off"
        run("pg_ctl", "start", "-w", "-l", str(data / "log"), "-o", options)
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "stop", "-w", "-m", "immediate")
