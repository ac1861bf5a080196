"""Needs that an operator has accepted: they are apart, and come back."""

from dataclasses import replace

import pytest
from support.need_cases import DAY, HOUR, T0, WELL

from service.model.acceptances import Acceptance
from service.model.incidents import Incident, Sign
from service.status.needs import KINDS, AcceptedNeed, judged
from service.storage.queue.signs import PausedQueue

INCIDENT = Acceptance("host_in_incident", "a.example", T0 - HOUR, T0 + 29 * DAY)


def incident(host, hours):
    return host, Incident(Sign.alike, T0 - hours * HOUR, 20)


def test_an_accepted_need_is_apart_and_the_others_stay():
    facts = replace(WELL, incidents=[incident("a.example", 2), incident("b.example", 2)])
    both = judged(facts)
    assert [each.subject for each in both.needs] == ["a.example", "b.example"]
    one = judged(replace(facts, acceptances=[INCIDENT]))
    assert one.needs == both.needs[1:]
    assert one.accepted == [AcceptedNeed(INCIDENT, both.needs[0])]


def test_a_condition_that_begins_anew_is_shown_again():
    facts = replace(WELL, incidents=[incident("a.example", 0.5)], acceptances=[INCIDENT])
    (need,), accepted = judged(facts)
    assert (need.kind, need.since) == ("host_in_incident", T0 - HOUR / 2)
    assert accepted == []


@pytest.mark.parametrize("hours", [0.5, 2])
def test_a_begin_that_moves_while_the_condition_holds_ends_no_acceptance(hours):
    pause = PausedQueue("a.example", False, T0 - hours * HOUR, T0 + HOUR, 9)
    acceptance = INCIDENT._replace(kind="host_paused")
    needs, (accepted,) = judged(replace(WELL, pauses=[pause], acceptances=[acceptance]))
    assert needs == []
    assert accepted.need.since == pause.since


def test_an_acceptance_whose_condition_is_over_is_still_shown():
    assert judged(replace(WELL, acceptances=[INCIDENT])) == ([], [AcceptedNeed(INCIDENT, None)])


def test_many_of_a_kind_are_counted_without_those_that_are_accepted():
    hosts = [f"{n}.example" for n in range(5)]
    facts = replace(WELL, incidents=[incident(host, 2) for host in hosts])
    acceptances = [INCIDENT._replace(subject=host) for host in hosts[:1]]
    (need,), _ = judged(replace(facts, acceptances=acceptances))
    assert (need.n, need.subject) == (4, "1.example")
    acceptances = [INCIDENT._replace(subject=host) for host in hosts[:2]]
    assert [each.n for each in judged(replace(facts, acceptances=acceptances)).needs] == [1, 1, 1]


def test_kinds_whose_begin_moves_are_accepted_until_their_end():
    moving = {kind.name for kind in KINDS if not kind.since_stays}
    assert moving == {
        "host_without_crawler",
        "crawls_failing",
        "host_paused",
        "window_never_opens",
        "budget_unused",
        "budget_exceeded",
        "no_content",
        "new_pages_grow",
        "worker_losing",
        "leases_returned",
    }
