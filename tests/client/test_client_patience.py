"""Services that are busy, out of reach, or lose answers: what is waited for, and how long."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from support.live_server import running
from support.processes import free_port

from recrawl_client import AsyncClient, Client, Refused, Unavailable, retry_after
from recrawl_client.headers import http_date, retry_seconds
from recrawl_client.patience import NOTICE_S, backoff

EMPTY = httpx.Response(200, json={"items": []})


def waits(answers, patience_s=60.0, wait=None):
    """Ask a service that gives these answers in turn; gives what the client waited for."""
    waited, given = [], iter(answers)

    def answer(_request):
        turn = next(given)
        if isinstance(turn, Exception):
            raise turn
        return turn

    transport = httpx.MockTransport(answer)
    with Client(transport=transport, patience_s=patience_s, wait=wait or waited.append) as client:
        client.lease()
    assert next(given, None) is None
    return waited


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 507, 520])
def test_a_busy_service_is_asked_again_when_it_said(status):
    assert waits([httpx.Response(status, headers={"Retry-After": "7"}), EMPTY]) == [7.0]


def test_a_date_to_come_back_is_understood():
    at = datetime.now(UTC) + timedelta(seconds=30)
    (waited,) = waits([httpx.Response(503, headers={"Retry-After": format_datetime(at)}), EMPTY])
    assert 25 < waited <= 30


@pytest.mark.parametrize("told", ["soon", "-1", "", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_without_a_time_to_come_back_it_is_soon(told):
    (waited,) = waits([httpx.Response(503, headers={"Retry-After": told}), EMPTY])
    assert 0 < waited <= 0.1


@pytest.mark.parametrize(
    "broken",
    [httpx.ConnectError("refused"), httpx.ReadTimeout(""), httpx.RemoteProtocolError("cut off")],
)
def test_a_service_out_of_reach_is_waited_for_longer_each_time(broken):
    waited = waits([broken, broken, broken, broken, EMPTY])
    assert all(0.05 * 2**k <= pause <= 0.1 * 2**k for k, pause in enumerate(waited))


def test_a_page_from_something_in_between_is_not_taken_for_an_answer():
    login = httpx.Response(200, html="<html>Please log in</html>")
    (waited,) = waits([login, EMPTY])
    assert 0.05 <= waited <= 0.1
    with pytest.raises(Unavailable, match="it answered 200 with text/html"):
        waits([login], patience_s=0)


@pytest.mark.parametrize(
    "given",
    [
        {"content": b'{"items": [}'},
        {"content": b'{"items": "\xff"}'},
        {"content": b""},
        {"json": {"status": "ok"}},
        {"json": []},
        {"json": None},
    ],
)
def test_json_from_something_in_between_is_not_taken_for_an_answer(given):
    told = httpx.Response(200, headers={"Content-Type": "application/json"}, **given)
    with (
        Client(transport=httpx.MockTransport(lambda _: told), patience_s=0) as client,
        pytest.raises(Unavailable, match="without an answer of Recrawl"),
    ):
        client.lease()
    with Client(transport=httpx.MockTransport(lambda _: told), patience_s=0) as client:
        for call in (lambda: client.report(1, digest="1"), lambda: client.register("https://a/")):
            with pytest.raises(Unavailable, match=r"is that the service|without what Recrawl"):
                call()


def test_a_service_that_lives_elsewhere_is_told():
    moved = httpx.Response(308, headers={"Location": "https://recrawl.example/leases"})
    with (
        Client(transport=httpx.MockTransport(lambda _: moved)) as client,
        pytest.raises(
            Refused, match=r"308 Permanent Redirect: call it at https://recrawl\.example/"
        ),
    ):
        client.lease()


def test_waiting_grows_to_ten_seconds_and_no_further():
    assert 5 <= backoff(1_000) <= 10


def test_a_time_to_come_back_that_nobody_means_is_not_believed():
    assert retry_after(httpx.Response(429, headers={"Retry-After": "9" * 400})) == 1e6


def test_patience_ends():
    with pytest.raises(
        Unavailable, match=r"POST http://127\.0\.0\.1:8000/leases: refused; is it running\?$"
    ):
        waits([httpx.ConnectError("refused")], patience_s=0)


@pytest.mark.dear
def test_a_call_that_waits_for_a_second_says_so_once_and_what_to_do():
    """On a port that nobody listens on: the notice comes before the pauses add up to a second."""
    events = []

    def wait(seconds):
        events.append(seconds)
        time.sleep(seconds)

    url = f"http://127.0.0.1:{free_port()}"
    options = {"patience_s": 5.0, "wait": wait, "on_wait": events.append}
    with Client(url, **options) as client, pytest.raises(Unavailable, match="is it running"):
        client.register("https://a.example/")
    (notice,) = [event for event in events if isinstance(event, str)]
    assert notice.startswith(f"POST {url}/pages: ")
    assert "refused; is it running? (waiting for up to " in notice
    assert sum(events[: events.index(notice)]) <= NOTICE_S


def test_each_outage_is_reported_once():
    away = [httpx.ConnectError("refused")] * 12
    answers = iter([*away, EMPTY, *away, EMPTY])
    notices = []

    def answer(_request):
        outcome = next(answers)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    transport = httpx.MockTransport(answer)
    with Client(transport=transport, wait=lambda _s: None, on_wait=notices.append) as client:
        client.lease()
        n_first = len(notices)
        client.lease()
    assert (n_first, len(notices)) == (1, 2)


def test_without_more_ado_the_notice_is_logged(caplog):
    busy = httpx.Response(503, headers={"Retry-After": "7"})
    waits([busy, busy, EMPTY])
    (record,) = caplog.records
    assert "it answered 503 (waiting for up to " in record.getMessage()


def test_a_short_wait_is_not_worth_a_notice(caplog):
    waits([httpx.ConnectError("refused"), EMPTY])
    assert caplog.records == []


def test_a_longer_pause_than_patience_is_not_begun():
    busy = httpx.Response(503, headers={"Retry-After": "61"})
    with pytest.raises(Unavailable, match="it answered 503"):
        waits([busy])


def test_whoever_stops_waiting_ends_the_call():
    with pytest.raises(Unavailable):
        waits([httpx.Response(503)], wait=lambda _seconds: True)


@pytest.mark.parametrize("status", [400, 404, 422, 501])
def test_what_is_refused_is_not_asked_again(status):
    with pytest.raises(Refused, match=f"{status} "):
        waits([httpx.Response(status, text="<html>a proxy's words</html>")])


class Forgetful(httpx.HTTPTransport):
    """Loses every second answer after the service has given it."""

    n_answers = 0

    def handle_request(self, request):
        response = super().handle_request(request)
        self.n_answers += 1
        if self.n_answers % 2:
            response.close()
            raise httpx.ReadError("the answer was lost")
        return response


@pytest.mark.dear
def test_what_was_written_when_the_answer_was_lost_counts_once(sqlite_url):
    with (
        running(sqlite_url) as live,
        Client(live.url, transport=Forgetful(), wait=lambda _s: None, now=live.clock) as client,
    ):
        client.register("https://a.example/")
        for n in range(5):
            live.clock.advance(hours=1)
            assert client.report("https://a.example/", digest=str(n)).duplicate == 1
        assert client.page(1).estimate.n_changes == 4


@pytest.mark.parametrize(
    "told",
    [
        "",
        "soon",
        "Fri, 01 May 99999999999999999999 09:30:00 GMT",
        "Fri, 01 May 2026 09:30:00 +99999999999999999999",
        "Fri, 01 May 2026 99999999999999999999:30:00 GMT",
    ],
)
def test_a_date_that_is_none_is_none(told):
    assert http_date(told) is None
    assert retry_seconds(told) in (None, 0.0)


@pytest.mark.parametrize(
    "address", ["--help", "localhost:8000", "a.example", "ftp://a.example", "http://", ""]
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_an_address_that_cannot_be_asked_is_refused_at_once(kind, address):
    with pytest.raises(ValueError, match="is no http:// or https:// address; use one like"):
        kind(address)
