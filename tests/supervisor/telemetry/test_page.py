"""What the page on metrics repeats of the code."""

import re
from pathlib import Path
from typing import Final

from quarterdeck.telemetry import metrics, tally
from quarterdeck.telemetry.tally import MAX_SETS, MAX_TOOLS, Family

PAGE: Final = Path(__file__).parents[3] / "docs" / "observe.md"


def families() -> list[Family]:
    found = {
        value.name: value for each in (tally, metrics) for value in vars(each).values() if isinstance(value, Family)
    }
    return [found[name] for name in sorted(found)]


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    """Who writes an alert would use a name that is not there."""
    wanted = [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {each.help} |"
        for each in families()
    ]
    text = PAGE.read_text()
    assert re.findall(r"^\| `\w+` \| (?:counter|gauge|histogram) .*", text, re.MULTILINE) == wanted
    assert f"labels for {MAX_TOOLS} tools, a metric for {MAX_SETS:,} sets" in text
