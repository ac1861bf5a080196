"""A Dask cluster of real processes on this machine, with TLS, which tests kill."""

import datetime as dt
import ipaddress
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from recrawl_cluster.epochs.actors import Certificates
from support.processes import ENDS_WITHIN_S, ROOT, environment, free_port


def certificates(directory: Path) -> Certificates:
    """Write the certificate of an authority that is that of all processes too, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem, private = directory / "cert.pem", directory / "key.pem"
    pem.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return Certificates(str(pem), str(pem), str(private))


@dataclass
class Cluster:
    """A scheduler and its workers."""

    directory: Path
    certificates: Certificates
    port: int = field(default_factory=free_port)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    @property
    def scheduler(self) -> subprocess.Popen[bytes]:
        return self.processes[0]

    def start(self, n_workers: int) -> None:
        """Start a scheduler and workers, without nannies."""
        self._start("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")
        for _ in range(n_workers):
            options = "--nthreads", "1", "--memory-limit", "0", "--no-nanny", "--no-dashboard"
            self._start("worker", self.address, "--host", "127.0.0.1", *options)

    def _start(self, *arguments: str) -> None:
        ca, cert, key = self.certificates
        files = "--tls-ca-file", ca, "--tls-cert", cert, "--tls-key", key
        command = [sys.executable, "-m", "dask", *arguments, *files]
        with (self.directory / f"dask-{len(self.processes)}.txt").open("wb") as output:
            own = environment() | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
            self.processes.append(
                subprocess.Popen(command, cwd=self.directory, stdout=output, stderr=output, env=own)
            )

    def end(self) -> None:
        """Kill all processes."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait(ENDS_WITHIN_S)
        self.processes = []


@contextmanager
def cluster(directory: Path, n_workers: int = 2) -> Iterator[Cluster]:
    """Run a cluster until the end of the block."""
    own = Cluster(directory, certificates(directory))
    try:
        own.start(n_workers)
        yield own
    finally:
        own.end()
