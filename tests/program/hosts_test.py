"""Runs on two hosts that share output_dir, but each have their own disk for checkpoints."""
import json
import os
import random
import re
import shutil
import time

from harness import LIMIT, TINY, one_of_all, signal
from hosts import HostsTest, main

MODEL = {"config": dict(TINY["model"]["config"], n_layer=4, attn_pdrop=0.1)}
STEPS, KILLED_STEPS, LONG = 40, 150, 200
HOST_TIMEOUT = 5
KILLS = int(os.environ.get("SHARDLINE_KILLS", "3"))
SEED = int(os.environ.get("SHARDLINE_KILL_SEED", "1"))


class Hosts(HostsTest):
    def sections(self, folder="out", training=None, per_host=1, **more):
        return self.on_hosts(per_host, model=MODEL, output_dir=folder, **more, training={
            "max_steps": STEPS, "save_steps": 7, "checkpoint_dir": "disk/checkpoints", **(training or {})})

    def numbers(self, folder):
        return [(line["step"], line["loss"], line["grad_norm"], line["learning_rate"]) for line in self.metrics(folder)]

    def whole_run(self, steps=STEPS, **sections):
        """Trains without interruption; returns the numbers and the weights."""
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
        """Ranks on two hosts compute the same numbers as two ranks on one host."""
        self.train(**self.on_hosts(p=2))
        self.expect(0, "train", self.config(p=2, communicator="mpi", output_dir="one"))
        numbers = [[(line["step"], line["loss"], line["grad_norm"]) for line in self.metrics(folder)]
                   for folder in ("out", "one")]
        self.assertEqual(*numbers)
        self.assertEqual((self.dir / "out/model.safetensors").read_bytes(),
                         (self.dir / "one/model.safetensors").read_bytes())

    def test_parts(self):
        """Each host saves a part; a run on another layout continues from the parts, and merging them results in a
        model."""
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

    @one_of_all
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
                    says=["none from which the run can continue", "part 2 of 2, which host beta wrote, is missing"])

    def test_output_dir_of_each_host(self):
        """The hosts that write the final model must share output_dir; if they do not, this is found before step 1."""
        sections = self.sections("disk/out", p=2, training={"checkpoint_dir": None})
        del sections["training"]["checkpoint_dir"]
        result = self.expect(1, "train", self.config(**sections),
                             says=["/output_dir: disk/out is not the same directory for all ranks that write the model",
                                   "host beta (rank 1)"])
        self.assertNotIn("step", result.out.split("output ")[0])
        # The first replica is on one host: only that host writes the model, and both have the checkpoints.
        sections = self.sections("disk/out", training={"save_on_each_node": True, "max_steps": 10})
        del sections["training"]["checkpoint_dir"]
        self.train(**sections)
        self.assertTrue((self.hosts[0].disk / "out/model.safetensors").exists())
        self.assertFalse((self.hosts[1].disk / "out/model.safetensors").exists())
        for host in self.hosts:
            self.assertTrue((host.disk / "out/checkpoint-10/manifest.json").exists())
        # The first host is replaced by an empty one, which then has no records.
        self.hosts[0].empty_disk()
        sections["training"].update(resume_from_checkpoint="auto", max_steps=12, resume_with_changes=True)
        self.train(**sections)
        metrics = (self.hosts[0].disk / "out/metrics.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line)["step"] for line in metrics], [11, 12])

    @one_of_all
    def test_doctor_with_the_records_of_each_host(self):
        """One host's records show whose records are missing; with the others' files, the rank at fault is found."""
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
                                                r"\(host beta, stage 0\) takes part but has no records here$")
            self.assertIn("  no records of these hosts here: beta\n", result.err)
            sections["training"]["overwrite_output_dir"] = True
        for file in (folders[1] / "flight").iterdir():
            shutil.copy(file, folders[0] / "flight")
        found = json.loads(self.expect(0, "doctor", str(folders[0]), "--json").out)
        self.assertEqual((found["cause"], found["culprits"]), ("behind", [1]), found)
        self.assertEqual((found["hosts_without_records"], found["files_of_other_jobs"]), ([], 0))

    def test_full_disk_of_another_host(self):
        """A full disk is found before the first step. If it fills up later, training continues without checkpoints. The
        message names the host."""
        whole = self.whole_run(p=2)
        self.hosts[1].limit_disk("400k")
        refused = self.expect(1, "train", self.config(**self.sections(p=2, training={"save_total_limit": 9})))
        self.assertRegex(refused.err, r"/training/checkpoint_dir: 10 checkpoints need \S+ \wiB, but .*disk/checkpoints on "
                                      r"host beta has \S+ KiB left; free some space there or choose another checkpoint_dir")
        self.assertFalse((self.dir / "out/metrics.jsonl").exists())
        result = self.expect(1, "train", self.config(**self.sections(p=2)))
        self.assert_continued("out", whole)
        failed = re.findall(r"^warning: checkpoints: checkpoint-(\d+) was not saved: host beta: disk/checkpoints/.*"
                            r"No space left on device; the file system has \d+ bytes left; free some space there",
                            result.out, re.MULTILINE)
        saved = [int(found[1]) for name in self.checkpoints(self.hosts[0])
                 if (found := re.fullmatch(r"checkpoint-(\d+)\.part-1-of-2", name))]
        self.assertTrue(saved, str(result))
        self.assertEqual(sorted([*map(int, failed), *saved]), [7, 14, 21, 28, 35, STEPS], str(result))
        self.assertEqual(self.checkpoints(self.hosts[1]), sorted(f"checkpoint-{step}.part-2-of-2" for step in saved))
        for host in self.hosts:
            self.assertEqual((host.disk / "checkpoints/newest").read_text(), f"checkpoint-{max(saved)}\n")

    def wait_for_line(self, process, text, limit=LIMIT):
        """Waits for text in the messages of a run that continues."""
        self.wait_for(lambda: process.poll() is not None or text in self.output(process.number, "err").read_text(), text,
                      limit)
        self.assertIsNone(process.poll(), self.output(process.number, "err").read_text())

    def test_lost_connection(self):
        """The link of a host goes down in the middle of a step, or the host dies. The job ends within its limit, names
        the host, and continues from the newest checkpoint once the host is there again."""
        whole = self.whole_run(p=2, steps=LONG)
        alpha, beta = self.hosts
        silent = rf"  beta has not answered for {HOST_TIMEOUT} s \(mpi_options.host_timeout\)\n"
        # mpirun may notice it first; then the doctor names the rank, or the launcher names the host.
        dead = r"  rank 1 \(host beta, stage 1\) does not finish its part: |  ORTE was unable to reliably start"
        for name, lose, reason in (("link", lambda: beta.set_link("down"), silent),
                                   ("power", beta.lose_power, f"{silent}|{dead}")):
            with self.subTest(name):
                shutil.rmtree(self.dir / "out", ignore_errors=True)
                for host in self.hosts:
                    host.empty_disk()
                process = self.start("train", self.config(**self.sections(
                    p=2, training={"max_steps": LONG}, mpi_options={"max_restarts": 2, "host_timeout": HOST_TIMEOUT})))
                self.addCleanup(process.kill)
                self.wait_for((alpha.disk / "checkpoints/newest").exists, "a checkpoint")
                steps = len(self.metrics())
                self.wait_for(lambda: len(self.metrics()) > steps + 2, "steps after it, when the launcher knows it")
                lose()
                begin = time.monotonic()
                self.wait_for_line(process, "attempt 1 failed:")
                self.assertLess(time.monotonic() - begin, HOST_TIMEOUT + 10)
                self.wait_for_line(process, "waiting for these hosts to answer: beta")
                self.wait_for(lambda: not beta.ranks(), "the end of the ranks that were cut off", 30)
                before = self.checkpoints(alpha)
                self.assertLess(len(self.metrics()), LONG)
                beta.set_link("up")
                result = self.finish(process)
                self.assertEqual(result.code, 0, str(result))
                self.assertRegex(result.err, r"\bbeta\b.* (has not answered|cannot be reached|does not finish)")
                self.assertRegex(result.err, rf"attempt 1 failed:\n(    .*\n|  what the ranks were doing:\n)*({reason})")
                self.assertRegex(result.err, "attempt 2 of at most 3 continues from the newest intact checkpoint in "
                                             "disk/checkpoints\n")
                continued = re.search(r"(?m)^continues disk/checkpoints/(checkpoint-\d+) after", result.out)
                self.assertIn(f"{continued[1]}.part-1-of-2", before)
                self.assert_continued("out", whole)

    def cut_off_first_save(self, steps):
        """Creates the files that remain if the first save ends after its publication on the first host and before that
        on the second."""
        for host in self.hosts:
            for entry in (host.disk / "checkpoints").iterdir():
                if entry.name not in (f"checkpoint-{steps}.part-1-of-2", ".attempt", ".lock"):
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    @one_of_all
    def test_first_save_that_was_cut_off(self):
        """The run starts from the beginning, as there was no checkpoint yet. A checkpoint lost later is an error."""
        whole = self.whole_run(p=2, steps=LONG)
        alpha = self.hosts[0]
        sections = self.sections(p=2, training={"max_steps": LONG, "save_steps": 50, "resume_from_checkpoint": "auto"},
                                 mpi_options={"max_restarts": 1})
        says = ["checkpoint-50 is skipped, because the job ended before all hosts had it: part 2 of 2, which host beta "
                "wrote, is missing",
                "note: the run starts from the beginning: an earlier attempt ended before its first checkpoint in "
                "disk/checkpoints was complete on all hosts"]
        process = self.start("train", self.config(**sections))
        self.addCleanup(process.kill)
        newest = alpha.disk / "checkpoints/newest"
        self.wait_for(newest.exists, "a checkpoint")
        # The launcher may start the ranks again once the disks are as they would be after such an end.
        process.send_signal(signal.SIGSTOP)
        self.hosts[1].kill_all()
        self.wait_for(lambda: all(rank is None for rank in self.processes().values()), "the end of the ranks")
        self.cut_off_first_save(50)
        process.send_signal(signal.SIGCONT)
        result = self.finish(process)
        self.assertEqual(result.code, 0, str(result))
        for words in says:
            self.assertIn(words, result.out, str(result))
        self.assert_continued("out", whole)
        self.assertIn("checkpoint-50.part-1-of-2.superseded", self.checkpoints(alpha))

        # The same for a manual start, but not if a checkpoint was complete before.
        shutil.rmtree(self.dir / "out")
        self.cut_off_first_save(-1)
        self.stop_after(9, self.config(**sections))
        steps = len(self.metrics())
        self.cut_off_first_save(steps)
        newest.write_text(f"checkpoint-{steps}\n")
        self.expect(1, "train", self.config(**sections), says=[
            "disk/checkpoints has checkpoints, but none from which the run can continue",
            "part 2 of 2, which host beta wrote, is missing"])
        newest.unlink()
        self.expect(0, "train", self.config(**sections), says=says[1])
        self.assert_continued("out", whole)

    @one_of_all
    def test_first_save_of_a_run_that_started_elsewhere(self):
        """The run ends after one host or all hosts have published the checkpoint, and before a rank reports this. The
        next attempt continues from it if all hosts have it, and otherwise from where the run started."""
        def sections(folder, **training):
            return self.sections(folder, p=2, training={"lr_scheduler_type": "constant", "max_steps": LONG, **training},
                                 mpi_options={"max_restarts": 1})

        elsewhere = str(self.dir / "elsewhere")
        self.train(**sections(elsewhere, max_steps=10, checkpoint_dir=elsewhere))
        start = {"resume_from_checkpoint": f"{elsewhere}/checkpoint-10"}
        self.train(**sections("whole", save_steps=50, **start))
        whole = self.numbers("whole"), (self.dir / "whole/model.safetensors").read_bytes()
        published = [self.dir / f"published-{host.name}" for host in self.hosts]
        for number, host in enumerate(self.hosts):
            (host.disk / f"checkpoints/checkpoint-50.part-{number + 1}-of-2").rename(published[number])
        for count, from_where in ((1, f"{elsewhere}/checkpoint-10"), (2, "disk/checkpoints/checkpoint-50")):
            with self.subTest(hosts_that_have_published=count):
                shutil.rmtree(self.dir / "out", ignore_errors=True)
                for host in self.hosts:
                    host.empty_disk()
                process = self.start("train", self.config(**sections("out", save_steps=LONG, **start)))
                self.addCleanup(process.kill)
                self.wait_for_steps(3)
                process.send_signal(signal.SIGSTOP)  # so that it sees the disks only as they are after such an end
                self.hosts[1].kill_all()
                self.wait_for(lambda: all(rank is None for rank in self.processes().values()), "the end of the ranks")
                for number, host in enumerate(self.hosts[:count], 1):
                    shutil.copytree(published[number - 1], host.disk / f"checkpoints/checkpoint-50.part-{number}-of-2")
                process.send_signal(signal.SIGCONT)
                result = self.finish(process)
                self.assertEqual(result.code, 0, str(result))
                self.assertIn("attempt 2 of at most 2 continues from the newest intact checkpoint in disk/checkpoints, or "
                              f"else from {elsewhere}/checkpoint-10\n", result.err)
                self.assertEqual(result.out.count(f"continues {from_where} after step"), 3 - count, str(result))
                self.assertEqual((self.dir / "out/model.safetensors").read_bytes(), whole[1])
                if count == 1:
                    self.assert_continued("out", whole)
                    self.assertIn("checkpoint-50.part-1-of-2.superseded", self.checkpoints(self.hosts[0]))

    def test_kill_at_any_instant(self):
        """Whatever is killed, whenever, and with one checkpoint kept: the hosts together have a complete one."""
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
    main()
