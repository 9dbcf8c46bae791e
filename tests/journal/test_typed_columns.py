"""Queries name their columns as `col(Row.column)`, so that mypy checks them. No table hides behind `Any`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from burnish.journal import tables

HOME = Path(__file__).parents[2]
FOLDERS = ("src", "server", "judges", "learner", "adapters", "sandbox", "benchmarks", "tests")
TABLES = frozenset(tables.__all__)


def hidden(source: str) -> list[int]:
    """Lines that annotate a table class or a column as `Any`, and lines of functions named `_columns`."""
    return sorted(set(_lines(ast.parse(source))))


def _lines(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(annotation=annotation, value=value) if _is_any(annotation) and _has_table(value):
                yield node.lineno
            case ast.arguments():
                yield from (argument.lineno for argument, default in _defaults(node) if _has_table(default))
            case ast.Call(func=ast.Name(id="cast"), args=[kind, value]) if _is_any(kind) and _has_table(value):
                yield node.lineno
            case ast.FunctionDef(name="_columns") | ast.AsyncFunctionDef(name="_columns"):
                yield node.lineno


def _defaults(given: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """The parameters with the annotation `Any`, each with its default."""
    positional = [*given.posonlyargs, *given.args]
    with_default = positional[len(positional) - len(given.defaults) :]
    pairs = [*zip(with_default, given.defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return ((argument, default) for argument, default in pairs if _is_any(argument.annotation))


def _is_any(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation) in ("Any", "typing.Any")


def _has_table(value: ast.expr | None) -> bool:
    """Whether `value` is a table class, a column of one, or a tuple of these."""
    match value:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id=_), attr=name) if name in TABLES:
            return True
        case ast.Attribute(value=inner):
            return _has_table(inner)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return any(_has_table(part) for part in parts)
    return False


@pytest.mark.parametrize(
    "line",
    [
        "turn: Any = InteractionRow",
        "turn: typing.Any = tables.InteractionRow",
        "name: Any = AgentRow.name",
        "both: Any = (StepRow, VersionRow)",
        "turn = cast(Any, InteractionRow)",
        "def counts(table: Any = ShadowJob): ...",
        "def counts(*, table: Any = ShadowJob): ...",
        "def _columns(table): ...",
    ],
)
def test_a_hidden_table_is_found(line: str) -> None:
    assert hidden(f"x = 1\n{line}\n") == [2]


@pytest.mark.parametrize(
    "line",
    [
        "agent = col(InteractionRow.agent)",
        "table: type[JobRow] = ShadowJob",
        "tree: Any = row.evidence",
        "def counts(value: Any, table: type[JobRow] = ShadowJob): ...",
    ],
)
def test_what_is_typed_or_no_table_passes(line: str) -> None:
    assert hidden(line) == []


def test_no_table_of_the_source_hides_behind_any() -> None:
    files = {file for folder in FOLDERS for file in (HOME / folder).rglob("*.py")}
    assert {HOME / "src/burnish/journal/turns.py", HOME / "learner/run/ledger.py"} <= files
    found = [f"{file.relative_to(HOME)}:{line}" for file in sorted(files) for line in hidden(file.read_text("utf-8"))]
    assert not found, f"write col(Row.column) in place of a table annotated as Any: {found}"
