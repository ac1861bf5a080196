"""Imports between the modules of a checkout, and abstract methods, read from the syntax."""

import ast
from collections.abc import Iterator, Mapping

Graph = dict[str, set[str]]
"""Edges from a name to others."""


def module_of(path: str) -> str:
    """Return the dotted name of a file.

    >>> module_of("service/storage/__init__.py"), module_of("service/core/costs.py")
    ('service.storage', 'service.core.costs')
    """
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(tree: ast.AST, modules: Mapping[str, str]) -> Iterator[str]:
    """Yield the modules that a module imports anywhere, in functions and for types too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                name = whole if whole in modules else node.module
                if name in modules:
                    yield name


def imports(syntax: Mapping[str, ast.Module], *, packages: bool) -> Graph:
    """Return the imports of each file, by path; without those of and from `__init__`, or with."""
    paths = {
        module_of(path): path for path in syntax if packages or not path.endswith("__init__.py")
    }
    return {
        path: {paths[name] for name in imported(syntax[path], paths)} - {path}
        for path in paths.values()
    }


def circles(graph: Graph) -> list[set[str]]:
    """Return the groups of names that reach each other.

    >>> circles({"a": {"b"}, "b": {"a", "c"}, "c": set()}) == [{"a", "b"}]
    True
    """
    reach: Graph = {}
    for name in graph:
        reach[name], ahead = set(), [name]
        while ahead:
            new = graph.get(ahead.pop(), set()) - reach[name]
            reach[name] |= new
            ahead += new
    groups = {
        frozenset(other for other in reach[name] if name in reach[other])
        for name in graph
        if name in reach[name]
    }
    return sorted(map(set, groups), key=sorted)


def between_rooms(graph: Graph, folder: str) -> Graph:
    """Return the imports between the rooms of a folder; a loose module is a room of its own."""
    rooms: Graph = {}

    def room(path: str) -> str:
        return path.removeprefix(f"{folder}/").partition("/")[0]

    for path, others in graph.items():
        if path.startswith(f"{folder}/"):
            inside = {room(other) for other in others if other.startswith(f"{folder}/")}
            rooms.setdefault(room(path), set()).update(inside - {room(path)})
    return rooms


def abstract_methods(syntax: Mapping[str, ast.Module]) -> dict[str, tuple[set[str], set[str]]]:
    """Return the abstract methods that each class declares, and those with inherited ones."""
    classes = {
        node.name: node
        for tree in syntax.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    every: dict[str, tuple[set[str], set[str]]] = {}

    def read(name: str) -> tuple[set[str], set[str]]:
        if name not in every:
            every[name] = set(), set()  # a class that has a namesake as its base ends here
            own, concrete = declared(classes[name])
            bases = [base.id for base in classes[name].bases if isinstance(base, ast.Name)]
            inherited = set().union(*(read(base)[1] for base in bases if base in classes))
            every[name] = own, own | (inherited - concrete)
        return every[name]

    for name in classes:
        read(name)
    return every


def declared(node: ast.ClassDef) -> tuple[set[str], set[str]]:
    """Return the names of the abstract and of the other methods of a class."""
    own: set[str] = set()
    concrete: set[str] = set()
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            marked = any("abstractmethod" in ast.dump(mark) for mark in each.decorator_list)
            (own if marked else concrete).add(each.name)
    return own, concrete
