"""Words for changes."""

import pytest

from deepbench.core.case import parse_case
from deepbench.core.errors import BadInput
from deepbench.networks.what_if.knobs import Change, Knob

SMALL = parse_case("gemm m=512 n=8 k=512 a_t=0 b_t=0 forward f32 onednn threads=2")
LARGE = parse_case("gemm m=512 n=64 k=512 a_t=0 b_t=0 forward bf16 mkl threads=2")


@pytest.mark.parametrize(
    ("text", "small", "large"),
    [
        ("time.onednn/2", 0.5, 1.0),
        ("time.gemm*0.25", 0.25, 0.25),
        ("time.gemm.bf16/4", 1.0, 0.25),
        ("time.gemm/2 where n<=8", 0.5, 1.0),
        ("time.gemm/2 where n<8", 1.0, 1.0),
        ("time.gemm/2 where n>8 and m>=512", 1.0, 0.5),
        ("time.gemm/2 where n=64", 1.0, 0.5),
        ("time.gemm/2 where batch=64", 1.0, 1.0),
        ("time.gemm/2, time.onednn/2", 0.25, 0.5),
        ("peak.f32*2", 1.0, 1.0),
    ],
)
def test_times_are_scaled_where_all_words_and_conditions_fit(text, small, large):
    change = Change.parse(text)

    assert (small, large, 1.0) == (change.time_factor(SMALL), change.time_factor(LARGE), change.time_factor(None))


def test_a_knob_has_the_text_that_was_typed():
    for text in ("peak.bf16*1.5", "memory.L2.bytes=1e+06", "time.onednn/2 where n<=8 and m>1"):
        assert text == Knob.parse(text).text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "found nothing"),
        (" , ", "found nothing"),
        ("time*2", "wanted a library or an operation after time"),
        ("time.onednn=2", "a time is scaled with"),
        ("time.onedn*2", "'onedn' in .* is no library, operation, precision or direction; did you mean onednn"),
        ("time.onednn/2 where n~8", "wanted a condition such as n<=8 after where"),
        ("time.onednn/2 where bath<=8", "no operation has a size 'bath'.*did you mean"),
        ("time.onednn/2 where ", "wanted a"),
        ("time.onednn/2 when n<=8", "wanted a knob such as"),
    ],
)
def test_other_words_are_refused(text, sentence):
    with pytest.raises(BadInput, match=sentence):
        Change.parse(text)
