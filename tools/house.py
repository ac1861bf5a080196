"""Print a table of figures about the size and the order of the code base.

python tools/house.py               # this checkout
python tools/house.py ../another    # another checkout; with a .venv, its walks too
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from house_imports import Graph, abstract_methods, between_rooms, circles, imports

HERE = Path(__file__).parents[1]
PRODUCT = ("service", "recrawl_client", "recrawl_lab", "recrawl_cluster")
LONG_MODULE, LONG_TEST, LONG_FUNCTION = 400, 500, 40
"""Maximum lines of a module, a test file and a function that are not long."""
PARTICIPLES = frozenset(
    {"told", "said", "given", "heard", "found", "known", "asked", "seen", "kept"}
)
LAYOUT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)
"""Kinds of tokens that make no line of code."""
RUNNER = ["store", "lead", "task"]
"""Parameters of a function that opens the shards of an epoch, after `self`."""
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
            for top in (*PRODUCT, "tests", "migrations", "benchmarks")
            for path in sorted((root / top).rglob("*.py"))
        }
        self.syntax = {name: ast.parse(text) for name, text in self.sources.items()}

    def below(self, *tops: str) -> list[str]:
        """Return the names of the modules below folders."""
        return [name for name in self.sources if name.startswith(tuple(f"{t}/" for t in tops))]

    def parsed(self, *tops: str) -> dict[str, ast.Module]:
        """Return the syntax trees of the modules below folders."""
        return {name: self.syntax[name] for name in self.below(*tops)}

    def lines(self, *tops: str) -> int:
        """Return the number of lines below folders."""
        return sum(self.sources[name].count("\n") for name in self.below(*tops))

    def code(self, *tops: str) -> int:
        """Return the number of lines that are neither blank, comment nor docstring."""
        return sum(code_lines(self.sources[name], self.syntax[name]) for name in self.below(*tops))

    def size(self, *tops: str) -> str:
        """Return the numbers of modules and of lines of code."""
        return f"{len(self.below(*tops))}, {self.code(*tops):,}"

    def nodes(self, *tops: str) -> Iterator[ast.AST]:
        """Yield every node of the syntax trees below folders."""
        for name in self.below(*tops):
            yield from ast.walk(self.syntax[name])


def code_lines(text: str, tree: ast.Module) -> int:
    """Return the number of lines of a module that are neither blank, comment nor docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def why_comments(tree: Tree) -> int:
    """Return the number of lines of the service that are a comment, but no directive of a tool."""
    return sum(
        token.type == tokenize.COMMENT
        and token.line.lstrip().startswith("#")
        and not re.match(r"#\s*(noqa|type:|fmt:)", token.string)
        for name in tree.below("service")
        for token in tokenize.generate_tokens(io.StringIO(tree.sources[name]).readline)
    )


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


def classes_named_twice(tree: Tree) -> str:
    """Return the number of names that several classes of the product share, and the names."""
    names = Counter(node.name for node in tree.nodes(*PRODUCT) if isinstance(node, ast.ClassDef))
    return listed(sorted(name for name, n in names.items() if n > 1))


def listed(names: list[str]) -> str:
    """Return the number of names, and the names."""
    return f"{len(names)}  {', '.join(names)}".rstrip()


def stated_in(tree: Tree, pattern: str) -> str:
    """Return the number of modules that match, and their names."""
    modules = [name for name in tree.below(*PRODUCT) if re.search(pattern, tree.sources[name])]
    modules = [name for name in modules if not re.search("/sim/|approx|reference|periodic", name)]
    return listed([Path(name).stem for name in modules])


def runners(tree: Tree) -> str:
    """Return the number of ways to open the shards of an epoch, and their modules."""
    modules = [
        Path(name).stem
        for name in tree.below(*PRODUCT)
        for node in ast.walk(tree.syntax[name])
        if isinstance(node, ast.FunctionDef)
        and [each.arg for each in node.args.args if each.arg != "self"] == RUNNER
    ]
    return listed(modules)


def storage(tree: Tree) -> dict[str, Callable[[], object]]:
    """Return the rows of the rooms of storage."""
    files = imports(tree.parsed(*PRODUCT), packages=True)
    rooms = between_rooms(files, "service/storage")
    return {
        "loose modules in storage": lambda: sum(name.endswith(".py") for name in rooms),
        "rooms of storage, arrows between them": lambda: (
            f"{len(rooms)}, {sum(map(len, rooms.values()))}"
        ),
        "rooms of storage in a circle": lambda: sum(map(len, circles(rooms))),
        "arrows up, by the layers of pyproject.toml": lambda: listed(arrows_up(tree, files)),
    }


def arrows_up(tree: Tree, files: Graph) -> list[str]:
    """Return the imports between rooms that a contract of layers has in another order."""
    project = tomllib.loads((tree.root / "pyproject.toml").read_text())
    up = []
    for contract in project["tool"]["importlinter"]["contracts"]:
        for container in contract.get("containers", []):
            layers = [re.findall(r"\w+", layer) for layer in contract["layers"]]
            level = {room: k for k, layer in enumerate(layers) for room in layer}
            rooms = between_rooms(files, container.replace(".", "/"))
            named = {room: room.removesuffix(".py") for room in rooms}
            up += [
                f"{container}: {named[room]}→{named[other]}"
                for room, others in rooms.items()
                for other in sorted(others)
                if named[room] in level and level.get(named[other], 99) <= level[named[room]]
            ]
    return up


def abstract(tree: Tree) -> str:
    """Return the largest number that a class declares, and the number of all of Transaction."""
    every = abstract_methods(tree.parsed("service", "recrawl_cluster"))
    most = max(every, key=lambda name: len(every[name][0]))
    return f"{len(every[most][0])} {most}, {len(every['Transaction'][1])} Transaction"


def of_files(tree: Tree) -> str:
    """Return the number of circles of files, and their names."""
    groups = circles(imports(tree.parsed(*PRODUCT), packages=False))
    return listed(["-".join(Path(name).stem for name in sorted(group)) for group in groups])


def walks(tree: Tree) -> dict[str, Callable[[], object]]:
    """Return a row for each walk, by running the checkout."""
    own = tree.root / ".venv/bin/python"
    python = own if own.exists() else sys.executable
    command = [python, HERE / "tools/walks.py", "--json"]
    ended = subprocess.run(  # noqa: S603 - our own tool
        command, capture_output=True, text=True, check=False, timeout=120
    )
    if ended.returncode:
        return {"modules run by one act": lambda: ended.stderr.strip().rpartition("\n")[2]}
    return {
        f"modules run by one {name}": lambda walk=walk: len(walk)  # type: ignore[misc]
        for name, walk in json.loads(ended.stdout).items()
    }


def figures(tree: Tree) -> dict[str, Callable[[], object]]:
    """Return the rows of the table: a label, and the function that counts it."""
    lengths = functions(tree)
    return {
        **{f"modules, code lines in {top}/": lambda top=top: tree.size(top) for top in PRODUCT},
        "code lines in benchmarks/": lambda: f"{tree.code('benchmarks'):,}",
        "lines in tests/": lambda: f"{tree.lines('tests'):,}",
        "loose modules in service/": lambda: len(
            [name for name in tree.below("service") if name.count("/") == 1]
        ),
        **storage(tree),
        "abstract methods: most in a class, inherited": lambda: abstract(tree),
        "circles of files": lambda: of_files(tree),
        "class names used twice": lambda: classes_named_twice(tree),
        "runners of an epoch": lambda: runners(tree),
        **walks(tree),
        **{
            f"modules that state: {rule}": lambda pattern=pattern: stated_in(tree, pattern)
            for rule, pattern in RULES.items()
        },
        "modules over 400 lines": lambda: sum(
            tree.sources[name].count("\n") > LONG_MODULE for name in tree.below(*PRODUCT)
        ),
        "test files over 500 lines": lambda: sum(
            tree.sources[name].count("\n") > LONG_TEST for name in tree.below("tests")
        ),
        "function lines: median, longest": lambda: f"{median(lengths):.0f}, {max(lengths)}",
        "functions over 40 lines": lambda: sum(n > LONG_FUNCTION for n in lengths),
        "why-comments in service/": lambda: why_comments(tree),
        "participles as variables": lambda: participles(tree),
        "migrations": lambda: len(tree.below("migrations/versions")),
        "noqa, type: ignore": lambda: sum(
            len(re.findall("# noqa|# type: ignore", tree.sources[name]))
            for name in tree.below(*PRODUCT)
        ),
        "decision records": lambda: len(list((tree.root / "docs/decisions").glob("*.md"))),
    }


def main() -> None:
    """Print the table of this checkout, or of the one whose path is the argument."""
    tree = Tree(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
    for label, count in figures(tree).items():
        print(f"{label:<50} {count()}")


if __name__ == "__main__":
    main()
