"""Runs on two hosts that share output_dir, but each have a disk of their own for checkpoints."""
import json
import os
import random
import re
import shutil
import time

from harness import LIMIT, TINY, signal
from hosts import HostsTest, unittest

MODEL = {"config": dict(TINY["model"]["config"], n_layer=4, attn_pdrop=0.1)}
STEPS, KILLED_STEPS = 40, 150
KILLS = int(os.environ.get("SHARDLINE_KILLS", "3"))
SEED = int(os.environ.get("SHARDLINE_KILL_SEED", "1"))


class Hosts(HostsTest):
    def sections(self, folder="out", training=None, per_host=1, **more):
        return self.on_hosts(per_host, model=MODEL, output_dir=folder, **more, training={
            "max_steps": STEPS, "save_steps": 7, "checkpoint_dir": "disk/checkpoints", **(training or {})})

    def numbers(self, folder):
        return [(line["step"], line["loss"], line["grad_norm"], line["learning_rate"]) for line in self.metrics(folder)]

    def whole_run(self, steps=STEPS, **sections):
        """Its numbers and its weights."""
        self.train(**self.sections("whole", **sections, training={"save_strategy": "no", "max_steps": steps}))
        return self.numbers("whole"), (self.dir / "whole/model.safetensors").read_bytes()

    def assert_continued(self, folder, whole):
        self.assertEqual(self.numbers(folder), whole[0])
        self.assertEqual((self.dir / folder / "model.safetensors").read_bytes(), whole[1])

    def checkpoints(self, host):
        return sorted(f.name for f in (host.disk / "checkpoints").iterdir() if f.name.startswith("checkpoint-"))

    def stop_after(self, step, config):
        process = self.start("train", config)
        self.addCleanup(process.kill)
        self.wait_for_steps(step, "out")
        process.terminate()
        result = self.finish(process)
        self.assertEqual(result.code, 3, str(result))
        return result

    def test_like_one_host(self):
        """Ranks of two hosts get the numbers of two ranks of one host."""
        self.train(**self.on_hosts(p=2))
        self.expect(0, "train", self.config(p=2, communicator="mpi", output_dir="one"))
        numbers = [[(line["step"], line["loss"], line["grad_norm"]) for line in self.metrics(folder)]
                   for folder in ("out", "one")]
        self.assertEqual(*numbers)
        self.assertEqual((self.dir / "out/model.safetensors").read_bytes(),
                         (self.dir / "one/model.safetensors").read_bytes())

    def test_parts(self):
        """Each host saves a part; a run on another layout continues from the parts, and merging them gives a model."""
        whole = self.whole_run(p=2)
        for pipeline, layout in (({"p": 2}, "the same"), ({"t": 2, "per_host": 2}, "another")):
            with self.subTest(layout):
                shutil.rmtree(self.dir / "out", ignore_errors=True)
                for host in self.hosts:
                    host.empty_disk()
                self.stop_after(9, self.config(**self.sections(p=2)))
                steps = len(self.metrics())
                for number, host in enumerate(self.hosts, 1):
                    self.assertIn(f"checkpoint-{steps}.part-{number}-of-2", self.checkpoints(host))
                parts = [f"disk-of-{host.name}/checkpoints/checkpoint-{steps}.part-{number}-of-2"
                         for number, host in enumerate(self.hosts, 1)]
                shutil.rmtree(self.dir / "merged", ignore_errors=True)
                self.expect(0, "checkpoint", "merge", *parts, "--output", "merged", says=f"step {steps}")
                self.expect(0, "checkpoint", "verify", "merged", says="is intact")
                for part in parts:
                    self.expect(0, "checkpoint", "inspect", part, says="of 2, from host")
                self.train(**self.sections(training={"resume_from_checkpoint": True}, **pipeline))
                for host in self.hosts:
                    self.assertIn(f"checkpoint-{steps}", self.checkpoints(host))
                    there = host.disk / f"checkpoints/checkpoint-{steps}"
                    for file in (self.dir / "merged").iterdir():
                        self.assertEqual((there / file.name).read_bytes(), file.read_bytes(), file.name)
                if layout == "the same":
                    self.assert_continued("out", whole)
                else:
                    for line, (step, loss, _, _) in zip(self.metrics(), whole[0], strict=True):
                        self.assertEqual(line["step"], step)
                        self.assertAlmostEqual(line["loss"], loss, delta=2e-5)

    def test_lost_host(self):
        """With save_on_each_node, each host has everything; without it, the message says what was lost with a host."""
        whole = self.whole_run(p=2)
        for lost in (0, 1):
            with self.subTest(lost=self.hosts[lost].name):
                shutil.rmtree(self.dir / "out", ignore_errors=True)
                for host in self.hosts:
                    host.empty_disk()
                self.stop_after(9, self.config(**self.sections(p=2, training={"save_on_each_node": True})))
                self.hosts[lost].empty_disk()
                self.train(**self.sections(p=2, training={"resume_from_checkpoint": True, "save_on_each_node": True}))
                self.assert_continued("out", whole)
        shutil.rmtree(self.dir / "out")
        for host in self.hosts:
            host.empty_disk()
        self.stop_after(9, self.config(**self.sections(p=2)))
        self.hosts[1].empty_disk()
        self.expect(2, "train", self.config(**self.sections(p=2, training={"resume_from_checkpoint": True})),
                    says=["no intact checkpoint", "part 2 of 2, which host beta wrote, is missing"])

    def test_output_dir_of_each_host(self):
        """The hosts that write the final model must share it, which is found before step 1."""
        sections = self.sections("disk/out", p=2, training={"checkpoint_dir": None})
        del sections["training"]["checkpoint_dir"]
        result = self.expect(1, "train", self.config(**sections),
                             says=["/output_dir: disk/out is not the same directory for all ranks that write the model",
                                   "host beta (rank 1)"])
        self.assertNotIn("step", result.out.split("output ")[0])
        # A first replica on one host: only that one writes the model, and the checkpoints are on both.
        sections = self.sections("disk/out", training={"save_on_each_node": True, "max_steps": 10})
        del sections["training"]["checkpoint_dir"]
        self.train(**sections)
        self.assertTrue((self.hosts[0].disk / "out/model.safetensors").exists())
        self.assertFalse((self.hosts[1].disk / "out/model.safetensors").exists())
        for host in self.hosts:
            self.assertTrue((host.disk / "out/checkpoint-10/manifest.json").exists())
        # The first host is replaced by an empty one, which has no records then.
        self.hosts[0].empty_disk()
        sections["training"].update(resume_from_checkpoint="auto", max_steps=12, resume_with_changes=True)
        self.train(**sections)
        metrics = (self.hosts[0].disk / "out/metrics.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["step"] for line in metrics], [11, 12])

    def test_doctor_with_the_records_of_each_host(self):
        """Those of one host say of whom records are missing; with the others' files the rank at fault is found."""
        # The launcher's working directory is one that hosts share.
        sections = self.sections(str(self.dir / "disk/out"), training={
            "max_steps": 1000000, "save_on_each_node": True, "ddp_timeout": 5})
        del sections["training"]["checkpoint_dir"]
        folders = [host.disk / "out" for host in self.hosts]
        for _ in range(2):  # the second run's records replace those of the first one on both hosts
            process = self.start("train", self.config(**sections))
            self.addCleanup(process.kill)
            metrics = folders[0] / "metrics.jsonl"
            began = time.time()
            self.wait_for(lambda: metrics.exists() and metrics.stat().st_mtime > began and
                          metrics.read_bytes().count(b"\n") > 3, "steps")
            os.kill(self.pid_of_rank(1), signal.SIGSTOP)
            result = self.finish(process)
            self.assertEqual(result.code, 1, str(result))
            self.assertRegex(result.errors[-1], r"^error: rank 0 \(host alpha, stage 0\) waited .* in which rank 1 "
                                                r"\(host beta, stage 0\) takes part, and has no records here$")
            self.assertIn("  no records of these hosts here: beta\n", result.err)
            sections["training"]["overwrite_output_dir"] = True
        for file in (folders[1] / "flight").iterdir():
            shutil.copy(file, folders[0] / "flight")
        found = json.loads(self.expect(0, "doctor", str(folders[0]), "--json").out)
        self.assertEqual((found["cause"], found["culprits"]), ("behind", [1]), found)
        self.assertEqual((found["hosts_without_records"], found["files_of_other_jobs"]), ([], 0))

    def test_kill_at_any_instant(self):
        """Whatever is killed and whenever, with one checkpoint kept: the hosts have all of one together."""
        luck = random.Random(SEED)
        whole = self.whole_run(p=2, steps=KILLED_STEPS)
        config = self.config(**self.sections(p=2, training={
            "resume_from_checkpoint": "auto", "save_steps": 2, "save_total_limit": 1, "max_steps": KILLED_STEPS}))
        reached, resumed = 0, []
        for _ in range(KILLS):
            process = self.start("train", config)
            self.addCleanup(process.kill)
            metrics = self.dir / "out/metrics.jsonl"
            begin = time.monotonic()
            while process.poll() is None and time.monotonic() - begin < LIMIT and not (
                    metrics.exists() and metrics.read_bytes().count(b"\n") >= reached + 3):
                time.sleep(0.01)
            time.sleep(luck.uniform(0, 0.3))
            for host in self.hosts:
                host.kill_all()
            resumed.append(self.finish(process).out)
            if process.returncode == 0:
                break
            reached = len(metrics.read_text().splitlines())
        resumed.append(self.expect(0, "train", config).out)
        steps = [int(found[1]) if (found := re.search(r"continues disk/checkpoints/checkpoint-(\d+) after", out)) else 0
                 for out in resumed]
        self.assertEqual(steps, sorted(steps), "what was complete once is lost")
        self.assertGreater(steps[-1], 0)
        self.assert_continued("out", whole)


if __name__ == "__main__":
    unittest.main(verbosity=2)
