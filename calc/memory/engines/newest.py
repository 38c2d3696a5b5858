"""The newest release of each engine whose memory rules were read or seen in logs, and what is said of a later one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from calc.engine import Engine
from calc.memory.engines.settings import EngineSettings
from calc.memory.engines.sglang_defaults import LATEST_SGLANG, sglang_version
from calc.memory.engines.versions import LATEST, Release, release

LATEST_TENSORRT_LLM: Final[Release] = (1, 3, 0)
_TENSORRT_LLM_VERSION = re.compile(r"(?:^|[^\d.])v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")


def _tensorrt_llm_version(text: str) -> Release:
    found = _TENSORRT_LLM_VERSION.search(text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else LATEST_TENSORRT_LLM


NEWEST: Final[Mapping[Engine, tuple[Release, Callable[[str], Release]]]] = MappingProxyType(
    {
        Engine.VLLM: (LATEST, release),
        Engine.SGLANG: (LATEST_SGLANG, sglang_version),
        Engine.TENSORRT_LLM: (LATEST_TENSORRT_LLM, _tensorrt_llm_version),
    }
)


def later_than_known(settings: EngineSettings) -> tuple[str, ...]:
    """A remark where the stated version is later than every release whose rules are known; else nothing.

    llama.cpp and Ollama are not judged: their builds are numbered without a meaning for memory.
    """
    if settings.version is None or settings.engine not in NEWEST:
        return ()
    newest, read = NEWEST[settings.engine]
    if read(settings.version)[:2] <= newest[:2]:
        return ()
    known = ".".join(map(str, newest[:2]))
    return (
        (
            f"{settings.engine} {settings.version} is later than {known}, the newest release whose rules are known: "
            f"the rules of {known} are taken."
        ),
    )
