"""One normal form for each page's address."""

from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import examples

from service.model.errors import InvalidField, InvalidUrl
from service.model.urls import MAX_URL_BYTES, NORMAL, normalise, parsed


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("HTTPS://Example.COM:443/a/../b?x=1#top", "https://example.com/b?x=1"),
        ("http://example.com:80", "http://example.com/"),
        ("http://example.com:8080/", "http://example.com:8080/"),
        ("https://example.com/#", "https://example.com/"),
        ("https://example.com/a#b#c", "https://example.com/a"),
        ("https://example.com/?q=a b", "https://example.com/?q=a%20b"),
        ("https://bücher.example/é", "https://xn--bcher-kva.example/%C3%A9"),
        ("  https://example.com/a\n", "https://example.com/a"),
        ("https:\\\\example.com\\a", "https://example.com/a"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://[0:0::1]/", "http://[::1]/"),
        ("https://example.com/%7Ea", "https://example.com/%7Ea"),
        ("https://Example.com.:8443/a", "https://example.com:8443/a"),
    ],
)
def test_an_address_has_one_form(given, normal):
    assert normalise(given).url == normal


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://example.com/", "https://example.com/"),
        ("https://example.com/a", "https://example.com/A"),
        ("https://example.com/a", "https://example.com/a/"),
        ("https://example.com/?a=1&b=2", "https://example.com/?b=2&a=1"),
        ("https://example.com/", "https://www.example.com/"),
        ("https://example.com/", "https://example.com:8443/"),
    ],
)
def test_what_may_be_another_page_is_another_page(one, other):
    assert normalise(one).key != normalise(other).key


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.com:8443/x", "example.com"),
        ("http://[::1]:8080/", "[::1]"),
        ("https://bücher.example/", "xn--bcher-kva.example"),
        ("https://example.com./", "example.com"),
    ],
)
def test_the_host_is_that_of_the_normal_form_without_its_port(url, host):
    assert normalise(url).host == host


def test_the_key_is_that_of_the_normal_form_for_ever():
    """Keys are stored: a change of this value would orphan every page."""
    assert normalise("https://example.org/").key.hex() == "3eeedd5061369734a07f3f84d4a2a757"
    assert normalise("https://EXAMPLE.org:443/#x").key == normalise("https://example.org/").key


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.com/", "scheme ftp:"),
        ("javascript:alert(1)", "scheme javascript:"),
        ("mailto:me@example.com", "scheme mailto:"),
        ("file:///etc/passwd", "scheme file:"),
        ("data:text/html,x", "scheme data:"),
        ("blob:https://example.com/x", "scheme blob:"),
        ("ws://example.com/", "scheme ws:"),
        ("x" * 500 + ":y", "scheme " + "x" * 40 + " "),
        ("", "cannot be parsed"),
        ("/path", "cannot be parsed"),
        ("//example.com/", "cannot be parsed"),
        ("example.com", "cannot be parsed"),
        ("https://", "cannot be parsed"),
        ("http:///", "cannot be parsed"),
        ("http://1.2.3.4.5/", "cannot be parsed"),
        ("https://exa mple.com/", "cannot be parsed"),
        ("https://example.com:99999/", "cannot be parsed"),
        ("https://[::1/", "cannot be parsed"),
        ("https://me@example.com/", "user information"),
        ("https://me:pw@example.com/", "user information"),
        ("https://:pw@example.com/", "user information"),
        ("https://example.com/\x00", "NUL"),
        ("\x00https://example.com/", "NUL"),
        ("https://example.com/\ud800", "lone surrogate"),
        ("\udfff", "lone surrogate"),
    ],
)
def test_what_cannot_be_crawled_is_refused_with_the_reason(url, reason):
    with pytest.raises(InvalidUrl) as refused:
        normalise(url)
    assert reason in refused.value.detail
    assert (refused.value.field, refused.value.code) == ("url", "invalid_url")
    assert isinstance(refused.value, InvalidField)


def test_the_message_does_not_repeat_a_password():
    with pytest.raises(InvalidUrl) as refused:
        normalise("https://me:s3cret@example.com/")
    assert "s3cret" not in str(refused.value)


def test_the_longest_url_is_2048_bytes_however_they_are_counted():
    head = "https://example.com/"
    longest = head + "a" * (MAX_URL_BYTES - len(head))
    assert normalise(longest).url == longest
    with pytest.raises(InvalidUrl, match="2,049 bytes; send at most 2,048"):
        normalise(longest + "a")
    with pytest.raises(InvalidUrl, match="percent-encoded"):
        normalise(head + "é" * 400)
    with pytest.raises(InvalidUrl, match="3,000 bytes"):
        normalise(head + "é" * 1490)


hosts = st.sampled_from(["example.org", "EXAMPLE.org:443", "bücher.example", "[::1]", "1.2.3.4"])
parts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@given(scheme=st.sampled_from(["http", "HTTPS"]), host=hosts, rest=parts)
@example(scheme="http", host="example.org", rest="/a/./b/../%2e%2E/c?d=%zz&#?#")
@example(scheme="http", host="example.org", rest="?\u202e\u3000 #\t\r\n")
def test_the_normal_form_is_its_own_normal_form(scheme, host, rest):
    try:
        once = normalise(f"{scheme}://{host}/{rest}")
    except InvalidUrl:
        return
    assert normalise(once.url) == once
    assert once.url.isascii()
    assert "#" not in once.url
    assert len(once.url) <= MAX_URL_BYTES
    assert len(once.key) == 16
    split = urlsplit(once.url)
    assert split.scheme in ("http", "https")
    assert once.host in (split.hostname, f"[{split.hostname}]")


@settings(max_examples=examples(20, 100))
@given(url=st.text(max_size=60) | st.text("htps:/\\@#?[].%0x a\x00\ud800", max_size=30))
def test_any_text_is_normalised_or_refused(url):
    try:
        normal = normalise(url)
    except InvalidUrl:
        return
    assert normalise(normal.url) == normal


names = st.text("ab19-._:x@%n0", max_size=8) | st.sampled_from(
    ["a.b", "xn--a.b", "a.xn--b", "a..b", "b.c.", "1.2.3.4", "a.0x1", "A.b", "a" * 63 + ".b"]
)
pieces = st.text(st.characters(max_codepoint=0x7F)) | st.sampled_from(
    [".", "..", "/", "/./", "%2e", "%2E%2e", "%41", "?", "#", "'", "^", "|", "\\", "é"]
)


@given(
    scheme=st.sampled_from(["http", "https", "HTTP"]),
    name=names,
    rest=st.lists(pieces, max_size=6).map("".join),
)
@example(scheme="https", name="a.b", rest="a-b_c~d!$&'()*+,;=:@%zz/;x?" + "a=1&b=/?:@%zz")
def test_an_address_that_looks_normal_is_just_what_parsing_it_gives(scheme, name, rest):
    url = f"{scheme}://{name}/{rest}"
    if NORMAL.fullmatch(url):
        assert normalise(url) == parsed(url)


@pytest.mark.parametrize(
    "place",
    [
        "https://a{}b.c/",
        "https://a.b/{}",
        "https://a.b/x{}y?z",
        "https://a.b/x?{}y",
        "https://a.b/x{}",
    ],
)
def test_no_character_is_taken_for_normal_that_parsing_changes(place):
    looked = [url for c in range(0x100) if NORMAL.fullmatch(url := place.format(chr(c)))]
    assert len(looked) > 30
    assert [normalise(url) for url in looked] == [parsed(url) for url in looked]


@given(fragment=parts)
def test_fragments_never_make_another_page(fragment):
    assert (
        normalise(f"https://example.org/a?b#{fragment}").key
        == normalise("https://example.org/a?b").key
    )
