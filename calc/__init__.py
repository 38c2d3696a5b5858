"""The calculators: pure functions and frozen records; no I/O, no clock, no user interface."""
