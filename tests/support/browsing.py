"""A browser without scripts: pages, their forms, and what a page may not contain."""

from html.parser import HTMLParser

import httpx

from support.access_cases import ADMIN

HARMLESS = {"/console/theme", "/console/sign-out", "/console/sign-in"}
"""Addresses of forms that change nothing but the visitor's own session."""


class Page(HTMLParser):
    """A page: its forms with their fields, its links, its text, and its faults."""

    def __init__(self, text):
        super().__init__()
        self.forms, self.links, self.faults, self.words = [], [], [], []
        self.raw = text
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self._judge(tag, values)
        if tag == "form":
            self.forms.append({**values, "fields": {}})
        elif tag == "a":
            self.links.append(values)
        elif self.forms and tag in {"input", "button"} and "name" in values:
            self.forms[-1]["fields"][values["name"]] = values.get("value", "")

    def _judge(self, tag, values):
        """Note what the policy of the console forbids, or what runs a script."""
        for name, value in values.items():
            if name.startswith(("on", "hx-on")) or name == "style":
                self.faults.append(f"{tag} {name}={value}")
            if name in {"href", "src", "action"} and (value or "").strip().lower().startswith(
                "javascript"
            ):
                self.faults.append(f"{tag} {name}={value}")
        if tag == "style" or (tag == "script" and not values.get("src", "").startswith("/console")):
            self.faults.append(tag)
        outside = values.get("href", "").startswith("http")
        if outside and "noreferrer" not in values.get("rel", ""):
            self.faults.append(f"{tag} to {values['href']} without noreferrer")

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    @property
    def acts(self):
        """Addresses of the forms that change something."""
        posts = (form["action"] for form in self.forms if form.get("method") == "post")
        return sorted(set(posts) - HARMLESS)

    def form(self, action):
        (found,) = (form for form in self.forms if form.get("action") == action)
        return found["fields"]


class Browser:
    """A visitor with cookies, who follows redirects within the console."""

    def __init__(self, url):
        self.client = httpx.Client(base_url=url, timeout=60)

    def __del__(self):
        self.client.close()

    def open(self, path="/console", status=200):
        response = self.client.get(path, follow_redirects=True)
        assert response.status_code == status, (path, response.status_code, response.text[-600:])
        return Page(response.text)

    def send(self, path, action, status=200, **fields):
        """Send the form of a page."""
        form = self.open(path).form(action)
        response = self.client.post(action, data=form | fields, follow_redirects=True)
        assert response.status_code == status, (response.status_code, response.text[-600:])
        return Page(response.text)

    def sign_in(self, key=ADMIN, status=200):
        return self.send("/console/sign-in", "/console/sign-in", status, key=key)
