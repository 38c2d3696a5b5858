"""The reference engine behind HTTP, on a loopback address: `python -m probes.engine_server`, `ridgebeam engine`."""
