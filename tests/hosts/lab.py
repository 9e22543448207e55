"""Several hosts on one machine: network namespaces, links with a given rate, and a replacement for ssh between them.

python -m tests.hosts.lab 2 200mbit -- deepbench run …     # runs the command on the first of two hosts
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Private addresses. Names of namespaces contain our process number, so that two labs do not collide.
NETWORK = "10.77.93"


class Lab:
    """Hosts `h0`, `h1` … behind one switch. Needs root and `ip`, `tc`, `nsenter` and `unshare`."""

    def __init__(
        self, count: int, rate: str | None = None, shares: dict[str, float] | None = None, keeps_sys: bool = False
    ) -> None:
        """`rate` limits each link, such as `1gbit`. `shares` limits the CPUs of hosts, such as `{"h1": 0.9}`.

        With `keeps_sys`, hosts see /sys of this machine: its control groups, and also its network interfaces.
        """
        self.shares, self._keeps_sys = shares or {}, keeps_sys
        self.names = [f"h{i}" for i in range(count)]
        self._mark = f"db{os.getpid() % 10000}"
        self._pids: dict[str, int] = {}
        self._holders: list[subprocess.Popen[bytes]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="deepbench-lab-")
        self.folder = Path(self._folder.name)
        try:
            self._build(rate)
        except BaseException:
            self.close()
            raise

    def _build(self, rate: str | None) -> None:
        switch = f"{self._mark}sw"
        names = self.folder / "etc-hosts"
        names.write_text("127.0.0.1 localhost\n" + "".join(f"{self.address(n)} {n}\n" for n in self.names))
        _sh(f"ip netns add {switch}; ip -n {switch} link add br0 type bridge; ip -n {switch} link set br0 up")
        for i, name in enumerate(self.names):
            space, port = f"{self._mark}{name}", f"v{i}"
            _sh(
                f"ip netns add {space}; ip link add {port} netns {switch} type veth peer name eth0 netns {space};"
                f"ip -n {switch} link set {port} master br0 up;"
                f"ip -n {space} addr add {self.address(name)}/24 dev eth0; ip -n {space} link set eth0 up;"
                f"ip -n {space} link set lo up"
            )
            # This process keeps the host's name, shared memory and mounts: libraries look at these.
            ready = self.folder / f"{name}.ready"
            private = f"hostname {name} && mount -t tmpfs t /dev/shm && mount --bind {names} /etc/hosts"
            script = f"{private} && touch {ready} && exec sleep 100000"
            enter = ["nsenter", f"--net=/run/netns/{space}"] if self._keeps_sys else ["ip", "netns", "exec", space]
            holder = subprocess.Popen([*enter, "unshare", "-u", "-i", "-m", "sh", "-c", script])
            self._pids[name] = holder.pid
            self._holders.append(holder)
            end = time.monotonic() + 10
            while not ready.exists():
                if holder.poll() is not None or time.monotonic() > end:
                    raise OSError(f"host {name} does not start")
                time.sleep(0.01)
            if rate:
                shape = f"root tbf rate {rate} burst 64kb latency 50ms"
                _sh(f"tc -n {space} qdisc add dev eth0 {shape}; tc -n {switch} qdisc add dev {port} {shape}")
        for name in self.names:
            self._limit(name)
        self.ssh = self.folder / "ssh"
        cases = "\n".join(
            f'{self.address(n)}|{n}) {self._enter(n)} exec nsenter -t {pid} -n -u -i -m sh -c "cd {self.folder}; $*";;'
            for n, pid in self._pids.items()
        )
        # Options of ssh are dropped; the first other word is the host.
        self.ssh.write_text(
            '#!/bin/sh\nwhile case "$1" in -*) true;; *) false;; esac; do\n'
            ' case "$1" in -l|-p|-o|-i) shift;; esac; shift; done\n'
            f'host="$1"; shift\ncase "$host" in\n{cases}\nesac\nexit 255\n'
        )
        self.ssh.chmod(0o755)
        (self.folder / "hosts").write_text("".join(f"{self.address(n)}\n" for n in self.names))

    def _group(self, name: str) -> Path:
        """The control group of a host with limited CPUs."""
        root = Path(f"/proc/{os.getpid()}/root/sys/fs/cgroup/cpu")  # a host sees another /sys
        return (root if root.is_dir() else root.parent) / f"{self._mark}{name}"

    def _limit(self, name: str) -> None:
        if name not in self.shares:
            return
        group, period_us = self._group(name), 10000
        quota_us = int(period_us * self.shares[name])
        group.mkdir()
        if (group / "cpu.cfs_quota_us").exists():  # version 1
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {period_us}")

    def _enter(self, name: str) -> str:
        """Shell code that puts the shell into the control group of its host."""
        return f"echo $$ > {self._group(name)}/cgroup.procs;" if name in self.shares else ""

    def address(self, name: str) -> str:
        """The IP address of a host."""
        return f"{NETWORK}.{10 + self.names.index(name)}"

    def start(self, words: list[str], on: str = "h0", **environment: str) -> subprocess.Popen[str]:
        """Start a command on a host, in the lab's folder."""
        variables = {
            **os.environ,
            "DEEPBENCH_REMOTE_SHELL": str(self.ssh),
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": str(self.ssh),
            **environment,
        }
        command = self.command(words, on)
        return subprocess.Popen(command, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def command(self, words: list[str], on: str = "h0") -> list[str]:
        """A command that runs another command on a host, in the lab's folder. Both have the same process number."""
        go = ["sh", "-c", f'cd {self.folder} && exec "$@"', "sh", *words]  # nsenter starts in the root folder
        enter = ["sh", "-c", f'{self._enter(on)} exec "$@"', "sh"]
        return [*enter, "nsenter", "-t", str(self._pids[on]), "-n", "-u", "-i", "-m", *go]

    def cut(self, name: str, back: bool = False) -> None:
        """Cut the link of a host, or bring it back."""
        _sh(f"ip -n {self._mark}sw link set v{self.names.index(name)} {'up' if back else 'down'}")

    def ranks(self, name: str) -> list[int]:
        """Process numbers of ranks on a host."""
        namespace = os.stat(f"/proc/{self._pids[name]}/ns/net").st_ino
        ranks = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (path / "cmdline").read_bytes().split(b"\0")
                is_rank = b"deepbench.measuring.group.rank" in words and b"python" in words[0]
                if is_rank and os.stat(path / "ns" / "net").st_ino == namespace:
                    ranks.append(int(path.name))
        return ranks

    def processes(self) -> list[int]:
        """Process numbers of all that was started on any host."""
        found: list[int] = []
        for name in self.names:
            listed = subprocess.run(["ip", "netns", "pids", f"{self._mark}{name}"], capture_output=True, text=True)
            found += [int(pid) for pid in listed.stdout.split() if int(pid) != self._pids[name]]
        return found

    def close(self) -> None:
        """Kill all processes and remove everything."""
        for pid in self._pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for space in [f"{self._mark}{n}" for n in self.names] + [f"{self._mark}sw"]:
            listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True)
            for pid in listed.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
        for holder in self._holders:
            holder.wait()
        for name in self.shares:
            with contextlib.suppress(OSError):
                self._group(name).rmdir()
        self._folder.cleanup()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def missing(rate: str | None = None) -> str | None:
    """What this machine lacks for a lab, or None."""
    try:
        with Lab(1, rate):
            return None
    except (OSError, subprocess.CalledProcessError) as error:
        return f"simulated hosts need root and iproute2, and a kernel that allows network namespaces: {error}"


def _sh(script: str) -> None:
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip() or script)


if __name__ == "__main__":
    with Lab(int(sys.argv[1]), sys.argv[2]) as lab:
        process = lab.start(sys.argv[4:])
        print(process.communicate()[0])
