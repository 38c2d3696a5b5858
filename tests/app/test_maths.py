"""Show the maths at expected fidelity: opened, each page works its own numbers out."""

import pytest

pytestmark = pytest.mark.app


def opened(app, key):
    app.session_state[key] = True
    app.run()
    assert not app.exception
    return [line.value.strip("$\n ") for line in app.latex]


def test_the_five_steps_of_a_deployment(open_page):
    app = open_page()
    assert not app.latex
    letters = {
        "memory": r"M_{pool} = ",
        "sequences": "N = ",
        "decode": r"t_{pass} = ",
        "prefill": r"t_{pass} = ",
        "fleet": r"\mathrm{TTFT} = ",
    }
    for step, letter in letters.items():
        lines = opened(app, f"step-{step}")
        assert any(line.startswith(letter) for line in lines), (step, lines)


@pytest.mark.parametrize(
    ("row", "key", "chosen"),
    [
        ("step-levers", "levers-maths", "fp8 weights"),
        ("step-plans", "plans-maths", None),
    ],
)
def test_any_row_of_a_table_of_answers_is_worked_out(open_page, row, key, chosen):
    """What the table says of the row stands in its maths: GPUs, TTFT, TPOT, the price of a million tokens, the busy share."""
    app = open_page()
    app.session_state[row] = True
    app.session_state[key] = True
    app.run()
    assert not app.exception
    box = app.selectbox(key=f"{key}-of")
    box.select(chosen or box.options[1]).run()
    lines = [line.value.strip("$\n ") for line in app.latex]
    letters = ("G = ", r"\mathrm{TTFT} = ", r"\mathrm{TPOT} = ", "c_M = ", r"\rho = ", r"R_{GPU} = ")
    for letter in letters:
        assert any(line.startswith(letter) for line in lines), (letter, lines)


def test_a_tenure_is_worked_out(open_page):
    app = open_page()
    app.session_state["step-costs"] = app.session_state["costs-maths"] = True
    app.run()
    app.number_input(key="cost-purchase").set_value(25_000).run()
    app.selectbox(key="costs-maths-of").select("owned").run()
    lines = [line.value.strip("$\n ") for line in app.latex]
    for letter in ("c_{own} = ", "c_h = ", "c_m = ", "c_r = ", "c_{hit} = ", "c_{in} = ", "c_{out} = "):
        assert any(line.startswith(letter) for line in lines), (letter, lines)


def test_a_dot_of_the_roofline_is_worked_out_both_ways(open_page):
    app = open_page("roofline.py")
    box = app.selectbox(key="roofline-dot")
    box.select(next(option for option in box.options if "decode attention" in option)).run()
    assert not app.exception
    lines = [line.value.strip("$\n ") for line in app.latex]
    assert sum(line.startswith("t_{op} = ") for line in lines) == 2  # at the datasheet's peaks, and reached
    assert any("the bound" in one.value for one in app.markdown)


def test_a_simulated_run_is_worked_out(open_page):
    app = open_page("simulate.py", sim_n="1000")
    app.button(key="sim-run").click().run()
    lines = opened(app, "sim-maths")
    assert lines[0].startswith("R_{good} = ")
    assert lines[-1].startswith("t_{pass} = ")


@pytest.mark.parametrize(
    ("file", "labels"),
    [
        ("model.py", {"Weights as stored", "KV per token"}),
        ("memory.py", {"Printed tokens", "Reserved", "Logical, per token", "Longest sequences"}),
        ("roofline.py", {"Ridge point", "Decode, FLOP/B"}),
        ("batch_size.py", {"Tokens per second"}),
        ("speculative.py", {"Tokens a pass", "Speed-up, free check"}),
        (
            "queueing.py",
            {"Utilisation", "Mean time", "p95", "In the system", "Replicas for the limit"},
        ),
    ],
)
def test_cards_carry_their_formula_and_the_others_say_where_it_is(open_page, file, labels):
    app = open_page(file)
    filled = {one.label for one in app.metric if "$" in one.proto.help}
    assert filled == labels
    for one in app.metric:
        assert one.proto.help, one.label


def test_any_cell_of_the_quantisation_matrix_is_worked_out(open_page):
    app = open_page("quantisation.py")
    opened(app, "quantisation-maths")
    app.selectbox(key="quantisation-maths-at").select("prefill").run()
    assert not app.exception
    assert any("the whole prefill in 16 bit over the same in" in one.value for one in app.markdown)


def test_a_speed_up_at_a_batch_is_worked_out_with_its_passes(open_page):
    lines = opened(open_page("speculative.py"), "spec-maths")
    assert sum(line.startswith("s_B = ") for line in lines) == 2  # the asked length and the best one
