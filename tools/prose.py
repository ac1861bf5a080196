"""List sentences that break the rules of prose: too long, or with words that hide their meaning.

    python tools/prose.py [FOLDER …]

Reads docstrings, of constants too, and comments of Python files, and the text of Markdown files.
Lists also functions whose docstring begins with a noun, and variables named by a participle.
Exits with 1 where there is a sentence to mend.
"""

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

EVERYTHING = (
    *("service", "recrawl_client", "recrawl_cluster", "recrawl_lab", "tools", "examples", "deploy"),
    *("docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
)
"""Folders and files that the lint checks."""
MOST_WORDS = 25
"""Maximum length of a sentence, words."""
VAGUE = re.compile(
    r"\b(told|tells?|said|says?|heard|hears?|lets|gives?|of which|befalls?|whoever)\b",
    re.IGNORECASE,
)
INVERTED = re.compile(r"^(Who|What|Of|So many|Where|How|Whether|Which|As many|Whatever)\b")
NOUN = re.compile(r"(?:The|An?|True|False|All|Our|No|One|Numbers?|Values|Names|Ids?|Rows)\b|\(")
"""First words that a function's docstring does not have; a property's may."""
PARTICIPLES = frozenset({"told", "said", "given", "heard", "known", "found"})
"""Words that name no variable."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NOT_PROSE = re.compile(
    r"\A---\n.*?^---$|^ *```.*?^ *```|<!--.*?-->|^ *>>>.*?(?=^\s*$|\Z)|^\.\. math::.*?(?=^\S|\Z)"
    r"|^ *\|.*?$|^ {4,}\S.*?$|^#.*?$|^-{3,}$",
    re.MULTILINE | re.DOTALL,
)
"""Blocks that end a sentence: code, tables, formulas, headings."""
INLINE = re.compile(r":math:`[^`]*`|`[^`]*`|\]\([^)]*\)", re.DOTALL)
END = re.compile(r"((?<=[.!?;:])\s+|\n\s*\n|\n\s*(?=[-*] ))")
"""Ends of sentences; the group keeps their line ends."""
NO_LINE_END = re.compile(r"[^\n]")


class Text(NamedTuple):
    """A piece of prose and the line on which it begins."""

    line: int
    content: str


def sentences(text: Text) -> Iterator[Text]:
    """Yield the sentences of a text without code, formulas, tables and headings."""
    line = text.line
    for part in END.split(INLINE.sub(shortened, NOT_PROSE.sub(blank, text.content))):
        plain = " ".join(part.split())
        if plain:
            yield Text(line, plain)
        line += part.count("\n")


def blank(block: re.Match[str]) -> str:
    """Return the line ends of a block without its text."""
    return NO_LINE_END.sub("", block[0])


def shortened(code: re.Match[str]) -> str:
    """Return a word in the place of code or of a link's address."""
    return " x " + blank(code)


def faults(sentence: str) -> list[str]:
    """Return what is wrong with a sentence."""
    words = re.findall(r"[A-Za-z][\w'-]*", sentence)
    wrong = [f"{len(words)} words"] if len(words) > MOST_WORDS else []
    wrong += [f"'{match[0]}'" for match in VAGUE.finditer(sentence)]
    match = INVERTED.match(sentence)
    asks = sentence.endswith("?")
    return wrong + ([f"begins with '{match[0]}'"] if match and not asks else [])


def of_python(tree: ast.Module, source: str) -> Iterator[Text]:
    """Yield the docstrings and the comments of a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield Text(node.lineno, inspect.cleandoc(text))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            yield Text(token.start[0], token.string.lstrip("# "))


def names(tree: ast.Module) -> Iterator[Text]:
    """Yield the variables of functions that are named by a participle."""
    inside = (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))
    for node in {below for function in inside for below in ast.walk(function)}:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in PARTICIPLES:
                yield Text(node.lineno, f"variable '{name}'")


def functions(tree: ast.Module) -> Iterator[Text]:
    """Yield the docstrings of functions that begin with a noun in place of a verb."""
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and not is_property(node):
            docstring = ast.get_docstring(node) or ""
            if NOUN.match(docstring):
                yield Text(node.lineno, f"begins with a noun: {docstring.splitlines()[0]}")


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is read as an attribute."""
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def breaches(path: Path) -> Iterator[Text]:
    """Yield what is wrong in a file, each with its line."""
    content = path.read_text()
    texts: Iterable[Text] = [Text(1, content)]
    if path.suffix == ".py":
        tree = ast.parse(content)
        texts = of_python(tree, content)
        yield from chain(names(tree), functions(tree))
    for sentence in chain.from_iterable(map(sentences, texts)):
        if wrong := faults(sentence.content):
            yield Text(sentence.line, f"{', '.join(wrong)}: {sentence.content}")


def files(roots: list[str]) -> Iterator[Path]:
    """Yield the Python and Markdown files in folders."""
    for root in map(Path, roots):
        below = [root] if root.is_file() else sorted(root.rglob("*"))
        own = (path for path in below if "node_modules" not in path.parts)
        yield from (path for path in own if path.suffix in (".py", ".md"))


def main() -> int:
    """Print a line for each sentence to mend; return the exit code."""
    n = 0
    for path in files(sys.argv[1:] or list(EVERYTHING)):
        for breach in breaches(path):
            n += 1
            print(f"{path}:{breach.line}: {breach.content}")
    print(f"{n} sentences to mend")
    return n > 0


if __name__ == "__main__":
    sys.exit(main())
