"""Everything that can go wrong with what a person gave us, as one tree.

    RidgebeamError                 exit code, next step
    ├── InputError                 a value that cannot be used: field, what was found, what is allowed
    │   └── UnsupportedArchitecture   a model whose structure is not understood; never guessed
    ├── MissingSpec                a datasheet number that the question needs and nobody published
    ├── SourceError                a model or price source that did not deliver (offline, gated, not found, ...)
    └── ProbeError                 a measurement that could not be made

An infeasible plan is not an error: it is a `calc.verdict.Verdict`. Anything outside this tree is a bug and shows as one.
"""

from __future__ import annotations

from enum import StrEnum


class RidgebeamError(Exception):
    """Base of all errors that a person can act on. `next_step` says how; `exit_code` is the CLI's."""

    exit_code = 2

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message} {self.next_step}".strip()


def shown(value: object, limit: int = 80) -> str:
    """`value` as it may stand in a message: quoted, on one line, cut at `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


class InputError(RidgebeamError, ValueError):
    """A bad value: which field, what was found, what would be accepted."""

    def __init__(self, field: str, got: object, allowed: str, *, next_step: str = "") -> None:
        super().__init__(f"{field}: got {shown(got)}, but {allowed}.", next_step=next_step)
        self.field = field
        self.got = got
        self.allowed = allowed

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_input_error, (type(self), self.field, self.got, self.allowed, self.next_step))


def _rebuild_input_error(
    kind: type[InputError], field: str, got: object, allowed: str, next_step: str
) -> InputError:
    return kind(field, got, allowed, next_step=next_step)


class UnsupportedArchitecture(InputError):  # noqa: N818 - reads as what it is: a refusal by name
    """A model_type, or a field of a known one, whose effect on the structure is not understood."""


class MissingSpec(RidgebeamError):  # noqa: N818 - the same
    """A number of an accelerator that the question needs and that is not published."""


class SourceFault(StrEnum):
    """Why a source did not deliver."""

    OFFLINE = "offline"
    TIMEOUT = "timeout"
    NOT_FOUND = "not-found"
    GATED = "gated"
    CREDENTIALS = "credentials-refused"
    RATE_LIMITED = "rate-limited"
    NOT_JSON = "not-json"
    TOO_LARGE = "too-large"
    NO_CONFIG = "no-config"
    SERVER = "server"
    REDIRECTS = "redirects"
    UNREADABLE = "unreadable"
    NOT_STORED = "not-stored"


class SourceError(RidgebeamError):
    """A model or price source did not deliver; `fault` says in which way."""

    exit_code = 4

    def __init__(self, fault: SourceFault, message: str, *, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.fault = fault

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_source_error, (self.fault, self.message, self.next_step))


def _rebuild_source_error(fault: SourceFault, message: str, next_step: str) -> SourceError:
    return SourceError(fault, message, next_step=next_step)


class ProbeError(RidgebeamError):
    """A measurement could not be made on this machine."""

    exit_code = 4
