"""A small model hub on 127.0.0.1 that speaks what the real one speaks, and misbehaves per repository on demand.

Answers as the hub documents: resolve and API paths, X-Error-Code, X-Repo-Commit, range requests, gated and private
repositories by bearer token. `Repo.fault` names a misbehaviour, `Repo.fault_on` the files that it strikes.
"""

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
INFO = "<info>"


@dataclass
class Repo:
    files: dict[str, bytes] = field(default_factory=dict)
    gated: bool = False
    private: bool = False
    tokens: tuple[str, ...] = ()  # those that may read it, where it is gated or private
    revisions: dict[str, dict[str, bytes]] = field(default_factory=dict)
    base_model: object = None
    library: str = "transformers"
    fault: str = ""
    fault_on: tuple[str, ...] = ("config.json",)
    headers: dict[str, str] = field(default_factory=dict)
    location: str = ""
    offers_all_headers: bool = False

    def put(self, name, value):
        self.files[name] = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self


@dataclass
class Request:
    port: int
    path: str
    authorization: str | None
    range: str | None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Clients that give up on purpose leave broken connections; nothing to report."""


class HubServer:
    """`url` is the endpoint; `other_url` is the same server under another origin (another port)."""

    def __enter__(self):
        self.reset()
        self.servers = [_Server(("127.0.0.1", 0), _handler(self)) for _ in range(2)]
        for server in self.servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.release.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def reset(self):
        if hasattr(self, "release"):
            self.release.set()
        self.release = threading.Event()  # set: whoever hangs on purpose stops
        self.repos: dict[str, Repo] = {}
        self.valid_tokens: set[str] = set()
        self.requests: list[Request] = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.servers[0].server_port}"

    @property
    def other_url(self):
        return f"http://127.0.0.1:{self.servers[1].server_port}"

    def add(self, repo_id, **settings):
        self.repos[repo_id] = Repo(**settings)
        return self.repos[repo_id]

    def paths(self):
        return [request.path for request in self.requests]


def _handler(hub):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *args):
            pass

        def do_GET(self):
            hub.requests.append(
                Request(
                    port=self.server.server_port,
                    path=self.path,
                    authorization=self.headers.get("authorization"),
                    range=self.headers.get("range"),
                )
            )
            try:
                self.answer()
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        # ---- the hub's paths -------------------------------------------------------------------------------

        def answer(self):
            path = urlsplit(self.path).path
            if path.startswith(
                "/cdn/"
            ):  # what a signed URL of a storage host serves, without asking who reads
                repo_id, _, name = path.removeprefix("/cdn/").rpartition("/")
                return self.send_file(hub.repos[repo_id].files[name], "")
            if found := re.fullmatch(r"/api/models/(.+)/safetensors-metadata/(.+)", path):
                return self.all_headers(found.group(1))
            if found := re.fullmatch(r"/api/models/(.+?)(?:/revision/(.+))?", path):
                return self.info(found.group(1), unquote(found.group(2) or "main"))
            if found := re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path):
                return self.resolve(found.group(1), unquote(found.group(2)), unquote(found.group(3)))
            return self.refuse(404, "")

        def info(self, repo_id, revision):
            repo = self.permitted(repo_id, metadata=True)
            if repo is None:
                return None
            if repo.fault and INFO in repo.fault_on:
                return self.misbehave(repo, repo_id, INFO, b"{}")
            files = self.files_at(repo, repo_id, revision)
            if files is None:
                return None
            card = {"base_model": repo.base_model} if repo.base_model else None
            return self.send_json(
                {
                    "id": repo_id,
                    "sha": COMMIT,
                    "private": repo.private,
                    "gated": "manual" if repo.gated else False,
                    "siblings": [{"rfilename": name} for name in files],
                    "library_name": repo.library,
                    "cardData": card,
                }
            )

        def resolve(self, repo_id, revision, name):
            repo = self.permitted(repo_id)
            if repo is None:
                return None
            files = self.files_at(repo, repo_id, revision)
            if files is None:
                return None
            if repo.fault and (name in repo.fault_on or "*" in repo.fault_on):
                return self.misbehave(repo, repo_id, name, files.get(name, b"{}"))
            if name not in files:
                return self.refuse(404, "EntryNotFound")
            return self.send_file(files[name], COMMIT)

        def all_headers(self, repo_id):
            repo = self.permitted(repo_id)
            if repo is None:
                return None
            if not repo.offers_all_headers:
                return self.refuse(404, "")
            index = json.loads(repo.files["model.safetensors.index.json"])
            headers = {}
            for shard in sorted(set(index["weight_map"].values())):
                data = repo.files[shard]
                headers[shard] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            return self.send_json({"index": {"metadata": index.get("metadata")}, "headers": headers})

        # ---- who may read what -----------------------------------------------------------------------------

        def permitted(self, repo_id, *, metadata=False):
            """The repository, or None after the refusal that the real hub sends."""
            token = (self.headers.get("authorization") or "").removeprefix("Bearer ") or None
            known = {token for repo in hub.repos.values() for token in repo.tokens} | hub.valid_tokens
            if token is not None and token not in known:
                return self.refuse(401, "", message="Invalid credentials in Authorization header")
            repo = hub.repos.get(repo_id)
            spelled = next((name for name in hub.repos if name.lower() == repo_id.lower()), None)
            if (
                repo is None and spelled is not None
            ):  # another case: the hub redirects to the owner's spelling
                return self.redirect(self.path.replace(repo_id, spelled, 1))
            if repo is None or (repo.private and token not in repo.tokens):
                return self.refuse(401 if token is None else 404, "RepoNotFound")
            if repo.gated and not metadata and token not in repo.tokens:
                return self.refuse(401 if token is None else 403, "GatedRepo")
            return repo

        def files_at(self, repo, repo_id, revision):
            if revision in ("main", COMMIT):
                return repo.files
            if revision in repo.revisions:
                return repo.revisions[revision]
            return self.refuse(404, "RevisionNotFound")

        # ---- answers ---------------------------------------------------------------------------------------

        def refuse(self, status, code, message="", headers=None):
            body = json.dumps({"error": message or code}).encode()
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            if message:
                self.send_header("X-Error-Message", message)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def send_json(self, value):
            self.send_body(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def send_file(self, data, commit, *, ranges=True):
            headers = {"X-Repo-Commit": commit} if commit else {}
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range") or "")
            if asked is None or not ranges:
                return self.send_body(200, data, headers)
            start, stop = int(asked.group(1)), min(int(asked.group(2)) + 1, len(data))
            if start >= len(data):
                return self.refuse(416, "")
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
            return self.send_body(206, data[start:stop], headers)

        def send_body(self, status, data, headers):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        # ---- misbehaviour ----------------------------------------------------------------------------------

        def misbehave(self, repo, repo_id, name, data):
            kind, _, argument = repo.fault.partition(":")
            if kind == "status":
                return self.refuse(int(argument), "", headers=repo.headers)
            return getattr(self, f"fault_{kind.replace('-', '_')}")(repo, repo_id, name, data)

        def fault_html(self, repo, repo_id, name, data):
            self.send_body(200, b"<!DOCTYPE html><title>Sign in</title>", {"Content-Type": "text/html"})

        def fault_text(self, repo, repo_id, name, data):
            self.send_body(200, b"Shall I compare thee to a summer's day?", {})

        def fault_list(self, repo, repo_id, name, data):
            self.send_body(200, b"[1, 2, 3]", {})

        def fault_cut_json(self, repo, repo_id, name, data):
            self.send_body(200, data[: len(data) // 2], {})

        def fault_truncated(self, repo, repo_id, name, data):
            self.send_response(200)
            self.send_header("Content-Length", str(len(data) + 1000))
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = True

        def fault_declares_too_much(self, repo, repo_id, name, data):
            self.send_response(200)
            self.send_header("Content-Length", str(1 << 40))
            self.end_headers()
            self.wfile.write(b'{"a": "')
            hub.release.wait(5)
            self.close_connection = True

        def fault_endless(self, repo, repo_id, name, data):
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            piece = b" " * 65536
            while not hub.release.is_set():
                self.wfile.write(piece)

        def fault_silent(self, repo, repo_id, name, data):
            hub.release.wait(5)
            self.close_connection = True

        def fault_drip(self, repo, repo_id, name, data):
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            for byte in data:
                self.wfile.write(bytes([byte]))
                if hub.release.wait(0.1):
                    break
            self.close_connection = True

        def fault_reset(self, repo, repo_id, name, data):
            self.close_connection = True  # nothing is sent at all

        def fault_down_from(self, repo, repo_id, name, data):
            """Goes away for ranges that begin at or beyond this byte."""
            begin = int((self.headers.get("range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
            if begin >= int(repo.fault.partition(":")[2]):
                return self.fault_reset(repo, repo_id, name, data)
            return self.send_file(data, COMMIT)

        def fault_garbage(self, repo, repo_id, name, data):
            self.wfile.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
            self.close_connection = True

        def fault_loop(self, repo, repo_id, name, data):
            self.redirect(self.path)

        def fault_redirect(self, repo, repo_id, name, data):
            self.redirect(repo.location)

        def fault_cdn(self, repo, repo_id, name, data):
            self.redirect(f"{hub.other_url}/cdn/{repo_id}/{name}?signature=abc")

        def fault_renamed(self, repo, repo_id, name, data):
            self.redirect(self.path.replace(repo_id, repo.location, 1))

        def fault_ignores_ranges(self, repo, repo_id, name, data):
            self.send_file(data, COMMIT, ranges=False)

        def fault_wrong_range(self, repo, repo_id, name, data):
            self.send_body(206, data[:100], {"Content-Range": f"bytes 7-106/{len(data)}"})

        def redirect(self, location):
            self.send_response(307)
            self.send_header("Location", location)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler
