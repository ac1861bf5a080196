"""The history: achievements in steps of ten minutes, and predictions against results."""

from msgspec import Struct

from recrawl_client.wire.common import Instant


class CalibrationBin(Struct, frozen=True):
    """Crawls whose predicted probability of a change lies in one bin; numbers of rows add up."""

    up_to: float
    """Upper edge of the bin, a probability; the bin begins at the edge before."""
    n: int
    """Number of crawls."""
    sum_predicted: float
    """Sum of the predicted probabilities."""
    n_changed: int
    """Number of these crawls that found a change."""


class Calibration(Struct, frozen=True, kw_only=True):
    """Predictions of changes against the crawls that followed."""

    estimator: str
    """Estimator that predicted."""
    n: int
    """Number of crawls that were compared: those with an interval that is evidence. A commit of
    more than 25 crawls compares the pages whose number is a multiple of a certain number."""
    n_changed: int
    """Number of these crawls that found a change."""
    sum_predicted: float
    """Sum of the predicted probabilities of a change."""
    calibration_error: float
    """Mean difference between predicted probability and share of changes, over groups of equally
    many predictions, 0 to 1; 0 is perfect."""
    log_loss: float
    """Mean of -ln of the predicted probability of the outcome."""
    log_loss_constant: float
    """The same for the best constant prediction, the share of changes."""
    bins: list[CalibrationBin]
    """Bins with crawls, ascending; the upper edge of bin i of 20 is (i / 20)²."""


class HistoryRow(Struct, frozen=True, kw_only=True):
    """Achievements of one stretch of time; gauges are those at its end."""

    at: Instant
    """Start of the row."""
    complete: bool
    """True if the sums of the row are final: its last step has ended and was summed up."""
    epoch: int | None
    """Last epoch in force; null before the first."""
    n_leased: int
    """Number of leases."""
    n_reported: int
    """Number of accepted crawls. A crawl of an earlier UTC day than its report counts in the last
    step of its day. Crawls dated more than a day before the registration of their page do not
    count."""
    n_failed: int
    """Number of accepted crawls with the outcome `failed`, `refused` or `doubtful`. `absent`
    is none of these, confirmed or not."""
    n_changed: int
    """Number of accepted crawls that found a change."""
    n_wasted: int
    """Number of accepted crawls that found the page unchanged."""
    n_pings: int
    """Number of accepted pings."""
    n_true_pings: int
    """Number of pings after which the next crawl of the page found a change."""
    n_false_pings: int
    """Number of pings after which the next crawl of the page found none."""
    n_missed: int
    """Number of changes that no ping announced, on pages that have had pings."""
    n_taught_nothing: int
    """Number of accepted crawls that did not show the page, and checks of gone pages that were
    still absent: the `overhead` of an epoch. An absence that is not yet confirmed did not show the
    page."""
    spent: float | None = None
    """Costs of the accepted crawls, in `unit`; null under a budget of crawls, and for a row that
    begins before the last change of the unit."""
    bandwidth: float | None
    """Crawls a day of the epoch in force; null before the first, for a host, and under a budget in
    another unit."""
    n_asked: float | None
    """Number of crawls that the bandwidth allows in the measured steps of the row; for a host, that
    fall due at the rates in force. Null without a measured step."""
    measured_at: Instant | None
    """Instant of the gauges below; null where none were measured."""
    n_pages: int | None
    """Number of pages that are not gone."""
    n_never_crawled: int | None
    """Number of pages without a reported crawl."""
    n_stopped: int | None = None
    """Number of pages without a reported crawl that wait in a stopped URL group or by a rule."""
    n_no_content: int | None = None
    """Number of pages that had no content in three crawls in a row or more; they do not count in
    the shares and means below."""
    n_overdue: int | None
    """Number of pages that were due before, also those that are leased, or that wait after leases
    without a report."""
    fresh_share: float | None
    """Expected share of pages whose copy is up to date, by importance, 0 to 1. A page without a
    copy is not fresh. Null before a page is crawled a second time, because all change rates are
    assumed; so are the next three."""
    fresh_share_plain: float | None
    """The same where all pages count alike."""
    harmonic_staleness: float | None
    """Expected mean of 1 + 1/2 + … + 1/N by importance, for N changes since a page's last crawl; a
    page that was never crawled has one change more."""
    harmonic_staleness_plain: float | None
    """The same where all pages count alike."""
    sampled_share: float | None
    """Share of the pages that were measured, 0 to 1; below 1 with more than 2 million pages, and
    the numbers of pages are then estimates."""
    n_paused_by_trouble: int | None
    """Number of hosts that pause after trouble."""
    n_paused_by_operator: int | None
    """Number of hosts that are blocked by an operator."""
    calibration: list[Calibration]
    """Predictions against crawls, by estimator; empty for a host."""


class HistoryAnswer(Struct, frozen=True, kw_only=True):
    """A part of the history, oldest row first."""

    step_s: int
    """Length of a row, seconds."""
    host: str | None
    """Host of the rows; null: all pages."""
    unit: str = "crawls"
    """Unit of the budget: `crawls`, `bytes`, `seconds` or a currency such as `USD`."""
    items: list[HistoryRow]
    """Rows of this part."""
    next_cursor: str | None
    """`cursor` of the next part; null at the end."""
