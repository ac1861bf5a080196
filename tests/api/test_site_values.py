"""Values that a site chose: what can be read of them counts, and no report fails for them."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import ValidationError, convert
from support.live_server import Live

from recrawl_client.wire.evidence import Observation
from service.api.requests.site_values import readable

pytestmark = pytest.mark.dear

NEWS = "https://a.example/news"
TYPES = {"application/json": "[{}]", "application/x-ndjson": "{}"}


def send(api: Live, item: str, media_type: str = "application/json"):
    headers = {"Content-Type": media_type}
    content = TYPES[media_type].format(item)
    return api.client.post("/observations", content=content, headers=headers)


def crawl(api: Live, fields: str, url: str = NEWS) -> str:
    at = api.clock.advance(hours=2).isoformat()
    return f'{{"url": "{url}", "observed_at": "{at}", {fields}}}'


@pytest.mark.parametrize("media_type", TYPES)
@pytest.mark.parametrize(
    ("date", "read"),
    [
        ("Wed, 21 Oct 2015 07:28:00 GMT", "2015-10-21T07:28:00Z"),
        ("Wednesday, 21-Oct-15 07:28:00 GMT", "2015-10-21T07:28:00Z"),
        ("Wed Oct 21 07:28:00 2015", "2015-10-21T07:28:00Z"),
        ("Wed, 21 Oct 2015 09:28:00 +0200", "2015-10-21T07:28:00Z"),
        ("2015-10-21T09:28:00+02:00", "2015-10-21T07:28:00Z"),
        ("2015-10-21T07:28:00", None),
        ("2015-10-21", None),
        ("yesterday", None),
        ("Wed, 32 Oct 2015 07:28:00 GMT", None),
        ("0001-01-01T00:00:00+23:59", None),
        ("9999-12-31T23:59:59-23:59", None),
        ("", None),
    ],
)
def test_a_date_in_any_form_is_read_or_left_out(shared: Live, date, read, media_type):
    # one date with several digests is a proof that the validators of a host are wrong
    url = f"https://{uuid4()}.example/"
    item = crawl(shared, f'"digest": "1", "last_modified": "{date}"', url)
    answer = send(shared, item, media_type).json()
    assert (answer["accepted"], answer["rejected"]) == (1, [])
    assert shared.get("/pages", url=url).json()["last_modified"] == read


@pytest.mark.parametrize(
    ("fields", "n_failures"),
    [
        ('"status": 200, "digest": "1", "retry_after_s": -1', 0),
        ('"status": 503, "retry_after_s": -0.001', 1),
        ('"status": 503, "retry_after_s": NaN', 1),
        ('"status": -7', 1),
        ('"status": 4294967296', 1),
        (f'"status": {"9" * 400}', 1),
        ('"status": 404, "digest": ""', 1),
        ('"changed": false, "digest": ""', 0),
    ],
)
def test_a_number_that_no_site_should_send_costs_no_report(api: Live, fields, n_failures):
    send(api, crawl(api, '"digest": "1"'))
    answer = send(api, crawl(api, fields)).json()
    assert (answer["accepted"], answer["rejected"]) == (1, [])
    assert api.get("/pages", url=NEWS).json()["n_failures"] == n_failures


def test_fields_with_null_are_left_out_of_a_report(api: Live):
    names = set(Observation.__struct_fields__) - {"url", "observed_at", "digest", "note"}
    nulls = ", ".join(f'"{name}": null' for name in sorted(names))
    for digest in ("1", "2"):
        answer = send(api, crawl(api, f'"digest": "{digest}", {nulls}')).json()
        assert (answer["accepted"], answer["rejected"], answer.get("left_out")) == (1, [], None)
    page = api.get("/pages", url=NEWS).json()
    assert (page["estimate"]["n_observations"], page["n_failures"], page["etag"]) == (1, 0, None)
    response = send(api, crawl(api, f'"digest": null, {nulls}'))
    (rejected,) = response.json()["rejected"]
    assert (rejected["field"], rejected["code"]) == ("changed", "no_evidence")


def test_an_endless_wait_is_the_longest_pause(api: Live):
    """Python writes infinity without quotation marks."""
    api.register(NEWS)
    item = crawl(api, '"status": 403, "retry_after_s": Infinity')
    assert send(api, item).json()["accepted"] == 1
    day = (api.clock() + timedelta(days=1)).isoformat().replace("+00:00", "Z")
    assert api.get("/hosts/a.example").json()["host_queue"]["paused_until"] == day


@pytest.mark.dear
def test_the_others_of_a_batch_and_their_positions_stay(api: Live):
    items = [
        {"url": f"https://a.example/{i}", "observed_at": api.clock().isoformat(), "digest": "1"}
        for i in range(4)
    ]
    items[1]["last_modified"] = "Wed, 21 Oct 2015 07:28:00 GMT"
    items[2]["retry_after_s"] = "7"
    items[3]["status"] = -1
    answer = api.post("/observations", items).json()
    assert answer["accepted"] == 3
    ((rejection,),) = [answer["rejected"]]
    assert (rejection["index"], rejection["field"]) == (2, "retry_after_s")
    assert '"7"' in rejection["detail"]


def test_an_empty_digest_is_no_evidence(api: Live):
    response = send(api, crawl(api, '"status": 200, "digest": ""'))
    (rejected,) = response.json()["rejected"]
    assert (rejected["field"], rejected["code"]) == ("changed", "no_evidence")


numbers = st.integers(-(10**39), 10**39) | st.floats()
moments = st.datetimes(timezones=st.just(UTC))
texts = st.text() | moments.map(format_datetime) | moments.map(datetime.isoformat)


@pytest.mark.dear
@given(
    item=st.fixed_dictionaries(
        {"observed_at": st.just("2026-05-01T12:00:00Z")},
        optional={
            "status": st.integers(-(10**39), 10**39),
            "retry_after_s": numbers,
            "last_modified": texts,
            "digest": st.just("") | st.just("5f3a"),
            "etag": texts,
            "redirect_url": texts,
        },
    )
)
def test_any_value_of_a_site_fits_the_schema(item):
    read = convert(readable(item), Observation)
    assert readable(read) is read
    assert readable(readable(item)) == readable(item)


@pytest.mark.dear
@given(value=st.booleans() | st.lists(st.integers(), max_size=1) | st.just({}))
def test_a_value_of_a_wrong_type_is_still_refused(value):
    for name in ("status", "retry_after_s", "last_modified", "digest", "redirect_url"):
        item = json.loads(json.dumps({"observed_at": "2026-05-01T12:00:00Z", name: value}))
        with pytest.raises(ValidationError, match=name):
            convert(readable(item), Observation)
