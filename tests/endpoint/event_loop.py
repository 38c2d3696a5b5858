"""Coroutines run in a thread of their own: a browser test of the same session leaves its event loop in this one."""

import asyncio
from concurrent.futures import ThreadPoolExecutor


def finished(coroutine):
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
