"""Our launch commands through the engines' own argument parsers, where the packages are installed (no GPU is needed).

Install by hand, without their dependencies' GPU parts: `pip install --no-deps vllm==0.33.0 sglang==0.5.23`, then what
importing their parsers asks for.
"""

import argparse
import importlib
import importlib.util
import typing

import pytest
from test_launch_flags import commands_of

from calc.engine import Engine
from calc.memory.launch_table import SWITCH, TABLES

pytestmark = pytest.mark.peers


def vllm_parser():
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed")
    platforms = importlib.import_module("vllm.platforms")
    platforms._current_platform = importlib.import_module("vllm.platforms.cpu").CpuPlatform()
    make = importlib.import_module("vllm.entrypoints.common.cli_args").make_arg_parser
    return make(importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser())


def sglang_parser():
    if importlib.util.find_spec("sglang") is None:
        pytest.skip("sglang is not installed")
    parser = argparse.ArgumentParser()
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return parser


@pytest.mark.parametrize(
    ("engine", "parser_of"), [(Engine.VLLM, vllm_parser), (Engine.SGLANG, sglang_parser)]
)
def test_the_engine_parses_every_command(engine, parser_of):
    parser = parser_of()
    known = {option: action for action in parser._actions for option in action.option_strings}
    for words in commands_of(engine):
        parser.parse_args(list(words[len(TABLES[engine].start) :]))  # exits on what it does not take
    for name, kind in TABLES[engine].flags.items():
        action = known.get(name) or known[name.replace("--no-", "--")]
        assert (action.nargs == 0) == (kind == SWITCH), name
        if isinstance(kind, tuple) and action.choices is not None:
            assert set(kind) <= set(action.choices), name
    if engine is Engine.VLLM:  # its cache formats are checked behind the parser
        known_caches = typing.get_args(importlib.import_module("vllm.config.cache").CacheDType)
        assert set(TABLES[engine].flags["--kv-cache-dtype"]) <= set(known_caches)
