"""Cases to text and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbench.core.backend import all_backends
from deepbench.core.case import MOST_THREADS, Case, check_settings, parse_case, parse_pattern, parse_patterns
from deepbench.core.errors import BadInput
from deepbench.core.precision import PRECISIONS, find_precision
from deepbench.core.problem import LARGEST_SIZE
from deepbench.ops.gemm import Gemm

sizes = st.integers(1, LARGEST_SIZE)
bits = st.integers(0, 1)
gemms = st.builds(Gemm, sizes, sizes, sizes, bits, bits)
settings = st.fixed_dictionaries(
    {},
    optional={
        "weights": st.sampled_from(["plain", "packed"]),
        "beta": st.sampled_from(["0", "1"]),
        "pin": st.sampled_from(["none", "cores"]),
        "cache": st.sampled_from(["hot", "cold", "weights"]),
    },
)
cases = st.builds(
    lambda p, precision_name, name, threads, chosen: Case(
        "gemm",
        p,
        "forward",
        find_precision(precision_name),
        name,
        threads,
        check_settings("gemm", chosen),
    ),
    gemms,
    st.sampled_from(sorted(PRECISIONS)),
    st.sampled_from(sorted(all_backends())),
    st.integers(1, MOST_THREADS),
    settings,
)


def test_the_example_in_the_docstring_is_canonical():
    text = "gemm m=1760 n=128 k=1760 a_t=0 b_t=0 forward f32 onednn threads=2"

    assert text == parse_case(text).text


@given(cases)
def test_parse_is_the_inverse_of_text(c):
    assert c == parse_case(c.text)
    assert "\n" not in c.text


@given(cases, st.randoms())
def test_the_order_of_words_does_not_matter(c, random):
    op_name, *words = c.text.split()
    random.shuffle(words)

    assert c == parse_case(" ".join([op_name, *words]))


@given(st.text())
def test_any_text_is_a_case_or_raises_one_sentence(text):
    try:
        parse_pattern(text)
    except BadInput as error:
        assert "\n" not in str(error).replace(text, "")
        assert len(str(error)) < 500


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters=" "), max_size=8), max_size=6))
def test_garbage_after_a_valid_case_raises_one_sentence(words):
    try:
        parse_pattern(" ".join(["gemm m=1 n=1 k=1", *words]))
    except BadInput as error:
        assert len(str(error)) < 600


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gemm m=0 n=1 k=1", "m must be a whole number from 1"),
        ("gemm m=-5 n=1 k=1", "found -5"),
        ("gemm m=99999999999 n=1 k=1", "m must be a whole number from 1 to 2147483647"),
        ("gemm m=" + "9" * 5000 + " n=1 k=1", "at most 20 digits"),
        ("gemm m=1.5 n=1 k=1", "m must be a whole number, found '1.5'"),
        ("gemm m=١ n=1 k=1", "m must be a whole number"),
        ("gemm m= n=1 k=1", "found nothing"),
        ("gemm m=1 n=1", "gemm needs k; add for example k=1024"),
        ("recurrent hidden=1 batch=1 timesteps=1", "recurrent needs cell; add for example cell=vanilla"),
        ("gemm m=1 n=1 k=1 q=4", "no field or setting 'q'"),
        ("gemm m=1 m=2 n=1 k=1", "m appears twice"),
        ("gemm m=1 n=1 k=1 a_t=2", "a_t must be a whole number from 0 to 1"),
        ("gemm m=1 n=1 k=1 beta=3", "beta must be one of 1, 0"),
        ("gemm m=1 n=1 k=1 threads=0", "threads must be from 1"),
        ("gemm m=1 n=1 k=1 backward_data", "gemm has no direction backward_data"),
        ("gemm m=1 n=1 k=1 f31", "'f31' is not a direction"),
        ("gemm m=1 n=1 k=1 fp8", "a precision is one of f32, bf16"),
        ("gemm m=1 n=1 k=1 fp8", "; did you mean f8e4m3 or f8e5m2?"),
        ("gemm m=1 n=1 k=1 f32 bf16", "precision appears twice in 'gemm m=1 n=1 k=1 f32 bf16'; remove one, or"),
        ("gemm m=1 n=1 k=1 f32 bf16", "type both as f32,bf16"),
        ("gem m=1", "unknown operation 'gem'"),
        ("matmul m=1", "; did you mean gemm?"),
        ("", "the case is empty"),
    ],
)
def test_an_invalid_word_raises_a_sentence_with_what_is_valid(text, expected):
    with pytest.raises(BadInput) as error:
        parse_pattern(text)

    assert expected in str(error.value)


def test_a_case_must_be_complete():
    with pytest.raises(BadInput, match="has no backend; add one of"):
        parse_case("gemm m=1 n=1 k=1 forward f32 threads=1")


def test_commas_stand_for_several_precisions_libraries_and_directions():
    found = parse_patterns("gemm m=1 n=1 k=1 f32,bf16 beta=0 onednn,openblas,onednn")

    assert [("f32", "onednn"), ("f32", "openblas"), ("bf16", "onednn"), ("bf16", "openblas")] == [
        (p.precision, p.backend) for p in found
    ]
    assert {(("beta", "0"),)} == {p.settings for p in found}
    text = "conv n=1 c=1 h=3 w=3 k=1 r=1 s=1"
    assert ["forward", "backward_data"] == [p.direction for p in parse_patterns(f"{text} forward,backward_data")]
    assert [parse_pattern("gemm m=1 n=1 k=1 f32")] == parse_patterns("gemm  m=1 n=1 k=1\tf32")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("f32,fp16", "'fp16' is not a direction, precision or backend; a precision is one of"),
        ("onednn,openbals", "; did you mean openblas?"),
        ("f32,onednn", "'f32,onednn' joins precision and backend; separate them by a space"),
        ("onednn,", "; did you mean onednn?"),
        (",", "',' is not a direction"),
    ],
)
def test_a_wrong_word_among_several_is_named(word, expected):
    with pytest.raises(BadInput) as error:
        parse_patterns(f"gemm m=1 n=1 k=1 {word}")

    assert expected in str(error.value)
