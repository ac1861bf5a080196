"""Settings of the processes that compute epochs over several databases."""

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

LOCAL = "local"
"""Address that stands for Dask workers of this machine, which the worker starts."""


class EpochSettings(BaseSettings):
    """Everything about the processes of epochs that an operator can set."""

    shards: str | None = None
    """File that names the Postgres databases of a sharded store (TOML), in place of
    RECRAWL_DATABASE_URL; empty: one database."""
    epoch_processes: Annotated[int, Field(ge=0, le=1_024)] = 0
    """Processes that `recrawl worker` starts for epochs over several databases, at most one for
    each; 0: the worker computes one database after the other."""
    dask: str | None = None
    """Dask scheduler whose workers compute epochs over several databases, such as tls://HOST:8786
    or tcp://HOST:8786; local: workers of this machine; needs `recrawl[dask]`."""
    dask_ca: Path | None = None
    """File with the certificate authority of the Dask scheduler and its workers (PEM), for tls://;
    empty: as Dask is configured."""
    dask_cert: Path | None = None
    """File with the certificate of this process for the Dask scheduler (PEM)."""
    dask_key: Path | None = None
    """File with the key of RECRAWL_DASK_CERT (PEM)."""

    @model_validator(mode="after")
    def _one_way_to_compute(self) -> Self:
        if self.dask and self.epoch_processes:
            raise ValueError("RECRAWL_DASK and RECRAWL_EPOCH_PROCESSES are both set; unset one")
        ways = {"RECRAWL_DASK": self.dask, "RECRAWL_EPOCH_PROCESSES": self.epoch_processes}
        for name, chosen in ways.items():
            if chosen and not self.shards:
                raise ValueError(
                    f"{name} is for several databases; unset it, or name them in RECRAWL_SHARDS"
                )
        self._check_dask()
        return self

    def _check_dask(self) -> None:
        url = urlsplit(self.dask or "")
        if self.dask and self.dask != LOCAL and not (url.scheme in ("tls", "tcp") and url.netloc):
            raise ValueError(
                f"RECRAWL_DASK must be local, tls://HOST:PORT or tcp://HOST:PORT, not {self.dask!r}"
            )
        files = {"CA": self.dask_ca, "CERT": self.dask_cert, "KEY": self.dask_key}
        names = [f"RECRAWL_DASK_{name}" for name, path in files.items() if path is None]
        if len(names) == len(files):
            return
        if url.scheme != "tls":
            raise ValueError("RECRAWL_DASK_CA, _CERT and _KEY are for RECRAWL_DASK=tls://HOST:PORT")
        if names:
            raise ValueError(f"{' and '.join(names)} must be set too, for connections by TLS")
        for name, path in files.items():
            if path is not None and not path.is_file():
                raise ValueError(f"RECRAWL_DASK_{name}: there is no file {path}")
