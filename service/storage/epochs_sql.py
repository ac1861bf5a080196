"""Epochs and their certificates, in the words that both databases share."""

from abc import abstractmethod
from datetime import datetime
from typing import Any

import numpy as np
import sqlalchemy as sa
import zstandard

from service.arrays import SectionRates
from service.domain import Certificate, Epoch, EpochStatus
from service.errors import EpochNotFound
from service.storage import schedule_sql
from service.storage.base import EPOCHS_TOLD, Transaction
from service.storage.tables import epochs, section_rates

NUMBER_IN_FORCE = "SELECT max(epoch) FROM epochs WHERE status = 'published'"

CERTIFICATE = tuple(Certificate.__dataclass_fields__)


class EpochsSql(Transaction):
    """The statements on epochs that Postgres and SQLite share."""

    connection: sa.Connection

    @abstractmethod
    def insert(self, table: sa.Table) -> Any:
        """Give the dialect's INSERT, which knows ON CONFLICT."""

    def request_epoch(self, now: datetime) -> Epoch:
        """Insert a request unless one waits; the partial unique index settles races."""
        waits = epochs.c.status == EpochStatus.requested.value
        row = self.connection.execute(sa.select(epochs).where(waits)).one_or_none()
        if row is None:
            insert = self.insert(epochs).values(
                status=EpochStatus.requested.value, requested_at=now
            )
            row = self.connection.execute(
                insert.on_conflict_do_update(
                    index_elements=["status"],
                    index_where=sa.text("status = 'requested'"),
                    set_={"status": EpochStatus.requested.value},
                ).returning(epochs)
            ).one()
        return decode_epoch(row)

    def start_epoch(self, now: datetime) -> Epoch:
        """Fail the runs that died, then take the request or open a run of its own."""
        died = epochs.c.status == EpochStatus.running.value
        reason = "its process ended before it published"
        self._change_epoch(died, status=EpochStatus.failed, reason=reason, finished_at=now)
        asked = epochs.c.status == EpochStatus.requested.value
        running = {"status": EpochStatus.running.value, "started_at": now}
        row = self.connection.execute(
            epochs.update().where(asked).values(running).returning(epochs)
        ).one_or_none()
        if row is None:
            row = self.connection.execute(
                epochs.insert().values(requested_at=now, **running).returning(epochs)
            ).one()
        return decode_epoch(row)

    def fail_epoch(self, epoch: int, reason: str, now: datetime) -> None:
        """Record why an epoch failed."""
        which = epochs.c.epoch == epoch
        self._change_epoch(which, status=EpochStatus.failed, reason=reason, finished_at=now)

    def publish(
        self,
        epoch: int,
        certificate: Certificate,
        now: datetime,
        section_rate: SectionRates | None = None,
    ) -> None:
        """Put an epoch in force; its schedule is there already."""
        values = {name: getattr(certificate, name) for name in CERTIFICATE}
        which = epochs.c.epoch == epoch
        self._change_epoch(which, status=EpochStatus.published, finished_at=now, **values)
        if section_rate is not None:
            packed = zstandard.compress(section_rate.astype("<f4").tobytes(), level=1)
            self.connection.execute(section_rates.insert().values(epoch=epoch, rate=packed))
        old = section_rates.c.epoch.not_in(sa.text(schedule_sql.KEPT).columns(epochs.c.epoch))
        self.connection.execute(section_rates.delete().where(old))
        self.connection.execute(epochs.delete().where(epochs.c.epoch <= epoch - EPOCHS_TOLD))

    def section_rate(self, epoch: int) -> SectionRates | None:
        """Read one row."""
        which = section_rates.c.epoch == epoch
        packed = self.connection.scalar(sa.select(section_rates.c.rate).where(which))
        return None if packed is None else np.frombuffer(zstandard.decompress(packed), "<f4")

    def _change_epoch(self, which: sa.ColumnElement[bool], **values: Any) -> None:
        values["status"] = values["status"].value
        self.connection.execute(epochs.update().where(which).values(values))

    def epoch(self, epoch: int) -> Epoch:
        """Give one epoch."""
        row = self._first(sa.select(epochs).where(epochs.c.epoch == epoch))
        if row is None:
            raise EpochNotFound(f"no epoch has the number {epoch}; GET /epochs lists them")
        return row

    def epoch_in_force(self) -> Epoch | None:
        """Give the newest published epoch."""
        published = epochs.c.status == EpochStatus.published.value
        return self._first(sa.select(epochs).where(published).order_by(epochs.c.epoch.desc()))

    def newest_epoch(self) -> Epoch | None:
        """Give the epoch asked for or started last."""
        return self._first(sa.select(epochs).order_by(epochs.c.epoch.desc()))

    def _first(self, query: sa.Select[Any]) -> Epoch | None:
        row = self.connection.execute(query.limit(1)).one_or_none()
        return None if row is None else decode_epoch(row)

    def epochs(self, before: int | None, limit: int) -> list[Epoch]:
        """Give epochs, newest first."""
        query = sa.select(epochs).order_by(epochs.c.epoch.desc()).limit(limit)
        if before is not None:
            query = query.where(epochs.c.epoch < before)
        return [decode_epoch(row) for row in self.connection.execute(query)]


def decode_epoch(row: sa.Row[Any]) -> Epoch:
    """Read a row of `epochs`."""
    certificate = None
    if row.status == EpochStatus.published:
        values = {name: getattr(row, name) for name in CERTIFICATE}
        values["crawl_rate_quantiles"] = tuple(map(float, values["crawl_rate_quantiles"]))
        for name in ("prior", "seconds"):  # JSON knows no float: 1e22 comes back as an integer
            values[name] = {key: float(value) for key, value in values[name].items()}
        certificate = Certificate(**values)
    return Epoch(
        epoch=row.epoch,
        status=EpochStatus(row.status),
        requested_at=row.requested_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        reason=row.reason,
        certificate=certificate,
    )
