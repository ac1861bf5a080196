"""The weight of a change by a spider or the settings: a wrong one never costs the report."""

import logging
from types import SimpleNamespace

import pytest

from recrawl_client.scrapy_responses import Responses

RESPONSE = SimpleNamespace(url="https://shop.example/item")


def weight(of_settings=None, **of_spider):
    responses = Responses({})
    responses.change_weight = of_settings
    return responses._weight(RESPONSE, SimpleNamespace(**of_spider))


def test_the_method_of_the_spider_goes_before_the_function_of_the_settings():
    assert weight() is None
    assert weight(lambda _: 0.25) == 0.25
    assert weight(lambda _: 0.25, recrawl_change_weight=lambda _: 0.5) == 0.5
    assert weight(recrawl_change_weight=lambda _: None) is None
    assert weight(lambda response: float(response.url == RESPONSE.url)) == 1.0


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf"), "much", [], object()])
def test_what_is_no_weight_is_logged_and_the_change_counts_in_full(value, caplog):
    with caplog.at_level(logging.ERROR):
        assert weight(lambda _: value) is None
    assert RESPONSE.url in caplog.text


def test_a_comparison_that_fails_is_logged_and_the_change_counts_in_full(caplog):
    with caplog.at_level(logging.ERROR):
        assert weight(lambda _: 1 / 0) is None
    assert "ZeroDivisionError" in caplog.text
