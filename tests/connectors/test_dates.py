"""Dates as sites write them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.connectors.dates import read_date


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2005", (2005, 1, 1)),
        ("2005-03", (2005, 3, 1)),
        ("2005-03-09", (2005, 3, 9)),
        ("20050309", (2005, 3, 9)),
        ("2005-03-09T18:00Z", (2005, 3, 9, 18)),
        ("2005-03-09T18:00:15+00:00", (2005, 3, 9, 18, 0, 15)),
        ("2005-03-09T18:00:15-05:30", (2005, 3, 9, 23, 30, 15)),
        ("2005-03-09T18:00:15.123456789+02:00", (2005, 3, 9, 16, 0, 15, 123456)),
        ("2005-03-09 18:00:15", (2005, 3, 9, 18, 0, 15)),
        (" 2005-03-09\n", (2005, 3, 9)),
        # common mistakes
        ("2005-3-9", (2005, 3, 9)),
        ("2005/03/09 18:00", (2005, 3, 9, 18)),
        ("2005-03-09t18:00:15z", (2005, 3, 9, 18, 0, 15)),
        ("2005-03-09 18:00:15 +0100", (2005, 3, 9, 17, 0, 15)),
        ("2005-03-09 18:00:15 UTC", (2005, 3, 9, 18, 0, 15)),
        ("2005-03-09T24:00:00Z", (2005, 3, 10)),
        ("2005-03-09T18:00:60Z", (2005, 3, 9, 18, 0, 59)),
        ("2005-03-09T18:00:00+01:00[Europe/Berlin]", (2005, 3, 9, 17)),
        ("20050309180015", (2005, 3, 9, 18, 0, 15)),
        ("2005-03-09+02:00", (2005, 3, 8, 22)),
        ("2005-03-09-05:00", (2005, 3, 9, 5)),
        ("2005-W10", (2005, 3, 7)),
        ("2005W10", (2005, 3, 7)),
        ("2005-W10-3", (2005, 3, 9)),
        # time since 1970
        ("1110391215", (2005, 3, 9, 18, 0, 15)),
        ("1110391215999", (2005, 3, 9, 18, 0, 15)),
        # mail
        ("Wed, 09 Mar 2005 18:00:15 GMT", (2005, 3, 9, 18, 0, 15)),
        ("Wed, 9 Mar 05 18:00 EST", (2005, 3, 9, 23)),
        ("9 Mar 99 18:00:15 Z", (1999, 3, 9, 18, 0, 15)),
        ("Wed, 09 March 2005 18:00:15 +01:00", (2005, 3, 9, 17, 0, 15)),
        ("Mittwoch, 09 Mar 2005 18:00:15 CEST", (2005, 3, 9, 16, 0, 15)),
        ("Wed, 09 Mar 2005 18:00:15 +0000 (UTC)", (2005, 3, 9, 18, 0, 15)),
        ("Wed, 09 Mar 2005 18:00:15 GMT+0200", (2005, 3, 9, 16, 0, 15)),
        ("Wed, 09-Mar-05 18:00:15 GMT", (2005, 3, 9, 18, 0, 15)),
        ("Wed, 09 Mar 2005", (2005, 3, 9)),
        ("Wed Mar  9 18:00:15 2005", (2005, 3, 9, 18, 0, 15)),
        ("Wed Mar 9 18:00:15 PST 2005", (2005, 3, 10, 2, 0, 15)),
        ("March 9, 2005 6:00 pm", (2005, 3, 9, 18)),
        ("Mar 9th, 2005", (2005, 3, 9)),
        ("Wed, 9th Mar 2005 18:00:15 NST", (2005, 3, 9, 21, 30, 15)),
        ("Wednesday, March 9, 2005 - 18:00", (2005, 3, 9, 18)),
        ("March 9, 2005 at 6:00 pm", (2005, 3, 9, 18)),
        (
            "Wed Mar 09 2005 18:00:15 GMT+0200 (Central European Summer Time)",
            (2005, 3, 9, 16, 0, 15),
        ),
    ],
)
def test_dates_of_the_w3c_and_of_mail_are_read(text, moment):
    date = read_date(text)
    assert date.begins == datetime(*moment, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("2005-03-09", 1),
        ("2005-03-09+02:00", 1),
        ("9 Mar 2005", 1),
        ("2005-W10", 7),
        ("2005W10", 7),
        ("2005-W10-3", 1),
        ("2005-03", 31),
        ("2005-03-09T18:00", 0),
        ("1110391215", 0),
        ("20050309180015", 0),
    ],
)
def test_a_date_without_a_time_stands_for_its_period(text, days):
    assert read_date(text).span == timedelta(days)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "123456789",
        "12345678901",
        "now",
        "2005-13-01",
        "09.03.2005",
        "09/03/2005",
        "-",
        "1" * 400,
        "0000-00-00 00:00:00",
        "-0001-11-30T00:00:00+00:00",
        "Wed, 99 Mar 2005 18:00:15 GMT",
        "9999-12-31T23:00-10:00",
    ],
)
def test_other_dates_are_none(text):
    assert read_date(text) is None


@given(
    st.text(max_size=40) | st.from_regex(r"[A-Za-z, ]{0,5}\d{1,4}[-/ ][A-Za-z\d]{1,4}[ -]\d{2,4}.*")
)
def test_any_text_is_a_utc_date_or_none(text):
    date = read_date(text)
    assert date is None or (date.begins.tzinfo is UTC and date.span >= timedelta(0))


@pytest.mark.parametrize(
    ("text", "latest"),
    [
        ("9999", "9999-01-01"),
        ("9999-12-31", "9999-12-31"),
        ("2026-05", "2026-05-02"),
        ("2026-03", "2026-04-01T12:00"),
        ("2026-05-01T06:00Z", "2026-05-01T06:00"),
    ],
)
def test_the_end_of_a_period_is_at_most_now(text, latest):
    now = datetime(2026, 5, 2, tzinfo=UTC)
    assert read_date(text).latest(now) == datetime.fromisoformat(latest).replace(tzinfo=UTC)
