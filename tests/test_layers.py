"""Who may import whom across packages; the rooms inside the core are import-linter's."""

import ast

import pytest

# What a plug-in may build on: the contracts, the records, and what is meant for all. The trainer,
# the endpoint, the runner and the command line are the core's own.
PUBLIC = {
    "adapter",
    "algorithm",
    "config",
    "engine",
    "errors",
    "executor",
    "llm_api",
    "plugins",
    "records",
    "samples",
    "semconv",
    "store",
    "testing",
}


def imported(folder):
    """Each name imported under a folder, with its module: (file, module, name or None)."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield path, alias.name, None
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for alias in node.names:
                    yield path, node.module, alias.name


def test_the_core_imports_no_plugin(root):
    guilty = [
        (path, module)
        for path, module, _ in imported(root / "core" / "src")
        if module.startswith("agentlightning_")
    ]
    assert guilty == []


def test_a_plugin_imports_no_other_plugin(folder):
    own = f"agentlightning_{folder.name}"
    guilty = [
        (path, module)
        for path, module, _ in imported(folder / "src")
        if module.startswith("agentlightning_") and module.partition(".")[0] != own
    ]
    assert guilty == []


def test_a_plugin_imports_only_public_names_of_the_core(folder):
    for path, module, name in imported(folder / "src"):
        parts = module.split(".")
        if parts[0] != "agentlightning":
            continue
        room = parts[1] if len(parts) > 1 else None
        assert room is None or room in PUBLIC, f"{path} imports {module}"
        assert not any(part.startswith("_") for part in [*parts, name or ""]), (
            f"{path} imports {module}.{name}"
        )


@pytest.mark.parametrize(
    "banned", ["torch", "transformers", "trl", "langchain", "langchain_core", "anthropic"]
)
def test_the_core_imports_no_framework(root, banned):
    guilty = [
        path
        for path, module, _ in imported(root / "core" / "src")
        if module.partition(".")[0] == banned
    ]
    assert guilty == []
