"""One name for a folder, an extra, an entry point and a requirements line; and what a wheel holds."""

import ast
import email
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CORE_RANGE = "agentlightning>=2.0,<3"
FURTHER_NAMES = {"grpo": "rl", "ppo": "rl"}
# The names of distributions whose import name is another.
DISTRIBUTIONS = {"google": "protobuf", "opentelemetry": "opentelemetry-proto", "yaml": "pyyaml"}
# What the core uses where it is installed, and says what to install where it is not.
OPTIONAL_OF_CORE = {"jinja2", "openai", "pyarrow"}


def read(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())


def project(folder):
    return read(folder)["project"]


def requirements(lines):
    return {canonicalize_name(Requirement(line).name): Requirement(line) for line in lines}


def imports(path):
    """Every module a file imports: its name, and whether that is at the top of the file."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        for name in names:
            yield name, node in tree.body


def test_there_are_plugins_of_every_kind_to_look_at(plugin_folders):
    assert {"langchain", "rl", "sft", "sqlite", "transformers"} <= {
        folder.name for folder in plugin_folders
    }


def test_distribution_import_and_entry_point_are_named_after_the_folder(folder):
    facts = project(folder)
    assert facts["name"] == f"agentlightning-{canonicalize_name(folder.name)}"
    assert facts["entry-points"] == {"agentlightning": {folder.name: f"agentlightning_{folder.name}"}}
    assert [path.name for path in (folder / "src").iterdir()] == [f"agentlightning_{folder.name}"]


def test_the_core_has_an_extra_that_brings_the_plugin_with_its_framework(root, folder):
    facts = project(folder)
    extras = project(root / "core")["optional-dependencies"]
    brought = requirements(extras[canonicalize_name(folder.name)])[facts["name"]]
    assert str(brought.specifier) == "<3,>=2.0"
    has_framework = bool(facts["optional-dependencies"]["framework"])
    assert brought.extras == ({"framework"} if has_framework else set())


def test_the_core_has_no_extra_that_brings_nothing(root, plugin_folders):
    extras = project(root / "core")["optional-dependencies"]
    names = {canonicalize_name(folder.name) for folder in plugin_folders}
    assert set(extras) == names | set(FURTHER_NAMES) | {"testing"}
    for name, meant in FURTHER_NAMES.items():
        assert extras[name] == [f"agentlightning[{meant}]"]


def test_the_developers_requirements_name_every_package_core_first(root, plugin_folders):
    text = (root / "requirements-dev.txt").read_text()
    lines = [line.removeprefix("-e ./") for line in text.splitlines() if line.startswith("-e ")]
    assert lines[0] == "core[testing]"
    assert sorted(lines[1:]) == sorted(folder.relative_to(root).as_posix() for folder in plugin_folders)


def test_the_workspace_and_the_type_checker_know_every_package(root, plugin_folders):
    tools = read(root)["tool"]
    assert "project" not in read(root)
    folders = [root / "core", *plugin_folders]
    members = {path for pattern in tools["uv"]["workspace"]["members"] for path in root.glob(pattern)}
    assert set(folders) <= members
    sources = read(root / "core")["tool"]["uv"]["sources"]
    assert set(sources) == {project(folder)["name"] for folder in plugin_folders}
    assert set(tools["mypy"]["mypy_path"].split(":")) == {
        (folder / "src").relative_to(root).as_posix() for folder in folders
    }


def test_version_licence_and_python_are_those_of_the_house(package):
    facts = project(package)
    assert facts["version"] == "2.0.0"
    assert facts["license"] == "MIT"
    assert facts["requires-python"] == ">=3.11"
    assert facts["description"]
    assert (package / facts["readme"]).read_text().startswith(f"# {facts['name']}\n")


def test_a_plugin_asks_for_this_core_and_leaves_its_framework_to_the_extra(folder):
    facts = project(folder)
    assert CORE_RANGE in facts["dependencies"]
    framework = set(requirements(facts["optional-dependencies"]["framework"]))
    assert not framework & set(requirements(facts["dependencies"]))
    for requirement in requirements(facts["optional-dependencies"]["framework"]).values():
        assert any(bound.operator in {">=", "==", "~="} for bound in requirement.specifier), requirement


def test_what_is_imported_is_asked_for(package):
    facts = project(package)
    extras = facts.get("optional-dependencies", {})
    asked = requirements(
        [*facts["dependencies"], *extras.get("framework", ()), *extras.get("testing", ())]
    )
    own = {path.name for path in (package / "src").iterdir()}
    for path in (package / "src").rglob("*.py"):
        for module, at_top in imports(path):
            name = module.partition(".")[0]
            if name in own | {"agentlightning"} or name in sys.stdlib_module_names:
                continue
            distribution = canonicalize_name(DISTRIBUTIONS.get(name, name))
            if package.name == "core" and distribution in OPTIONAL_OF_CORE:
                assert not at_top, f"{path} imports the optional {module} at its top"
                continue
            assert distribution in asked, (
                f"{path} imports {module}, which {facts['name']} does not ask for"
            )


def test_the_entry_module_is_light_and_holds_only_hooks(folder):
    path = folder / "src" / f"agentlightning_{folder.name}" / "__init__.py"
    assert {name.partition(".")[0] for name, _ in imports(path)} <= {
        "__future__",
        "typing",
        "agentlightning",
    }
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    assert functions
    for function in functions:
        assert [ast.unparse(decorator) for decorator in function.decorator_list] == ["hookimpl"]
    assert len(path.read_text().splitlines()) <= 40


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2].split(","):
            raise ImportError(f"{name} must not be imported")
sys.meta_path.insert(0, Missing())
from agentlightning.plugins import load_plugins
loaded = load_plugins()
assert not loaded.failures, loaded.failures
for entry in loaded.algorithms.entries(inactive=True):
    if entry.distribution == sys.argv[1] and entry.alias_of is None:
        print(entry.name, loaded.algorithms.config_type(entry.name).__name__)
"""


def test_names_are_known_and_configurations_checked_without_the_framework(folder):
    facts = project(folder)
    names = [
        name.replace("-", "_") for name in requirements(facts["optional-dependencies"]["framework"])
    ]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, facts["name"], ",".join(["torch", *names])],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if folder.parent.name == "algorithms":
        assert done.stdout.startswith(f"{folder.name} ")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds the wheel of a package, as pip would."""

    def build(package):
        target = tmp_path_factory.mktemp(package.name)
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
        subprocess.run(command, cwd=package, check=True, capture_output=True, timeout=120)
        return zipfile.ZipFile(next(target.glob("*.whl")))

    return build


def test_the_wheel_holds_the_package_its_types_and_nothing_else(package, built):
    (source,) = (package / "src").iterdir()
    with built(package) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = email.message_from_bytes(
            wheel.read(next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")))
        )
    files = {
        path.relative_to(package / "src").as_posix()
        for path in source.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert names == files
    assert f"{source.name}/py.typed" in names
    assert (metadata["Version"], metadata["License-Expression"]) == ("2.0.0", "MIT")


WRITTEN = {".cfg", ".in", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
NOT_OURS = {".git", ".nox", ".venv", "build", "dist", "runs"}
FORBIDDEN = re.compile(r"pypi\.org|files\.pythonhosted|download\.pytorch|/(?:home|root|work|opt)/[a-z]")


def written(root):
    """The text files of the repository."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in NOT_OURS]
        yield from (Path(folder) / name for name in names if Path(name).suffix in WRITTEN)


def test_no_file_names_a_package_registry_or_a_place_on_somebodys_disk(root):
    guilty = [
        path.relative_to(root).as_posix()
        for path in written(root)
        if FORBIDDEN.search(path.read_text(encoding="utf-8"))
    ]
    assert guilty == []
