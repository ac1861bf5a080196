"""Epochs and their certificates, in the words that both databases share."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
import zstandard
from typing_extensions import override

from service.model.arrays import UrlGroupRates
from service.model.domain import Certificate, Epoch, EpochStatus
from service.model.errors import EpochNotFound
from service.storage.contract import EPOCHS_TOLD, Transaction
from service.storage.dialect import Dialect, assignments
from service.storage.schedule_sql import KEPT

CERTIFICATE = tuple(Certificate.__dataclass_fields__)
OWN = tuple(name for name in Epoch.__dataclass_fields__ if name != "certificate")
COLUMNS = ", ".join((*OWN, *CERTIFICATE))

NUMBER_IN_FORCE = "SELECT max(epoch) FROM epochs WHERE status = 'published'"
REQUEST = f"""
INSERT INTO epochs (status, requested_at) VALUES ('requested', %(now)s)
ON CONFLICT (status) WHERE status = 'requested' DO UPDATE SET status = excluded.status
RETURNING {COLUMNS}
"""
"""Returns the request of another caller where a race was lost."""
WAITING = f"SELECT {COLUMNS} FROM epochs WHERE status = 'requested'"
START = f"""
UPDATE epochs SET status = 'running', started_at = %(now)s WHERE status = 'requested'
RETURNING {COLUMNS}
"""
START_UNASKED = f"""
INSERT INTO epochs (status, requested_at, started_at) VALUES ('running', %(now)s, %(now)s)
RETURNING {COLUMNS}
"""
FAIL = "UPDATE epochs SET status = 'failed', reason = %(reason)s, finished_at = %(now)s"
FAIL_RUNNING = f"{FAIL} WHERE status = 'running'"
FAIL_ONE = f"{FAIL} WHERE epoch = %(epoch)s"
PUBLISH = f"""
UPDATE epochs SET status = 'published', finished_at = %(now)s, {assignments(CERTIFICATE)}
WHERE epoch = %(epoch)s
"""
ADD_URL_GROUP_RATE = "INSERT INTO url_group_rates (epoch, rate) VALUES (%(epoch)s, %(rate)s)"
DROP_URL_GROUP_RATES = f"DELETE FROM url_group_rates WHERE epoch NOT IN ({KEPT})"
DROP_EPOCHS = "DELETE FROM epochs WHERE epoch <= %(last)s"
URL_GROUP_RATE = "SELECT rate FROM url_group_rates WHERE epoch = %(epoch)s"
ONE = f"SELECT {COLUMNS} FROM epochs WHERE epoch = %(epoch)s"
IN_FORCE = f"SELECT {COLUMNS} FROM epochs WHERE status = 'published' ORDER BY epoch DESC LIMIT 1"
NEWEST = f"SELECT {COLUMNS} FROM epochs ORDER BY epoch DESC LIMIT 1"
BEFORE = f"""
SELECT {COLUMNS} FROM epochs WHERE epoch < %(before)s ORDER BY epoch DESC LIMIT %(limit)s
"""

NO_LATER = 2**63 - 1


class EpochsSql(Dialect, Transaction):
    """The statements on epochs that Postgres and SQLite share."""

    @override
    def request_epoch(self, now: datetime) -> Epoch:
        return self._epoch(WAITING) or self._written(REQUEST, now=now)

    @override
    def start_epoch(self, now: datetime) -> Epoch:
        self.run(FAIL_RUNNING, reason="its process ended before it published", now=now)
        return self._epoch(START, now=now) or self._written(START_UNASKED, now=now)

    @override
    def fail_epoch(self, epoch: int, reason: str, now: datetime) -> None:
        self.run(FAIL_ONE, epoch=epoch, reason=reason, now=now)

    @override
    def publish(
        self,
        epoch: int,
        certificate: Certificate,
        now: datetime,
        url_group_rate: UrlGroupRates | None = None,
    ) -> None:
        values = {name: getattr(certificate, name) for name in CERTIFICATE}
        self.run(PUBLISH, epoch=epoch, now=now, **values)
        if url_group_rate is not None:
            packed = zstandard.compress(url_group_rate.astype("<f4").tobytes(), level=1)
            self.run(ADD_URL_GROUP_RATE, epoch=epoch, rate=packed)
        self.run(DROP_URL_GROUP_RATES)
        self.run(DROP_EPOCHS, last=epoch - EPOCHS_TOLD)

    @override
    def url_group_rate(self, epoch: int) -> UrlGroupRates | None:
        packed = self.scalar(URL_GROUP_RATE, epoch=epoch)
        return None if packed is None else np.frombuffer(zstandard.decompress(packed), "<f4")

    @override
    def epoch(self, epoch: int) -> Epoch:
        one = self._epoch(ONE, epoch=epoch)
        if one is None:
            raise EpochNotFound(f"no epoch has the number {epoch}; GET /epochs lists them")
        return one

    @override
    def epoch_in_force(self) -> Epoch | None:
        return self._epoch(IN_FORCE)

    @override
    def newest_epoch(self) -> Epoch | None:
        return self._epoch(NEWEST)

    @override
    def epochs(self, before: int | None, limit: int) -> list[Epoch]:
        last = NO_LATER if before is None else before
        return [decode_epoch(row) for row in self.read(BEFORE, before=last, limit=limit)]

    def _epoch(self, statement: str, **parameters: Any) -> Epoch | None:
        rows = self.read(statement, **parameters)
        return decode_epoch(rows[0]) if rows else None

    def _written(self, statement: str, **parameters: Any) -> Epoch:
        (row,) = self.read(statement, **parameters)
        return decode_epoch(row)


def decode_epoch(row: Mapping[str, Any]) -> Epoch:
    """Return the epoch in a row of `epochs`."""
    certificate = None
    if row["status"] == EpochStatus.published:
        values = {name: row[name] for name in CERTIFICATE}
        values["crawl_rate_quantiles"] = tuple(map(float, values["crawl_rate_quantiles"]))
        for name in ("prior", "seconds"):  # JSON knows no float: 1e22 comes back as an integer
            values[name] = {key: float(value) for key, value in values[name].items()}
        certificate = Certificate(**values)
    own = {name: row[name] for name in OWN}
    return Epoch(**{**own, "status": EpochStatus(row["status"])}, certificate=certificate)
