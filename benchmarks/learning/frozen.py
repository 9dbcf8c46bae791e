"""The hash of a world: of all files that define the users, their words and the score."""

import ast
import hashlib
from collections.abc import Sequence
from pathlib import Path


def digest(files: Sequence[Path]) -> str:
    """SHA-256 over the files' names and contents, in their order, as 64 hex digits.

    Of Python files only statements count; comments, docstrings and layout do not. Raises OSError if a file cannot be
    read.
    """
    whole = hashlib.sha256()
    for file in files:
        content = _statements(file) if file.suffix == ".py" else file.read_bytes()
        whole.update(f"{file.name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return whole.hexdigest()


def _statements(file: Path) -> bytes:
    """The syntax tree of a Python file without its docstrings and other bare texts."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)]
    return ast.dump(tree).encode()


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
