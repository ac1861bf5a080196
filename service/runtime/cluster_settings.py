"""Settings of several databases, and of the machines that compute their epochs."""

from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import model_validator
from pydantic_settings import BaseSettings

LOCAL = "local"
"""Address that stands for Dask workers of this machine, which the worker starts."""


class ClusterSettings(BaseSettings):
    """Everything about several databases and machines that an operator can set."""

    cluster: str | None = None
    """File that names the Postgres databases of a sharded store (TOML), in place of
    RECRAWL_DATABASE_URL; empty: one database; needs `recrawl[cluster]`."""
    dask: str | None = None
    """Dask scheduler whose workers compute epochs over Postgres, such as tls://HOST:8786 or
    tcp://HOST:8786; local: workers of this machine; empty: the worker computes alone. One database
    is computed in parts by hosts, several one by one; needs `recrawl[cluster]`."""
    dask_ca: Path | None = None
    """File with the certificate authority of the Dask scheduler and its workers (PEM), for tls://;
    empty: as Dask is configured."""
    dask_cert: Path | None = None
    """File with the certificate of this process for the Dask scheduler (PEM)."""
    dask_key: Path | None = None
    """File with the key of RECRAWL_DASK_CERT (PEM)."""

    @model_validator(mode="after")
    def _check_dask(self) -> Self:
        url = urlsplit(self.dask or "")
        if self.dask and self.dask != LOCAL and not (url.scheme in ("tls", "tcp") and url.netloc):
            raise ValueError(
                f"RECRAWL_DASK must be local, tls://HOST:PORT or tcp://HOST:PORT, not {self.dask!r}"
            )
        self._check_certificates(is_tls=url.scheme == "tls")
        return self

    def _check_certificates(self, *, is_tls: bool) -> None:
        files = {"CA": self.dask_ca, "CERT": self.dask_cert, "KEY": self.dask_key}
        names = [f"RECRAWL_DASK_{name}" for name, path in files.items() if path is None]
        if len(names) == len(files):
            return
        if not is_tls:
            raise ValueError("RECRAWL_DASK_CA, _CERT and _KEY are for RECRAWL_DASK=tls://HOST:PORT")
        if names:
            raise ValueError(f"{' and '.join(names)} must be set too, for connections by TLS")
        for name, path in files.items():
            if path is not None and not path.is_file():
                raise ValueError(f"RECRAWL_DASK_{name}: there is no file {path}")
