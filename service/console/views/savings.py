"""Gain of the fleet against uniform crawling: a page, and a card of the overview."""

from fastapi import Response

from service.api.responses.savings import encode_savings
from service.api.routes.savings import read
from service.console.visit import Visit


async def show(visit: Visit) -> Response:
    """Show the savings of the usual window; to a script, only the card."""
    answer = encode_savings(await read(visit.service))
    template = "part_savings.html" if visit.wants_part else "savings.html"
    return visit.page(template, savings=answer)
