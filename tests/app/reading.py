"""What a reader sees of an AppTest page."""

import re

NUMBER = re.compile(r"\b\d+\b")


def unfolded(app, row):
    """The page after a click on a closed row."""
    app.session_state[row] = True
    return app.run()


def titles(app):
    return [text_of(title) for title in app.title]


def text_of(element):
    """What a reader sees of Markdown: without the backslashes that keep it literal."""
    return element.value.replace("\\", "")


def rows_of(table):
    """The rows of a table as a reader sees them: no backslashes, and spaces that keep a reading on its line are spaces."""
    return [
        {name: text.replace("\N{NO-BREAK SPACE}", " ").replace("\\", "") for name, text in row.items()}
        for row in table.value.to_dict("records")
    ]


def names_shown(app, listed):
    """Names of cards and columns; of tables that lie on their side the first column has the names."""
    found = {NUMBER.sub("N", one.label) for one in app.metric if " batch " in f" {one.label}"}
    found |= {one.label for one in app.metric if "batch" not in one.label or not NUMBER.search(one.label)}
    for frame in (*app.table, *app.dataframe):
        names = list(frame.value.columns)
        if len(frame.value) and set(frame.value.iloc[:, 0]) <= set(listed):
            names = [names[0], *frame.value.iloc[:, 0]]
        found |= {re.sub(r"^batch \d+$", "batch N", str(name)) for name in names}
    return found


def is_filled_in(app, letter):
    """Whether a formula of this letter stands on the page with its numbers: in its maths, or behind a card's question mark."""
    lines = any(line.value.strip("$\n ").startswith(f"{letter} = ") for line in app.latex)
    return lines or any(f"${letter} = " in one.proto.help for one in app.metric)
