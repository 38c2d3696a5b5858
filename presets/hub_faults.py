"""What the hub answered, turned into an error with its next step. No message holds a token, a URL or an answer's text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calc.errors import SourceError, SourceFault

PASTE = "Or paste its config.json: that needs no network."

TRANSIENT = frozenset(
    {
        SourceFault.OFFLINE,
        SourceFault.TIMEOUT,
        SourceFault.RATE_LIMITED,
        SourceFault.SERVER,
        SourceFault.REDIRECTS,
        SourceFault.NOT_JSON,
        SourceFault.UNREADABLE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked for, as messages may name it."""

    repo_id: str
    revision: str | None
    what: str  # "config.json", "the list of files"
    hub: str  # host of the endpoint
    with_token: bool

    @property
    def model(self) -> str:
        return self.repo_id if self.revision is None else f"{self.repo_id} at {self.revision}"


def fault(kind: SourceFault, message: str, *steps: str) -> SourceError:
    """A `SourceError` whose next step always ends with the way that needs no network."""
    return SourceError(kind, message, next_step=" ".join((*steps, PASTE)))


def of_status(asked: Asked, status: int, headers: Mapping[str, str]) -> SourceError:
    """The error of an HTTP status; `X-Error-Code` (the hub's own) tells apart what shares a status."""
    code = headers.get("x-error-code", "")
    if code == "GatedRepo":
        return _gated(asked)
    if code == "RevisionNotFound":
        return _no_revision(asked)
    if status == 429:
        return _rate_limited(asked, headers)
    if status == 401 and asked.with_token and code != "RepoNotFound":
        return _credentials(asked)
    known = {401: _not_found, 403: _forbidden, 404: _not_found, 410: _not_found, 451: _taken_down}
    explain = known.get(status)
    return _unexpected(asked, status) if explain is None else explain(asked)


def _no_revision(asked: Asked) -> SourceError:
    return fault(
        SourceFault.NOT_FOUND,
        f"{asked.repo_id} has no revision {asked.revision or 'main'}.",
        "Check the branch, tag or commit on the model's page, or leave the revision out.",
    )


def _taken_down(asked: Asked) -> SourceError:
    return fault(
        SourceFault.NOT_FOUND,
        f"{asked.hub} does not serve {asked.repo_id}: it was taken down for legal reasons (451).",
        "Choose another model.",
    )


def _unexpected(asked: Asked, status: int) -> SourceError:
    return fault(
        SourceFault.SERVER,
        f"{asked.hub} answered {status} when asked for {asked.what} of {asked.model}.",
        "Try again in a minute." if status >= 500 else "Check the id.",
    )


def _gated(asked: Asked) -> SourceError:
    page = f"https://huggingface.co/{asked.repo_id}"
    if asked.with_token:
        return fault(
            SourceFault.GATED,
            f"{asked.repo_id} is gated, and the account of this token has no access to it.",
            f"Accept its licence at {page} with that account (a fine-grained token also needs the right to read gated "
            "repositories), then try again.",
        )
    return fault(
        SourceFault.GATED,
        f"{asked.repo_id} is gated: its files need an accepted licence and a token, and none was given.",
        f"Accept the licence at {page} and set HF_TOKEN.",
    )


def _credentials(asked: Asked) -> SourceError:
    return fault(
        SourceFault.CREDENTIALS,
        f"{asked.hub} does not accept the token (401): it is mistyped, expired or revoked.",
        "Make a new read token and set HF_TOKEN, or unset it: public models need none.",
    )


def _forbidden(asked: Asked) -> SourceError:
    if asked.with_token:
        return fault(
            SourceFault.GATED,
            f"{asked.hub} refuses {asked.repo_id} to this token (403): it lacks the right to read it.",
            "Give the token read access to this repository, or use another one.",
        )
    return fault(
        SourceFault.GATED,
        f"{asked.hub} refuses {asked.repo_id} without a token (403): it is private or disabled, or a firewall stands "
        "between.",
        "Set HF_TOKEN if it is yours.",
    )


def _not_found(asked: Asked) -> SourceError:
    if asked.with_token:
        return fault(
            SourceFault.NOT_FOUND,
            f"{asked.hub} has no model {asked.repo_id} that this token may see.",
            "Check the spelling of owner and name.",
        )
    return fault(
        SourceFault.NOT_FOUND,
        f"{asked.hub} has no public model {asked.repo_id}.",
        "Check the spelling of owner and name; if it is private, set HF_TOKEN.",
    )


def _rate_limited(asked: Asked, headers: Mapping[str, str]) -> SourceError:
    from huggingface_hub.utils import parse_ratelimit_headers

    limit = parse_ratelimit_headers(headers)
    wait = headers.get("retry-after", "").strip()
    if wait.isdecimal() and len(wait) < 7:
        when = f" in {int(wait)} s"
    elif wait and len(wait) < 40 and wait.isascii() and wait.isprintable():
        when = f" after {wait}"
    elif limit is not None and limit.remaining == 0:
        when = f" in {limit.reset_in_seconds} s"
    else:
        when = " in a few minutes"
    more = () if asked.with_token else ("A token (HF_TOKEN) raises the limit.",)
    return fault(
        SourceFault.RATE_LIMITED,
        f"{asked.hub} answers too many requests from here (429).",
        f"Try again{when}.",
        *more,
    )


def offline(asked: Asked) -> SourceError:
    """No connection was made at all."""
    return fault(
        SourceFault.OFFLINE,
        f"{asked.hub} cannot be reached, so {asked.model} could not be read.",
        "Check the network, the proxy and HF_ENDPOINT, or choose a bundled model.",
    )


def offline_by_choice(asked: Asked) -> SourceError:
    """HF_HUB_OFFLINE forbids requests."""
    return fault(
        SourceFault.OFFLINE,
        f"HF_HUB_OFFLINE is set, so {asked.model} was not asked for.",
        "Unset it, or choose a bundled model.",
    )


def timeout(asked: Asked) -> SourceError:
    """The hub did not answer, or not completely, in time."""
    return fault(
        SourceFault.TIMEOUT,
        f"{asked.hub} took too long to send {asked.what} of {asked.model}.",
        "Try again.",
    )


def redirects(asked: Asked, why: str) -> SourceError:
    """A redirect that is not followed, or one too many."""
    return fault(
        SourceFault.REDIRECTS,
        f"{asked.hub} sent the request for {asked.what} of {asked.model} {why}.",
        "Check HF_ENDPOINT and the proxy.",
    )


def too_large(asked: Asked, max_bytes: int) -> SourceError:
    """More than the cap."""
    return fault(
        SourceFault.TOO_LARGE,
        f"{asked.what} of {asked.model} is larger than {max_bytes / (1 << 20):g} MiB and was not read further.",
        "No model needs that much: check the id.",
    )


def cut_short(asked: Asked) -> SourceError:
    """The connection ended before the body did."""
    return fault(
        SourceFault.UNREADABLE,
        f"{asked.hub} broke off while sending {asked.what} of {asked.model}.",
        "Try again.",
    )


def not_json(asked: Asked, *, is_page: bool, why: str = "") -> SourceError:
    """Something else than JSON came."""
    if is_page:
        return fault(
            SourceFault.NOT_JSON,
            f"{asked.hub} answered with a web page instead of {asked.what} of {asked.model}.",
            "A proxy, a login page or a wrong HF_ENDPOINT stands between: check them.",
        )
    return fault(
        SourceFault.NOT_JSON,
        f"{asked.what} of {asked.model} is not valid JSON{why}.",
        "Try again, or another revision.",
    )
