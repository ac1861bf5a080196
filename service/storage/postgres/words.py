"""The words of Postgres in statements of both databases (`storage.dialect`).

The rates of a schedule are float4 in the tables and float8 in arrays. Statements multiply float8,
because products of float4 overflow. A schedule has a row for a block of pages, with one array for
each column. The place of a page follows from its id, so a statement finds a rate by one look-up and
one subscript.
"""

from service.model.columns import NOT_SHIFTED

FORMS = "%({})s", '"{}"'


def given(*names: str) -> str:
    """Return a table of parameters, one array for each column.

    >>> given("page_id", "interval")
    'unnest(%(page_id)s, %(interval)s) AS given ("page_id", "interval")'
    """
    arrays, columns = (", ".join(form.format(name) for name in names) for form in FORMS)
    return f"unnest({arrays}) AS given ({columns})"


SHIFT = 6
PAGES = 1 << SHIFT
"""Pages in a block. Nine blocks fit into a page of Postgres, and no block needs TOAST."""


def _minutes(name: str, place: str) -> str:
    """Return the SQL of a packed number; NULL for none."""
    high, low = (f"get_byte({name}, 2 * {place} + {octet})" for octet in (0, 1))
    return f"nullif(256 * {high} + {low}, 0) + {NOT_SHIFTED} AS {name}"


IN_BLOCK = f"({{1}} & {PAGES - 1})::int"
BLOCK, PLACE = f"({{1}} >> {SHIFT})", f"[{IN_BLOCK} + 1]"
OF_PAGE = f"""LEFT JOIN LATERAL (
    SELECT epoch, change_rate{PLACE} AS change_rate, crawl_rate{PLACE} AS crawl_rate,
        urgency{PLACE} AS urgency, crawl_probability{PLACE} AS crawl_probability,
        {_minutes("shift", IN_BLOCK)}, {_minutes("carried", IN_BLOCK)},
        observed_ratio{PLACE} AS observed_ratio
    FROM schedule WHERE epoch = {{2}} AND block = {BLOCK} AND crawl_rate{PLACE} >= 0 {{between}}
) AS {{0}} ON true"""
ONE_BY_ONE = "OFFSET 0"
"""End of a lookup for each page. Without it planners join all blocks of a range before they take
the first pages, and sort whole blocks on disk."""
IN_RANGE = f"AND block >= %(after)s::bigint >> {SHIFT} AND block <= %(last)s::bigint >> {SHIFT}"
"""Condition that planners do not derive from bounds of page_ids."""

EACH = f"""(
    SELECT block * {PAGES} + place - 1 AS page_id, epoch, crawl_rate[place] AS crawl_rate,
        urgency[place] AS urgency
    FROM schedule, generate_series(1, {PAGES}) AS place
    WHERE epoch = {{0}} AND crawl_rate[place] >= 0 {{where}}
)"""
"""Rows of pages, from blocks."""
LAST = "AND block = (SELECT max(block) FROM schedule WHERE epoch = {0})"
SCHEDULE_WORDS = {
    "schedule_of": OF_PAGE.replace("{between}", ONE_BY_ONE),
    "schedule_between": OF_PAGE.replace("{between}", IN_RANGE),
    "scheduled_ids": f"""(
        SELECT page_id FROM {EACH.replace("{where}", IN_RANGE)} AS each_page
        WHERE page_id > %(after)s AND page_id <= %(last)s
    )""",
    "last_scheduled": f"SELECT max(page_id) FROM {EACH.replace('{where}', LAST)} AS each_page",
}
"""Words for schedules."""

WINDOW = 14
"""Bits of page_ids that the index of hosts does not have (`tables.pages`)."""
WORDS = {
    "double": "::float8",
    "observed_at": (
        "nullif(coalesce(page_states.last_observed_at, page_states.last_crawl_at), '-infinity')"
    ),
    "greatest": "greatest",
    "least": "least",
    "microsecond": "interval '1 microsecond'",
    "in_hosts": "= ANY(%(hosts)s)",
    "among_ids": "= ANY(%(ids)s)",
    "ids": "unnest(%(ids)s) AS ids (value)",
    "names": "unnest(%(names)s) AS names (value)",
    "lock_rows": "FOR NO KEY UPDATE",
    "lock_free_rows": "FOR UPDATE SKIP LOCKED",
    "days_since": "CAST(extract(epoch FROM %(now)s - pings_since) AS double precision) / 86400.0",
    "log_of_page": "page_id = %(page_id)s",
    "log_of_any": "true",
    "log_since": "true",
    "log": "(TABLE observations UNION ALL TABLE sealed_observations) AS observations",
    "joined_tags": "string_agg(tag, ' ' ORDER BY tag)",
    "of_host_after": f"pages.page_id >> {WINDOW} >= %(after)s::bigint >> {WINDOW}",
    "of_host_order": f"pages.page_id >> {WINDOW}, pages.page_id",
    **SCHEDULE_WORDS,
}
