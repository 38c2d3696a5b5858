"""Machine code on disk, where a full, read-only or damaged disk costs compiling anew and nothing more. Imports numba.

numba's own cache raises what the disk raises, and reads only folders that it could also write.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from numba.core import caching

DAMAGED: Final = (
    EOFError,
    caching.pickle.UnpicklingError,  # type: ignore[attr-defined]
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ImportError,
    MemoryError,
    RuntimeError,
)
"""What reading a damaged file raises, by where it is damaged."""


class _Filled:
    """A folder that was filled before and takes nothing now, as in a container with a read-only file system."""

    def ensure_cache_path(self: Any) -> None:
        if not any(Path(self.get_cache_path()).glob("*.nbi")):
            raise FileNotFoundError(self.get_cache_path())


class _Folders(caching.CompileResultCacheImpl):
    """numba's places in their order, those that can be written first."""

    _locator_classes: list[Any] = [  # noqa: RUF012 - numba's form
        *caching.CompileResultCacheImpl._locator_classes,  # noqa: SLF001 - the only way to add a place
        *(
            type(f"Filled{place.__name__}", (_Filled, place), {})
            for place in caching.CompileResultCacheImpl._locator_classes  # noqa: SLF001 - the only way to add a place
        ),
    ]


class _KeptCode(caching.FunctionCache):
    _impl_class = _Folders

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except OSError:
            return None
        except DAMAGED:
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def keep(loop: Any, kernel: Callable[..., Any]) -> None:
    """Let a compiled loop be read from disk and kept there; where no folder can be written or read it is not."""
    with suppress(RuntimeError):
        loop._cache = _KeptCode(kernel)  # type: ignore[no-untyped-call]  # noqa: SLF001 - as numba's own switch does
