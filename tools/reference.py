"""Write the pages of docs/reference/ that follow from the code.

python tools/reference.py            # write them
python tools/reference.py --check    # compare them with the code; status 1 where one differs
"""

import ast
import inspect
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import httpx
import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from reference_calls import ROOT, client, code, sentence, table
from reference_http import http

from recrawl_client import Client, Ping
from service.api.assembly import open_service
from service.api.responses import problems
from service.api.server import running
from service.cli import app
from service.core.allocation import ALLOCATORS
from service.core.estimators import ESTIMATORS
from service.runtime.access_settings import AccessSettings
from service.runtime.bootstrap import configure_logging
from service.runtime.cluster_settings import ClusterSettings
from service.runtime.secret_files import SUFFIX
from service.runtime.settings import PREFIX, SECRETS, Settings, read_settings

REFERENCE = ROOT / "docs" / "reference"
CHOICES = {"estimator": ESTIMATORS, "objective": ALLOCATORS}
"""Settings whose values are names of a table."""
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤"}
"""Bounds of a number by their names in pydantic."""
PATIENCE_S = 60.0
"""Maximum time until the first epoch is published, seconds."""
GENERAL = {
    "InvalidParameter": (422, "A parameter of the path, the query or the headers is invalid."),
    "NotFound": (404, "No such path; /docs lists them."),
    "MethodNotAllowed": (405, "The path does not take this method; `Allow` names those it takes."),
    "BadRequest": (400, "The request is not HTTP as the server reads it."),
    "NotImplemented": (501, "The Transfer-Encoding is not supported; send chunked."),
    "RequestTimeout": (408, "The request came too slowly; its head has 10 s, its body 1 KB/s."),
    "TooManyConnections": (503, "The server has no connection left; try again after Retry-After."),
    "ClientDisconnect": (400, "The connection ended before the answer."),
    "InternalError": (500, "The service failed; its log has the traceback."),
}
"""Problems that are no exception of the service, by name: status and meaning."""
SETTINGS_HEAD = """# Settings

Set environment variables, or lines of a file `.env` in the working directory. The service does not
start with an unknown name or an invalid value; the error names it. Commands that call a running
service read `RECRAWL_URL`, and `RECRAWL_API_KEY` or `RECRAWL_API_KEY_FILE`, as well.

A secret may be in a file of one line: `RECRAWL_API_KEYS_FILE=/run/secrets/api_keys` in place of
`RECRAWL_API_KEYS`. The newline at its end does not count. A file that is missing or empty is
refused, and so is a secret that is set in both ways.

A line of `.env` is `NAME=VALUE`, with or without `export`, spaces around `=`, quotes around the
value and a comment behind it. Lines of another shape are refused by their number. Service links of
Kubernetes are ignored: the variables `…_SERVICE_HOST`, `…_SERVICE_PORT` and `…_PORT` of a Service
whose name begins with `recrawl`, if their addresses agree, and those of its ports.
"""
CLUSTER_HEAD = """## Several databases and machines

For [several databases](../how-to/several-databases.md) install `recrawl[cluster]`.
"""
CLI_HEAD = """# Commands

`recrawl COMMAND --help` shows the same. [Settings](settings.md) apply to all commands that open the
database. `demo`, `experiment` and `replay` come with the [laboratory](../how-to/laboratory.md),
`shards` with `recrawl[cluster]`."""
METRICS_HEAD = """# Metrics

`GET /metrics` of a server, and of a worker with `--port`, answers in Prometheus's format within
2 s. Programs on other machines need a key of role `read`, unless `RECRAWL_PUBLIC` names `metrics`.
[Alerts and graphs](../how-to/alerts.md) has rules and a dashboard on them.

- While the database does not answer, `recrawl_up` is 0. The metrics that come from the database are
  those of its last answer, and `recrawl_database_answer_age_seconds` is the age of that answer.
- A scrape reads a few rows. Queue, leases, hosts and calibration are counted apart, at most once a
  second and in at most a hundredth of the time. `recrawl_count_age_seconds` is the count's age.
- Fresh shares, overdue pages and the crawls of ten minutes come from the history. The process that
  runs epochs writes the history every ten minutes.
- All processes report the same database: take `max` or `min` over them. Each process counts its own
  requests, items, leases and failures: take `sum`.
- Rates of crawls are per day, as everywhere in Recrawl; their names end in `_crawls_per_day`.
"""
PROBLEMS_HEAD = """# Problems

Every error is an RFC 9457 document, `application/problem+json`. Its `type` is the address of a
heading of this page, its `detail` names the value at fault and the remedy. Programs compare the
part of `type` after `#`.

Send a request again after `Retry-After` where the status is 429, 503 or 507. Nothing of it was
kept, and evidence that arrives twice counts once. The first `lines_taken` lines of a stream of
NDJSON were kept."""


# -- settings


def field_docstrings(kind: type) -> dict[str, str]:
    """Return the docstrings of a class's fields by name."""
    statements = list(ast.walk(ast.parse(inspect.getsource(kind))))[1].body
    return {
        ast.unparse(field.target): sentence(ast.literal_eval(text.value))
        for field, text in pairwise(statements)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def choices(name: str, field: FieldInfo) -> list[str]:
    """Return the words that a setting takes; none where it takes numbers or any text."""
    if field.annotation is bool:
        return ["true", "false"]
    words = [one for one in get_args(field.annotation) if isinstance(one, str)]
    return words or list(CHOICES.get(name, getattr(field.annotation, "__members__", ())))


def metadata(annotation: Any) -> list[Any]:
    """Return the bounds of a type, none where it is no annotated one."""
    return [limit for one in getattr(annotation, "__metadata__", ()) for limit in one.metadata]


def domain(name: str, field: FieldInfo) -> str:
    """Return the values that a setting takes."""
    optional = [limit for one in get_args(field.annotation) for limit in metadata(one)]
    limits = [
        f"{sign} {getattr(limit, bound):,.15g}"
        for limit in [*field.metadata, *optional]
        for bound, sign in BOUNDS.items()
        if hasattr(limit, bound)
    ]
    return ", ".join([*map(code, choices(name, field)), *limits])


def default_of(field: FieldInfo) -> str:
    """Return the default of a setting as it stands in a file .env."""
    value = field.default
    if value in (None, (), PydanticUndefined):
        return ""
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else f"{getattr(value, 'value', value)}"


def in_file(name: str) -> str:
    """Return the sentence on the file of a secret, "" for other settings."""
    if name not in SECRETS:
        return ""
    return f" {code(f'{PREFIX}{name}{SUFFIX}'.upper())} names a file with the value."


def settings() -> str:
    """Return the page of the settings."""
    kinds = AccessSettings, ClusterSettings, Settings
    docstrings = {name: each for kind in kinds for name, each in field_docstrings(kind).items()}
    rows = {
        name: (
            f'<a id="{name}"></a>`{PREFIX}{name.upper()}`',
            code(default_of(field)),
            domain(name, field),
            docstrings[name] + in_file(name),
        )
        for name, field in Settings.model_fields.items()
    }
    of_cluster = [rows.pop(name) for name in ClusterSettings.model_fields]
    own, others = (
        table("variable | default | values | meaning", each)
        for each in ([*rows.values()], of_cluster)
    )
    return f"{SETTINGS_HEAD}\n{own}\n\n{CLUSTER_HEAD}\n{others}\n"


# -- commands


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands below a group with their full names."""
    for name, command in group.commands.items():
        if getattr(command, "commands", None):
            yield from commands(command, f"{path} {name}")
        elif not command.hidden:
            yield f"{path} {name}", command


def usage(name: str, command: Any) -> str:
    """Return the line of a command with its arguments."""
    arguments = [
        argument.make_metavar(None) if not argument.metavar else argument.metavar
        for argument in command.params
        if argument.param_type_name == "argument"
    ]
    return " ".join([name, "[OPTIONS]", *arguments])


def option_row(option: Any) -> tuple[str, str, str]:
    """Return the row of one option or argument."""
    names = option.opts + option.secondary_opts
    shown = option.name.upper() if option.param_type_name == "argument" else ", ".join(names)
    default = option.default
    is_shown = default not in (None, "", False, True) and not callable(default)
    text = sentence(option.help or "")
    variable = f" (`{option.envvar}`)" if getattr(option, "envvar", None) else ""
    return (
        code(shown),
        code(default) if is_shown and not isinstance(default, tuple) else "",
        (text + variable),
    )


def cli() -> str:
    """Return the page of the commands."""
    parts = [CLI_HEAD]
    for name, command in commands(typer.main.get_command(app), "recrawl"):
        parts += [f"## {name}", f"```text\n{usage(name, command)}\n```"]
        parts.append(inspect.cleandoc(command.help or ""))
        rows = [option_row(option) for option in command.params if option.name != "help"]
        if rows:
            parts.append(table("option or argument | default | meaning", rows))
    return "\n\n".join(part for part in parts if part) + "\n"


# -- metrics


def scraped() -> str:
    """Return what /metrics answers after one of each kind of request, and a step of the history."""
    ahead = timedelta()

    def now() -> datetime:
        return datetime.now(UTC) + ahead

    with tempfile.TemporaryDirectory(prefix="recrawl-reference-") as folder:
        settings = read_settings(database_url=f"sqlite:///{folder}/recrawl.db")
        service = open_service(settings, now=now)
        with running(service) as url, Client(url) as client:
            client.register("https://example.com/", "https://example.com/news")
            client.add_webhook("https://hooks.example.net/", host="silent.example")
            number = client.request_epoch().epoch
            deadline = time.monotonic() + PATIENCE_S
            while client.epoch(number).status != "published" and time.monotonic() < deadline:
                time.sleep(0.05)
            client.ping_many([Ping(url="https://example.com/news", changed_at=client.now())])
            for crawl in client.lease(count=1, wait_s=5).items:
                client.report(crawl, status=200, digest="a1")
                ahead = timedelta(hours=1)
                again = {"page_id": crawl.page_id, "observed_at": now().isoformat()}
                httpx.post(f"{url}/observations", json=[{**again, "digest": "b2"}])
                service.store.counter.write()  # before the next epoch, which the jump makes due
            ahead += timedelta(minutes=11)
            text = ""
            while "recrawl_calibration_crawls{" not in text and time.monotonic() < deadline:
                time.sleep(0.05)
                text = httpx.get(f"{url}/metrics").text
            return text


def metrics() -> str:
    """Return the page of the metrics."""
    text = scraped()
    helps = dict(re.findall(r"^# HELP (\w+) (.+)$", text, re.MULTILINE))
    rows = []
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE):
        if name.endswith("_created"):
            continue
        samples = re.findall(rf"^{name}(?:_bucket|_count)?{{(.+)}} ", text, re.MULTILINE)
        labels = {label for sample in samples for label in re.findall(r"(\w+)=", sample)}
        shown = ", ".join(map(code, sorted(labels - {"le"})))
        rows.append((code(name), kind, shown, f"{helps[name].rstrip('.')}."))
    rows.sort(key=lambda row: row[0].strip("`"))
    return f"{METRICS_HEAD}\n{table('metric | type | labels | meaning', rows)}\n"


# -- problems


def conditions() -> Iterator[tuple[str, int, str]]:
    """Yield name, status and meaning of each problem."""
    for kind, status in problems.STATUS.items():
        for one in [kind, *kind.__subclasses__()]:
            if one.__name__ != "CoreError" and (one is kind or one not in problems.STATUS):
                yield one.__name__, status, sentence((one.__doc__ or "").splitlines()[0])
    for name, (status, meaning) in GENERAL.items():
        yield name, status, meaning


def problem_page() -> str:
    """Return the page of the problems, by stable anchors."""
    parts = [PROBLEMS_HEAD]
    for name, status, meaning in sorted(set(conditions()), key=lambda row: problems.slug(row[0])):
        parts += [f"## {problems.slug(name)}", f"Status {status}. {meaning}"]
    return "\n\n".join(parts) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings,
    "cli.md": cli,
    "client.md": client,
    "metrics.md": metrics,
    "problems.md": problem_page,
}
"""Pages by the name of their file; those of `http` come on top."""


def is_current(path: Path, text: str) -> bool:
    """Return whether a file has this text."""
    return path.is_file() and path.read_text() == text


def main() -> None:
    """Write or compare all pages; delete those that have no subject any more."""
    configure_logging("warning")
    contents = {REFERENCE / name: page() for name, page in PAGES.items()}
    contents |= {REFERENCE / path: text for path, text in http().items()}
    old = {path for path in REFERENCE.rglob("*.md") if path not in contents}
    if "--check" not in sys.argv:
        for path, text in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for path in old:
            path.unlink()
        return
    stale = old | {path for path, text in contents.items() if not is_current(path, text)}
    for path in sorted(stale):
        print(f"{path.relative_to(ROOT)} differs; run `python tools/reference.py`")
    sys.exit(bool(stale))


if __name__ == "__main__":
    main()
