"""One table of operators for a forward pass: FLOP, weight, activation, KV and message bytes, per GPU."""

from calc.operators.compiled import compile_operators
from calc.operators.forward import ForwardPass
from calc.operators.rows import COLLECTIVES, FEATURES, KINDS, Driver, Kind, Operator, Reads
from calc.operators.table import Operators, OperatorTable

__all__ = [
    "COLLECTIVES",
    "FEATURES",
    "KINDS",
    "Driver",
    "ForwardPass",
    "Kind",
    "Operator",
    "OperatorTable",
    "Operators",
    "Reads",
    "compile_operators",
]
