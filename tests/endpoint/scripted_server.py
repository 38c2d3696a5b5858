"""A scripted HTTP server on loopback that streams as told: each behaviour is a coroutine that writes bytes.

The model's name chooses the behaviour, so that one server shows them all. Every behaviour is bounded in time.

A server that follows a client (`follow`) waits for each piece of a stream to be read before it goes on. A sleep between
two pieces is then the least that can lie between the client's two stamps, however busy the machine is.
"""

import asyncio
import json
import threading
from contextlib import suppress

PROMPT_TOKENS = 40


def event(**content):
    return f"data: {json.dumps(content)}\n\n".encode()


def text(piece, **more):
    return event(choices=[{"index": 0, "delta": {"content": piece}}], **more)


def usage(n, cached=0):
    return event(
        choices=[],
        usage={
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": n,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    )


READ_S = 2.0  # for a piece to be read; a client that has given up never reads it
DONE = b"data: [DONE]\n\n"
STREAM = "text/event-stream"
LINES = "application/x-ndjson"


class Reply:
    def __init__(self, writer, *, following):
        self.writer = writer
        self.following = following
        self.unread = 0
        self.all_read = asyncio.Event()

    async def head(self, code=200, kind=STREAM, **headers):
        self.following &= code == 200 and kind in (STREAM, LINES)
        lines = [f"HTTP/1.1 {code} X", f"Content-Type: {kind}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        await self.writer.drain()

    async def send(self, data, then_s=0.0):
        self.unread += len(data)
        self.all_read.clear()
        self.writer.write(data)
        await self.writer.drain()
        if self.following:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.all_read.wait(), READ_S)
        if then_s:
            await asyncio.sleep(then_s)

    def was_read(self, size):
        self.unread -= size
        if self.unread <= 0:
            self.all_read.set()

    async def plain(self, code, content, kind="application/json"):
        await self.head(code, kind)
        await self.send(json.dumps(content).encode())


async def steady(reply, body):
    n = body["max_tokens"]
    await reply.head()
    for _ in range(n):
        await reply.send(text("a"), 0.002)
    await reply.send(usage(n) + DONE)


async def role_first(reply, body):
    await reply.head()
    await reply.send(event(choices=[{"delta": {"role": "assistant", "content": ""}}]), 0.3)
    for _ in range(8):
        await reply.send(text("a"), 0.005)
    await reply.send(usage(8) + DONE)


async def role_with_null(reply, body):
    await reply.head()
    await reply.send(event(choices=[{"delta": {"role": "assistant", "content": None}}]), 0.2)
    await reply.send(event(choices=[{"delta": {"reasoning_content": "hm"}}]), 0.05)
    await reply.send(text("a"), 0.05)
    await reply.send(usage(2) + DONE)


async def merged(reply, body):
    await reply.head()
    for _ in range(4):
        await reply.send(text("a b c d e"), 0.05)
    await reply.send(usage(20) + DONE)


async def running_counts(reply, body):
    """The first chunk holds three tokens, and says so."""
    await reply.head()
    for made in (3, 4, 5, 6):
        await reply.send(text("abc", usage={"prompt_tokens": PROMPT_TOKENS, "completion_tokens": made}), 0.03)
    await reply.send(usage(6) + DONE)


async def empty_chunks(reply, body):
    await reply.head()
    for _ in range(5):
        await reply.send(text("a"), 0.02)
        await reply.send(text(""), 0.02)
    await reply.send(usage(5) + DONE)


async def no_usage(reply, body):
    await reply.head()
    for _ in range(8):
        await reply.send(text("a"), 0.01)
    await reply.send(DONE)


async def comments(reply, body):
    await reply.head()
    await reply.send(b": keep-alive\n\n: another\n\nevent: message\nid: 1\n", 0.05)
    whole = b"".join(text("é") for _ in range(4))
    for start in range(0, len(whole), 7):  # cut through lines and through characters
        await reply.send(whole[start : start + 7], 0.002)
    await reply.send(b"retry: 10\r\n" + usage(4).replace(b"\n", b"\r\n") + DONE)


async def dropped(reply, body):
    await reply.head()
    for _ in range(3):
        await reply.send(text("a"), 0.01)


async def no_done(reply, body):
    await reply.head()
    for _ in range(3):
        await reply.send(text("a"), 0.01)
    await reply.send(event(choices=[{"delta": {}, "finish_reason": "length"}]) + usage(3))


async def limited(reply, body):
    await reply.plain(429, {"error": {"message": "slow down"}})


async def overloaded(reply, body):
    await reply.plain(503, {"error": {"message": "loading model"}})


async def too_long(reply, body):
    await reply.plain(400, {"error": {"message": "This model's maximum context length is 4096 tokens"}})


async def gateway(reply, body):
    """Holds everything back and hands it over at the end."""
    await asyncio.sleep(0.3)
    await reply.head()
    await reply.send(b"".join(text("a") for _ in range(32)) + usage(32) + DONE)


async def slow_headers(reply, body):
    await asyncio.sleep(5)
    await steady(reply, body)


async def wrong_type(reply, body):
    await reply.plain(200, {"choices": [{"message": {"content": "all at once"}}]})


async def page(reply, body):
    await reply.head(200, "text/html; charset=utf-8")
    await reply.send(b"<html>log in</html>")


async def never_ends(reply, body):
    await reply.head()
    for _ in range(1000):
        await reply.send(text("a"), 0.01)


async def stalls(reply, body):
    await reply.head()
    await reply.send(text("a"), 5)


async def floods(reply, body):
    await reply.head()
    for _ in range(400):
        await reply.send(text("a" * 100_000))


async def error_in_stream(reply, body):
    await reply.head()
    await reply.send(text("a"), 0.01)
    await reply.send(event(error={"message": "out of memory"}))


async def nothing(reply, body):
    await reply.head()
    await reply.send(usage(0) + DONE)


async def not_json(reply, body):
    await reply.head()
    await reply.send(b"data: {broken\n\n")


async def redirect(reply, body):
    await reply.head(307, Location="http://127.0.0.2:1/v1/chat/completions")


async def leaks_key(reply, body):
    await reply.plain(401, {"error": {"message": f"bad key {body['_authorization']}"}})


async def strict(reply, body):
    """Refuses what the OpenAI API does not know."""
    if "ignore_eos" in body:
        await reply.plain(400, {"error": {"message": "Unrecognized request argument: ignore_eos"}})
    else:
        await steady(reply, body)


async def cached(reply, body):
    await reply.head()
    await reply.send(text("a"), 0.01)
    await reply.send(text("a") + usage(2, cached=36) + DONE)


async def tool_call(reply, body):
    await reply.head()
    await reply.send(event(choices=[{"delta": {"tool_calls": [{"function": {"arguments": "{"}}]}}]), 0.02)
    await reply.send(event(choices=[{"delta": {"tool_calls": [{"function": {"arguments": "}"}}]}}]))
    await reply.send(usage(2) + DONE)


async def ollama(reply, body):
    await reply.head(200, LINES)
    n = body["options"]["num_predict"]
    for _ in range(n):
        await reply.send(json.dumps({"response": "a", "done": False}).encode() + b"\n", 0.005)
    final = {
        "response": "",
        "done": True,
        "prompt_eval_count": 100,
        "prompt_eval_cached_count": 60,
        "prompt_eval_duration": 80_000_000,
        "eval_count": n,
        "eval_duration": n * 5_000_000,
        "load_duration": 1_000_000,
    }
    await reply.send(json.dumps(final).encode() + b"\n")


BEHAVIOURS = {name: made for name, made in globals().items() if asyncio.iscoroutinefunction(made)}


class ScriptedServer:
    """Serves on a free loopback port from a thread of its own; remembers what it was asked."""

    def __init__(self):
        self.bodies = []
        self.headers = []
        self.in_flight = self.most_in_flight = 0
        self._reply = None
        self._following = False

    def follow(self, client):
        """Wait for this client, which has one request at a time, to read each piece."""
        self._following = True
        client.watch = lambda data, _now: self._loop.call_soon_threadsafe(self._was_read, len(data))

    def _was_read(self, size):
        self._reply.was_read(size)

    def __enter__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        )
        self._server = started.result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_):
        async def close():
            self._server.close()
            tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self, reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = {n.lower(): v for n, _, v in (line.partition(": ") for line in lines if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.headers.append(headers)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._reply = Reply(writer, following=self._following)
            await self._answer(first.split()[1], headers, body, self._reply)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.in_flight -= 1
            writer.close()

    async def _answer(self, path, headers, body, reply):
        if path == "/v1/models":
            await reply.plain(200, {"data": [{"id": "steady"}]})
        elif path in ("/v1/chat/completions", "/api/generate"):
            asked = json.loads(body)
            self.bodies.append(dict(asked))
            asked["_authorization"] = headers.get("authorization", "")
            await BEHAVIOURS[asked["model"]](reply, asked)
        else:
            await reply.plain(404, {"error": "not here"})
