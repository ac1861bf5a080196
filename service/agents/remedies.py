"""Errors of calls, as sentences that an agent can act on."""

from recrawl_client import ClientError, CursorExpired, NotFound, Refused, Unauthorized, Unavailable

FORBIDDEN = "forbidden"
ASK = "Do not call again: ask the operator of Recrawl for a key of that role."
SHOW_KEY = (
    "Do not call again: the operator sets a key by RECRAWL_API_KEY for `recrawl mcp`, or as "
    "`Authorization: Bearer KEY` in the configuration of the connection."
)
START_AGAIN = "Call again without cursor, with since."
LATER = "Call again in a minute; if it lasts, ask the operator whether Recrawl runs."
LOOK = "Check the name for typing errors; only registered pages and their hosts are known."


def sentence(error: ClientError) -> str:
    """Return what went wrong, and what to do."""
    remedies = (
        (Unauthorized, SHOW_KEY),
        (CursorExpired, START_AGAIN),
        (NotFound, LOOK),
        (Unavailable, LATER),
    )
    if isinstance(error, Refused) and error.code == FORBIDDEN:
        remedy = ASK
    else:
        remedy = next((remedy for kind, remedy in remedies if isinstance(error, kind)), "")
    fault = str(error).removesuffix(".")
    end = "" if fault.endswith("?") else "."
    return f"{fault}{end} {remedy}".strip()
