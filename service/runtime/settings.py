"""Settings: read once from RECRAWL_* and .env, frozen, then passed on."""

import difflib
import os
import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import NoDecode, SettingsConfigDict

from service.archive.log_archive import LogArchive
from service.budget.in_force import BudgetSettings
from service.connectors.guarded import USER_AGENT, Outgoing
from service.core.allocation import ALLOCATORS
from service.core.division import FIRST_SHARE
from service.core.estimators import ESTIMATORS, make_estimator
from service.epochs.constraints import CONSTRAINED
from service.epochs.plan import Plan
from service.leases.politeness import Politeness
from service.model.amounts import CRAWLS, Amount, read_budget
from service.model.calendars import HourRules, never_open
from service.model.domain import Timing
from service.model.errors import InvalidField, InvalidSettings
from service.model.field_faults import expected
from service.model.quotes import unquoted
from service.model.windows import BLACKOUTS, WINDOWS, checked, parts_of
from service.runtime.access_settings import AccessSettings
from service.runtime.cluster_settings import ClusterSettings
from service.runtime.env_file import ENCODING, values_of
from service.runtime.secret_files import SUFFIX, from_files
from service.runtime.service_links import service_links
from service.storage import CLUSTER
from service.storage.postgres.connections import REQUEST_TIMEOUT_S

PREFIX = "RECRAWL_"
ROOT_PATH = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")
FOR_TESTS = "RECRAWL_TEST_"
FOR_CLIENTS = frozenset({"RECRAWL_URL", "RECRAWL_API_KEY", "RECRAWL_API_KEY_FILE"})
"""Variables of the commands that call a service: its address and a key, or the key's file."""
BLANK_MEANS_NONE = frozenset(
    (
        "archive",
        "bandwidth",
        "budget",
        "changes_days",
        "dask",
        "dask_ca",
        "dask_cert",
        "dask_key",
        "estimator",
        "half_life_days",
        "retention_days",
        "cluster",
        "audit_retention_days",
        "history_days",
    )
)
DEFAULT_ESTIMATOR = "bursty"
ARCHIVED_AFTER_DAYS = 30.0
"""Default retention of the log beside an archive, days: that of the feed of changes."""
FADING = tuple(
    name for name, kind in ESTIMATORS.items() if "half_life_days" in kind.__dataclass_fields__
)
"""Estimators whose evidence loses weight with time."""


class Settings(AccessSettings, ClusterSettings):
    """Everything that an operator can set."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_file_encoding=ENCODING,
        extra="ignore",
        frozen=True,
        validate_default=True,
    )

    database_url: SecretStr = SecretStr("sqlite:///recrawl.db")
    """sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE."""
    database_timeout_s: Annotated[float, Field(ge=1, le=300)] = REQUEST_TIMEOUT_S
    """Maximum duration of one statement of a request, seconds; beyond it the answer is 503."""
    bandwidth: Annotated[float, Field(ge=1e-9, le=1e15, allow_inf_nan=False)] | None = None
    """Crawls a day over all pages; unset: 0.2 for each page that has a copy. `recrawl budget set`
    wins over this and the next setting."""
    budget: str | None = None
    """Amount a day in place of the bandwidth: crawls, bytes, seconds or money, such as `50 GB`,
    `20 h` or `30 USD`; needs the objective harmonic unless it counts crawls."""
    first_share: Annotated[float, Field(ge=0, le=1)] = FIRST_SHARE
    """Maximum share of the budget for first crawls of new pages, 0 to 1."""
    budget_loan: Annotated[float, Field(ge=0, le=366)] = 3
    """Days of budget that pages made urgent by others of their URL group may take in advance; 0:
    no day exceeds the budget. A budget of money has no loan."""
    admission: Literal["learned", "all"] = "learned"
    """First crawls of new pages: learned, as far as the URLs of their group bring something new; or
    all, for users who register good URLs only."""
    epoch_interval_s: Annotated[float, Field(ge=1, le=31_536_000)] = 600
    """Seconds from the start of one epoch to the start of the next."""
    estimator: str | None = None
    """Name of the estimator; empty: the one of the stored states, bursty in a new database."""
    timing: Timing = Timing.periodic
    """Timing of crawls: periodic, or poisson (random, as in the papers); lln, sa and sam need
    poisson."""
    objective: str = "harmonic"
    """Cost of staleness that an epoch minimises (harmonic, binary, binary_floor), or a rule that
    has no optimum of its own."""
    url_groups: bool = True
    """True where the latest crawls of a page's URL group shift its next crawl."""
    change_hours: bool = True
    """True where crawls come after the hours at which their host's pages change; needs timing
    periodic (poisson leaves the hours out) and the estimator bursty or gamma."""
    half_life_days: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = 180
    """Half-life of evidence, days; empty: evidence keeps its weight."""
    retention_days: Annotated[float, Field(gt=0, le=36_500)] | None = 730
    """Retention of the observation log in the database, days; empty: for ever. With
    RECRAWL_ARCHIVE the default is 30, unless the estimator reads the log (mle, mm)."""
    archive: SecretStr | None = None
    """Path, or address of fsspec such as s3://BUCKET/FOLDER, for old days; empty: they are deleted.
    Days of the log are old after RECRAWL_RETENTION_DAYS, those of the feed after
    RECRAWL_CHANGES_DAYS."""
    history_days: Annotated[float, Field(gt=0, le=36_500)] | None = 90
    """Retention of the history, days; empty: for ever."""
    changes_days: Annotated[float, Field(gt=0, le=36_500)] | None = 30
    """Retention of the feed of changes, days; empty: for ever."""
    webhooks_private: bool = False
    """True where webhooks may have addresses that are not public, as on an intranet."""
    websub_private: bool = False
    """True where subscriptions are renewed at hubs whose addresses are not public."""
    user_agent: Annotated[str, Field(pattern=r"^[\x20-\x7e]{1,500}$")] = USER_AGENT
    """User-Agent of all requests that the service makes: webhooks, hubs, key files of IndexNow and
    keys of an identity provider."""
    proxy_guards: bool = False
    """True where the proxies of HTTP_PROXY and HTTPS_PROXY refuse addresses of your own network;
    requests then go through them. Otherwise these variables are ignored."""
    host_delay_s: Annotated[float, Field(ge=0, le=86_400)] = 1
    """Default delay between two leased crawls of a host, seconds; 0: none."""
    host_concurrency: Annotated[int, Field(ge=0, le=10_000)] = 1
    """Default maximum of leases of a host at a time; 0: no maximum."""
    latency_factor: Annotated[float, Field(ge=0, le=1_000)] = 0
    """Default delay of a host that is slower than usual, over its latency, such as 5; 0: none."""
    max_delay_s: Annotated[float, Field(ge=0.001, le=86_400)] = 30
    """Default maximum of the delay by latency, seconds."""
    windows: str = ""
    """When hosts without windows of their own may be crawled, such as `Mon-Fri 22:00-06:00
    Europe/Berlin; Sat-Sun 00:00-24:00 Europe/Berlin`; empty: at all times."""
    blackouts: str = ""
    """Days on which no host is crawled, such as `2026-12-24/2026-12-26 Europe/Berlin`; several are
    separated by semicolons."""
    ping_delay_s: Annotated[float, Field(ge=0, le=86_400)] = 0
    """Drop pings dated within this many seconds after the page's last crawl."""
    lease_ttl_s: Annotated[float, Field(ge=1, le=86_400)] = 300
    """Default lease duration, seconds."""
    max_items: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Maximum items of a batch, and lines of a block of a stream."""
    max_body_bytes: Annotated[int, Field(ge=1_000)] = 32_000_000
    """Maximum size of a request body, bytes, compressed and inflated; of a stream: of a line. All
    large bodies in work share six times this memory."""
    indexnow_check: bool = False
    """True where a site's IndexNow key file replaces an API key."""
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = ()
    """Addresses or networks of proxies, separated by commas; X-Forwarded-For and
    X-Forwarded-Proto of other senders are ignored."""
    root_path: str = ""
    """Path under which a proxy shows the service, such as /recrawl; empty: at the root."""
    slow_request_s: Annotated[float, Field(ge=0, le=3_600)] = 1
    """Minimum duration of a request that is logged as slow, seconds, without intended waits."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of log lines."""
    tracing: bool = False
    """Send traces by OpenTelemetry, configured by the variables OTEL_*; needs `recrawl[otel]`."""

    @model_validator(mode="before")
    @classmethod
    def _blank_is_unset(cls, values: Any) -> Any:
        return {
            name: None if name in BLANK_MEANS_NONE and value == "" else _proxies(name, value)
            for name, value in values.items()
        }

    @model_validator(mode="before")
    @classmethod
    def _one_store(cls, values: Any) -> Any:
        path = values.get("cluster")
        if not path:
            return values
        if values.get("database_url"):
            raise ValueError(
                f"{PREFIX}CLUSTER and {PREFIX}DATABASE_URL are both set; unset one of them"
            )
        return {**values, "database_url": f"{CLUSTER}:///{path}"}

    @model_validator(mode="before")
    @classmethod
    def _unquoted(cls, values: Any) -> Any:  # defined last of its kind, so it runs first
        return {name: unquoted(value) for name, value in values.items()}

    @field_validator("root_path")
    @classmethod
    def _root_path(cls, path: str) -> str:
        if path and not ROOT_PATH.fullmatch(path):
            raise ValueError(
                f"{path!r} is no path such as /recrawl; start each part with a slash, end without "
                "one, and use letters, digits, -, _ and ~, or dots after them"
            )
        return path

    @model_validator(mode="after")
    def _known_and_compatible(self) -> "Settings":
        estimator = self.estimator or DEFAULT_ESTIMATOR
        for name, chosen, choices in (
            ("estimator", estimator, ESTIMATORS),
            ("objective", self.objective, ALLOCATORS),
        ):
            if chosen not in choices:
                setting, offers = f"{PREFIX}{name}".upper(), ", ".join(choices)
                raise ValueError(f"{setting} is {chosen!r}; set one of {offers}")
        self._check_together(estimator)
        self._check_budget()
        if self.dask and self.database_url.get_secret_value().startswith("sqlite"):
            raise ValueError(
                f"{PREFIX}DASK computes epochs over Postgres, and {PREFIX}DATABASE_URL names a "
                "SQLite file; unset one of them"
            )
        self.hours()
        return self

    def _check_budget(self) -> None:
        if self.budget is None:
            return
        if self.bandwidth is not None:
            raise ValueError(
                f"{PREFIX}BUDGET and {PREFIX}BANDWIDTH are both set; unset one of them"
            )
        try:
            unit = read_budget(self.budget).unit
        except ValueError as error:
            raise ValueError(f"{PREFIX}BUDGET: {error}") from None
        if unit != CRAWLS and self.objective != CONSTRAINED:
            raise ValueError(
                f"{PREFIX}BUDGET in {unit} needs {PREFIX}OBJECTIVE={CONSTRAINED}, "
                f"not {self.objective}; unset one of them"
            )

    @property
    def amount(self) -> Amount | None:
        """The budget a day; None: 0.2 crawls for each page."""
        if self.budget is not None:
            return read_budget(self.budget)
        return None if self.bandwidth is None else Amount(self.bandwidth, CRAWLS)

    def _check_together(self, name: str) -> None:
        estimator = ESTIMATORS[name]
        if self.timing is Timing.periodic and not estimator.periodic_timing_ok:
            raise ValueError(
                f"estimator {name} {estimator.refusal}; choose timing poisson or another estimator"
            )
        is_set = "half_life_days" in self.model_fields_set and self.half_life_days is not None
        if is_set and name not in FADING:
            raise ValueError(
                f"{PREFIX}HALF_LIFE_DAYS has no meaning for estimator {name}, whose "
                f"evidence never fades; unset it or choose {' or '.join(FADING)}"
            )

    def plan(self, stored: str | None = None) -> Plan:
        """Return the plan of epochs; the default estimator is `stored`, that of the stored states.

        Raises
        ------
        InvalidSettings
            The stored estimator contradicts other settings.
        """
        name = self.estimator or stored or DEFAULT_ESTIMATOR
        try:
            self._check_together(name)
        except ValueError as error:
            raise InvalidSettings(f"the database holds states of {name}: {error}") from None
        amount = self.amount
        return Plan(
            estimator=make_estimator(name, half_life_days=self.half_life_days),
            objective=self.objective,
            timing=self.timing,
            bandwidth=None if amount is None else amount.value,
            unit=CRAWLS if amount is None else amount.unit,
            first_share=self.first_share,
            retention=_days(self._retention_days(name)),
            audit_retention=_days(self.audit_retention_days),
            history_retention=_days(self.history_days),
            url_groups=self.url_groups,
            change_hours=self.change_hours,
            host_delay_s=self.host_delay_s,
        )

    def _retention_days(self, estimator: str) -> float | None:
        is_set = "retention_days" in self.model_fields_set
        if is_set or self.archive is None or ESTIMATORS[estimator].needs_history:
            return self.retention_days
        return ARCHIVED_AFTER_DAYS

    def log_archive(self) -> LogArchive | None:
        """Return the archive of the log; raise `InvalidSettings` if no package can reach it."""
        return None if self.archive is None else LogArchive(self.archive.get_secret_value())

    @property
    def changes_retention(self) -> timedelta | None:
        """Retention of the feed of changes; None: for ever."""
        return None if self.changes_days is None else timedelta(days=self.changes_days)

    @property
    def outgoing(self) -> Outgoing:
        """The rules of all requests that the service makes."""
        return Outgoing(self.user_agent, self.proxy_guards)

    def budget_settings(self) -> BudgetSettings:
        """Return what is set about the budget."""
        return BudgetSettings(self.amount, self.budget_loan, self.first_share)

    def hours(self) -> HourRules:
        """Return the windows and blackouts of hosts; raise `ValueError` for wrong ones."""
        try:
            windows, blackouts = (
                checked(name, parts_of(getattr(self, name)), f"{PREFIX}{name}".upper())
                for name in (WINDOWS, BLACKOUTS)
            )
        except InvalidField as error:
            raise ValueError(error.detail) from None
        rules = HourRules(windows or None, blackouts)
        if reason := never_open(rules, datetime.now(UTC)):
            raise ValueError(f"{PREFIX}WINDOWS, {PREFIX}BLACKOUTS: {reason}")
        return rules

    def politeness(self) -> Politeness:
        """Return the politeness of hosts without settings of their own."""
        return Politeness(
            self.host_delay_s, self.host_concurrency, self.latency_factor, self.max_delay_s
        )


def _days(number: float | None) -> timedelta | None:
    return None if number is None else timedelta(days=number)


def _proxies(name: str, value: Any) -> Any:
    if name != "trusted_proxies" or not isinstance(value, str):
        return value
    proxies = tuple(proxy.strip() for proxy in value.split(",") if proxy.strip())
    for proxy in proxies:
        try:
            ip_network(proxy)
        except ValueError as error:
            raise ValueError(
                f"{PREFIX}TRUSTED_PROXIES: {error}; name addresses or networks such as 10.0.0.0/8"
            ) from error
    return proxies


def is_secret(name: str) -> bool:
    """Return whether a setting holds a secret, so that a file may hold its value.

    >>> [name for name in Settings.model_fields if is_secret(name)]
    ['api_keys', 'database_url', 'archive']
    """
    kind = Settings.model_fields[name].annotation
    return kind is SecretStr or SecretStr in get_args(kind)


SECRETS = tuple(name for name in Settings.model_fields if is_secret(name))
"""Settings whose variable with `_FILE` behind it names a file with the value."""


def read_settings(**overrides: Any) -> Settings:
    """Read the settings; `overrides` take precedence over the environment.

    Raises
    ------
    InvalidSettings
        A variable RECRAWL_* is unknown, or a value is invalid. The error names every fault and
        shows no secret.
    """
    in_file = values_of(Path(str(Settings.model_config.get("env_file"))), PREFIX)
    links = service_links(os.environ, PREFIX)
    variables = in_file | {name.upper(): value for name, value in os.environ.items()}
    if unknown := _unknown((variables.keys() - links) | in_file.keys()):
        raise InvalidSettings("; ".join(unknown))
    names = {f"{PREFIX}{name}".upper(): name for name in SECRETS if name not in overrides}
    secrets = {names[name]: value for name, value in from_files(names, variables).items()}
    try:
        return Settings(**{**secrets, **overrides})
    except ValidationError as error:
        raise InvalidSettings("; ".join(_faults(error))) from None


OPTIONS = {
    f"{PREFIX}PORT": "set it by `recrawl serve --port`",
    f"{PREFIX}HOST": "set it by `recrawl serve --host`",
}
"""Remedies for variables that have the name of an option of `recrawl serve`."""


def _unknown(names: Collection[str]) -> list[str]:
    settings = [f"{PREFIX}{name}".upper() for name in Settings.model_fields]
    files = [f"{PREFIX}{name}{SUFFIX}".upper() for name in SECRETS]
    ours = {n for n in names if n.startswith(PREFIX) and not n.startswith(FOR_TESTS)}
    every, sentences = f"known are {', '.join(settings)}", []
    for name in sorted(ours - {*settings, *files} - FOR_CLIENTS):
        words = [setting.removeprefix(PREFIX) for setting in (*settings, *files)]
        close = difflib.get_close_matches(name.removeprefix(PREFIX), words, 1)
        hint = f"did you mean {PREFIX}{close[0]}?" if close else OPTIONS.get(name, every)
        sentences.append(f"{name} is not a setting; {hint}")
    return sentences


def _faults(error: ValidationError) -> list[str]:
    faults = error.errors(include_input=False, include_url=False)
    return [_fault(fault["loc"], _sentence(fault)) for fault in faults]


def _sentence(fault: ErrorDetails) -> str:
    """Return what is wrong with a setting: our own sentence, or what it takes."""
    if fault["type"] == "value_error" or not fault["loc"]:
        return str(fault["msg"]).removeprefix("Value error, ")
    document = Settings.model_json_schema()
    schema = document["properties"].get(fault["loc"][0], {})
    if "$ref" in schema:
        schema = document["$defs"][schema["$ref"].rpartition("/")[2]]
    return f"the value has a wrong form; set {expected(schema)}"


def _fault(place: tuple[int | str, ...], sentence: str) -> str:
    if not place or sentence.startswith(PREFIX):
        return sentence
    return f"{PREFIX}{place[0]}: ".upper() + sentence
