"""A job in two containers, each with its own network, name and /opt/ml."""
import json
import shlex
import shutil
import subprocess
import sys

from container import make_tree
from hosts import HostsTest, main

HOSTS = ("alpha", "beta")


class ContainerHosts(HostsTest):
    def setUp(self):
        super().setUp()
        self.env["SAGEMAKER_BASE_DIR"] = str(self.dir / "disk")

    def make_trees(self, **hyperparameters):
        options = (f"--mca plm_rsh_agent {self.dir}/agent --mca btl self,vader,tcp --mca btl_tcp_if_include eth0 "
                   "--mca oob_tcp_if_include eth0")
        for host in self.hosts:
            make_tree(host.disk, HOSTS, host.name, sagemaker_mpi_custom_mpi_options=json.dumps(options),
                      ddp_timeout="60", **hyperparameters)

    def failures(self):
        return [path.read_text() if path.exists() else None for path in (h.disk / "output/failure" for h in self.hosts)]

    def start_both(self):
        processes = [self.start("train", host=number) for number in (1, 0)]
        for process in processes:
            self.addCleanup(process.kill)
        return processes

    def test_first_host_trains_on_both(self):
        self.make_trees(max_steps="4", save_steps="2", save_on_each_node="true")
        for process in self.start_both():
            result = self.finish(process)
            self.assertEqual(result.code, 0, str(result))
        self.assertEqual(self.failures(), [None, None])
        self.assertTrue((self.hosts[0].disk / "model/model.safetensors").exists())
        steps = [json.loads(line) for line in (self.hosts[0].disk / "model/metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["step"] for line in steps if "loss" in line], [1, 2, 3, 4])
        for host in self.hosts:
            self.assertTrue((host.disk / "checkpoints/checkpoint-4/manifest.json").exists(), host.name)

    def test_failure_ends_both(self):
        self.make_trees(max_steps="100000")
        (self.hosts[1].disk / "input/data/train/text.txt").write_text("other data")
        for process in self.start_both():
            result = self.finish(process)
            self.assertNotEqual(result.code, 0, str(result))
        self.assertTrue(all(self.failures()), self.failures())
        self.assertIn("error: host alpha: ", self.failures()[1])
        self.assertNotIn("alpha: error: ", self.failures()[1])

    def test_failure_before_ranks_start(self):
        self.make_trees(max_steps="4")
        shutil.rmtree(self.hosts[0].disk / "input/data/train")
        for process in self.start_both():
            result = self.finish(process)
            self.assertEqual(result.code, 2, str(result))
        for failure in self.failures():
            self.assertIn("there is no data file or folder", failure)

    def test_a_stranger_is_not_waited_for(self):
        self.make_trees(max_steps="1")
        make_tree(self.hosts[0].disk, HOSTS, "alpha", ddp_timeout="3")
        first = self.start("train", host=0)
        greets = "import socket, time; s = socket.create_connection(('127.0.0.1', 23117)); s.send(b'G'); time.sleep(60)"
        tries = f"until {sys.executable} -c {shlex.quote(greets)} 2>/dev/null; do sleep 0.1; done"
        stranger = subprocess.Popen(["nsenter", "-t", str(self.hosts[0].keeper.pid), "-n", "sh", "-c", tries])
        self.addCleanup(stranger.kill)
        self.assertIn("no message from host beta after 3 s", str(self.finish(first, limit=30)))

    def test_lost_first_host(self):
        self.make_trees(max_steps="100000")
        other, first = self.start_both()
        metrics = self.hosts[0].disk / "model/metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 2, "steps")
        first.kill()
        self.hosts[0].kill_all()
        result = self.finish(other)
        self.assertEqual(result.code, 1, str(result))
        self.assertIn("the connection to host alpha ended before the job did", self.failures()[1])

    def test_host_that_never_starts(self):
        self.make_trees(max_steps="1")
        make_tree(self.hosts[0].disk, HOSTS, "alpha", ddp_timeout="3")
        result = self.finish(self.start("train", host=0))
        self.assertEqual(result.code, 1, str(result))
        self.assertIn("no message from host beta after 3 s", self.failures()[0])


if __name__ == "__main__":
    main()
