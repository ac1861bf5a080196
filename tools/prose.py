"""List sentences that break the rules of prose: too long, or with words that hide their meaning.

    python tools/prose.py [FOLDER …]

Reads docstrings, of constants too, and comments of Python files, and the text of Markdown files.
Exits with 1 where there is a sentence to mend.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

EVERYTHING = (
    "service",
    "recrawl_client",
    "recrawl_cluster",
    "recrawl_lab",
    "README.md",
    "CHANGELOG.md",
    "docs",
)
MOST_WORDS = 25
"""Maximum length of a sentence, words."""
VAGUE = re.compile(
    r"\b(told|tells?|said|says?|heard|hears?|lets|gives?|of which|befalls?|whoever)\b",
    re.IGNORECASE,
)
INVERTED = re.compile(r"^(Who|What|Of|So many|Where|How|Whether|Which|As many|Whatever)\b")
NOT_PROSE = re.compile(
    r"```.*?```|^ *>>>.*?(?=^\s*$|\Z)|^\.\. math::.*?(?=^\S)|^ *\|.*?$|^ {4,}\S.*?$|^#.*?$"
    r"|:math:`[^`]*`|`[^`]*`|\]\([^)]*\)|^-{3,}$",
    re.MULTILINE | re.DOTALL,
)
END = re.compile(r"(?<=[.!?;:])\s+|\n\s*\n|\n\s*(?=[-*] )")


class Text(NamedTuple):
    """A piece of prose and the line on which it begins."""

    line: int
    content: str


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text without code, formulas, tables and headings."""
    for sentence in END.split(NOT_PROSE.sub(" x ", text)):
        plain = " ".join(sentence.split())
        if plain:
            yield plain


def faults(sentence: str) -> list[str]:
    """Return what is wrong with a sentence."""
    words = re.findall(r"[A-Za-z][\w'-]*", sentence)
    wrong = [f"{len(words)} words"] if len(words) > MOST_WORDS else []
    wrong += [f"'{match[0]}'" for match in VAGUE.finditer(sentence)]
    match = INVERTED.match(sentence)
    asks = sentence.endswith("?")
    return wrong + ([f"begins with '{match[0]}'"] if match and not asks else [])


def of_python(source: str) -> Iterator[Text]:
    """Yield the docstrings and the comments of a module."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield Text(node.lineno, text)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            yield Text(token.start[0], token.string.lstrip("# "))


def texts(path: Path) -> Iterator[Text]:
    """Yield the pieces of prose in a file."""
    content = path.read_text()
    if path.suffix == ".py":
        yield from of_python(content)
    else:
        yield Text(1, content)


def files(roots: list[str]) -> Iterator[Path]:
    """Yield the Python and Markdown files in folders."""
    for root in map(Path, roots):
        below = [root] if root.is_file() else sorted(root.rglob("*"))
        yield from (path for path in below if path.suffix in (".py", ".md"))


def main() -> int:
    """Print a line for each sentence to mend; return the exit code."""
    n = 0
    for path in files(sys.argv[1:] or list(EVERYTHING)):
        for text in texts(path):
            for sentence in sentences(text.content):
                if wrong := faults(sentence):
                    n += 1
                    print(f"{path}:{text.line}: {', '.join(wrong)}: {sentence}")
    print(f"{n} sentences to mend")
    return n > 0


if __name__ == "__main__":
    sys.exit(main())
