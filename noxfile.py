"""The sessions of this repository: ``nox`` runs the default ones, ``nox -l`` lists all.

Packages are found by looking, so a new one needs no line here. Each light package is tested in an
environment of its own. What needs torch shares one, since installing torch takes about a minute.
At the very end, one line sums up the tests of all sessions.
"""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import signal
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import nox

# Shells start jobs in the background deaf to Ctrl+C, and so are their children. The tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_external_run = True

ROOT = Path(__file__).parent
KINDS = ("adapters", "algorithms", "engines", "store_backends")
STRANGER = ROOT / "examples" / "third_party_plugin"
TORCH = "torch==2.13.0"
BUILT = ROOT / ".nox" / "wheels"

# The core needs its default store, so the two are always installed together, core first.
CORE = ("-e", "./core[testing]", "-e", "./store_backends/sqlite")
# What the core's own tests exercise for real and the core does not need, other tracers among it.
TRACERS = (
    "openinference-instrumentation-openai",
    "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry-instrumentation-openai",
)
# Each line of the SDKs that the seam knows, as they are found together.
SDK_LINES = {
    "openai1": ("openai>=1.109,<2", "anthropic>=0.125,<1"),
    "openai2": ("openai>=2.40,<3", "anthropic>=1.17,<2"),
    "openai3": ("openai>=3.3,<4", "anthropic>=2.14,<3"),
}
NEWEST_SDKS = SDK_LINES["openai3"]
CORE_TESTS = (*NEWEST_SDKS, "jinja2", "pyarrow", "schemathesis>=4,<5", *TRACERS)
RUFF = "ruff>=0.17,<0.18"
IMPORT_LINTER = "import-linter>=2.5,<3"
# What recording is compared with.
INSTRUMENTORS = (
    "opentelemetry-sdk>=1.45,<2",
    "openinference-instrumentation-openai>=0.1.66,<0.2",
    "opentelemetry-instrumentation-openai>=0.62,<1",
)
TYPING = ("mypy>=1.15", "types-PyYAML", "types-protobuf", "types-psutil")

ready: set[str] = set()
"""What this run has set up already and later sessions share."""


def extras(package: str) -> dict[str, list[str]]:
    """The extras of a package: ``framework``, and ``testing`` where its tests need more."""
    project = tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]
    return project.get("optional-dependencies", {})


def needs_torch(package: str) -> bool:
    return any(requirement.startswith("torch") for requirement in extras(package)["framework"])


def editable(package: str) -> tuple[str, str]:
    """The arguments that install a package with its framework and what its tests need."""
    return "-e", f"./{package}[{','.join(extras(package))}]"


PACKAGES = sorted(
    (p.parent.relative_to(ROOT).as_posix() for k in KINDS for p in ROOT.glob(f"{k}/*/pyproject.toml")),
    key=lambda package: (needs_torch(package), package),
)
NAMES = [Path(package).name for package in PACKAGES]
EVERYTHING = [argument for package in PACKAGES for argument in editable(package)]
STORES = [
    argument
    for package in PACKAGES
    if package.startswith("store_backends/")
    for argument in editable(package)
]
SOURCES = [f"{package}/src" for package in ("core", *PACKAGES)]

# --- counting ---------------------------------------------------------------------------------

tally: Counter[str] = Counter()


@atexit.register
def print_sum() -> None:
    if tally:
        print(
            "{passed} passed, {failed} failed, {skipped} skipped".format_map(Counter(tally)), flush=True
        )


def counted(**options):
    """A session that counts: its tests where pytest ran, else itself as one."""

    def decorate(function):
        @functools.wraps(function)
        def run(session, *args, **kwargs):
            before, failed = tally.total(), tally["failed"]
            try:
                function(session, *args, **kwargs)
            except BaseException:
                tally["failed"] = max(tally["failed"], failed + 1)
                raise
            tally["passed"] += tally.total() == before

        return nox.session(**options)(run)

    return decorate


def pytest(session: nox.Session, *paths: str, python: str = "python", external: bool = False) -> None:
    """Run tests and count them, also when some fail."""
    report = Path(tempfile.mkdtemp()) / "junit.xml"
    try:
        session.run(
            *(python, "-m", "pytest", "-q", f"--junitxml={report}", *paths, *session.posargs),
            env={"OMP_NUM_THREADS": "1"},
            external=external,
        )
    finally:
        count(report)
        shutil.rmtree(report.parent)


def count(report: Path) -> None:
    if not report.exists():
        return
    for suite in ET.parse(report).getroot().iter("testsuite"):
        number = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
        bad = number["failures"] + number["errors"]
        tally["failed"] += bad
        tally["skipped"] += number["skipped"]
        tally["passed"] += number["tests"] - bad - number["skipped"]


# --- environments -----------------------------------------------------------------------------


class Environment:
    """A virtual environment that several sessions share; pip, since uv takes torch's GPU build."""

    def __init__(self, session: nox.Session, name: str) -> None:
        self.session = session
        self.path = ROOT / ".nox" / name
        self.bin = self.path / ("Scripts" if sys.platform == "win32" else "bin")
        self.python = str(self.bin / "python")

    def create(self, *, clear: bool = False) -> None:
        options = ("--clear",) if clear else ()
        if clear or not self.bin.exists():
            self.session.run(sys.executable, "-m", "venv", *options, str(self.path), external=True)

    def install(self, *arguments: str) -> None:
        self.run("-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments)

    def run(self, *arguments: str, **options) -> str | None:
        return self.session.run(self.python, *arguments, external=True, **options)

    def plugins(self) -> dict[str, dict]:
        """What ``agl plugins`` lists there, by name."""
        command = str(self.bin / "agl")
        text = self.session.run(command, "plugins", "--json", external=True, silent=True)
        listed = {plugin["name"]: plugin for plugin in json.loads(text)["plugins"]}
        for name, plugin in listed.items():
            self.session.log(f"{name}: {plugin['state']} {plugin['reason'] or ''}")
        return listed


def training(session: nox.Session) -> Environment:
    """The environment with torch, every package and every framework; complete after the first call."""
    environment = Environment(session, "training")
    if "training" not in ready:
        session.log("setting up the environment with torch: this takes a minute or two")
        environment.create()
        # With the build backend there already, the packages are not built in an environment each.
        environment.install(TORCH, "hatchling", "editables")
        environment.install("--no-build-isolation", *CORE, *EVERYTHING, *CORE_TESTS, *TYPING)
        ready.add("training")
    return environment


def wheels_of_everything(session: nox.Session) -> str:
    """The folder with a wheel of each package and of the stranger's."""
    if "wheels" not in ready:
        session.log("building the wheels")
        shutil.rmtree(BUILT, ignore_errors=True)
        builder = Environment(session, "build")
        builder.create()
        folders = [f"./{package}" for package in ("core", *PACKAGES, STRANGER.relative_to(ROOT))]
        builder.run("-m", "pip", "wheel", "-q", "--no-deps", "-w", str(BUILT), *folders)
        ready.add("wheels")
    return str(BUILT)


# --- sessions, fast ones first ----------------------------------------------------------------


@counted()
def lint(session: nox.Session) -> None:
    """Style and format."""
    session.install(RUFF)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@counted()
def layers(session: nox.Session) -> None:
    """Which room of the core may import which."""
    session.install(IMPORT_LINTER)
    session.run("lint-imports", env={"PYTHONPATH": "core/src"})


@counted()
def core(session: nox.Session) -> None:
    """The core, with its default store and no framework."""
    session.install(*CORE, *CORE_TESTS)
    pytest(session, "core/tests")


@counted(default=False)
@nox.parametrize("line", list(SDK_LINES), ids=list(SDK_LINES))
def seam(session: nox.Session, line: str) -> None:
    """The seam with one line of the SDKs, in an environment of its own; core has the newest."""
    session.install(*CORE, *SDK_LINES[line])
    recording = ROOT / "core" / "tests" / "recording"
    patterns = ("test_seam*.py", "test_selftest.py", "test_stand_in.py", "test_threads.py")
    pytest(session, *(str(path) for pattern in patterns for path in sorted(recording.glob(pattern))))


@counted()
def whole(session: nox.Session) -> None:
    """The repository as a whole: packaging, isolation, layers, documents, cost of importing."""
    # Wheels are built in its tests, and no framework is there.
    session.install("hatchling", "-r", "requirements-dev.txt")
    elsewhere = ("end_to_end", "faults", "clients")
    pytest(session, "tests", *(f"--ignore=tests/{folder}" for folder in elsewhere))


@counted()
def clients(session: nox.Session) -> None:
    """Agents in JavaScript and by curl, on the official packages of OpenAI and Anthropic, unpatched."""
    session.install(*CORE)
    if shutil.which("npm"):  # without it, or without its registry, the tests say why they are skipped
        quiet = ("--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
        install = ("npm", "install", "--prefix", "tests/clients", *quiet)
        session.run(*install, external=True, success_codes=range(256))
    pytest(session, "tests/clients")


@counted()
@nox.parametrize("package", PACKAGES, ids=NAMES)
def plugin(session: nox.Session, package: str) -> None:
    """One plug-in: alone if it is light, in the shared environment if it needs torch."""
    if needs_torch(package):
        pytest(session, f"{package}/tests", python=training(session).python, external=True)
        return
    session.install(*CORE, *editable(package))
    pytest(session, f"{package}/tests")


@counted()
def faults(session: nox.Session) -> None:
    """Processes killed, clocks that jump, full disks, hostile requests: nothing may be lost."""
    session.install(*CORE, *CORE_TESTS, *STORES)
    pytest(session, "tests/faults")


@counted(venv_backend="none")
def types(session: nox.Session) -> None:
    """Types, strictly, of all packages together."""
    training(session).run("-m", "mypy", *SOURCES)


@counted(venv_backend="none")
def end_to_end(session: nox.Session) -> None:
    """Whole runs: agent, recording, training, resumption."""
    pytest(session, "tests/end_to_end", python=training(session).python, external=True)


@counted(venv_backend="none")
def third_party(session: nox.Session) -> None:
    """A stranger's package, installed from its wheel beside ours, is found and works."""
    stranger = Environment(session, "stranger")
    stranger.create(clear=True)
    project = tomllib.loads((STRANGER / "pyproject.toml").read_text())["project"]
    links = wheels_of_everything(session)
    (wheel,) = BUILT.glob(f"{project['name'].replace('-', '_')}-*.whl")
    stranger.install("--find-links", links, "agentlightning[testing]", str(wheel))
    (name,) = project["entry-points"]["agentlightning"]
    listed = stranger.plugins().get(name, {})
    if listed.get("state") != "active" or listed["distribution"] != project["name"]:
        session.error(f"the stranger's plug-in is listed as {listed}")
    pytest(session, str(STRANGER / "tests"), python=stranger.python, external=True)


@counted(venv_backend="none")
def wheels(session: nox.Session) -> None:
    """What users type works on our wheels: by name with extras, and each plug-in alone."""
    links = ("--find-links", wheels_of_everything(session))
    each_plugin_alone(session, links)
    by_name = Environment(session, "by_name")
    by_name.create(clear=True)
    by_name.install(TORCH)
    by_name.install(*links, "agentlightning[langchain,grpo]")
    shown = by_name.run(
        "-c", "import agentlightning as a; print(a.__version__, a.__file__)", silent=True
    )
    session.log(f"installed by name: {shown}")
    listed = by_name.plugins()
    wanted = {"agentlightning", "sqlite", "langchain", "rl", "transformers"}
    broken = [name for name, facts in listed.items() if facts["state"] not in ("active", "built-in")]
    if set(listed) != wanted or broken or str(by_name.path) not in shown:
        session.error(f"expected {sorted(wanted)}, all active, in {by_name.path}")


def each_plugin_alone(session: nox.Session, links: tuple[str, ...]) -> None:
    alone = Environment(session, "alone")
    alone.create(clear=True)
    for name in NAMES:
        distribution = f"agentlightning-{name.replace('_', '-')}"
        session.log(f"{distribution} alone")
        alone.install(*links, distribution)
        listed = alone.plugins()
        if set(listed) != {"agentlightning", "sqlite", name} or listed[name]["state"] == "failed":
            session.error(f"{distribution} alone lists {sorted(listed)}")
        if name != "sqlite":
            alone.run("-m", "pip", "uninstall", "-q", "-y", distribution)


@counted(venv_backend="none")
def demo(session: nox.Session) -> None:
    """Train a LangChain agent on this machine and see it learn."""
    learn(session, "langchain_tool_agent", *session.posargs)


@counted(venv_backend="none", default=False)
def examples(session: nox.Session) -> None:
    """Every example that learns; what it reached is in runs/<example>/summary.json."""
    for script in sorted(ROOT.glob("examples/*/train.py")):
        learn(session, script.parent.name)


def learn(session: nox.Session, example: str, *arguments: str) -> None:
    run_dir = f"runs/{example}"
    training(session).run(
        *(f"examples/{example}/train.py", "--run-dir", run_dir, *arguments),
        env={"OMP_WAIT_POLICY": "passive"},  # threads that spin take the agents' core from them
    )
    summary = json.loads((ROOT / run_dir / "summary.json").read_text())
    before, after = summary["reward_before"], summary["reward_after"]
    session.log(f"{example}: reward on tasks not trained on {before:.3f} before, {after:.3f} after")
    if after <= before:
        session.error(f"{example} did not learn: {before:.3f} before, {after:.3f} after")


@nox.session(default=False)
def bench_store(session: nox.Session) -> None:
    """Measure every store; standard output has a JSON object a line, and aims go to standard error."""
    session.install(*CORE, *STORES)
    # nox would mix what goes to standard error into the figures.
    session.run("python", "-m", "benchmarks.store", *session.posargs, stderr=sys.stderr)


@nox.session(default=False)
def bench_endpoint(session: nox.Session) -> None:
    """Measure what the endpoint adds to a call; standard output has a JSON object a line."""
    session.install(*CORE)
    session.run("python", "-m", "benchmarks.endpoint", *session.posargs, stderr=sys.stderr)


@nox.session(default=False)
def bench_capture(session: nox.Session) -> None:
    """Measure what recording adds to an LLM call, beside two OpenTelemetry instrumentors."""
    session.install(*CORE, *NEWEST_SDKS, *INSTRUMENTORS)
    # nox would mix what goes to standard error into the figures.
    session.run("python", "-m", "benchmarks.capture", *session.posargs, stderr=sys.stderr)


@nox.session(venv_backend="none", default=False)
def dev(session: nox.Session) -> None:
    """Put everything a developer needs into .venv, but the frameworks."""
    python = str(ROOT / ".venv" / "bin" / "python")
    if not Path(python).exists():
        session.run(sys.executable, "-m", "venv", ".venv", external=True)
    tools = (RUFF, IMPORT_LINTER, *TYPING, *CORE_TESTS)
    install = (python, "-m", "pip", "install", "-r", "requirements-dev.txt", *tools)
    session.run(*install, external=True)
