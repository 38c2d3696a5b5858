"""The web app. The frame lives in pages/_frame.py so that Streamlit never discovers pages/ on its own."""

import streamlit as st
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

from pages._registry import PAGES
from pages._room import HoldRoom
from presets.deployment import declare_address


async def to_the_first_page(request: Request) -> RedirectResponse:
    """Streamlit knows its first page by the bare address alone; its name leads there too, with what the link says."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"./{query}")


declare_address(st.get_option("server.address"))
app = st.App(
    "pages/_frame.py",
    routes=[Route(f"/{PAGES[0].url_path}", to_the_first_page)],
    middleware=[Middleware(HoldRoom)],
)
