"""Shared fixtures: the reference data by path, and the rule that continuous integration skips nothing by accident."""

import os
import tomllib
from pathlib import Path

import pytest

import cli
from calc.json_text import parse_json

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = Path(os.environ.get("RIDGEBEAM_REFERENCE", ROOT / "../shared/reference")).resolve()
CASES = Path(os.environ.get("RIDGEBEAM_CASES", ROOT / "../shared/cases")).resolve()
MAY_SKIP = {"cuda", "peers"}
ONE_AT_A_TIME = {"e2e", "endpoint", "engine", "hosting", "probes", "resilience", "security"}
"""Folders of tests that measure, serve or take the device's lock: with several processes they share one of these."""

# No test may reach the real hub by accident: tests that talk to a hub start one on loopback.
os.environ.setdefault("HF_ENDPOINT", "http://127.0.0.1:9")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference data; tests that need it are skipped by name where it is absent."""
    if not REFERENCE.is_dir():
        pytest.skip(f"reference data not found at {REFERENCE} (set RIDGEBEAM_REFERENCE)")
    return REFERENCE


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of worked cases; tests that need it are skipped by name where it is absent."""
    if not CASES.is_dir():
        pytest.skip(f"worked cases not found at {CASES} (set RIDGEBEAM_CASES)")
    return CASES


@pytest.fixture(scope="session")
def worked(cases: Path) -> dict[str, dict]:
    """The textbook's worked cases by id: what is given (`in`), what is wanted (`want`), and how nearly."""
    return {case["id"]: case for case in tomllib.loads((cases / "textbook.toml").read_text())["case"]}


def pytest_collection_modifyitems(config, items):
    """Cut the tests for several processes: those of one file together, those that need the machine in one, and first."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    tests = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(tests).parts[0]
        group = "machine" if folder in ONE_AT_A_TIME else str(item.path.relative_to(tests))
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: item.path.relative_to(tests).parts[0] not in ONE_AT_A_TIME)


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    for report in _forbidden_skips(terminalreporter):
        terminalreporter.write_line(f"skipped, but only cuda and peers may be: {report.nodeid}", red=True)


def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and _forbidden_skips(reporter) and session.exitstatus == 0:
        session.exitstatus = 1


def _forbidden_skips(reporter):
    if not os.environ.get("RIDGEBEAM_FAIL_ON_SKIP"):
        return []
    return [r for r in reporter.stats.get("skipped", []) if not MAY_SKIP & set(getattr(r, "keywords", {}))]


@pytest.fixture
def run(capsys):
    """A verb of the command line with --json: its exit code and the one object that it prints."""

    def run_verb(*words):
        code = cli.main([*map(str, words), "--json"])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return code, parse_json(printed.out, finite=True)

    return run_verb
