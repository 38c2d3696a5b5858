"""What a reader sees of an AppTest page."""


def titles(app):
    return [text_of(title) for title in app.title]


def text_of(element):
    """What a reader sees of Markdown: without the backslashes that keep it literal."""
    return element.value.replace("\\", "")
