"""An answer's numbers as worked formulas: each formula of the registry with the inputs that the real objects hold.

`Worked.result` is the number that the product shows; evaluating the formula on the inputs gives it again (tests hold that).
`formula` is the record, `forward_pass` takes a step's terms apart, the others are named for what they explain: an answer, a
ledger, a model, a serving point, a simulated run, a measurement. `substitution` puts an answer's numbers into symbols.
"""
