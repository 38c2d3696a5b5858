"""Timings, run by hand: `make bench`, or `python -m bench NAME ...`. Nothing here is asserted; machines differ."""
