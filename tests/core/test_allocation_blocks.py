import numpy as np
import pytest
from support.allocation_cases import golden_set

from service.core.allocation import blocks as buckets
from service.core.allocation.blocks import LARGE, by_host
from service.core.allocation.harmonic import allocate_harmonic
from service.core.allocation.problem import check_pages


@pytest.fixture
def one_bucket(monkeypatch):
    """Switch to pages in the order in which they came."""

    def switch():
        monkeypatch.setattr(buckets, "MOST_BUCKETS", 1)

    return switch


def test_buckets_change_nothing_beyond_rounding(one_bucket):
    n, rng = LARGE, np.random.default_rng(3)
    case = golden_set(n)
    case.importance[::97] = 0
    case.change_rate[::89] = 0
    limits = {"host": rng.integers(0, 999, n), "host_bandwidth": rng.exponential(80, 999)}
    many = allocate_harmonic(*case, **limits)
    one_bucket()
    one = allocate_harmonic(*case, **limits)
    np.testing.assert_allclose(many.crawl_rate, one.crawl_rate, rtol=1e-12)
    np.testing.assert_allclose(many.crawl_probability, one.crawl_probability, rtol=1e-12)
    assert many.multiplier == pytest.approx(one.multiplier, rel=1e-12)
    assert many.bandwidth_used == pytest.approx(one.bandwidth_used, rel=1e-12)
    assert many.kkt_residual < 1e-12 > one.kkt_residual
    assert 0.1 < (many.host_multiplier > many.multiplier).mean() < 0.9
    np.testing.assert_allclose(many.host_multiplier, one.host_multiplier, rtol=1e-12)


@pytest.mark.dear
def test_buckets_change_nothing_with_noise_and_bounds(one_bucket):
    n, rng = LARGE, np.random.default_rng(6)
    case = golden_set(n)
    limits = {
        "host": rng.integers(0, 999, n),
        "host_bandwidth": rng.exponential(80, 999) + 20.0,
        "host_group": np.arange(999) % 5,
        "group_bandwidth": np.full(5, 0.03 * n),
        "min_crawl_rate": np.where(rng.random(n) < 0.1, 0.05, 0.0),
        "max_crawl_rate": np.where(rng.random(n) < 0.1, 0.1, np.inf),
        "ping_recall": rng.random(n),
        "ping_precision": rng.uniform(0.1, 1.0, n),
    }
    many = allocate_harmonic(*case, **limits)
    one_bucket()
    one = allocate_harmonic(*case, **limits)
    np.testing.assert_allclose(many.crawl_rate, one.crawl_rate, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(many.crawl_probability, one.crawl_probability, rtol=1e-9)
    assert many.kkt_residual < 1e-12 > one.kkt_residual


@pytest.mark.dear
def test_roots_of_hosts_are_found_at_any_magnitude(one_bucket):
    """Most hosts are limited, many far below what they would take, some to exactly nothing."""
    n, n_hosts, rng = LARGE, LARGE // 8, np.random.default_rng(5)
    pages = 10 ** rng.uniform(-20, 20, n), 10 ** rng.uniform(-20, 20, n), rng.random(n) < 0.5
    limits = {
        "host": rng.integers(0, n_hosts, n),
        "host_bandwidth": 10 ** rng.uniform(-25, 25, n_hosts) * (rng.random(n_hosts) < 0.9),
    }
    many = allocate_harmonic(*pages, 1e18, **limits)
    one_bucket()
    one = allocate_harmonic(*pages, 1e18, **limits)
    assert (many.host_multiplier > many.multiplier).mean() > 0.5
    np.testing.assert_allclose(many.crawl_rate, one.crawl_rate, rtol=1e-12)
    np.testing.assert_allclose(many.crawl_probability, one.crawl_probability, rtol=1e-12)
    assert many.kkt_residual < 1e-12 > one.kkt_residual


@pytest.mark.sampled(3)
@pytest.mark.parametrize("n_hosts", [1, 3, 999, 300_001, 17_000_000])
@pytest.mark.parametrize("empty", [0.0, 0.5])
def test_pages_are_put_in_the_buckets_of_their_hosts(n_hosts, empty):
    """Few and many hosts, large ones and empty ones at both ends."""
    n, rng = LARGE, np.random.default_rng(4)
    case = golden_set(n)
    share = (empty / 2 + (1 - empty) * rng.random(n) ** 3) * n_hosts
    host = share.astype(np.int32)
    host[: n // 5] = host[0]
    pages = check_pages(*case[:3])
    bucketed = by_host(pages, host, n_hosts, (np.empty(n), np.empty(n)))
    n_buckets = bucketed.edges.size - 1
    assert n_buckets == min(n_hosts, 8) or 4 < n_buckets <= 9
    assert (n_buckets - 1) * bucketed.width < n_hosts <= n_buckets * bucketed.width
    of_page = np.concatenate(
        [
            bucketed.hosts_in(b, bucketed.pages_of(b)).astype(np.int64) + b * bucketed.width
            for b in range(n_buckets)
        ]
    )
    same = np.lexsort((bucketed.pages.importance, of_page))
    expected = np.lexsort((case.importance, host))
    np.testing.assert_array_equal(of_page[same], host[expected])
    for column, original in zip(bucketed.pages[:3], case[:3], strict=True):
        np.testing.assert_array_equal(column[same], original[expected])


def test_pages_in_the_order_of_their_hosts_are_not_copied():
    n = LARGE
    pages = check_pages(*golden_set(n)[:3])
    host = np.sort(np.random.default_rng(4).integers(0, 999, n, dtype=np.int16))
    bucketed = by_host(pages, host, 100_000, (np.empty(0), np.empty(0)))
    assert bucketed.pages is pages
    assert not bucketed.hosts_in(0, bucketed.pages_of(0)).min()
    assert bucketed.edges[1] == n


def test_bandwidth_that_no_page_can_use_is_returned():
    n = LARGE
    case = golden_set(n)._replace(complete=np.ones(n, bool), bandwidth=1e9)
    allocation = allocate_harmonic(*case)
    assert (allocation.crawl_probability == 1).all()
    assert allocation.multiplier == 0
    assert allocation.kkt_residual == 0
