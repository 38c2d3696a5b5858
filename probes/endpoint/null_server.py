"""A server that does nothing but stream: `python -m probes.endpoint.null_server LIFE_S` prints its port.

It answers any POST with `max_tokens` chunks, one every so many seconds as the model's name says ("null-0.02"), each with
the moment it was written. It binds to 127.0.0.1 and ends by itself after LIFE_S seconds, or when its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time

from probes.processes import end_with_parent

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGEST_BODY = 1_000_000
LONGEST_STREAM = 100_000


def _frame(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(
                (
                    int(line[15:])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length:")
                ),
                0,
            )
            body = json.loads(await reader.readexactly(min(length, LARGEST_BODY)) or b"{}")
            await _stream(writer, body)
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        pass
    finally:
        writer.close()


async def _stream(writer: asyncio.StreamWriter, body: dict[str, object]) -> None:
    tokens = min(int(str(body.get("max_tokens", 1))), LONGEST_STREAM)
    gap_s = float(str(body.get("model", "null-0")).rpartition("null-")[2] or 0.0)
    writer.write(HEAD)
    due = time.perf_counter() + random.uniform(0.0, gap_s)  # noqa: S311 - streams do not march in step
    for number in range(tokens):
        due += gap_s
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        usage = b'"usage":{"prompt_tokens":1,"completion_tokens":%d},' % (number + 1)
        payload = b'data: {"choices":[{"delta":{"content":"a"}}],%s"sent":%.7f}\n\n' % (
            usage,
            time.perf_counter(),
        )
        writer.write(_frame(payload))
        await writer.drain()
    writer.write(_frame(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    await writer.drain()


async def _main(life_s: float) -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.sleep(life_s)


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(_main(float(sys.argv[1])))
