"""The settings and commands of the page on identity providers admit tokens as these issue them."""

import json
from datetime import UTC, datetime

import pytest
import yaml
from support.access_cases import bearer
from support.identity import GITHUB, KEYCLOAK, key_server
from support.live_server import running
from support.pages import DOCS, block, documents, shell

PAGE = (DOCS / "how-to" / "tokens.md").read_text()
SERVICE = "http://127.0.0.1:8000"


def settings(title, keys_at, jwks_url):
    """Return the settings of a block, for keys at another address."""
    lines = [line.partition("=") for line in block(PAGE, title).text.splitlines()]
    values = {name.removeprefix("RECRAWL_").lower(): value for name, _, value in lines}
    assert values["jwt_jwks_url"] == jwks_url
    return values | {"jwt_jwks_url": keys_at}


@pytest.fixture
def now():
    return datetime.now(UTC)


@pytest.mark.dear
def test_a_token_of_keycloak_takes_leases_as_the_page_does(sqlite_url, tmp_path, now):
    issuer = "https://id.example.org/realms/main"
    own = KEYCLOAK._replace(issuer=issuer)
    with key_server(own.keys()) as keys:
        chosen = settings("keycloak.env", keys.url, f"{issuer}/protocol/openid-connect/certs")
        token = json.dumps({"access_token": own.token(now), "token_type": "Bearer"})
        keys.others["/token"] = token.encode()
        with running(sqlite_url, clock=lambda: datetime.now(UTC), **chosen) as live:
            script = block(PAGE, "a token of keycloak").text.replace(SERVICE, live.url)
            address = f"{issuer}/protocol/openid-connect/token"
            assert address in script
            script = script.replace(address, keys.url.replace("/jwks", "/token"))
            (answer,) = documents(shell(f"SECRET=s\n{script}", tmp_path))
    assert answer["items"] == []


@pytest.mark.dear
def test_a_workflow_of_github_announces_changes_as_the_page_does(sqlite_url, tmp_path, now):
    workflow = yaml.safe_load(block(PAGE, ".github/workflows/announce.yml").text)
    assert workflow["permissions"] == {"id-token": "write"}
    ((step,),) = [job["steps"] for job in workflow["jobs"].values()]
    own = GITHUB._replace(subject="repo:octo-org/site:ref:refs/heads/main")
    with key_server(own.keys()) as keys:
        chosen = settings(
            "github.env", keys.url, "https://token.actions.githubusercontent.com/.well-known/jwks"
        )
        path = f"/token?version=2&audience={own.audience}"
        token = own.token(now, sub=own.subject)
        keys.others[path] = json.dumps({"count": 1, "value": token}).encode()
        with running(sqlite_url, clock=lambda: datetime.now(UTC), **chosen) as live:
            page = [{"url": "https://www.example.com/news"}]
            assert live.client.post("/pages", json=page, headers=bearer(token)).is_success
            script = step["run"].replace(f"{own.audience}/pings", f"{live.url}/pings")
            url = keys.url.replace("/jwks", "/token?version=2")
            given = f"ACTIONS_ID_TOKEN_REQUEST_TOKEN=t ACTIONS_ID_TOKEN_REQUEST_URL='{url}'"
            (answer,) = documents(shell(f"export {given}\n{script}", tmp_path))
    assert keys.asked == ["/jwks", path]
    assert answer["accepted"] == 1
