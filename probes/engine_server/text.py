"""Text to tokens and back: the checkpoint's own tokenizer where its file and library are there, else bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from calc.errors import InputError

PRINTABLE = range(32, 127)
UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what a tokenizer gives for the first bytes of a longer character


class Tokenizer(Protocol):
    """Two directions, and how a chat becomes one text."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


class ByteTokenizer:
    """One token a byte. Tokens that are no printable ASCII are shown as their number: random weights say anything."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(token) if token in PRINTABLE else f"⟨{token}⟩" for token in tokens)


class FileTokenizer:
    """A tokenizer.json, read by the `tokenizers` library (it comes with transformers)."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as Library

        self._library: Any = Library.from_file(str(path))

    def encode(self, text: str) -> list[int]:
        return list(self._library.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._library.decode(list(tokens)))

    def knows(self, token: str) -> bool:
        return self._library.token_to_id(token) is not None


def tokenizer_of(folder: Path | None) -> Tokenizer:
    """The folder's own tokenizer where it can be read, else bytes."""
    if folder is not None and (folder / "tokenizer.json").is_file():
        try:
            return FileTokenizer(folder / "tokenizer.json")
        except ImportError:
            return ByteTokenizer()
    return ByteTokenizer()


def chat_text(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]]) -> str:
    """Messages as one prompt: ChatML or Llama 3's headers where the tokenizer has their marks, else plain lines.

    Ignores: the checkpoint's own template, with its tools and thinking; it is a program, and none is run here.
    """
    turns = []
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            raise InputError("messages", message, "each has a role and a content of plain text")
        turns.append((role, content))
    if isinstance(tokenizer, FileTokenizer) and tokenizer.knows("<|im_start|>"):
        body = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
        return f"{body}<|im_start|>assistant\n"
    if isinstance(tokenizer, FileTokenizer) and tokenizer.knows("<|start_header_id|>"):
        head = "<|start_header_id|>{}<|end_header_id|>\n\n"
        body = "".join(f"{head.format(role)}{content}<|eot_id|>" for role, content in turns)
        return f"<|begin_of_text|>{body}{head.format('assistant')}"
    return "".join(f"{role}: {content}\n" for role, content in turns) + "assistant: "


class Pieces:
    """The text of an answer as it grows: each token's new characters, none twice, no half characters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._shown = 0

    def add(self, token: int, *, last: bool) -> str:
        """New characters that `token` brought; held back while a character is unfinished, unless it is the last."""
        self._tokens.append(token)
        text = self._tokenizer.decode(self._tokens)
        if text.endswith(UNFINISHED) and not last:
            return ""
        new, self._shown = text[self._shown :], len(text)
        return new
