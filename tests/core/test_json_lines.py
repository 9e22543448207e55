"""Lines of JSON, and values from anywhere made safe to write and print."""

import json
import math

from deepbench.core.json_lines import from_line, sanitized, to_line


def test_what_json_does_not_have_is_missing():
    """A worker may send it, and a line that contains it could not be read again."""
    value = sanitized({"time": math.nan, "samples": [1.5, math.inf, -math.inf], "deep": {"list": [{"x": math.nan}]}})
    assert {"time": None, "samples": [1.5, None, None], "deep": {"list": [{"x": None}]}} == value
    assert value == from_line(to_line(value))


def test_control_characters_are_replaced_in_names_and_values():
    value = sanitized({"na\x1b[2Jme": ["a\nb", "\u202eright to left"]})
    assert {"na\ufffd[2Jme": ["a\ufffdb", "\ufffdright to left"]} == value
    assert json.dumps(value, ensure_ascii=False).isprintable()
