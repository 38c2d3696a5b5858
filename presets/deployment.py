"""Who can reach the running app: only the person at this machine, or anybody. The second kind is told less and may do less.

A shared app reads no files of its machine, uses no token of its machine, measures nothing, sends load tests only where its
operator allows, and stores or deletes nothing for a visitor. docs/security.md lists the threats behind each.
"""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Final

SHARED_VARIABLE: Final = "RIDGEBEAM_SHARED"
PATHS_VARIABLE: Final = "RIDGEBEAM_PATHS"
PROBES_VARIABLE: Final = "RIDGEBEAM_ALLOW_PROBES"
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_YES: Final = ("1", "on", "yes", "true")
_NO: Final = ("0", "off", "no", "false")


class Deployment(StrEnum):
    """Who can reach this process: `local`, only the person at this machine; `shared`, anybody."""

    LOCAL = "local"
    SHARED = "shared"


def deployment() -> Deployment:
    """What RIDGEBEAM_SHARED says; local where it says nothing (the command line, an app on a loopback address)."""
    return Deployment.SHARED if _switch(SHARED_VARIABLE, default=False) else Deployment.LOCAL


def is_shared() -> bool:
    """Whether anybody may be asking."""
    return deployment() is Deployment.SHARED


def declare_address(address: str | None) -> None:
    """Called once as the app starts: an address beyond loopback makes it shared, unless its operator says otherwise.

    The variable is set for this process and for the workers that it starts. Behind a proxy on the same machine the
    address says nothing: there the operator sets RIDGEBEAM_SHARED=1.
    """
    if address not in LOOPBACK:
        os.environ.setdefault(SHARED_VARIABLE, "1")


def may_read_paths() -> bool:
    """Whether a model may be named by a path: on a local app, or where RIDGEBEAM_PATHS=yes allows it on a shared one."""
    return _switch(PATHS_VARIABLE, default=not is_shared())


def may_probe() -> bool:
    """Whether a visitor may measure this machine, and keep or forget runs on it."""
    return _switch(PROBES_VARIABLE, default=not is_shared())


def _switch(variable: str, *, default: bool) -> bool:
    """A variable that says yes or no; anything else counts as not set, so that a typing error opens nothing."""
    said = os.environ.get(variable, "").strip().lower()
    return said in _YES if said in _YES + _NO else default
