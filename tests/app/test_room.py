"""The style sheet that holds room goes to browsers that open a page, whole and plain; everything else passes as it was."""

import gzip
import re

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

import app as the_app
from pages._room import STYLE, HoldRoom

SHELL = f"<html><head><title>Shell</title></head><body>{'word ' * 400}</body></html>"
A_PAGE = {"accept": "text/html,*/*", "accept-encoding": "gzip"}


async def shell(_request):
    return HTMLResponse(SHELL, headers={"etag": '"old"', "cache-control": "no-cache"})


async def in_parts(_request):
    async def parts():
        for start in range(0, len(SHELL), 100):
            yield SHELL[start : start + 100]

    return StreamingResponse(parts(), media_type="text/html")


async def numbers(_request):
    return JSONResponse({"html": SHELL})


async def missing(_request):
    return HTMLResponse(SHELL, status_code=404)


async def script(_request):
    return PlainTextResponse(SHELL, media_type="text/javascript")


@pytest.fixture(scope="module")
def client():
    routes = [Route(f"/{one.__name__}", one) for one in (shell, in_parts, numbers, missing, script)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(HoldRoom), Middleware(GZipMiddleware)]))


@pytest.mark.parametrize("path", ["shell", "in_parts"])
def test_a_page_ends_its_head_with_the_style_and_loses_nothing(client, path):
    answer = client.get(f"/{path}", headers=A_PAGE)
    assert answer.text == SHELL.replace("</head>", f"{STYLE.decode()}</head>")
    assert "etag" not in answer.headers  # it named the page without the style
    assert int(answer.headers["content-length"]) == len(answer.content)


@pytest.mark.parametrize("path", ["numbers", "missing", "script"])
def test_what_is_no_page_passes_as_it_is(client, path):
    bare = client.get(f"/{path}", headers={"accept": "*/*"})
    assert client.get(f"/{path}", headers=A_PAGE).content == bare.content
    assert STYLE not in bare.content


def test_what_is_not_opened_as_a_page_is_still_packed(client):
    with client.stream("GET", "/script", headers={"accept": "*/*", "accept-encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        assert gzip.decompress(b"".join(answer.iter_raw())).decode() == SHELL


def test_the_style_is_a_constant_and_the_app_sends_it():
    assert STYLE.count(b"<") == STYLE.count(b"</") * 2 == 2  # one element, nothing in it that could end it
    assert not re.search(rb"url\(|@import", STYLE)
    with TestClient(the_app.app) as client:
        assert STYLE in client.get("/compare", headers=A_PAGE).content
