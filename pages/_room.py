"""Room on the first screen for what the browser has yet to load: a style sheet of ours in the page that Streamlit sends.

Streamlit's page is an empty shell; its sidebar, and the scripts of its controls, come later and push aside what stands. Only
the shell can hold their room: it is there before anything is drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

STYLE = f"<style>\n{(Path(__file__).parent / 'room.css').read_text(encoding='utf-8')}</style>\n".encode()
END_OF_HEAD = b"</head>"
OF_THE_OLD_BODY = (b"content-length", b"etag", b"last-modified")  # headers that are wrong for another body


class HoldRoom:
    """Middleware: a browser that opens a page gets it with the style sheet; everything else passes as it is."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; one for a page is not asked to be packed."""
        if scope["type"] != "http" or not _asks_for_a_page(scope):
            await self.app(scope, receive, send)
            return
        plain = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
        await self.app({**scope, "headers": plain}, receive, _styled(send))


def _asks_for_a_page(scope: Scope) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _styled(send: Send) -> Send:
    """`send` that holds an HTML page back until it is whole, and sends it with the style."""
    held: list[Message] = []

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start" and _is_page(message):
            held.append(message)
        elif held and message["type"] == "http.response.body":
            held.append(message)
            if not message.get("more_body", False):
                start, *parts = held
                body = b"".join(part.get("body", b"") for part in parts).replace(
                    END_OF_HEAD, STYLE + END_OF_HEAD, 1
                )
                kept = [pair for pair in start["headers"] if pair[0].lower() not in OF_THE_OLD_BODY]
                length = (b"content-length", str(len(body)).encode())
                await send(start | {"headers": [*kept, length]})
                await send({"type": "http.response.body", "body": body})
        else:
            await send(message)

    return sent


def _is_page(start: Message) -> bool:
    """Whether an answer is a whole, readable HTML page."""
    headers = {name.lower(): value for name, value in start["headers"]}
    return (
        start["status"] == 200
        and headers.get(b"content-type", b"").startswith(b"text/html")
        and b"content-encoding" not in headers
    )
