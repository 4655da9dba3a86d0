"""Most words of the text that tools/quickstart.sh generates occur in its training text. Runs the script's commands with
the program under test, in a folder of their own."""
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

from markdown import ROOT

PROGRAM = pathlib.Path(os.environ["SHARDLINE"]).resolve()
LEAST_SHARE = 0.5


def words_of(text):
    return re.findall(r"[a-z]+", text.lower())


def commands():
    """The arguments of each call of the program in the script."""
    script = (ROOT / "tools/quickstart.sh").read_text().replace("\\\n", " ")
    return [shlex.split(row) for row in re.findall(r"(?m)^  build/tools/shardline (.*)$", script)]


class Quickstart(unittest.TestCase):
    def test_sample(self):
        with tempfile.TemporaryDirectory(prefix="shardline-quickstart-") as folder:
            (pathlib.Path(folder) / "configs").symlink_to(ROOT / "configs")
            for arguments in commands():
                done = subprocess.run([PROGRAM, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True)
                self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(arguments[0], "generate")
        prompt = arguments[arguments.index("--prompt") + 1]
        sample = words_of(done.stdout.partition(prompt)[2])
        known = set(words_of((ROOT / "configs/data/quickstart.txt").read_text()))
        found = [word for word in sample if word in known]
        print(f"{len(found)} of {len(sample)} generated words occur in the training text\n{done.stdout}")
        self.assertGreater(len(sample), 20)
        self.assertGreater(len(found), LEAST_SHARE * len(sample))


if __name__ == "__main__":
    unittest.main()
