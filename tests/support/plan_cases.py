"""Input of plans without a store."""

import numpy as np

from service.core.division import Wanted
from service.epochs.bandwidth_plans import Basis, Members, reduced
from service.estimation.estimates import RateEstimates
from service.model.columns import CapColumns, EpochColumns
from service.model.domain import Observability
from support.store_cases import CERTIFICATE, T0


def basis_of(importance, change_rate, host=(), caps=(), low=np.nan, high=np.nan, complete=False):
    """Return the input of plans of pages without evidence; caps are those of hosts 0, 1, …"""
    n, n_caps = len(importance), len(caps)
    columns = {f: np.zeros(n) for f in EpochColumns.__dataclass_fields__} | {
        "page_id": np.arange(1, n + 1),
        "importance": np.asarray(importance, float),
        "observability": np.where(complete, Observability.complete, 0) * np.ones(n, np.int16),
        "host_id": np.asarray(host, np.int64) if len(host) else np.zeros(n, np.int64),
        "min_crawl_rate": low * np.ones(n),
        "max_crawl_rate": high * np.ones(n),
    }
    pages = reduced(EpochColumns(**columns))
    share = (np.broadcast_to(x, n) for x in (0.0, 1.0, 0.0))
    return Basis(
        epoch=1,
        at=T0,
        in_force=CERTIFICATE,
        wants=Wanted(n_copies=n),
        pages=pages,
        estimates=RateEstimates(np.asarray(change_rate, float), *share),
        caps=CapColumns(
            host_id=np.arange(n_caps),
            host=np.array(["h"] * n_caps, object),
            max_crawl_rate=np.array([cap if cap < np.inf else np.nan for cap in caps]),
            group_id=np.zeros(n_caps, np.int64),
            group=np.array([""] * n_caps, object),
            group_max_crawl_rate=np.full(n_caps, np.nan),
        ),
        hosts=Members.of(slice(None), pages.host_id),
        tags=Members.of(np.zeros(0, np.int32), np.zeros(0, np.int64)),
        has_copy=np.ones(n, np.bool_),
        importance_apart=0.0,
        n_assumed=0,
    )
