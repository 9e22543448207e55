"""Two sides of one run: how they are said, which cases they share, when they are decided."""

from types import SimpleNamespace

import pytest

from deepbench.core.errors import BadInput
from deepbench.measuring import launch, sides
from deepbench.plan.cases import Choices, expand
from deepbench.plan.modes import Rounds
from deepbench.plan.suites import read_words
from deepbench.results.file import ResultFile, read_results
from tests.help import samples

pytestmark = pytest.mark.alone


@pytest.mark.parametrize(
    "text", ["threads", "threads=1", "threads=1,2,3", "threads=2,2", "=1,2", "OMP_NUM_THREADS=1,2"]
)
def test_what_is_no_pair_is_refused(text):
    with pytest.raises(BadInput):
        a, b = sides.parse_sides(text)
        if not a.choices and not a.environment:
            raise AssertionError(a, b)


def test_a_setting_a_library_and_a_variable():
    threads, backend, variable = (
        sides.parse_sides(t) for t in ("threads=1,2", "backend=mkl,onednn", "OMP_WAIT_POLICY=a,b")
    )

    assert [{"threads": "1"}, {"threads": "2"}] == [s.choices for s in threads]
    assert (Choices(threads=(1,)), Choices(backends=("mkl",))) == (
        threads[0].applied(Choices()),
        backend[0].applied(Choices()),
    )
    assert {"OMP_WAIT_POLICY": "b"} == variable[1].environment


def test_the_variables_of_a_side_are_for_its_workers_alone():
    before = {"DEEPBENCH_X": "", "DEEPBENCH_Y": "before", "HOME": "/root"}
    side = sides.Side("a", environment={"DEEPBENCH_X": "1", "DEEPBENCH_Y": ""})

    assert {"DEEPBENCH_X": "1", "HOME": "/root"} == launch.with_variables(before, side.environment)
    assert {"DEEPBENCH_X": "", "DEEPBENCH_Y": "before", "HOME": "/root"} == before


def planned(text, **choices):
    return expand(read_words([text]), Choices(**choices), 2)


def test_pairs_differ_in_nothing_but_what_the_sides_say():
    text = "gemm m=3 n=3 k=3 f32"
    a, b = planned(text, threads=(1,), backends=("mkl", "openblas")), planned(text, threads=(2,), backends=("mkl",))
    (pair,) = sides.pair_up(a, b, {"threads"})

    assert (1, 2) == (pair.a.threads, pair.b.threads)
    assert "mkl" == pair.a.backend == pair.b.backend
    with pytest.raises(BadInput, match="no case in common"):
        sides.pair_up(a, b, set())


TEXT = "gemm m=3 n=3 k=3 a_t=0 b_t=0 forward f32 mkl threads=1"


def files(times_a, times_b):
    found = []
    for times in (times_a, times_b):
        records = [samples.measured(seconds=s, round_number=i, text=TEXT) for i, s in enumerate(times, 1)]
        found.append(ResultFile(None, samples.header([TEXT]), records))
    return found


ROUNDS = Rounds(3, 10, 0.03, 1e9)


def next_of(times_a, times_b):
    (p,) = planned(TEXT)
    return [n for _, n in sides.queue([sides.Pair(p.case, p.case, [])], *files(times_a, times_b), ROUNDS, 1, 0.02)]


def test_rounds_go_on_until_the_sides_are_told_apart():
    equal, quiet, loud = [1.0, 1.1, 1.2, 1.05, 1.15], [0.5, 0.551, 0.599, 0.526, 0.574], [0.9, 1.2, 1.1, 1.3, 1.0]

    assert [1] == next_of([], [])
    assert [3] == next_of(equal[:2], quiet[:2])  # the least first
    assert [] == next_of(equal, quiet)
    assert [6] == next_of(equal, loud)
    assert [] == next_of(equal, [t * 1.0001 for t in equal])  # the same is an answer too
    assert [] == next_of([1.0] * 10, [0.9, 1.2, 1.1, 0.8, 1.3] * 2)  # enough is enough


def test_a_side_can_remove_a_variable():
    a, b = sides.parse_sides("OMP_WAIT_POLICY=,passive")

    assert {} == launch.with_variables({"OMP_WAIT_POLICY": "active"}, a.environment)
    assert {"OMP_WAIT_POLICY": "passive"} == launch.with_variables({"OMP_WAIT_POLICY": "active"}, b.environment)
    assert "without OMP_WAIT_POLICY" == a.words


def named(path, environment=None):
    """A result file that was measured with MKL at this path."""
    (file, _) = files([1.0], [])
    file.path = "old.jsonl"
    file.header["libraries"] = {"mkl": {"library": {"name": "MKL", "version": "1", "path": str(path)}}}
    for record in file.records:
        record["process"]["environment"] = environment or {}
    return file


HERE = {"mkl": {"library": {"name": "MKL", "version": "2", "path": "/here/libmkl_rt.so"}}}


def test_a_file_may_name_libraries_only_if_it_is_trusted(tmp_path):
    library = tmp_path / "libmkl_rt.so"
    library.touch()
    with pytest.raises(sides.NotTrusted, match=f"DEEPBENCH_MKL_PATH={library}.*add --trust old.jsonl"):
        sides.sides_of_file(named(library), HERE, named("/x"), trusted=False)
    before, now = sides.sides_of_file(named(library), HERE, named("/x"), trusted=True)

    assert {"DEEPBENCH_MKL_PATH": str(library)} == before.libraries == before.environment
    assert {} == now.libraries


def test_the_variables_of_a_file_need_no_trust_but_load_nothing():
    same = {"mkl": named("/here/libmkl_rt.so").header["libraries"]["mkl"]}
    then = {
        **{"OMP_WAIT_POLICY": "passive", "UCX_GDB_COMMAND": "sh evil", "NCCL_NET_PLUGIN": "evil", "LD_PRELOAD": "evil"},
        **{"OMP_TOOL_LIBRARIES": "evil.so", "CUBLAS_LOGDEST_DBG": "evil", "UCX_ERROR_MAIL_TO": "evil"},
        **{"UCX_TLS": "(hidden)", "KMP_BLOCKTIME": "x" * 200},
    }
    before, _ = sides.sides_of_file(named("/here/libmkl_rt.so", then), same, named("/x"), trusted=False)

    assert {"OMP_WAIT_POLICY": "passive"} == before.environment


def test_the_gate_measures_again_with_a_named_library_only_if_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr(sides, "require_same_machine", lambda *_: None)
    library = tmp_path / "libmkl_rt.so"
    library.touch()
    paths = []
    for name, path in (("a.jsonl", library), ("b.jsonl", "/here/libmkl_rt.so")):
        file = named(path)
        paths.append(samples.write(tmp_path / name, file.records, file.header))
    with pytest.raises(BadInput, match=f"DEEPBENCH_MKL_PATH={library}.*add --trust {paths[0]}"):
        sides.measure_again(*map(read_results, paths), [TEXT], trusted=False, on_load=print)


def side_file(version, path):
    header = samples.header(["gemm m=1 n=1 k=1 forward f32 openblas threads=1"])
    header["libraries"] = {"openblas": {"library": {"name": "OpenBLAS", "version": version, "path": path}}}
    return SimpleNamespace(header=header)


OLD, NEW = side_file("0.3.27", "/old/libopenblas.so"), side_file("0.3.34", "/new/libopenblas.so")
OF_PATH = "DEEPBENCH_OPENBLAS_PATH=/a/long/folder/with/the/old/one,/a/long/folder/with/the/new/one"


def test_sides_that_load_other_libraries_are_called_by_their_versions():
    both = sides.parse_sides(OF_PATH)

    assert ("A: OpenBLAS 0.3.27", "B: OpenBLAS 0.3.34") == sides.names_of_sides(both, (OLD, NEW))
    assert None is sides.same_libraries(both, (OLD, NEW))
    assert ("threads=1", "threads=2") == sides.names_of_sides(sides.parse_sides("threads=1,2"), (OLD, OLD))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OF_PATH, "does not name another library"),
        ("MY_OWN_VARIABLE=1,2", "is not known to change what they do"),
    ],
)
def test_sides_that_loaded_the_same_files_are_named(text, words):
    found = sides.same_libraries(sides.parse_sides(text), (OLD, OLD))

    assert words in found
    assert "OpenBLAS 0.3.27 /old/libopenblas.so" in found


def test_a_variable_that_is_known_to_tune_a_library_needs_no_other_file():
    assert None is sides.same_libraries(sides.parse_sides("OPENBLAS_CORETYPE=Haswell,Prescott"), (OLD, OLD))


def test_a_misspelt_variable_of_ours_is_refused():
    with pytest.raises(BadInput, match=r"DEEPBENCH_OPENBLAS is no variable .*; did you mean DEEPBENCH_OPENBLAS_PATH\?"):
        sides.parse_sides("DEEPBENCH_OPENBLAS=/old,/new")
