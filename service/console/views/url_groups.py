"""URL groups: the worth of their new pages, and rules of operators."""

from fastapi import Response

from recrawl_client.wire.url_groups import UrlGroupsAnswer
from service.api.routes import url_groups
from service.console.visit import Visit

PART = 50
RULES = {"admit": "admit", "stop": "stop", "learn": None}
"""Rules by their name in the form."""


def show(visit: Visit) -> Response:
    """Show a part of the list of URL groups."""
    values = visit.parameters("list_url_groups")
    values.setdefault("limit", PART)
    part = visit.ask(UrlGroupsAnswer, url_groups.list_url_groups, request=visit.request, **values)
    return visit.page("url_groups.html", part=part, values=values)


def rule(visit: Visit) -> Response:
    """Write the rule of a group, and return to the list."""
    group, word = visit.form.get("group", ""), visit.form.get("rule", "")
    body = visit.body(group=group, rule=RULES.get(word, word))
    url_groups.put_url_group(service=visit.service, actor=visit.actor, body=body)
    return visit.go("/console/url-groups", "ruled")
