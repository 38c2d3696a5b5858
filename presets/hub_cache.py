"""A bounded cache of what was read from a hub: in memory for everything, on disk only for what anyone may read.

Keys hold the endpoint, the repository, the revision, and for what only a token could read a keyed hash of that token
under a salt that is drawn anew in every process and kept nowhere. What needed a token is never written to disk.
Failures are not cached. A cache that cannot be written, or holds rubbish, is as good as an empty one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from calc.json_text import NOT_JSON, parse_json
from calc.units import DAY_S, MIB
from presets.whole_file import remove_parts, write_whole

FRESH_S = DAY_S  # a branch moves; a day later it is read again
STALE_S = 90 * DAY_S  # older entries no longer help when the hub cannot be reached
MAX_ENTRIES = 256
MAX_BYTES = 64 * MIB
FORMAT = 2  # raised when the meaning of an entry changes
PUBLIC = ""

_SALT = secrets.token_bytes(32)


def credential(token: str | None) -> str:
    """Which entries a reader may see: PUBLIC without a token, else a hash that tells tokens apart in this process."""
    if token is None:
        return PUBLIC
    return hmac.new(_SALT, token.encode(), hashlib.sha256).hexdigest()[:32]


def default_folder() -> Path:
    """RIDGEBEAM_CACHE_DIR, or the user's cache folder of this platform."""
    chosen = os.environ.get("RIDGEBEAM_CACHE_DIR")
    if chosen:
        return Path(chosen) / "hub"
    import platformdirs

    return platformdirs.user_cache_path("ridgebeam") / "hub"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Text that was read, and when (seconds since the epoch)."""

    text: str
    read_at: float

    @property
    def is_fresh(self) -> bool:
        return 0 <= time.time() - self.read_at < FRESH_S


@dataclass(slots=True)
class HubCache:
    """Least recently used out first; at most `max_entries` and `max_bytes`, in memory and again on disk."""

    folder: Path | None = None
    max_entries: int = MAX_ENTRIES
    max_bytes: int = MAX_BYTES
    _memory: OrderedDict[tuple[str, ...], Entry] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: tuple[str, ...], reader: str, *, stale: bool = False) -> Entry | None:
        """The entry of `key` that `reader` (a `credential`) may see; old ones only where `stale` is asked for."""
        for owner in dict.fromkeys((PUBLIC, reader)):
            with self._lock:
                entry = self._memory.get((owner, *key))
                if entry is not None:
                    self._memory.move_to_end((owner, *key))
            if entry is None and owner == PUBLIC:
                entry = self._read(key)
            if entry is not None and (entry.is_fresh or stale):
                return entry
        return None

    def put(self, key: tuple[str, ...], reader: str, text: str) -> None:
        """Keep `text` for `reader`; for PUBLIC on disk too."""
        entry = Entry(text=text, read_at=time.time())
        with self._lock:
            self._memory[(reader, *key)] = entry
            self._memory.move_to_end((reader, *key))
            while len(self._memory) > self.max_entries or self._memory_bytes() > self.max_bytes:
                self._memory.popitem(last=False)
        if reader == PUBLIC:
            self._write(key, entry)

    def clear(self) -> None:
        """Forget everything, on disk too."""
        with self._lock:
            self._memory.clear()
        for path in self._files():
            path.unlink(missing_ok=True)

    def _memory_bytes(self) -> int:
        return sum(len(entry.text) for entry in self._memory.values())

    def _folder(self) -> Path:
        return self.folder or default_folder()

    def _path(self, key: tuple[str, ...]) -> Path:
        digest = hashlib.sha256(json.dumps([FORMAT, *key]).encode()).hexdigest()[:40]
        return self._folder() / f"{digest}.json"

    def _files(self) -> list[Path]:
        try:
            return [path for path in self._folder().iterdir() if path.suffix == ".json"]
        except OSError:
            return []

    def _read(self, key: tuple[str, ...]) -> Entry | None:
        path = self._path(key)
        try:
            if path.stat().st_size > self.max_bytes:
                return None
            stored = parse_json(path.read_bytes(), finite=True)
            entry = Entry(text=str(stored["text"]), read_at=float(stored["read_at"]))
            belongs = stored["key"] == list(key) and stored["format"] == FORMAT
        except (OSError, KeyError, TypeError, *NOT_JSON):
            return None  # absent, or rubbish: as good as absent
        if not belongs or not 0 <= time.time() - entry.read_at < STALE_S:
            return None
        return entry

    def _write(self, key: tuple[str, ...], entry: Entry) -> None:
        path = self._path(key)
        stored = {"format": FORMAT, "key": list(key), "read_at": entry.read_at, "text": entry.text}
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, [json.dumps(stored)])  # a reader sees the old entry or the new one
            self._trim()

    def _trim(self) -> None:
        """Remove the oldest files beyond the bounds, and what killed writers left."""
        remove_parts(self._folder())
        files = sorted(((path.stat().st_mtime, path) for path in self._files()), reverse=True)
        total = 0
        for position, (_, path) in enumerate(files):
            total += path.stat().st_size
            if position >= self.max_entries or total > self.max_bytes:
                path.unlink(missing_ok=True)
