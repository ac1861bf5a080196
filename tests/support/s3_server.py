"""A local server of S3 objects: moto's, in an environment of its own, and its requests."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from support.image import finish
from support.live_server import until
from support.processes import free_port

MOTO = "moto[server]>=5.2,<6"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "a-secret-of-tests",
    "AWS_DEFAULT_REGION": "us-east-1",
}


def installed(folder: Path) -> Path:
    """Install moto in a new environment; return its server."""
    finish([sys.executable, "-m", "venv", str(folder)])
    finish([str(folder / "bin" / "pip"), "install", "--quiet", MOTO])
    return folder / "bin" / "moto_server"


class S3:
    """A running server, which can be ended and started again with nothing in it."""

    def __init__(self, program: Path) -> None:
        self.program = program
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = Path(tempfile.mkstemp(prefix="recrawl-s3-")[1])
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [self.program, "-H", "127.0.0.1", "-p", str(self.port)]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ)
        until(self.answers, "the S3 server answers")

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/moto-api/data.json").status_code == 200
        except httpx.TransportError:
            return False

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def make(self, bucket: str) -> None:
        """Create a bucket; moto checks no signature."""
        assert httpx.put(f"{self.url}/{bucket}").status_code == 200


@contextmanager
def serving(program: Path) -> Iterator[S3]:
    """Run a server until the block ends."""
    server = S3(program)
    server.start()
    try:
        yield server
    finally:
        server.end()
        server.log.unlink()
