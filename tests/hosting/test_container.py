"""The image file says what the documents promise, and copies what exists."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from presets import deployment

ROOT = Path(__file__).parents[2]
LINES = [
    line.strip()
    for line in (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    if line.strip() and not line.startswith("#")
]


def words(instruction):
    return [line.split(maxsplit=1)[1] for line in LINES if line.split()[0] == instruction]


@pytest.fixture
def environment():
    return dict(pair.split("=", 1) for pair in words("ENV")[0].split())


def test_it_is_slim_and_of_the_python_that_the_tests_and_the_pins_are_of():
    (image,) = words("FROM")
    typed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert re.fullmatch(rf"python:{typed['python_version']}-slim-\w+", image)


def test_what_runs_is_not_root_and_owns_nothing():
    users = words("USER")
    assert users == ["ridgebeam"]
    at = LINES.index("USER ridgebeam")
    assert at < next(i for i, line in enumerate(LINES) if line.startswith("CMD"))
    written = [i for i, line in enumerate(LINES) if line.startswith(("COPY", "RUN", "ADD"))]
    assert max(written) < at  # the code and what is compiled from it are root's
    assert not any("--chown" in line for line in LINES)


def test_the_simulator_is_compiled_into_the_image_for_any_processor(environment):
    assert environment["NUMBA_CPU_NAME"] == "generic"
    compiled = next(i for i, line in enumerate(LINES) if "calc.simulation.warm" in line)
    assert LINES.index("COPY . .") < compiled


def test_it_asks_no_host_for_its_own_address(environment):
    assert environment["STREAMLIT_BROWSER_SERVER_ADDRESS"]


def test_every_copied_file_exists():
    for line in words("COPY"):
        *files, _ = [word for word in line.split() if not word.startswith("--")]
        for file in files:
            assert (ROOT / file).exists(), file


def test_its_health_check_asks_the_port_that_is_served(environment):
    check = json.loads(words("HEALTHCHECK")[0].split("CMD", 1)[1])
    assert f"127.0.0.1:{environment['STREAMLIT_SERVER_PORT']}/_stcore/health" in check[-1]
    assert words("EXPOSE") == [environment["STREAMLIT_SERVER_PORT"]]
    compile(check[-1], "health check", "exec")


def test_it_counts_as_shared(environment, monkeypatch):
    for variable in ("RIDGEBEAM_PATHS", "RIDGEBEAM_ALLOW_PROBES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(deployment.SHARED_VARIABLE, environment[deployment.SHARED_VARIABLE])
    assert deployment.is_shared()
    assert not deployment.may_probe()
    assert not deployment.may_read_paths()


def test_every_variable_of_the_document_is_known_to_the_code():
    document = (ROOT / "docs/hosting.md").read_text(encoding="utf-8")
    sources = "".join(
        file.read_text(encoding="utf-8")
        for name in ("presets", "probes")
        for file in (ROOT / name).rglob("*.py")
    )
    named = set(re.findall(r"RIDGEBEAM_\w+", document))
    assert len(named) >= 5
    for variable in named:
        assert variable in sources, variable


def test_nothing_secret_or_heavy_is_sent_to_the_build():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {".git", ".venv", "tests"} <= set(ignored)
