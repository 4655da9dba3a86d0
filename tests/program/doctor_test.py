"""Tests what is known after a job has ended: the reason, the checkpoint to continue from, and records that refused runs
must not destroy."""
import json
import os
import re
import shlex
import subprocess

from harness import PROGRAM, signal, unittest
from ranks_test import RanksTest


class DoctorTest(RanksTest):
    def doctor(self, folder="out"):
        """Returns the diagnosis; the text ends with the same verdict."""
        found = json.loads(self.expect(0, "doctor", folder, "--json").out)
        self.assertTrue(self.expect(0, "doctor", folder).out.endswith(f"\n{found['verdict']}\n"))
        return found

    def checkpoints(self):
        names = [path.parent.name for path in (self.dir / "out").glob("checkpoint-*/manifest.json")]
        return sorted(int(name[11:]) for name in names if re.fullmatch(r"checkpoint-\d+", name))

    def wait_for_checkpoint(self):
        self.wait_for(self.checkpoints, "a checkpoint")

    def start_with_checkpoint(self, **sections):
        process = self.start_training(t=1, training={"save_steps": 20, "save_total_limit": 3}, **sections)
        self.wait_for_checkpoint()
        return process

    def kill_ranks(self, *ranks):
        for pid in [pid for pid, rank in self.processes().items() if rank in ranks]:
            os.kill(pid, signal.SIGKILL)


class KilledFromOutside(DoctorTest):
    def start_with_own_mpirun(self, **sections):
        environment = dict(self.env, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                           OMPI_MCA_mpi_yield_when_idle="1")
        words = ["mpirun", "--quiet", "-np", "2", "--oversubscribe", "--bind-to", "none", PROGRAM, "train",
                 self.config(p=2, communicator="mpi", training={"max_steps": 1000000}, **sections)]
        process = subprocess.Popen(words, cwd=self.dir, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        self.wait_for_steps()
        return process

    def test_rank_of_an_mpirun_that_the_user_has_started(self):
        """No record shows that the rank was killed, and no rank fails: mpirun ends the others a second later."""
        process = self.start_with_own_mpirun()
        self.kill_ranks(1)
        self.assertNotEqual(self.end(process).code, 0)
        found = self.doctor()
        self.assertEqual((found["cause"], found["culprits"]), ("ended", [1]), found)
        self.assertRegex(found["verdict"], r"^rank 1 \(host \S+, stage 1\) ended without a message \d\.\d s before the "
                                           r"others.*; last seen in .*step \d+ \(for ")
        self.assertRegex(found["verdict"], r"; rank 0 waited \d\.\d s for its part of ")

    def test_launcher(self):
        process = self.start_training(t=1)
        process.kill()
        self.finish(process)
        self.assert_all_gone()
        found = self.doctor()
        self.assertEqual(found["cause"], "ended", found)
        self.assertRegex(found["verdict"], r"^ranks? [01].* ended (because the launcher had ended|without a message)")

    def test_everything(self):
        for communicator in ("mpi", "threads"):
            with self.subTest(communicator):
                process = self.start_training(communicator, t=1, output_dir=communicator)
                for pid, _ in sorted(self.processes().items(), key=lambda process: process[1] is None):  # ranks first
                    os.kill(pid, signal.SIGKILL)
                self.finish(process)
                self.assert_all_gone()
                found = self.doctor(communicator)
                self.assertEqual(found["cause"], "ended", found)
                self.assertIn("ended without a message", found["verdict"])


class Records(DoctorTest):
    def test_refused_runs_keep_the_diagnosis_of_the_run_that_failed(self):
        process = self.start_with_checkpoint()
        self.kill_ranks(1)
        self.end(process)
        crash = self.doctor()
        self.assertEqual((crash["cause"], crash["culprits"]), ("killed", [1]))
        sections = {"p": 2, "communicator": "mpi"}
        training = {"max_steps": 1000000, "save_steps": 20, "save_total_limit": 3, "resume_from_checkpoint": "auto"}
        refused = self.config("refused.json", **sections, training={**training, "learning_rate": 0.5})
        for _ in range(2):
            self.expect(2, "train", refused, says="/training/learning_rate")
            found = self.doctor()
            self.assertEqual(found["earlier_run"]["verdict"], crash["verdict"])
            text = self.expect(0, "doctor", "out").out
            self.assertIn(f"\n{crash['verdict']}\n", text)
            self.assertRegex(text, r"\nthe last run, which ended before its first step:\n")
        # A refused run whose own records could not be created, for example on a full disk.
        for file in (self.dir / "out/flight").glob("rank-*"):
            file.write_bytes(b"")
        self.expect(0, "doctor", "out", says=[f"\n{crash['verdict']}\n", "out/flight has only damaged records"])
        process = self.start("train", self.config(**sections, training=training))
        self.addCleanup(process.kill)
        step = max(self.checkpoints())
        self.wait_for(lambda: max(self.checkpoints()) > step, "another checkpoint")
        self.assertNotIn("earlier_run", json.loads(self.expect(0, "doctor", "out", "--json").out))
        process.terminate()
        self.assertEqual(self.end(process).code, 3)
        self.assertFalse((self.dir / "out/flight.previous").exists())

    def test_damaged_file_hides_no_other(self):
        process = self.start_training(t=1)
        self.kill_ranks(1)
        self.end(process)
        (self.dir / "out/flight/rank-1").write_bytes(b"damaged")
        found = self.doctor()
        self.assertEqual((found["cause"], found["culprits"]), ("killed", [1]))
        self.assertEqual(len(found["damaged_files"]), 1)
        for command in ("doctor", "flight"):
            self.expect(0, command, "out", says="  left out, because it is damaged: out/flight/rank-1 is not a flight ring")
        self.expect(0, "flight", "out", says="rank-0\n")


class WhatToDoNow(DoctorTest):
    def assert_continues(self, result):
        """The printed command works."""
        newest = f"out/checkpoint-{max(self.checkpoints())}"
        self.assertRegex(result.err, rf"\nthe newest checkpoint is {newest}; the steps after it are lost\nto continue:\n  "
                                     rf"{re.escape(PROGRAM)} train .* --set training\.resume_from_checkpoint={newest}\n$")
        steps = len(self.metrics())
        process = self.start(*shlex.split(result.last)[1:])
        self.addCleanup(process.kill)
        self.wait_for_steps(steps + 5)
        process.terminate()
        result = self.end(process)
        self.assertEqual(result.code, 3, str(result))
        self.assertIn(f"continues {newest} after step", result.out)

    def test_after_a_failure(self):
        process = self.start_with_checkpoint()
        self.kill_ranks(0)
        result = self.end(process)
        self.assertEqual(result.code, 1)
        self.assertRegex(result.errors[-1], "^error: rank 0 .* was killed by signal 9")
        self.assert_continues(result)

    def test_newest_checkpoint_is_a_model(self):
        """The command continues from a checkpoint with the optimizer's state, which stopped runs save."""
        sections = {"t": 1, "training": {"save_steps": 20, "save_only_model": True, "resume_from_checkpoint": "auto"}}
        process = self.start_training(**sections)
        self.wait_for_checkpoint()
        process.terminate()
        self.assertEqual(self.end(process).code, 3)
        full = max(self.checkpoints())
        process = self.start_training(**sections)
        self.wait_for(lambda: max(self.checkpoints()) > full, "a model")
        self.kill_ranks(0)
        result = self.end(process)
        self.assertEqual(result.code, 1, str(result))
        self.assertIn(f"\nthe newest checkpoint is out/checkpoint-{max(self.checkpoints())} without the optimizer's state; a "
                      f"run can continue from out/checkpoint-{full}; the steps after it are lost\n", result.err)
        self.assertTrue(result.last.endswith(f" --set training.resume_from_checkpoint=out/checkpoint-{full}"), result.last)

    def test_command_can_be_pasted(self):
        """The program is named as it was called, words are quoted, and one setting replaces another."""
        (self.dir / "my programs").mkdir()
        (self.dir / "my programs/shardline").symlink_to(PROGRAM)
        config = self.config("my config.json", p=2, communicator="mpi", training={"max_steps": 1000000, "save_steps": 20})
        words = ["my programs/shardline", "train", config, "--set", "training.resume_from_checkpoint=auto"]
        process = subprocess.Popen(words, cwd=self.dir, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.addCleanup(process.kill)
        self.wait_for_checkpoint()
        self.kill_ranks(1)
        result = self.end(process)
        self.assertEqual(result.code, 1, str(result))
        newest = f"out/checkpoint-{max(self.checkpoints())}"
        self.assertEqual(result.last, "  'my programs/shardline' train 'my config.json' --set "
                                      f"training.resume_from_checkpoint={newest}")
        again = subprocess.Popen(["sh", "-c", f"exec {result.last}"], cwd=self.dir, env=self.env, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(again.kill)
        self.wait_for_steps(len(self.metrics()) + 5)
        again.terminate()
        result = self.end(again)
        self.assertEqual(result.code, 3, str(result))
        self.assertIn(f"continues {newest} after step", result.out)

    def end_by_second_signal(self, process):
        self.interrupt_twice(process)
        result = self.end(process)
        self.assertEqual(result.code, 1, str(result))
        self.assertIn("\nreceived a second signal: the ranks end now\n", result.err)
        return result

    def test_after_a_second_signal(self):
        self.assert_continues(self.end_by_second_signal(self.start_with_checkpoint()))

    def test_after_a_second_signal_without_a_checkpoint(self):
        result = self.end_by_second_signal(self.start_training(t=1))
        self.assertEqual(result.last, "no checkpoint was saved")


if __name__ == "__main__":
    unittest.main()
