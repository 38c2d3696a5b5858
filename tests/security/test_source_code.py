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
    "markdown", "caption", "info", "warning", "error", "success", "badge", "header", "subheader", "title", "write", "button",
    "toast",
}  # fmt: skip
OUR_WORDS = {
    "_actions.py": {"ready.title"},
    "_endpoint_job.py": {"words"},
    "_endpoint_parts.py": {"title"},
    "_handover.py": {"_name(command)", "_title(command)", "command.role", "name"},
    "_layers.py": {"check.why", "difference"},
    "_memory_parts.py": {"engine_label(pool)", "found.first"},
    "_paging_parts.py": {
        "action.capitalize().replace('tokens', fmt.plural(setting.written_tokens, 'token'))",
        "head",
        "said",
    },
    "_plans.py": {"headline_of(proof)", "notes", "reasons", "shown.state", "spare"},
    "_probe_job.py": {
        "EXPECTED[str(depth or 'quick')]",
        "MARKS[probe.state]",
        "probe.measured",
        "probe.planned",
        "probe.title",
    },
    "_quantisation_parts.py": {"MAX_TENSOR_MB"},
    "_roofline_details.py": {"reached"},
    "_schedule_parts.py": {"_pass_words(one, until_s)", "one.scheduling"},
    "_speculative_parts.py": {"said"},
    "_steps.py": {"line"},
    "_ui.py": {
        "arithmetic",
        "assumptions",
        "corner",
        "line",
        "name",
        "reading",
        "verdict_on(float(guess), answer)",
        "word",
    },
    "_whole_path.py": {"NOTES[table]", "title"},
    "batch_size.py": {"lesson.title", "result.layout.label"},
    "methods.py": {
        "latex_reading(record.example.value, record.result.unit)",
        "line",
        "symbol.latex",
        "symbol.unit",
    },
    "model.py": {"experts_finding(moe)"},
    "paged_kv.py": {"_slots(result, paged)"},
    "queueing.py": {"asked.kind.split(': ')[1].capitalize()"},
    "scheduler.py": {"_assumptions(asked)"},
    "simulate.py": {"doing"},
}
"""What pages show as Markdown without making it literal: words and numbers of ours, by file, as the source spells them."""


def test_whatever_is_shown_as_markdown_is_literal_or_our_own(trees):
    shown = {}
    for file, tree in trees.items():
        for node in ast.walk(tree):
            for text in _markdown_of(node) if file.parts[0] == "pages" else ():
                shown.setdefault(file.name, set()).update(_as_it_is(text))
    assert {file: parts for file, parts in shown.items() if parts} == OUR_WORDS


def _markdown_of(node):
    """The arguments of a call that Streamlit reads as Markdown."""
    if not isinstance(node, ast.Call):
        return
    either = [node.func.body, node.func.orelse] if isinstance(node.func, ast.IfExp) else [node.func]
    receiver, _, name = ast.unparse(either[0]).rpartition(".")
    if receiver and name in SPEAKS_MARKDOWN:
        yield from node.args[:1]
    if receiver and name == "table":
        yield from _cells_of(node.args[0])
    if name == "show_title":
        yield from node.args[1:]  # the title itself is made literal where it is shown
    if name == "progress":
        yield from (keyword.value for keyword in node.keywords if keyword.arg == "text")


def _cells_of(node):
    """The cells of rows that are written in their place; rows that come from elsewhere are no rows of a table."""
    match node:
        case ast.ListComp(elt=row) | ast.List(elts=[row]):
            yield from _cells_of(row)
        case ast.Dict(keys=names, values=cells):
            for name, cell in zip(names, cells, strict=True):
                yield from [name, cell] if name is not None else _cells_of(cell)
        case ast.DictComp(key=name, value=cell):
            yield name
            yield cell
        case _:
            yield node


def _as_it_is(node):
    """The parts of a text that are neither written in its place nor made literal, nor a number by its format."""
    match node:
        case ast.Constant():
            return
        case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value=spec)])) if (
            spec[-1] in ",%efg"
        ):
            return
        case ast.JoinedStr(values=inside) | ast.BoolOp(values=inside):
            pass
        case ast.FormattedValue(value=one) | ast.GeneratorExp(elt=one) | ast.ListComp(elt=one):
            inside = [one]
        case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
            inside = [one, other]
        case ast.Call(func=ast.Attribute(attr="join"), args=[one]):
            inside = [one]
        case ast.Call(func=ast.Name(id="shown_as_it_is"), args=[one]):
            inside = [one]
        case ast.Call(func=function) if ast.unparse(function).startswith(("plain_text", "fmt.", "len")):
            return
        case _:
            yield ast.unparse(node)
            return
    for part in inside:
        yield from _as_it_is(part)


def test_no_call_that_makes_text_literal_can_be_taken_away(trees):
    """Each such call, left out in turn, shows something that is neither literal nor a listed word of ours.

    What a call guards stands where it is shown, so that the rule above sees it; a guard further away guards nothing that
    somebody could not forget.
    """
    tried = 0
    for file, tree in trees.items():
        if file.parts[0] != "pages":
            continue
        texts = [text for node in ast.walk(tree) for text in _markdown_of(node)]
        said = [set(_as_it_is(text)) for text in texts]
        for call in [node for node in ast.walk(tree) if _makes_literal(node)]:
            tried += 1
            function, call.func = call.func, ast.Name(id="shown_as_it_is")
            changed = [
                set(_as_it_is(text)) if any(node is call for node in ast.walk(text)) else parts
                for text, parts in zip(texts, said, strict=True)
            ]
            call.func = function
            assert set().union(*changed) != set().union(*said), f"{file}:{call.lineno}: nobody misses this"
    assert tried > 80


def _makes_literal(node):
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "plain_text"


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
