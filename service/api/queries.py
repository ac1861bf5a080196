"""Query parameters that a path does not have are refused: a misspelt one would change nothing."""

from collections.abc import Collection, Iterable

from fastapi import Request
from fastapi.exceptions import RequestValidationError


def refuse_unknown(given: Iterable[str], known: Collection[str]) -> None:
    """Compare the names of a query with those of its path.

    Raises
    ------
    RequestValidationError
        Some are unknown; says which, and what there is.
    """
    there = f"there are {', '.join(known)}" if known else "there are none"
    if unknown := [name for name in dict.fromkeys(given) if name not in known]:
        raise RequestValidationError(
            [
                {"loc": ("query", name), "msg": f"no such parameter; remove it, {there}"}
                for name in unknown
            ]
        )


def known_query(request: Request) -> None:
    """Refuse unknown parameters of a route that FastAPI runs."""
    parameters = request.scope["route"].dependant.query_params
    refuse_unknown(request.query_params, [parameter.alias for parameter in parameters])
