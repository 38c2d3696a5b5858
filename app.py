"""The web app. The frame lives in pages/_frame.py so that Streamlit never discovers pages/ on its own."""

import streamlit as st

app = st.App("pages/_frame.py")
