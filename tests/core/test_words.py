"""Plurals and lists in sentences."""

from deepbench.core import words


def test_one_is_singular_and_every_other_number_plural():
    assert ["0 cases", "1 case", "2 cases"] == [words.count(n, "case") for n in range(3)]


def test_names_are_joined_as_in_a_sentence():
    assert ["", "a", "a and b", "a, b or c"] == [
        words.join([]),
        words.join(["a"]),
        words.join("ab"),
        words.join("abc", "or"),
    ]
