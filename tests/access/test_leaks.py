"""A hunt for secrets, and for URLs of other hosts, in whatever the service shows."""

import logging
import pprint
import traceback

import pytest
import structlog
from structlog.testing import capture_logs
from support.access_cases import ADMIN, bearer, new_key
from support.live_server import running

from service.api.app import create_app
from service.model.access import Role
from service.runtime.settings import read_settings

PASSWORD, HUB_SECRET, SITE_KEY = "hunter2-database", "hunter2-of-the-hub", "hunter2-of-a-site"
HOOK_SECRET = f"whsec_{'SecretOfTheWebhook' * 2}"
FOREIGN = "https://foreign.example/a-page-of-somebody-else"
OURS = "https://ours.example/"


@pytest.fixture
def busy(sqlite_url, capfd):
    """A service that logs everything, after calls of every operation with every kind of key."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.PrintLoggerFactory(),
    )
    settings = {"api_keys": (ADMIN,), "log_level": "debug", "slow_request_s": 0}
    settings["webhooks_private"] = True  # nobody listens at the address of the webhook
    try:
        with capture_logs() as log, running(sqlite_url, **settings) as live:
            store = live.service.store
            keys = [new_key(store, role)[0] for role in Role]
            keys.append(new_key(store, Role.report, hosts=("ours.example",))[0])
            live.service.gate.ring.refresh()
            live.register(FOREIGN, OURS)
            live.epoch()
            answers = list(calls(live, keys))
            yield live, keys, answers, log
    finally:
        structlog.reset_defaults()


def calls(live, keys):
    """Yield the key and the text of the answer of every operation with every key."""
    hub = {"topic": FOREIGN, "hub": "https://hub.example/", "secret": HUB_SECRET}
    assert live.post("/websub", hub).status_code == 200
    hook = {"url": "http://127.0.0.1:1/", "secret": HOOK_SECRET}
    webhook_id = live.post("/webhooks", hook).json()["id"]
    for path, methods in create_app().openapi()["paths"].items():
        names = {"lease": "1-a", "key_id": "0" * 10}
        names |= {"subscription_id": "A" * 22, "webhook_id": webhook_id}
        url = path.format(page_id=1, epoch=1, host="foreign.example", group="g", **names)
        for method in methods:
            for key in [*keys, "a wrong key that is long enough", "ey.ey.ey"]:
                for content in (b"", b"{}", b"[{}]"):
                    query = {"key": SITE_KEY} if "indexnow" in path else {}
                    answer = live.client.request(
                        method, url, content=content, params=query, headers=bearer(key)
                    )
                    yield key, method, path, f"{answer.headers} {answer.text}"


@pytest.mark.dear
def test_no_secret_is_in_answers_logs_or_metrics(busy, capfd):
    live, keys, answers, log = busy
    secrets = [
        ADMIN,
        HUB_SECRET,
        HOOK_SECRET,
        HOOK_SECRET[6:],
        *(key.split("_")[2] for key in keys),
    ]
    printed = "".join(capfd.readouterr())
    shown = {
        "answers": "".join(text for *_, text in answers),
        "log": f"{log}{printed}",
        "metrics": live.get("/metrics").text,
        "audit": live.get("/audit").text,
        "keys": live.get("/keys").text,
        "webhooks": live.get("/webhooks").text,
        "schedule": live.get("/schedule").text,
    }
    for place, text in shown.items():
        assert [secret for secret in secrets if secret in text] == [], place
    assert len(answers) > 500
    for place in ("log", "metrics"):
        for text in (SITE_KEY, FOREIGN, "foreign.example", "a wrong key"):
            assert text not in shown[place], place


@pytest.mark.dear
def test_a_limited_key_sees_no_url_of_another_host(busy):
    _, keys, answers, _ = busy
    own = [(method, path, text) for key, method, path, text in answers if key == keys[-1]]
    seen = [(method, path) for method, path, text in own if "a-page-of-somebody-else" in text]
    assert seen == []


def test_no_secret_is_in_what_a_dump_of_the_process_settings_shows(sqlite_url, monkeypatch):
    settings = read_settings(
        database_url=f"postgresql://user:{PASSWORD}@127.0.0.1:1/nothing", api_keys=ADMIN
    )
    with running(sqlite_url, api_keys=(ADMIN,)) as live:
        text, _ = new_key(live.service.store, Role.admin)
        live.service.gate.ring.refresh()
        ring = live.service.gate.ring
        caller = live.service.gate.caller(text)
        shown = [settings, settings.model_dump(), ring.entries, ring.environment, caller]
        shown += [live.service.gate, vars(live.service.gate), settings.model_dump_json()]
        dump = "".join(map(pprint.pformat, shown)) + "".join(map(str, shown))
    for secret in (PASSWORD, ADMIN, text, text.split("_")[2]):
        assert secret not in dump


def test_no_secret_is_in_the_traceback_of_a_wrong_setting():
    for name, value in (("api_keys", f"{ADMIN},short-hunter2"), ("database_url", 7)):
        with pytest.raises(Exception) as refused:
            read_settings(**{name: value})
        text = "".join(traceback.format_exception(refused.value))
        assert ADMIN not in text
        assert "hunter2" not in text
