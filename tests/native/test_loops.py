"""Our own C loops give the same bits with any number of threads."""

import pytest

from deepbench.backends.loops import Loops
from deepbench.core.case import parse_case
from deepbench.core.op import find_op
from deepbench.native import library
from tests.help.calls import run

# Fewer and more rows and columns than threads, and columns that fill no whole cache line.
TABLES = ["rows=3 dim=128 bags=500", "rows=1001 dim=37 bags=99 bag=7", "rows=7 dim=5 bags=30 bag=2"]


@pytest.mark.parametrize("text", TABLES)
def test_the_gradient_of_a_table_does_not_depend_on_the_threads(text):
    loops = library.compiled("elementwise")
    if loops is None or not hasattr(loops, "omp_set_num_threads"):
        pytest.skip("the C loops are not built with OpenMP")
    found = set()
    before = loops.omp_get_max_threads()
    for threads in (1, 2, 3, 16, 40):
        loops.omp_set_num_threads(threads)
        backend = Loops()
        backend.open()
        case = parse_case(f"embedding_bag {text} backward f32 loops threads={threads}")
        arrays = find_op(case.op).operands(case)
        run(backend.prepare(case, arrays).calls)
        found.add(arrays["dtable"].tobytes())
    loops.omp_set_num_threads(before)

    assert 1 == len(found)
