"""Traces: how far apart the uses of a buffer are, and suites that say everything again."""

import random
import time
import tomllib

import pytest

from deepbench.core.errors import BadInput
from deepbench.networks.traces import trace as trace_module
from deepbench.networks.traces.memory import Memory
from deepbench.networks.traces.read import read_suite_trace
from deepbench.networks.traces.recorder import Recorder
from deepbench.networks.traces.trace import Trace, TracedCall, parse_trace, reuse_distances, suite_text
from deepbench.plan.suites import read_suite

KERNEL = "gemm m=8 n=4 k=2 a_t=0 b_t=0 forward f32 beta=0"
BF16 = "conv n=2 c=3 h=8 w=8 k=4 r=3 s=3 pad_h=1 pad_w=1 stride_h=1 stride_w=1 backward_data bf16 layout=nhwc"


def call(reads=(), writes=(), kernel=None, where="", operator="aten.mm", moved=0, operators=1):
    return TracedCall(operator, kernel, where, tuple(reads), tuple(writes), moved, operators)


def trace(calls, buffers=(10, 20, 30), **changed):
    values = {"title": "a net", "source": "net.py:build", "is_training": True, "views": 3, "parameters": 7}
    return Trace(calls=tuple(calls), buffers=tuple(buffers), **{**values, **changed})


CALLS = [
    call([0], [1], KERNEL, "layers.0.up", moved=96),
    call([1], [2], None, "layers.0.act", 'an "operator" \\ with #', 50),
    call([2, 0], [1], KERNEL, "layers.1.up", moved=96),
    call([1], [0], BF16, "head", moved=7),
    call([1], [2], BF16, "head", moved=7, operators=0),
]


# ---- reuse distances


def test_the_distance_is_what_lies_between_two_uses():
    calls = [call([0], [1]), call([2]), call([1])]

    first, second, third = reuse_distances(calls, (10, 20, 30))

    assert first == {0: 30 + 20, 1: 0}  # the last use of 1 was in the call before
    assert second == {2: 10 + 20}
    assert third == {1: 30}


def test_a_buffer_between_counts_once_however_often_it_is_used():
    calls = [call([0]), call([1]), call([1]), call([1]), call([0])]

    assert list(reuse_distances(calls, (10, 20)))[4] == {0: 20}


def by_hand(calls, sizes):
    """The same by going back through all uses."""
    uses = [list(dict.fromkeys((*c.reads, *c.writes))) for c in calls] * 2
    flat = [(number, buffer) for number, buffers in enumerate(uses) for buffer in buffers]
    found = []
    for number in range(len(calls), 2 * len(calls)):
        distances = {}
        for buffer in uses[number]:
            before = [place for place, (n, b) in enumerate(flat) if b == buffer and n < number]
            if before:
                between = {b for n, b in flat[before[-1] + 1 :] if n < number}
                distances[buffer] = sum(sizes[b] for b in between)
        found.append(distances)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_distances_of_any_step(seed):
    chosen = random.Random(seed)
    sizes = [chosen.randrange(1, 100) for _ in range(8)]
    calls = [call(chosen.sample(range(8), chosen.randrange(1, 4)), chosen.sample(range(8), 1)) for _ in range(20)]

    assert list(reuse_distances(calls, sizes)) == by_hand(calls, sizes)


# ---- memory


def test_what_is_read_first_is_kept_and_results_live_until_their_last_use():
    calls = [call([0], [1]), call([1], [2]), call([2], [3]), call([3], [0])]

    memory = trace(calls, (100, 5, 7, 11)).memory

    assert memory.kept == 100
    assert memory.temporary == 7 + 11  # while the third call runs
    assert memory.total == 118
    assert memory.devices(60) == 2
    assert memory.devices(118) == 1


def test_where_a_framework_puts_arrays_does_not_change_the_memory_that_they_need():
    """Array 2 lies where array 1 was, or next to that place: the same memory, but other buffers of the trace."""

    def recorded(places):
        found = Recorder(made={1: 0, 2: 2, 3: 3}, places=places)
        for size in (100, 5, 7, 11):
            found.buffer(size)
        for reads, writes in (([0], [1]), ([1], [0]), ([0], [2]), ([2, 3], [0])):
            found.call("aten.mm", None, "", reads, writes, 1)
        return found.trace("net", "", True, 1)

    beside, reused = recorded({}), recorded({2: 1})

    assert (100, 5, 7, 11) == beside.buffers
    assert (100, 7, 11) == reused.buffers
    assert Memory(100, 7 + 11) == beside.memory == reused.memory  # the step allocated 3 before it first read it


# ---- suites


@pytest.mark.parametrize("memory", ["[1]", "[1, -1]", "[1.0, 2]", "[true, 2]", f"[1, {2**61}]", "'1 2'"])
def test_the_memory_of_a_suite_is_two_numbers(memory):
    text = suite_text(trace(CALLS, recorded_memory=Memory(7, 9)))
    assert "memory = [7, 9]" in text

    assert Memory(7, 9) == parse_trace(tomllib.loads(text), "my.suite").memory
    with pytest.raises(BadInput, match="memory must be two whole numbers"):
        parse_trace(tomllib.loads(text.replace("[7, 9]", memory)), "my.suite")


def test_a_suite_says_everything_again(tmp_path):
    first = trace(CALLS, recorded_memory=Memory(7, 9))

    assert parse_trace(tomllib.loads(suite_text(first)), "my.suite") == first


def test_a_suite_of_nothing():
    empty = trace([], (), parameters=None, is_training=False)

    assert parse_trace(tomllib.loads(suite_text(empty)), "my.suite") == empty


def test_a_suite_is_measured_like_others(tmp_path):
    path = tmp_path / "my.suite"
    path.write_text(suite_text(trace(CALLS)))

    first, second = read_suite(str(path))

    assert first.pattern.op == "gemm"
    assert (first.precision, first.source["count"], first.source["label"]) == ("f32", 2, "layers.*.up")
    assert (second.pattern.direction, second.precision) == ("backward_data", "bf16")
    assert first.source["application"] == "a net"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0 0 0 1 96 0 1", "0 0 0 1 96 0", "seven words"),
        ("0 0 0 1 96 0 1", "7 0 0 1 96 0 1", "up to 1, found '7'"),
        ("0 0 0 1 96 0 1", "0 0 0 1 96 9 1", "found '9'"),
        ("0 0 0 1 96 0 1", "0 0 0 1 -96 0 1", "found '-96'"),
        ("0 0 0 1 96 0 1", "0 0 0 1 " + "9" * 30 + " 0 1", "found '999"),
        ("views = 3", "views = -3", "views"),
        ("m=8 n=4", "m=8 n=4 m=9", "wanted NAME=EXPRESSION"),
        ("[trace]", "[other]", "unknown key 'other'"),
        ('places = ["', 'places = [1, "', "a list of texts"),
    ],
)
def test_damage_is_named(tmp_path, old, new, words):
    text = suite_text(trace(CALLS))
    assert text.count(old) == 1

    with pytest.raises(BadInput, match=words):
        path = tmp_path / "my.suite"
        path.write_text(text.replace(old, new))
        read_suite(str(path))
        parse_trace(tomllib.loads(path.read_text()), "my.suite")


# ---- suites from others

TEXT = suite_text(trace(CALLS))


def read_text(folder, text):
    path = folder / "my.suite"
    path.write_text(text)
    return read_suite_trace(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kernels = 3", "my.suite: kernels must be a table"),
        ("sizes = 3", "my.suite: sizes must be a table"),
        ("phases = 3", "my.suite: phases must be a table"),
        ("[phases]\ninference = 3", "my.suite: the phase inference must be a table"),
        ("trace = 3", "my.suite has no table trace; wanted a suite that deepbench trace wrote"),
        ("[kernels]\nall = 3\n[trace]", "my.suite: all must be a text"),
        ("[trace]\nbuffers = [1]", "my.suite: buffers must be a text"),
        ("[trace]\nbuffers = '" + "1" * 5000 + "'", "wanted a whole number up to "),
        ("[trace]\noperators = []\nplaces = []\ncalls = 3", "my.suite: calls must be a text"),
        ("[trace]\noperators = []\nplaces = []\nviews = 1.5", "views must be a whole number up to 1000000, found 1.5"),
        (TEXT.replace("parameters = 7", "parameters = 0x" + "f" * 4000), "has a whole number of 16000 bits"),
        (TEXT.replace("views = 3", "views = " + "9" * 5000), "is not valid TOML: a number has thousands of digits"),
        (TEXT.replace("views = 3", "views" + ".a" * 20_000 + " = 3"), "has a line with 20000 dots outside of texts"),
        (TEXT.replace('"a net"', "3"), "my.suite: title must be a text"),
        (TEXT.replace('all = """', 'all = """\n' + "gemm m=1\n" * 2000), "a model has at most 2000"),
        (
            TEXT.replace('calls = """\n', 'calls = """\n' + "0 0 0 1 96 0 1\n" * 100_000),
            "calls; a trace has at most 100000",
        ),
        (TEXT.replace('buffers = "', 'buffers = "' + "1 " * 100_000), "buffers; a trace has at most 100000"),
        (TEXT.replace("0 0 0 1 96 0 1", "0 0 0 1 96 0 1" + ",1" * 400_001), "at most 400000 such uses"),
        (TEXT.replace("0 0 0 1 96 0 1", "0 0 0 1 96 0 1 "), "wanted seven words for a call, found '0 0 0 1 96 0 1 '"),
        (
            TEXT.replace("0 0 0 1 96 0 1", "0 0 0 1 96 0,1_0 1"),
            "wanted a whole number of at most 19 digits, found '0,1_0'",
        ),
    ],
)
def test_what_is_not_of_its_type_is_refused_in_a_sentence(tmp_path, text, sentence):
    begin = time.process_time()
    with pytest.raises(BadInput) as found:
        read_text(tmp_path, text)

    assert sentence in str(found.value)
    assert len(str(found.value)) < 300
    assert time.process_time() - begin < 2


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (" count=2 # layers", " count=999999 # layers", "2 times, and the line of this kernel says count=999999"),
        (" count=2 # layers", " count=2*views # layers", "says count=2*views"),
        (" count=2 # layers", " # layers", "2 times, and the line of this kernel says count=1"),
        ("0 0 0 1 96 0 1", "- 0 0 1 96 0 1", "calls 'gemm m=8 n=4 k=2 a_t=0 b_t=0 forward f32 beta=0' 1 times"),
    ],
)
def test_counts_that_contradict_the_calls_are_refused(tmp_path, old, new, sentence):
    assert TEXT.count(old) == 1
    read_text(tmp_path, TEXT)

    with pytest.raises(BadInput) as found:
        read_text(tmp_path, TEXT.replace(old, new))
    assert sentence in str(found.value)
    assert str(found.value).endswith("write the suite again with deepbench trace")


def test_a_name_that_is_none_of_a_trace_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"whose name ends in \.suite, found 'my\.jsonl'"):
        read_suite_trace(tmp_path / "my.jsonl")


def test_a_trace_that_could_not_be_read_again_is_not_written(tmp_path, monkeypatch):
    for limit, most, what in (("MOST_TRACE_BYTES", len(TEXT.encode()) - 1, "bytes"), ("MOST_LINES", 0, "kernels")):
        with monkeypatch.context() as patch:
            patch.setattr(trace_module, limit, most)
            with pytest.raises(BadInput, match=f"the suite of this trace would have [0-9]+ {what}, and at most {most}"):
                trace(CALLS).save(tmp_path / "my.suite")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["a\ngemm m=1 n=1 k=1", 'a\n"""\n[sizes]', "a\\x", "a\x1b[31m", '"""'])
def test_the_name_of_a_place_stays_in_its_comment(tmp_path, place):
    wanted = trace([call([0], [1], KERNEL, place, moved=96)])
    path = tmp_path / "my.suite"
    wanted.save(path)

    assert {KERNEL: 1} == read_suite_trace(path).counts
    assert [1] == [entry.source["count"] for entry in read_suite(str(path))]
