"""Windows and blackouts of all hosts in the settings."""

import pytest

from service.model.calendars import HourRules
from service.model.errors import InvalidSettings
from service.runtime.settings import read_settings


def test_windows_and_blackouts_are_separated_by_semicolons():
    settings = read_settings(
        windows="mon-fri 22:00-06:00 Europe/Berlin; Sun 02:00-03:00 UTC",
        blackouts="2099-12-24/2099-12-26 Europe/Berlin",
    )
    assert settings.hours() == HourRules(
        ("Mon-Fri 22:00-06:00 Europe/Berlin", "Sun 02:00-03:00 UTC"),
        ("2099-12-24/2099-12-26 Europe/Berlin",),
    )


def test_without_any_all_hosts_are_open():
    assert read_settings().hours() == HourRules()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"windows": "Sun 02:00-03:00 UTC; nights"}, r"RECRAWL_WINDOWS\[1\] 'nights' has not"),
        ({"windows": "Mon 22:00-06:00 Berlin"}, "no time zone: 'Berlin'; send such as 'Mon-Fri"),
        ({"blackouts": "Christmas"}, r"RECRAWL_BLACKOUTS\[0\] 'Christmas' has not the form"),
        ({"blackouts": "2000-01-01/2099-01-01 UTC"}, "no window within a year"),
    ],
)
def test_wrong_ones_stop_the_start_with_place_and_example(values, sentence):
    with pytest.raises(InvalidSettings, match=sentence):
        read_settings(**values)
