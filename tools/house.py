"""Print a table of figures about the size and the order of the code base.

python tools/house.py               # this checkout
python tools/house.py ../another    # another checkout beside this one
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[1]
PRODUCT = ("service", "recrawl_client", "recrawl_cluster", "recrawl_lab")
WALKS = ("observation", "lease", "epoch")
"""Examples in docs/architecture.md, by their headings."""
LONG_MODULE, LONG_TEST, LONG_FUNCTION = 400, 500, 40
"""Maximum lines of a module, a test file and a function that are not long."""
PARTICIPLES = frozenset(
    {"told", "said", "given", "heard", "found", "known", "asked", "seen", "kept"}
)
RULES = {
    "when a page is due": r"GONE_CHECKS(?s:.*)MOST_DOUBLINGS(?s:.*)(<<|exp2|ldexp)",
    "a host queue's delay": r"(max|fmax|minimum)\((?s:[^;]{0,60}?)robots_delay_s",
    "waiting together": r"class (Commits|Registering|Leasing|Gathering|Batcher)\b",
    "closed form of an allocation": r"min(imum)?\((wanted|change|importance \* s)\b|sqrt\(1 \+ 4",
}
"""Pattern of the modules that state a rule, by rule."""


class Tree:
    """A checkout, read once.

    Parameters
    ----------
    root : Path
        The checkout.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sources = {
            path.relative_to(root).as_posix(): path.read_text()
            for top in (*PRODUCT, "tests", "migrations")
            for path in sorted((root / top).rglob("*.py"))
        }
        self.syntax = {name: ast.parse(text) for name, text in self.sources.items()}

    def below(self, *tops: str) -> list[str]:
        """Return the names of the modules below folders."""
        return [name for name in self.sources if name.startswith(tuple(f"{t}/" for t in tops))]

    def lines(self, *tops: str) -> int:
        """Return the number of lines below folders."""
        return sum(self.sources[name].count("\n") for name in self.below(*tops))

    def nodes(self, *tops: str) -> Iterator[ast.AST]:
        """Yield every node of the syntax trees below folders."""
        for name in self.below(*tops):
            yield from ast.walk(self.syntax[name])

    def words(self, name: str) -> int:
        """Return the number of words of a text file."""
        return len((self.root / name).read_text().split())

    def text(self, name: str) -> str:
        """Return a text file, or "" if it is missing."""
        path = self.root / name
        return path.read_text() if path.is_file() else ""


def functions(tree: Tree) -> list[int]:
    """Return the lines of every function of the product."""
    return [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in tree.nodes(*PRODUCT)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def participles(tree: Tree) -> int:
    """Return the number of variables and parameters whose name is a participle."""
    names = (
        node.id if isinstance(node, ast.Name) else node.arg
        for node in tree.nodes(*PRODUCT)
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    )
    return sum(name in PARTICIPLES for name in names)


def classes_named_twice(tree: Tree) -> int:
    """Return the number of names that several classes of the service or the laboratory share."""
    names = Counter(
        node.name for node in tree.nodes("service", "recrawl_lab") if isinstance(node, ast.ClassDef)
    )
    return sum(n > 1 for n in names.values())


def stated_in(tree: Tree, pattern: str) -> str:
    """Return the number of modules of the service that match, and their names."""
    modules = [
        name
        for name in tree.below("service", "recrawl_lab")
        if re.search(pattern, tree.sources[name])
    ]
    modules = [name for name in modules if not re.search("/sim/|approx|reference|periodic", name)]
    return f"{len(modules)}  {', '.join(Path(name).stem for name in modules)}"


def walk(tree: Tree, name: str) -> str:
    """Return the number of modules on a walk of docs/architecture.md, and any missing ones."""
    sections = re.split(r"^## ", tree.text("docs/architecture.md"), flags=re.MULTILINE)
    section = next((text for text in sections if name in text.split("\n")[0].lower()), "")
    modules = set(re.findall(r"`((?:service|recrawl_client)/[\w/]+\.py)`", section))
    missing = sorted(modules - tree.sources.keys())
    return f"{len(modules)}" + (f"  missing: {', '.join(missing)}" if missing else "")


def figures(tree: Tree) -> dict[str, Callable[[], object]]:
    """Return the rows of the table: a label, and the function that counts it."""
    lengths = functions(tree)
    return {
        "modules in service/": lambda: len(tree.below("service")),
        "lines in service/": lambda: tree.lines("service"),
        "modules, lines in recrawl_lab/": lambda: (
            f"{len(tree.below('recrawl_lab'))}, {tree.lines('recrawl_lab')}"
        ),
        "modules, lines in recrawl_client/": lambda: (
            f"{len(tree.below('recrawl_client'))}, {tree.lines('recrawl_client')}"
        ),
        "lines in tests/": lambda: tree.lines("tests"),
        "loose modules in service/": lambda: len(
            [name for name in tree.below("service") if name.count("/") == 1]
        ),
        "modules over 400 lines": lambda: sum(
            tree.sources[name].count("\n") > LONG_MODULE for name in tree.below(*PRODUCT)
        ),
        "test files over 500 lines": lambda: sum(
            tree.sources[name].count("\n") > LONG_TEST for name in tree.below("tests")
        ),
        "function lines: median, longest": lambda: f"{median(lengths):.0f}, {max(lengths)}",
        "functions over 40 lines": lambda: sum(n > LONG_FUNCTION for n in lengths),
        **{f"modules that state: {rule}": _stated(tree, rule) for rule in RULES},
        **{f"modules named on the walk of one {name}": _walk(tree, name) for name in WALKS},
        "class names used twice": lambda: classes_named_twice(tree),
        "participles as variables": lambda: participles(tree),
        "migrations": lambda: len(tree.below("migrations/versions")),
        "# fmt: skip": lambda: sum(
            text.count("# fmt: " + "skip") for text in tree.sources.values()
        ),
        "noqa, type: ignore": lambda: sum(
            len(re.findall("# noqa|# type: ignore", tree.sources[name]))
            for name in tree.below(*PRODUCT)
        ),
        "words in README.md": lambda: tree.words("README.md"),
        "words in CHANGELOG.md": lambda: tree.words("CHANGELOG.md"),
        "decision records": lambda: len(list((tree.root / "docs/decisions").glob("*.md"))),
    }


def _stated(tree: Tree, rule: str) -> Callable[[], object]:
    return lambda: stated_in(tree, RULES[rule])


def _walk(tree: Tree, name: str) -> Callable[[], object]:
    return lambda: walk(tree, name)


def main() -> None:
    """Print the table of this checkout, or of the one whose path is the argument."""
    tree = Tree(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
    for label, count in figures(tree).items():
        print(f"{label:<52} {count()}")


if __name__ == "__main__":
    main()
