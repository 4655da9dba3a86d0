"""Hosts of a cluster, on one machine: each has its own network, its own name and its own disk.

A host is three namespaces of the kernel (network, names, mounts), which a sleeping process keeps. A bridge connects the
hosts; mpirun enters them through a script that takes the place of ssh. All hosts see the test's folder, as a shared
file system, except for `disk`, of which each host has its own.
"""
import ctypes
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time
import unittest

from harness import LIMIT, NOT_RUN, PROGRAM, ProgramTest, Result, signal

NAMES = ["alpha", "beta", "gamma"]
NETWORK = "10.213.77"


def obstacle():
    """Returns why this machine cannot have hosts; empty if it can."""
    if os.geteuid() != 0:
        return "needs root, to give each host a network and a name"
    for tool in ("ip", "nsenter", "unshare", "mpirun"):
        if not shutil.which(tool):
            return f"needs {tool}"
    bridge = ["unshare", "-nmu", "ip", "link", "add", "bridge0", "type", "bridge"]
    tried = subprocess.run(bridge, capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"cannot make network namespaces: {tried.stderr.strip()}"


def keep_namespaces(*kinds):
    """Starts a process that has namespaces of its own and ends with this one."""
    prctl, die = ctypes.CDLL(None).prctl, 1  # PR_SET_PDEATHSIG
    nothing = subprocess.DEVNULL
    return subprocess.Popen(["unshare", *kinds, "sleep", "infinity"], stdin=nothing, stdout=nothing, stderr=nothing,
                            start_new_session=True, preexec_fn=lambda: prctl(die, signal.SIGKILL))


def end(process):
    process.kill()
    process.wait()


class Host:
    def __init__(self, folder, name, address):
        self.name, self.address = name, address
        self.disk = folder / f"disk-of-{name}"  # the path of its `disk` outside this host
        self.disk.mkdir()
        self.mounted = folder / "disk"
        self.unreachable = folder / f"unreachable-{name}"
        self.keeper = keep_namespaces("-nmu", "--propagation", "private")
        wait_until(lambda: all(os.readlink(f"/proc/{self.keeper.pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}")
                               for kind in ("net", "mnt", "uts")), "namespaces")
        self.sh(f"hostname {name} && mount --bind {shlex.quote(str(self.disk))} {shlex.quote(str(self.mounted))} && "
                f"mount --bind {shlex.quote(str(folder / 'names'))} /etc/hosts && ip link set lo up")

    def enter(self):
        """Returns the words that, put before a command, run it on this host."""
        return ["nsenter", "-t", str(self.keeper.pid), "-n", "-m", "-u"]

    def sh(self, script):
        subprocess.run([*self.enter(), "sh", "-ec", script], check=True)

    def set_link(self, state):
        """Connects or disconnects the cable: "up" or "down". Without it, no other host can start processes here
        either."""
        self.sh(f"ip link set eth0 {state}")
        self.unreachable.unlink() if state == "up" else self.unreachable.touch()

    def ranks(self):
        """Returns the program's processes on this host, without Open MPI's daemon: it may keep running until a lost
        link is back, because the kernel no longer probes a connection on which data are waiting to be sent."""
        return [pid for pid in self.processes() if pathlib.Path(f"/proc/{pid}/comm").read_text() == "shardline\n"]

    def processes(self):
        """Process ids of everything that runs on this host, even if nobody waits for it any more."""
        network = os.readlink(f"/proc/{self.keeper.pid}/ns/net")
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if int(folder.name) != self.keeper.pid and os.readlink(folder / "ns/net") == network:
                    found.append(int(folder.name))
            except OSError:
                pass
        return found

    def kill_all(self):
        """Simulates a power failure."""
        while pids := self.processes():
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)

    def end(self):
        self.kill_all()
        end(self.keeper)

    def limit_disk(self, size):
        """Gives the host another, empty disk of this size ("400k")."""
        self.sh(f"mount -t tmpfs -o size={size} tmpfs {shlex.quote(str(self.mounted))}")
        self.disk = pathlib.Path(f"/proc/{self.keeper.pid}/root{self.mounted}")

    def lose_power(self):
        """The host ends without notifying the others; set_link("up") starts it again."""
        self.set_link("down")
        self.kill_all()

    def empty_disk(self):
        for entry in self.disk.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def wait_until(condition, what, limit=30):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {limit} s for {what}")
        time.sleep(0.01)


@unittest.skipIf(obstacle(), obstacle())
class HostsTest(ProgramTest):
    """Tests with `self.hosts`. The launcher runs on the first one."""
    count = 2

    def setUp(self):
        super().setUp()
        (self.dir / "disk").mkdir()
        self.started = 0
        addresses = [f"{NETWORK}.{i + 1}" for i in range(self.count)]
        names = "".join(f"{address} {name}\n" for address, name in zip(addresses, NAMES))
        (self.dir / "names").write_text("127.0.0.1 localhost\n" + names)
        # The switch has its own namespace, so that this machine's network does not change.
        self.switch = keep_namespaces("-n")
        self.addCleanup(end, self.switch)
        wait_until(lambda: os.readlink(f"/proc/{self.switch.pid}/ns/net") != os.readlink("/proc/self/ns/net"), "a switch")
        self.in_switch("ip link add bridge0 type bridge && ip link set bridge0 up")
        self.hosts = []
        for i in range(self.count):
            host = Host(self.dir, NAMES[i], addresses[i])
            self.addCleanup(host.end)
            self.hosts.append(host)
            self.in_switch(f"ip link add port{i} type veth peer name eth0 netns {host.keeper.pid} && "
                           f"ip link set port{i} master bridge0 up")
            host.sh(f"ip addr add {host.address}/24 dev eth0 && ip link set eth0 up")
        self.write_agent()

    def in_switch(self, script):
        subprocess.run(["nsenter", "-t", str(self.switch.pid), "-n", "sh", "-ec", script], check=True)

    def write_agent(self):
        """Open MPI calls it like ssh: HOST, then words that form a shell command."""
        choices = "".join(f"  {host.name}) [ -e {host.unreachable} ] || exec {shlex.join(host.enter())} sh -c \"$*\" ;;\n"
                          for host in self.hosts)
        agent = self.dir / "agent"
        agent.write_text(f'#!/bin/sh\nhost=$1\nshift\ncase $host in\n{choices}esac\necho "no host $host" >&2\nexit 1\n')
        agent.chmod(0o755)

    def on_hosts(self, per_host=1, mpi_options=None, **sections):
        """Sections of a config whose ranks are on all hosts."""
        options = (f"--mca plm_rsh_agent {self.dir}/agent --mca btl self,vader,tcp --mca btl_tcp_if_include eth0 "
                   "--mca oob_tcp_if_include eth0")
        return dict(sections, communicator="mpi", mpi_options={
            "hosts": [host.name for host in self.hosts], "processes_per_host": per_host, "custom_mpi_options": options,
            **(mpi_options or {})})

    def start(self, *arguments, host=0, **options):
        # Output goes into files, because processes on a host that is cut off would keep a pipe open.
        self.started += 1
        with open(self.output(self.started, "out"), "w") as out, open(self.output(self.started, "err"), "w") as err:
            process = subprocess.Popen([*self.hosts[host].enter(), f"--wdns={self.dir}", PROGRAM, *arguments],
                                       env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, **options)
        process.number = self.started
        return process

    def output(self, number, kind):
        return self.dir / f"std{kind}-{number}"

    def finish(self, process, limit=LIMIT):
        begin = time.monotonic()
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            end(process)
            process.returncode = "limit"
        out, err = (self.output(process.number, kind).read_text(errors="replace") for kind in ("out", "err"))
        result = Result(process.returncode, out, err, time.monotonic() - begin)
        self.assertNotEqual(result.code, "limit", f"{' '.join(process.args)} hangs\n{result}")
        return result


def main():
    """Runs the tests of the calling file, or prints why this machine cannot: ctest then counts the file as skipped."""
    if reason := obstacle():
        print(f"SKIPPED: {reason}")
        sys.exit(NOT_RUN)
    unittest.main(verbosity=2)


__all__ = ["Host", "HostsTest", "LIMIT", "main", "unittest"]
