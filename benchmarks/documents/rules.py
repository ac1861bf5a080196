"""Rules that break documents, each as real sites do; what a reader has to find stays known."""

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

from benchmarks.documents.written import HOST, Document, Entry

Rule = Callable[[Document, Random], None]
RULES: dict[str, Rule] = {}
ENCODINGS = {
    "GBK": ("gbk", "中文"),
    "gb2312": ("gb2312", "新闻"),
    "Big5": ("big5", "新聞"),
    "Shift_JIS": ("shift_jis", "日本"),
    "EUC-JP": ("euc_jp", "日本"),
    "ISO-2022-JP": ("iso2022_jp", "日本"),
    "EUC-KR": ("euc_kr", "뉴스"),
    "windows-1251": ("cp1251", "привет"),
    "koi8-r": ("koi8_r", "привет"),
    "ISO-8859-2": ("iso8859_2", "źródło"),
    "iso-8859-1": ("cp1252", "café"),
    "windows-1253": ("cp1253", "νέα"),
}
NOISE = (
    "<br />\n<b>Warning</b>:  foo() expects 1 & 2 in <b>/a/b.php</b> on line <b>3</b><br />\n",
    "Notice: Undefined index: x in /var/www/a.php on line 12\n\n",
    "<!-- cached -->\n<p>Deprecated: x</p>\n",
    "\n \n\t",
)


def rule(function: Rule) -> Rule:
    """Register a rule by its name."""
    RULES[function.__name__] = function
    return function


def change(doc: Document, row: int, old: str, new: str) -> None:
    """Replace the first occurrence in a part; a rule without an occurrence is a mistake."""
    if old not in doc.parts[row]:
        raise ValueError(f"{old!r} is not in {doc.parts[row]!r}")
    doc.parts[row] = doc.parts[row].replace(old, new, 1)


def rows(doc: Document, rng: Random) -> list[int]:
    """Return some entries."""
    return rng.sample(range(len(doc.parts)), rng.randint(1, min(3, len(doc.parts))))


def named(doc: Document, row: int, loc: str) -> None:
    """Give an entry another address, in the markup and in what is to be found."""
    match = re.search(r"(<loc>|<link>|/html\" href=\")([^<\"]*)", doc.parts[row])
    assert match is not None
    doc.parts[row] = doc.parts[row][: match.start(2)] + loc + doc.parts[row][match.end(2) :]


def found(doc: Document, row: int, loc: str) -> None:
    """Set what is to be found as an entry's address."""
    doc.entries[row] = doc.entries[row]._replace(loc=loc)


# -- nothing is wrong


@rule
def well_formed(_doc: Document, _rng: Random) -> None:
    """Break nothing."""


@rule
def sections_and_comments(doc: Document, rng: Random) -> None:
    """Write addresses in character sections, with comments about."""
    for row in rows(doc, rng):
        loc = doc.entries[row].loc
        if doc.format.name != "atom":
            named(doc, row, f"<!-- x > y --><![CDATA[{loc}]]>")
        doc.parts[row] = f"<!-- <{doc.format.entry}> & -->" + doc.parts[row]


@rule
def own_prefix(doc: Document, _rng: Random) -> None:
    """Write the namespace with a prefix."""
    if doc.format.name in ("sitemap", "index"):
        names = (doc.format.root, doc.format.entry, "loc", "lastmod", "changefreq")
        tags = re.compile(rf"(</?)({'|'.join(names)})\b")
        doc.head = tags.sub(r"\1s:\2", doc.head).replace("xmlns=", "xmlns:s=")
        doc.parts = [tags.sub(r"\1s:\2", part) for part in doc.parts]
        doc.tail = tags.sub(r"\1s:\2", doc.tail)


@rule
def quotes_and_references(doc: Document, rng: Random) -> None:
    """Write `>` and other quotes in attributes, and characters by their numbers."""
    doc.head = doc.head.replace("<title>", "<title note='a>b \"c\"'>", 1)
    for row in rows(doc, rng):
        loc = doc.entries[row].loc.replace("&", "&#38;").replace("/", "&#x2F;", 4)
        named(doc, row, loc)


# -- before the document


@rule
def marks(doc: Document, rng: Random) -> None:
    """Begin with byte-order marks and blanks in any order."""
    doc.prefix = b"".join(rng.choices([b"\xef\xbb\xbf", b"\n", b" \r\n"], k=rng.randint(1, 4)))


@rule
def noise(doc: Document, rng: Random) -> None:
    """Begin with the messages of a program."""
    doc.prefix = rng.choice(NOISE).encode()


@rule
def doctype(doc: Document, rng: Random) -> None:
    """Declare a document type, with a subset or without."""
    root = doc.format.root
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    types = (
        f"<!DOCTYPE {root}>",
        f'<!DOCTYPE {root} SYSTEM "http://x.example/a>b.dtd">',
        f'<!DOCTYPE {root} PUBLIC "-//N//DTD 0.91//EN" "http://x.example/rss.dtd">',
        f'<!DOCTYPE {root} [\n<!ENTITY nbsp "&#160;">\n<!-- it\'s > here -->\n]>',
        f'<!DOCTYPE {root} [<!ENTITY l0 "ha">{laughs}]>',
        f'<!DOCTYPE {root} [<!ELEMENT x (a|b)*><!ATTLIST x a CDATA "<{doc.format.entry}>">]>',
        f'<!DOCTYPE {root} [<!ENTITY % p SYSTEM "http://127.0.0.1/x"> %p;]>',
    )
    head, gap, rest = doc.head.partition("?>\n")
    doc.head = head + gap + rng.choice(types) + rest


# -- encodings


@rule
def utf_16(doc: Document, rng: Random) -> None:
    """Write UTF-16, with a mark or without."""
    order = rng.choice(["le", "be"])
    doc.encoding = f"utf-16-{order}"
    doc.head = doc.head.replace("UTF-8", "UTF-16")
    if rng.random() < 0.5:
        doc.prefix = b"\xff\xfe" if order == "le" else b"\xfe\xff"


@rule
def labels(doc: Document, rng: Random) -> None:
    """Write another encoding, as declared."""
    label = rng.choice(list(ENCODINGS))
    doc.encoding, word = ENCODINGS[label]
    doc.head = doc.head.replace("UTF-8", rng.choice([label, label.upper(), f" {label} "]))
    for row in rows(doc, rng):
        loc = f"{HOST}/{row}/{word}"
        named(doc, row, loc)
        found(doc, row, loc)


@rule
def wrong_labels(doc: Document, rng: Random) -> None:
    """Declare an encoding that none is, or that cannot be."""
    labels = ("unicode", "utf8", "UTF-16", "klingon", "ucs-2", "en-US", "utf-8 ", "zlib", "")
    doc.head = doc.head.replace("UTF-8", rng.choice(labels))


@rule
def latin_1_as_utf_8(doc: Document, rng: Random) -> None:
    """Write Latin-1, and declare UTF-8."""
    doc.encoding = "latin-1"
    for row in rows(doc, rng):
        loc = f"{HOST}/{row}/caf\xe9"
        named(doc, row, loc)
        found(doc, row, loc)


@rule
def stray_bytes(doc: Document, rng: Random) -> None:
    """Put bytes that are not UTF-8 into a title."""
    row = rng.randrange(len(doc.parts))
    stray = rng.choice([b"\xff\xfe", b"\xe9", b"\xc3\x28"]).decode("utf-8", "surrogateescape")
    change(doc, row, f"</{doc.format.title}>", f"{stray}</{doc.format.title}>")


# -- text


@rule
def raw_ampersands(doc: Document, rng: Random) -> None:
    """Leave out the escapes of addresses."""
    for row in rows(doc, rng):
        loc = f"{HOST}/{row}/?x=1&y=2&lang=de&copy=3&amp=4"
        named(doc, row, loc)
        found(doc, row, loc)


@rule
def raw_ampersands_in_titles(doc: Document, rng: Random) -> None:
    """Leave out the escapes of titles."""
    for row in rows(doc, rng):
        change(doc, row, f"</{doc.format.title}>", f" Q & A, R&D &</{doc.format.title}>")


@rule
def entities(doc: Document, rng: Random) -> None:
    """Use entities of HTML."""
    for row in rows(doc, rng):
        change(doc, row, f"</{doc.format.title}>", f"&nbsp;&ndash;&foo;</{doc.format.title}>")
        if rng.random() < 0.5:
            named(doc, row, f"{HOST}/{row}/caf&eacute;")
            found(doc, row, f"{HOST}/{row}/caf\xe9")


@rule
def controls(doc: Document, rng: Random) -> None:
    """Put control characters into titles and addresses."""
    for row in rows(doc, rng):
        control = rng.choice("\x01\x0b\x0c\x1f\0\x08")
        change(doc, row, f"</{doc.format.title}>", f"{control}</{doc.format.title}>")
        if rng.random() < 0.5:
            loc = f"{HOST}/{row}/ab"
            named(doc, row, loc[:-1] + control + loc[-1:])
            found(doc, row, loc)


@rule
def raw_less_than(doc: Document, rng: Random) -> None:
    """Leave `<` as it is in titles."""
    for row in rows(doc, rng):
        text = rng.choice([" a < b", " <3 you", " 1<2", " i<j && j>k", " <- <-- ", "<"])
        change(doc, row, f"</{doc.format.title}>", f"{text}</{doc.format.title}>")


@rule
def html_in_titles(doc: Document, rng: Random) -> None:
    """Write HTML in titles, not closed as XML asks for."""
    for row in rows(doc, rng):
        html = rng.choice(["<b>x</b>", "a<br>b", "<p>a<p>b", "<i><b>x</i></b>", "<img src=a.png>"])
        change(doc, row, f"</{doc.format.title}>", f"{html}</{doc.format.title}>")


# -- tags


@rule
def doubled_attributes(doc: Document, rng: Random) -> None:
    """Write an attribute twice."""
    for row in rows(doc, rng):
        change(doc, row, f"<{doc.format.title}", f'<{doc.format.title} a="1" a="2"')
    if doc.format.name == "atom":
        change(doc, 0, 'type="text/html"', 'type="text/html" type="text/html"')


@rule
def upper_case(doc: Document, _rng: Random) -> None:
    """Write tags in capitals."""
    for name in ("head", "tail"):
        setattr(doc, name, re.sub(r"</?[a-z]\w*", lambda tag: tag[0].upper(), getattr(doc, name)))
    doc.parts = [re.sub(r"</?[a-z]\w*", lambda tag: tag[0].upper(), part) for part in doc.parts]


@rule
def mixed_case(doc: Document, rng: Random) -> None:
    """Write the end tags of entries in capitals."""
    for row in rows(doc, rng):
        change(doc, row, f"</{doc.format.entry}>", f"</{doc.format.entry.upper()}>")


@rule
def misspelt_ends(doc: Document, rng: Random) -> None:
    """Misspell end tags."""
    for row in rows(doc, rng):
        name = rng.choice([doc.format.title, doc.format.date, doc.format.other, doc.format.entry])
        change(doc, row, f"</{name}>", f"</{name[:-1]}>")


@rule
def crossed_ends(doc: Document, rng: Random) -> None:
    """End an element by another's end tag."""
    for row in rows(doc, rng):
        change(doc, row, f"</{doc.format.other}>", f"</{doc.format.date}>")


@rule
def missing_ends(doc: Document, rng: Random) -> None:
    """Leave out end tags."""
    for row in rows(doc, rng):
        change(doc, row, f"</{rng.choice([doc.format.date, doc.format.other])}>", "")


@rule
def missing_ends_of_links(doc: Document, rng: Random) -> None:
    """Leave out the end of a link."""
    for row in rows(doc, rng):
        if doc.format.name == "atom":
            change(doc, row, '"/>', '">')
        else:
            change(doc, row, f"</{doc.format.link}>", "")


@rule
def missing_ends_of_entries(doc: Document, rng: Random) -> None:
    """Leave out the end of an entry."""
    for row in rows(doc, rng):
        change(doc, row, f"</{doc.format.entry}>", "")


@rule
def too_many_ends(doc: Document, rng: Random) -> None:
    """End what is not open, even the root."""
    for row in rows(doc, rng):
        name = rng.choice(["b", doc.format.entry, doc.format.link, doc.format.root])
        doc.parts[row] += f"</{name}>"


@rule
def torn_tags(doc: Document, rng: Random) -> None:
    """Leave out the `>` of an end tag."""
    for row in rows(doc, rng):
        name = rng.choice([doc.format.date, doc.format.other])
        change(doc, row, f"</{name}>", f"</{name}")


@rule
def odd_quotes(doc: Document, rng: Random) -> None:
    """Leave out a quote, all quotes, or write `<` in quotes."""
    for row in rows(doc, rng):
        attribute = rng.choice(['a="x', "a=x", 'a="x<y"', "a='1\"", 'a="b<c>d"', "a"])
        change(doc, row, f"<{doc.format.other}>", f"<{doc.format.other} {attribute}>")


@rule
def undeclared_prefixes(doc: Document, rng: Random) -> None:
    """Use prefixes that nothing declares, and a second namespace."""
    for row in rows(doc, rng):
        more = '<media:content url="https://m.example/"/><media:loc>https://m.example/1</media:loc>'
        more += '<media:link href="https://m.example/2"/>'
        doc.parts[row] = doc.parts[row].replace(
            f"<{doc.format.title}", f"{more}<{doc.format.title}", 1
        )


# -- the whole


@rule
def cut_short(doc: Document, rng: Random) -> None:
    """End in the middle of an entry."""
    row = rng.randrange(len(doc.parts))
    doc.parts = doc.parts[: row + 1]
    doc.parts[row] = doc.parts[row][: rng.randrange(doc.parts[row].rindex("</"))]
    doc.entries = doc.entries[:row]
    doc.tail = ""


@rule
def no_tail(doc: Document, _rng: Random) -> None:
    """Leave out the end of the root."""
    doc.tail = ""


@rule
def junk_after(doc: Document, rng: Random) -> None:
    """Write something after the end."""
    junk = (
        "<script>x()</script>",
        "<!-- 0.1 s -->\n",
        "</body></html>",
        "<br>",
        "\0\0\0",
        "bye & <",
    )
    doc.tail += rng.choice(junk)


@rule
def two_documents(doc: Document, _rng: Random) -> None:
    """Write a second document after the first."""
    middle = len(doc.parts) // 2
    doc.parts[middle] = doc.tail + doc.head + doc.parts[middle]


@rule
def open_comments(doc: Document, rng: Random) -> None:
    """Begin a comment that nothing ends."""
    row = rng.randrange(len(doc.parts))
    doc.parts[row] = rng.choice(["<!-- ", "<!", "<?php ", "<![CDATA[ "]) + doc.parts[row]


@rule
def relative_addresses(doc: Document, rng: Random) -> None:
    """Write addresses without their host or scheme."""
    for row in rows(doc, rng):
        link, loc = rng.choice(
            [
                (f"/{row}/r", f"{HOST}/{row}/r"),
                (f"r{row}", f"{HOST}/maps/r{row}"),
                (f"//shop.example/{row}", f"{HOST}/{row}"),
                (f"shop.example/{row}", f"{HOST}/{row}"),
                (f"www.shop.example/{row}", f"https://www.shop.example/{row}"),
            ]
        )
        named(doc, row, link)
        found(doc, row, loc)


@rule
def missing_addresses(doc: Document, rng: Random) -> None:
    """Leave an entry without an address."""
    for row in rows(doc, rng):
        named(doc, row, "")
        found(doc, row, "")


@rule
def odd_dates(doc: Document, rng: Random) -> None:
    """Write dates that are none; the entries have none then."""
    for row in rows(doc, rng):
        odd = rng.choice(["yesterday", "", "0000-00-00", "2026-13-45", "31/12/2026", "null"])
        name = doc.format.date
        doc.parts[row] = re.sub(rf"<{name}>[^<]*", f"<{name}>{odd}", doc.parts[row])
        doc.entries[row] = Entry(doc.entries[row].loc, None)


def broken(doc: Document, rng: Random, *names: str) -> Document:
    """Return a document that some rules have broken, in their order."""
    doc = replace(doc, parts=[*doc.parts], entries=[*doc.entries])
    for name in names:
        RULES[name](doc, rng)
    return doc
