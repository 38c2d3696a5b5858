"""The verbs of the command line, one file each: `add(verbs)` declares it, `run(arguments)` does it.

Adding a verb means adding a file and its name in `VERBS`. Calculators are imported when a verb runs, so that --help
stays quick.
"""

from commands import (
    accuracy,
    app,
    bench,
    cost,
    engine,
    fit,
    fleet,
    formula,
    launch,
    model,
    plan,
    probe,
    serve_point,
    simulate,
    step,
)

VERBS = (
    model,
    fit,
    step,
    serve_point,
    plan,
    fleet,
    cost,
    launch,
    simulate,
    probe,
    bench,
    engine,
    accuracy,
    formula,
    app,
)
