"""What the source must never do with data of others, read from the source itself."""

import ast
import re
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDERS = ("calc", "presets", "probes", "pages", "commands")
SOURCES = [
    *(file for name in FOLDERS for file in (ROOT / name).rglob("*.py")),
    ROOT / "app.py",
    ROOT / "cli.py",
]
CODE_FROM_DATA = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "joblib"}
RUNS_TEXT = {"eval", "exec", "compile", "__import__", "torch.load", "os.system", "os.popen"}
SHOWS_HTML = {"st.html", "components.html", "st.components.v1.html"}


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}


@pytest.fixture(scope="module")
def trees():
    assert len(SOURCES) > 100
    return {file.relative_to(ROOT): ast.parse(file.read_text(encoding="utf-8")) for file in SOURCES}


def test_nothing_loads_code_from_data(trees):
    for file, tree in trees.items():
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not CODE_FROM_DATA & {name.split(".")[0] for name in names}, file
        for name, keywords in calls(tree):
            assert name not in RUNS_TEXT, file
            assert keywords.get("trust_remote_code", "False") == "False", file


def test_no_shell_and_no_html_of_others(trees):
    for file, tree in trees.items():
        for name, keywords in calls(tree):
            assert keywords.get("shell", "False") == "False", file
            assert keywords.get("unsafe_allow_html", "False") == "False", file
            assert name not in SHOWS_HTML, file


SPEAKS_MARKDOWN = {
    "markdown",
    "caption",
    "info",
    "warning",
    "error",
    "success",
    "badge",
    "header",
    "title",
    "write",
}
OF_OTHERS = {"name", "id", "model", "message", "text", "note", "notes", "reason"}
"""Fields that may hold what somebody typed, uploaded or published."""


def test_names_and_messages_are_shown_through_plain_text(trees):
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            library, _, spoken = ast.unparse(node.func).partition(".")
            if library == "st" and spoken in SPEAKS_MARKDOWN:
                raw = {field.attr for field in _unescaped(node.args[0])} & OF_OTHERS
                assert not raw, f"{file}:{node.lineno} shows {raw} as Markdown"


def _unescaped(node):
    """Fields in an expression that go through none of the functions that make text literal or numbers of it."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("plain_text", "fmt.", "len")):
        return
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        yield from _unescaped(node.elt)
        return
    if isinstance(node, ast.Attribute):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _unescaped(child)


def test_the_app_is_protected_by_its_own_settings():
    settings = tomllib.loads((ROOT / ".streamlit/config.toml").read_text(encoding="utf-8"))
    server = settings["server"]
    assert server["address"] == "127.0.0.1"
    assert server["enableCORS"] is server["enableXsrfProtection"] is True
    assert server["allowedHosts"]
    assert settings["browser"]["gatherUsageStats"] is False
    assert settings["client"]["showErrorDetails"] == "type"  # "full" would show a traceback to visitors


def test_every_dependency_is_pinned():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in (line.split("#")[0].strip() for line in lines) if line]
    assert all("==" in pin for pin in pins)
    pinned = {pin.split("==")[0].lower().replace("_", "-") for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for dependency in project["dependencies"]:
        assert re.split(r"[\[>=]", dependency)[0].strip().lower().replace("_", "-") in pinned


def test_whatever_the_product_imports_is_pinned():
    """Torch alone is not: which build of it fits depends on the machine, and the app never imports it."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0].strip().lower().replace("_", "-") for line in lines if "==" in line}
    own = {*FOLDERS, "cli", "app", "bench", "tests"}
    names = set()
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    providers = packages_distributions()
    foreign = names - own - set(sys.stdlib_module_names) - {"torch"}
    assert len(foreign) > 8
    for name in foreign:
        offered = {provider.lower().replace("_", "-") for provider in providers.get(name, [name])}
        assert offered & pinned, name


def test_whatever_comes_along_is_pinned_too_at_the_version_that_is_tested():
    """Everything that the app, its tests and its linters bring with them, followed through the installed packages."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {canonicalize_name(line.split("==")[0]): line.split("==")[1].strip() for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    waiting = [Requirement(text) for text in [*project["dependencies"], *extras["test"], *extras["lint"]]]
    seen = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if (name, *wanted.extras) in seen:
            continue
        seen.add((name, *wanted.extras))
        found = distribution(name)
        assert pins.get(name) == found.version, name
        for text in found.requires or ():
            needed = Requirement(text)
            if needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)
            ):
                waiting.append(needed)
    assert len(seen) > 90
