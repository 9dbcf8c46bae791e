"""Whether the installed vLLM serves an architecture with LoRA adapters, read from vLLM's source.

Importing vLLM takes many seconds, and an engine that is started in vain takes longer.
"""

import ast
import importlib.util
import re
from functools import lru_cache
from pathlib import Path

_MARK = "SupportsLoRA"
"""The base class by which vLLM marks a model that takes adapters (vllm/model_executor/models/interfaces.py)."""

_MODELS = "vllm.model_executor.models."


@lru_cache(maxsize=8)
def serves_lora(architecture: str) -> bool | None:
    """None if that is not known: vLLM is not installed, has no model of its own for it, or is laid out otherwise."""
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        return None
    models = Path(found.origin).parent / "model_executor" / "models"
    try:
        registry = (models / "registry.py").read_text(encoding="utf-8")
        entry = re.search(rf'"{re.escape(architecture)}":\s*\(\s*"(\w+)",\s*"(\w+)"', registry)
        return _is_marked(models, entry[1], entry[2]) if entry is not None else None
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None


def _is_marked(models: Path, module: str, name: str) -> bool | None:
    """Whether the class has the mark among its ancestors. None if it is not found."""
    tree = ast.parse((models / f"{module}.py").read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        return None
    imported = {
        alias.asname or alias.name: (neighbour, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (neighbour := _neighbour(node)) is not None
        for alias in node.names
    }
    of_bases: list[bool | None] = []
    for base in map(ast.unparse, classes[name].bases):
        if base == _MARK:
            return True
        if base in classes:
            of_bases.append(_is_marked(models, module, base))
        elif base in imported and imported[base][0] != "interfaces":
            of_bases.append(_is_marked(models, *imported[base]))
        elif base not in imported and base != "nn.Module":
            of_bases.append(None)
    return next((True for each in of_bases if each), None if None in of_bases else False)


def _neighbour(node: ast.ImportFrom) -> str | None:
    """The file beside this one that is imported from. None if it is elsewhere."""
    module = node.module or ""
    name = module if node.level == 1 else module.removeprefix(_MODELS) if module.startswith(_MODELS) else ""
    return name if name.isidentifier() else None
