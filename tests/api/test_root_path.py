"""A service below a path of a proxy: both spellings are served, addresses have the path."""

import re
from urllib.parse import urlsplit

import httpx
import pytest
from support.access_cases import ADMIN
from support.browsing import Page
from support.live_server import Live, running

from recrawl_client import Client
from service.api.app import create_app
from service.api.assembly import open_service
from service.api.prefix import PrefixMiddleware
from service.console.app import create_app_with_console
from service.console.session import COOKIE
from service.model.errors import InvalidSettings
from service.runtime.settings import read_settings

pytestmark = pytest.mark.dear

ROOT = "/tools/recrawl"
HTML = {"Accept": "text/html"}
ADDRESSES = re.compile(r'(?:href|src|action|hx-get|hx-post)="(/[^"]*)"')


@pytest.fixture(scope="module")
def below(tmp_path_factory):
    """A service below a path, with a key and some pages."""
    url = f"sqlite:///{tmp_path_factory.mktemp('below') / 'recrawl.db'}"
    with running(url, root_path=ROOT, api_keys=[ADMIN]) as live:
        live.register(*(f"https://{host}.example/{n}" for host in "abc" for n in range(3)))
        live.epoch()
        yield live


@pytest.mark.parametrize("path", ["/healthz", "/pages", "/pages/1", "/openapi.json", "/docs"])
def test_a_path_is_served_with_and_without_the_prefix(below: Live, path):
    plain, prefixed = below.get(path), below.get(f"{ROOT}{path}")
    assert plain.status_code == prefixed.status_code == 200
    assert plain.text == prefixed.text
    assert below.get(f"{ROOT}x{path}").status_code == 404
    assert below.get(f"{ROOT}{ROOT}{path}").status_code == 404


def test_a_list_is_read_to_its_end_by_its_links(below: Live):
    found, address = [], f"{ROOT}/pages?limit=4"
    while address:
        answer = below.get(address)
        found += [page["page_id"] for page in answer.json()["items"]]
        address = answer.links.get("next", {}).get("url")
        assert address is None or address.startswith(f"{ROOT}/pages?")
    assert found == list(range(1, 10))


def test_locations_lead_to_what_was_made(below: Live):
    epoch = below.client.post(f"{ROOT}/epochs")
    assert epoch.headers["Location"] == f"{ROOT}/epochs/{epoch.json()['epoch']}"
    assert below.get(epoch.headers["Location"]).json()["status"] == "requested"
    key = below.client.post(f"{ROOT}/keys", json={"name": "a", "role": "read"})
    assert below.get(key.headers["Location"]).json()["name"] == "a"


def test_the_python_client_works_below_the_path(below: Live):
    with Client(f"{below.url}{ROOT}", ADMIN) as client:
        assert client.page("https://a.example/0").page_id == 1
        assert len(list(client.pages(limit=4))) == 9


def test_the_documents_name_the_path_and_load(below: Live):
    whole = below.get("/openapi.json").json()
    assert whole["servers"][0]["url"] == ROOT
    for path in ("/docs", "/redoc"):
        text = below.get(path).text
        assert f"{ROOT}/openapi.json" in text
        assert "oauth2" not in text
        files = re.findall(r'(?:src|href)="([^"]+)"', text)
        assert files
        for file in files:
            assert file.startswith(f"{ROOT}/static-offline-docs/")
            assert below.get(file).status_code == 200


def test_no_page_takes_redirects_of_an_identity_provider(below: Live):
    assert below.get("/docs/oauth2-redirect").status_code == 404


def test_the_console_leads_nowhere_else(below: Live):
    with httpx.Client(base_url=below.url) as visitor:
        front = visitor.get(f"{ROOT}", headers=HTML)
        assert (front.status_code, front.headers["Location"]) == (307, f"{ROOT}/console")
        wanted = visitor.get(f"{ROOT}/console/pages?tag=a")
        signing = wanted.headers["Location"]
        assert signing == f"{ROOT}/console/sign-in?next=/console/pages%3Ftag%3Da"
        scripted = visitor.get(f"{ROOT}/console", headers={"HX-Request": "true"})
        assert scripted.headers["HX-Redirect"].startswith(f"{ROOT}/console/sign-in")
        assert f"Path={ROOT}/console" in wanted.headers["set-cookie"].split("; ")
        page = visitor.get(signing)
        form = Page(page.text).form(f"{ROOT}/console/sign-in") | {"key": ADMIN}
        entered = visitor.post(f"{ROOT}/console/sign-in", data=form)
        assert entered.headers["Location"] == f"{ROOT}/console/pages?tag=a"
        assert visitor.cookies.get(COOKIE)

        seen, ahead = set(), [f"{ROOT}/console"]
        while ahead:
            address = ahead.pop()
            answer = visitor.get(address, headers=HTML)
            assert answer.status_code == 200, address
            if answer.headers["content-type"].startswith("text/html"):
                found = [each.replace("&amp;", "&") for each in ADDRESSES.findall(answer.text)]
                assert found
                assert [each for each in found if not each.startswith(f"{ROOT}/console")] == []
                links = re.findall(r'(?:href|src)="(/[^"]*)"', answer.text)
                pages = {urlsplit(each.replace("&amp;", "&")).path for each in links} - seen
                seen |= pages
                ahead += sorted(pages)
    assert len(seen) > 20


def test_the_console_shows_commands_with_the_path(sqlite_url):
    with running(sqlite_url, root_path=ROOT) as live:
        text = live.get(f"{ROOT}/console/hosts").text
    assert f"{live.url}{ROOT}/pages" in text


def test_metrics_name_the_routes_without_the_prefix(below: Live):
    below.get(f"{ROOT}/hosts")
    lines = below.get(f"{ROOT}/metrics").text
    assert 'route="/hosts"' in lines
    assert ROOT not in lines


@pytest.mark.parametrize(
    "path", ["recrawl", "/recrawl/", "/", "//a", "/a//b", "/a b", "/..", "/a/../b", "/a?b", "/%41"]
)
def test_a_path_that_is_none_is_refused_with_the_remedy(path):
    with pytest.raises(InvalidSettings, match=r"^RECRAWL_ROOT_PATH: .*such as /recrawl"):
        read_settings(root_path=path)


@pytest.mark.parametrize("path", ["/pages", "/console", "/leases", "/docs", "/console/static"])
def test_a_path_of_the_service_itself_is_refused(sqlite_url, path):
    service = open_service(read_settings(database_url=sqlite_url, root_path=path))
    try:
        with pytest.raises(InvalidSettings, match=f"{path} is a path of the service itself"):
            create_app_with_console(service)
    finally:
        service.store.close()


def test_without_the_setting_there_is_no_layer(sqlite_api: Live):
    layers = [each.cls for each in create_app(sqlite_api.service).user_middleware]
    assert layers
    assert PrefixMiddleware not in layers
