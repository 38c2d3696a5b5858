"""The web app. The frame lives in pages/_frame.py so that Streamlit never discovers pages/ on its own."""

import streamlit as st

from presets.deployment import declare_address

declare_address(st.get_option("server.address"))
app = st.App("pages/_frame.py")
