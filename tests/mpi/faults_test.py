"""The fault of one of four ranks is named within the limit of a wait and two seconds, and `shardline doctor` names the
same afterwards.

  faults_test.py MPIRUN FAULTY_RANK SHARDLINE
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

LIMIT = float(os.environ["SHARDLINE_TIMEOUT_SECONDS"])
MPIRUN, FAULTY_RANK, SHARDLINE = sys.argv[1:4]
RANK_1 = r"rank 1 \(host \S+, stage 0\)"
# Ranks 0 and 3 begin to wait for rank 1 in different groups at almost the same time, so either wait may be reported.
# Processes make more collectives in the group 'world' before the loss than threads, which need not agree on a run's
# start.
WAITED_FOR = (r"('dp': rank 0 waited .* for all_reduce number 9 of float32 \[768\] in group 'dp' of ranks 0-1 \(for "
              r"gradients of h\.2\)|'world': rank [23] waited .* for all_reduce number (4|13) of float64 \[2\] in group "
              r"'world' of ranks 0-3 \(for loss\))")


class Faults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name

    def run_job(self, fault, *options):
        """Returns the exit code, the lines of standard error, and the seconds from the fault to the last of them."""
        mpirun = [MPIRUN, "--quiet", *options, "-np", "4"] if options != ("threads",) else []
        process = subprocess.Popen([*mpirun, FAULTY_RANK, fault, self.dir, *([] if mpirun else options)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        lines, began, named = [], None, None
        for line in process.stderr:
            if line.startswith("fault at "):
                began = float(line.split()[2])
                continue
            lines.append(line.rstrip("\n"))
            if line.startswith("error: ") and not re.match(r"error: rank \d: ", line):
                named = time.time()
        return process.wait(60), lines, named - began if began and named else None

    def check(self, fault, cause, culprits, verdict, *options):
        code, lines, seconds = self.run_job(fault, *options)
        said = "\n".join(lines)
        if "--enable-recovery" not in options:  # with this option, mpirun returns 0
            self.assertNotEqual(code, 0, said)
        self.assertIsNotNone(seconds, said)
        self.assertLess(seconds, LIMIT + 2, said)
        errors = [line for line in lines if line.startswith("error: ")]
        self.assertRegex("\n".join(errors), verdict, said)
        later = json.loads(subprocess.run([SHARDLINE, "doctor", self.dir, "--json"], check=True, capture_output=True,
                                          text=True).stdout)
        self.assertEqual((later["cause"], later["culprits"]), (cause, culprits), f"{said}\n{later['verdict']}")
        self.assertRegex(later["verdict"], verdict)
        text = subprocess.run([SHARDLINE, "doctor", self.dir], check=True, capture_output=True, text=True).stdout
        self.assertEqual(text.splitlines()[-1], later["verdict"])

    def test_no_fault(self):
        code, lines, _ = self.run_job("none")
        self.assertEqual((code, [line for line in lines if line.startswith("error: ")]), (0, []), lines)
        text = subprocess.run([SHARDLINE, "doctor", self.dir], check=True, capture_output=True, text=True).stdout
        self.assertEqual(text.splitlines()[-1], "no fault: all ranks ended normally")

    def test_rank_that_stops(self):
        self.check("stops", "behind", [1],
                   RANK_1 + r" is 1 collective behind on " + WAITED_FOR + r"; last seen in backward_input of h\.2, "
                   r"microbatch 0, chunk 0, step 3 .*no sign of life")

    def test_thread_that_stops(self):
        self.check("stops", "behind", [1],
                   RANK_1 + r" is 1 collective behind on " + WAITED_FOR + r"; last seen in backward_input of h\.2, "
                   r"microbatch 0, chunk 0, step 3", "threads")

    def test_thread_that_fails_while_another_computes(self):
        """The rank's own error is reported, not that of a rank that waited for it, and no output is lost."""
        began = time.time()
        ended = subprocess.run([FAULTY_RANK, "throws", self.dir, "threads"], stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=60)
        self.assertLess(time.time() - began, LIMIT + 2)
        errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(errors, ["error: rank 1: /data/train: no such file"], ended.stderr)
        self.assertEqual((ended.returncode, ended.stdout), (2, "printed before the fault\n"))

    def test_rank_of_a_launcher_leaves_the_report_to_it(self):
        """Checks this with a variable that Open MPI passes on to ranks on other hosts."""
        _, lines, _ = self.run_job("stops", "-x", "OMPI_SHARDLINE_LIFELINE=any")
        self.assertTrue(any(line.startswith("error: rank ") for line in lines), lines)
        self.assertNotIn("what the ranks were doing:", lines)

    def test_stale_claim_of_an_earlier_job_silences_nobody(self):
        flights = pathlib.Path(self.dir, "flight")
        flights.mkdir()
        for name in ("reported", "reported-of-another-job"):
            (flights / name).touch()
        _, lines, _ = self.run_job("stops")
        self.assertEqual(lines.count("what the ranks were doing:"), 1, lines)

    def test_rank_that_dies(self):
        self.check("dies", "behind", [1],
                   RANK_1 + r" is 1 collective behind on " + WAITED_FOR + "; .*no sign of life", "--enable-recovery")

    def test_rank_that_skips_a_collective(self):
        self.check("skips", "skipped", [1],
                   RANK_1 + r" has skipped all_reduce number 9 .*\(for gradients of h\.2\).*: it continued with "
                   r"all_reduce number 9 .*\(for gradients of h\.1\)")

    def test_rank_that_sends_another_size(self):
        self.check("size", "disagrees", [0, 1], r"sizes differ: 768 on rank 0, 1536 on rank 1")

    def test_message_that_its_sender_keeps(self):
        self.check("keeps", "behind", [1],
                   RANK_1 + r" has not sent a message: rank 3 waited .* for recv number 2 .* from rank 1 in group "
                   r"'pp 0>1' \(for activation, microbatch 0, chunk 1\); it waits for all_reduce number \d+ .*\(for loss\)")

    def test_message_that_is_held_back(self):
        self.check("holds", "undelivered", [3],
                   r"rank 3 \(host \S+, stage 1\) waited .* for recv number 2 .* from rank 1 in group 'pp 0>1' \(for "
                   r"activation, microbatch 0, chunk 1\), which the other rank has begun, too: the message is stuck")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
