"""TOML of strangers: what is too large is refused before it is parsed, and numbers have 64 bits."""

import time

import pytest

from deepbench.core.errors import BadInput
from deepbench.core.toml import LARGEST, MOST_DOTS, MOST_PARTS, SMALLEST, parse_toml


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a" + ".a" * 20_000 + " = 1", "a.toml has a line with 20000 dots outside of texts; at most 20 are read"),
        ('"a"' + " . 'b'" * 20_000 + " = 1", "has a line with 20000 dots"),
        ("[" + ".".join("a" * 500) + "]", "has a line with 499 dots"),
        ("a = [" + "1," * (MOST_PARTS + 1) + "]", "has 100003 names and values; at most 100000 are read"),
        ("\n".join(f"a{i} = 1" for i in range(MOST_PARTS + 1)), "has 100001 names and values"),
        ("\n".join(f"a.b{i}.c = 1" for i in range(MOST_PARTS // 2)), "has 150000 names and values"),
        ("a = 0x" + "f" * 4000, "has a whole number of 16000 bits; at most 64 are read"),
        (f"a = {{b = [1, [{LARGEST + 1}]]}}", "has a whole number of 65 bits"),
        (f"a = {SMALLEST - 1}", "has a whole number of 64 bits"),
        ("a = " + "9" * 5000, "is not valid TOML: a number has thousands of digits"),
        ("a = " + "[" * 5000 + "]" * 5000, "its lists or tables are nested too deeply"),
        ("a = " + "{a = " * 5000, "its lists or tables are nested too deeply"),
        ("a = \x1b[31m", "is not valid TOML: "),
        ("a = 1\na = 2", "is not valid TOML: Cannot overwrite a value"),
    ],
)
def test_what_no_file_of_ours_has_is_refused_at_once(text, sentence):
    begin = time.process_time()
    with pytest.raises(BadInput) as found:
        parse_toml(text, "a.toml")

    assert sentence in str(found.value)
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 300
    assert time.process_time() - begin < 2


def test_numbers_of_64_bits_are_read():
    assert {"a": LARGEST, "b": [SMALLEST]} == parse_toml(f"a = {LARGEST}\nb = [{SMALLEST}]", "a.toml")


@pytest.mark.parametrize(
    "text",
    [
        'a = "{}"',
        "a = '{}'",
        'a = """\n{}"""',
        "a = '''{}'''",
        'a = """ "" \\""" {}"""""',
        "a = 1 # {}",
        "a = [\"{}\", '{}']",
    ],
)
def test_what_is_in_texts_and_comments_does_not_count(text):
    parse_toml(text.replace("{}", "a.b = [c, d]" * MOST_DOTS * 1000), "a.toml")


@pytest.mark.parametrize("start", ['a = """', "a = '''", 'a = "', "a = '", 'a = """\\'])
def test_a_text_without_its_end_takes_no_longer_than_its_length(start):
    for rest in ('\\"' * 200_000 + "'" * 200_000, '"\\' * 100_000):
        begin = time.process_time()
        with pytest.raises(BadInput, match="is not valid TOML"):
            parse_toml(start + rest, "a.toml")

        assert time.process_time() - begin < 2
