"""What the tests of the whole repository share."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("adapters", "algorithms", "engines", "store_backends")
PLUGINS = sorted(path.parent for kind in KINDS for path in ROOT.glob(f"{kind}/*/pyproject.toml"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def plugin_folders() -> list[Path]:
    """The folder of each plug-in in this repository."""
    return PLUGINS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``folder`` runs for each plug-in, one that takes ``package`` also for the core."""
    if "folder" in metafunc.fixturenames:
        metafunc.parametrize("folder", PLUGINS, ids=[folder.name for folder in PLUGINS])
    if "package" in metafunc.fixturenames:
        packages = [ROOT / "core", *PLUGINS]
        metafunc.parametrize("package", packages, ids=[package.name for package in packages])


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., Path]:
    """Makes a wheel of a few modules and installs it into a folder, as an installer does."""
    target = tmp_path / "site"

    def make(
        distribution: str,
        modules: dict[str, str],
        *,
        points: dict[str, str] | None = None,
        requires: tuple[str, ...] = (),
        version: str = "1.0",
    ) -> Path:
        wheel = tmp_path / f"{distribution.replace('-', '_')}-{version}-py3-none-any.whl"
        write_wheel(wheel, distribution, version, modules, points or {}, requires)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)
        return target

    return make


def write_wheel(
    wheel: Path,
    distribution: str,
    version: str,
    modules: dict[str, str],
    points: dict[str, str],
    requires: tuple[str, ...],
) -> None:
    info = f"{distribution.replace('-', '_')}-{version}.dist-info"
    headers = ["Metadata-Version: 2.1", f"Name: {distribution}", f"Version: {version}"]
    if any("framework" in line for line in requires):
        headers.append("Provides-Extra: framework")
    lines = [*headers, *(f"Requires-Dist: {line}" for line in requires), ""]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{info}/METADATA", "\n".join(lines))
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        listed = "\n".join(f"{name} = {module}" for name, module in points.items())
        archive.writestr(f"{info}/entry_points.txt", f"[agentlightning]\n{listed}\n")
        archive.writestr(f"{info}/RECORD", "")
        for module, source in modules.items():
            archive.writestr(f"{module}.py", source)
