"""Runs every module of this folder that has a `rows()` function and prints what it measured."""

import importlib
import pkgutil
import sys

import bench


def main() -> None:
    names = sys.argv[1:] or sorted(m.name for m in pkgutil.iter_modules(bench.__path__) if m.name[0] != "_")
    for name in names:
        module = importlib.import_module(f"bench.{name}")
        print(f"\n{name}: {(module.__doc__ or '').splitlines()[0]}")
        for what, value, unit in module.rows():
            print(f"  {what:<58} {value:>12.4g} {unit}")


if __name__ == "__main__":
    main()
