"""Decimal and binary units; the only place that knows GB (1e9) from GiB (2^30).

Inside Ridgebeam everything is in base SI units: bytes, seconds, FLOP, tokens, USD.
"""

from __future__ import annotations

KB = 1e3
MB = 1e6
GB = 1e9
TB = 1e12

KIB = 1024
MIB = 1024**2
GIB = 1024**3

TFLOP = 1e12
MS = 1e-3
US = 1e-6
NS = 1e-9
HOUR_S = 3600.0
DAY_S = 86400.0
PERCENT = 0.01  # of a share
