"""Tests for ReFrame 4: is a node as fast as healthy ones, and how long do kernels take on it?

reframe -c reframe_deepbench.py -r                                       on the default partition
reframe -c reframe_deepbench.py -r --distribute=all                      on every node of it
reframe -c reframe_deepbench.py -r -S executable=/opt/deepbench/bin/deepbench
"""

import json
import os

import reframe as rfm
import reframe.utility.sanity as sn


class DeepBench(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "deepbench"
    exclusive_access = True
    num_tasks = 1
    time_limit = "10m"


@rfm.simple_test
class deepbench_check(DeepBench):
    """A check of the node. A node that is busy, or has no reference, is skipped."""

    reference_path = variable(str, value="/etc/deepbench/references")

    @run_before("run")
    def set_options(self):
        self.executable_opts = ["fleet", "--check", "--reference", self.reference_path, "--prometheus", "check.prom"]

    @sanity_function
    def is_fine(self):
        path = os.path.join(self.stagedir, str(self.stderr))
        line = sn.evaluate(sn.extractsingle(r"^deepbench: (.*)$", path, 1))
        self.skip_if(line.startswith(("undecided", "not judged")), line)
        return sn.assert_true(line.startswith("fine"), msg=line)

    @performance_function("1")
    def time_ratio(self):
        return sn.extractsingle(r"^deepbench_check_(?:kernel_)?time_ratio(?:{.*})? (\S+)$", "check.prom", 1, float)


@rfm.simple_test
class deepbench_kernels(DeepBench):
    """The suite `fleet`, once. Its times are performance variables, which ReFrame compares with `reference`."""

    suite = variable(str, value="fleet")

    @run_before("run")
    def set_options(self):
        self.executable_opts = ["run", self.suite, "--quick", "-o", "out.jsonl"]
        self.postrun_cmds = [f"{self.executable} show out.jsonl --json > shown.json"]

    @sanity_function
    def has_times(self):
        return sn.assert_found(r"has every sample", self.stdout)

    @run_before("performance")
    def set_times(self):
        with open(os.path.join(self.stagedir, "shown.json")) as file:
            cases = json.load(file)["cases"]
        self.perf_variables = {
            c["case"]: sn.make_performance_function(sn.defer(c["time_s"]), "s") for c in cases if c["time_s"]
        }
