"""A change is shown, and only the change."""

import json

from quarterdeck.config.clients.link_entry import MAX_LINE, show_change


def lines(count: int, value: str = "x") -> str:
    return json.dumps({f"k{number}": value for number in range(count)}, indent=1)


def test_a_change_is_one_hunk_with_its_place() -> None:
    """A user would have to find an entry in a file of thousands of lines."""
    old = lines(1000)
    new = old.replace('"k500": "x"', '"k500": "y"')
    assert show_change("f", old, new, has_comments=False) == [
        "--- f",
        "+++ f",
        "@@ -500,5 +500,5 @@",
        '  "k498": "x",',
        '  "k499": "x",',
        '- "k500": "x",',
        '+ "k500": "y",',
        '  "k501": "x",',
        '  "k502": "x",',
    ]


def test_nothing_changed_is_nothing_shown() -> None:
    """A dry run would look as if it did something."""
    assert show_change("f", "{}", "{}", has_comments=False) == []


def test_a_new_file_is_shown_whole() -> None:
    """Its hunk would begin at a line that does not exist."""
    assert show_change("f", "", "{\n}\n", has_comments=False) == ["--- f", "+++ f", "@@ -0,0 +1,2 @@", "+{", "+}"]


def test_a_file_on_one_long_line_is_shown_as_if_it_were_laid_out() -> None:
    """All of a client's state would fill the screen, and the change could not be found."""
    old = json.dumps({"a": "x" * MAX_LINE, "b": {}})
    new = json.dumps({"a": "x" * MAX_LINE, "b": {"n": 1}})
    shown = show_change("f", old, new, has_comments=False)
    assert shown[-5:] == ['-  "b": {}', '+  "b": {', '+    "n": 1', "+  }", " }"]


def test_secrets_beside_the_change_are_hidden() -> None:
    """The neighbour's token would be on the screen."""
    old = '{\n  "env": {\n    "TOKEN": "hunter2-hunter2"\n  }\n}'
    shown = show_change("f", old, old.replace('"\n  }', '",\n    "A": "b"\n  }'), has_comments=False)
    assert "hunter2" not in "\n".join(shown)
    assert any(line.startswith("+") for line in shown[3:])
