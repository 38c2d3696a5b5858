"""Machine code from the kernels, when it is first needed: numba is imported here and nowhere else.

The kernels are plain functions; `compiled` makes a twin of one in which every kernel that it calls is compiled too.
The twins release the interpreter lock and are cached on disk under a name that holds the digest of all kernel
sources, so that a change anywhere in them is a new entry.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import FunctionType
from typing import Any

KERNELS = "calc.simulation.kernels."


@cache
def _digest() -> str:
    digest = blake2b(digest_size=6)
    for source in sorted((Path(__file__).parent / "kernels").glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


@cache
def compiled(kernel: FunctionType, *, inner: bool = False) -> Callable[..., Any]:
    """The compiled twin of a kernel. The first call compiles, or loads from the cache.

    `inner` ones are called by other kernels only and need no way in from Python.
    """
    import numba

    from calc.simulation.kept_code import keep

    scope = dict(kernel.__globals__)
    for name in kernel.__code__.co_names:
        called = scope.get(name)
        if isinstance(called, FunctionType) and called.__module__.startswith(KERNELS):
            scope[name] = compiled(called, inner=True)
    twin = FunctionType(kernel.__code__, scope, kernel.__name__, kernel.__defaults__, None)
    twin.__qualname__ = f"{kernel.__name__}_{_digest()}"
    twin.__module__ = kernel.__module__
    options: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}
    if inner:
        options |= {"no_cpython_wrapper": True, "forceinline": getattr(kernel, "inlined", False)}
    else:
        options["nogil"] = True
    loop: Callable[..., Any] = numba.njit(**options)(twin)
    keep(loop, twin)
    return _widened(loop) if inner else loop


def _widened(kernel: Any) -> Any:
    """The kernel with its integers taken as 64 bit and its literals as values, whoever calls it.

    Else it is compiled once for each mix of field widths and constants among its callers: half as many again.
    """
    from numba import types

    of_call = kernel.get_call_template
    value_of: Any = types.unliteral

    def wide(argument: Any) -> Any:
        plain = value_of(argument)
        return types.int64 if isinstance(plain, types.Integer) else plain

    def with_wide(arguments: tuple[Any, ...], by_name: dict[str, Any]) -> Any:
        return of_call(
            tuple(wide(one) for one in arguments), {name: wide(one) for name, one in by_name.items()}
        )

    kernel.get_call_template = with_wide
    return kernel
