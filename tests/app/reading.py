"""What a reader sees of an AppTest page."""


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
