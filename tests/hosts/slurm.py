"""Slurm on the hosts of a lab: munged, slurmctld on the first host, and slurmd on every host.

python -m tests.hosts.slurm -- salloc -N4 deepbench fleet …     # runs the command on the first of four hosts

Written for Slurm 22.05 of Debian 12. All files of Slurm lie in the folder of the lab, `slurm/`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.hosts import lab
from tests.hosts.lab import Lab

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue")
PACKAGES = "slurmctld slurmd slurm-client munge"

# slurmd of this version always opens its plug-in for control groups, and cannot start without what it expects there.
GROUPS = "CgroupPlugin=cgroup/v1\n"
GROUPS_V1 = Path("/sys/fs/cgroup/freezer")

# A node that does not answer is DOWN after SlurmdTimeout. A step that ignores SIGTERM gets SIGKILL after KillWait.
SETTINGS = """
ClusterName=lab
SlurmctldHost=h0({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MessageTimeout=10
"""


class SlurmLab(Lab):
    """Hosts `h0`, `h1` … that are the nodes of a Slurm cluster. Needs root, what a `Lab` needs, and `PROGRAMS`."""

    def __init__(self, count: int = 4) -> None:
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._of_slurm: set[int] = set()
        super().__init__(count, keeps_sys=True)
        try:
            self._configure()
            self._start_daemons()
        except BaseException:
            self.close()
            raise

    def _configure(self) -> None:
        self.slurm = self.folder / "slurm"
        (self.slurm / "state").mkdir(parents=True)
        self.folder.chmod(0o711)  # munged wants that every user can reach its socket
        (self.slurm / "munge.key").write_bytes(os.urandom(128))
        (self.slurm / "munge.key").chmod(0o400)
        settings = SETTINGS.format(folder=self.slurm, address=self.address("h0"))
        nodes = [f"NodeName={n} NodeAddr={self.address(n)} CPUs=1 State=UNKNOWN\n" for n in self.names]
        partition = "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        (self.slurm / "slurm.conf").write_text(settings + "".join(nodes) + partition)
        (self.slurm / "cgroup.conf").write_text(GROUPS)
        # Nothing else: what the tests find in the environment of a step must come from the command that started it.
        self.variables = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/root"),
            "SLURM_CONF": str(self.slurm / "slurm.conf"),
        }

    def _start_daemons(self) -> None:
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid", "log-file": "munge.log"}
        options = [f"--{name}={self.slurm / file}" for name, file in {**files, "seed-file": "munge.seed"}.items()]
        self._start_daemon("munged", ["munged", "--foreground", "--force", *options])
        until((self.slurm / "munge.socket").exists, 10, "munged opens its socket")
        self._start_daemon("slurmctld", self.command(["slurmctld", "-D"], "h0"))
        for name in self.names:
            self._start_daemon(name, self.command(["slurmd", "-D"], name))
        until(lambda: set(self.states().values()) == {"idle"}, 30, "all nodes are idle", self.log)
        self._of_slurm |= set(self.processes())

    def _start_daemon(self, name: str, command: list[str]) -> None:
        with open(self.slurm / f"{name}.out", "ab") as output:
            daemon = subprocess.Popen(
                command, env=self.variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._daemons[name] = daemon
        self._of_slurm.add(daemon.pid)

    def log(self) -> str:
        """The last lines that each daemon has printed."""
        return "".join(f"{path.name}: {path.read_text()[-1000:]}\n" for path in sorted(self.slurm.glob("*.out")))

    def start(self, words: list[str], on: str = "h0", **environment: str) -> subprocess.Popen[str]:
        """Start a command on a host, which finds the cluster. The replacement for ssh is not used."""
        return super().start(words, on, **{"DEEPBENCH_REMOTE_SHELL": "", **self.variables, **environment})

    def run(self, *words: str, on: str = "h0") -> str:
        """The output of a command of Slurm; `OSError` if it fails."""
        done = subprocess.run(
            self.command(list(words), on), env=self.variables, capture_output=True, text=True, timeout=60
        )
        if done.returncode:
            raise OSError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def states(self) -> dict[str, str]:
        """The state of each node, such as `idle`; empty while slurmctld does not answer."""
        try:
            lines = self.run("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
        except (OSError, subprocess.TimeoutExpired):
            return {}
        return dict(line.split() for line in lines)

    def jobs(self) -> list[str]:
        """The numbers of the jobs that have not ended."""
        return self.run("squeue", "--noheader", "--format=%i").split()

    def allocate(self, nodes: str) -> dict[str, str]:
        """Allocate these nodes until the job is cancelled; the variables that salloc would give to a command.

        The job outlives the command that uses it, so nothing but the command can end its steps.
        """
        names = self.run("scontrol", "show", "hostnames", nodes).split()
        options = ["--exclusive", "--no-kill", f"--nodes={len(names)}", f"--nodelist={nodes}"]
        said = self.run("salloc", "--no-shell", *options)
        found = re.search(r"Granted job allocation (\d+)", said)
        assert found is not None, said
        return {
            "SLURM_JOB_ID": found[1],
            "SLURM_JOBID": found[1],
            "SLURM_JOB_NODELIST": nodes,
            "SLURM_NODELIST": nodes,
            "SLURM_JOB_NUM_NODES": str(len(names)),
            "SLURM_NNODES": str(len(names)),
        }

    def started(self) -> dict[int, str]:
        """What runs on any host besides Slurm's daemons: command lines by process number."""
        return {pid: line for pid in self.processes() if pid not in self._of_slurm and (line := command_line(pid))}

    def kill_slurmd(self, name: str) -> None:
        """Kill the daemon of a node, and not the steps that it has started."""
        os.kill(self._daemons[name].pid, signal.SIGKILL)
        self._daemons[name].wait()

    def reset(self) -> None:
        """End all jobs, and bring back daemons, links and nodes."""
        for name in self.names:
            self.cut(name, back=True)
            if self._daemons[name].poll() is not None:
                self._start_daemon(name, self.command(["slurmd", "-D"], name))
        if jobs := self.jobs():
            self.run("scancel", *jobs)
        until(lambda: not self.jobs(), 40, "all jobs have ended", self.log)
        until(self._all_idle, 40, "all nodes are idle", self.log)

    def _all_idle(self) -> bool:
        states = self.states()
        for name, state in states.items():
            if state.startswith(("down", "drain", "unknown")):
                subprocess.run(
                    self.command(["scontrol", "update", f"nodename={name}", "state=resume"]),
                    env=self.variables,
                    capture_output=True,
                )
        return set(states.values()) == {"idle"}

    def close(self) -> None:
        """Kill the daemons and all that they have started, and remove everything."""
        for daemon in self._daemons.values():
            daemon.kill()
            daemon.wait()
        super().close()


def command_line(pid: int) -> str:
    """The words of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def until(condition: Callable[[], object], most_s: float, what: str, why: Callable[[], str] = str) -> float:
    """Wait until something holds; the seconds that it took. Fails with `why` after `most_s` seconds."""
    start = time.monotonic()
    while not condition():
        took_s = time.monotonic() - start
        assert took_s < most_s, f"not within {most_s:g} s: {what}\n{why()}"
        time.sleep(0.1)
    return time.monotonic() - start


def missing() -> str | None:
    """What this machine lacks for a cluster, or None."""
    if absent := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"a Slurm cluster needs {', '.join(absent)}; on Debian: apt install {PACKAGES}"
    if not GROUPS_V1.is_dir():
        return "slurmd 22.05 needs control groups of version 1, which this machine does not mount"
    return lab.missing()


if __name__ == "__main__":
    with SlurmLab() as cluster:
        process = cluster.start(sys.argv[2:])
        print(process.communicate()[0])
