"""Runs the commands of README.md, HACKING.md, configs/ and docs/, each page in its own folder, in order.

A code block is run if it is a ```sh block, or looks like commands. Comments before a block specify options:

  <!-- needs: gpu -->        not run: the machine of the tests lacks this (LACKS lists what else); `root` is not run without root
  <!-- slow -->              run only with SHARDLINE_ALL_COMMANDS=1 (ctest -R all_commands)
  <!-- shortened: training.max_steps=2 -->   `shardline train` gets these settings in addition, separated by spaces
  <!-- fails: 2 -->          the last command ends with this exit code
  <!-- prints: WORDS -->     this regular expression matches what the block prints
  <!-- file: my-run.json -->  not a command: the block is written to this file

The folder contains the repository's configs, tools, tests, docs and examples, the build as build-test, small stand-ins
for the models that pages name (MODELS) and the classifier runs/sentiment, and data: train.txt, validation.txt,
test.csv, glue/MNLI, squad and polarity. The program under test is first in PATH. A block that begins with `shardline
serve` starts a server, runs its other lines, and leaves the server to the blocks after it; a free port takes the place
of 8080. mpirun may start more ranks than there are cores, also as root.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import markdown
import models
from markdown import ROOT

sys.path.append(str(ROOT / "tests/program"))
from mnli_files import write_mnli

LACKS = {"gpu", "slurm", "hosts", "weights", "aws", "python packages", "a fresh build", "spot instance"}
IS_ROOT = os.geteuid() == 0
PROGRAM = pathlib.Path(os.environ["SHARDLINE"]).resolve()
BUILD = PROGRAM.parent.parent
ALL = os.environ.get("SHARDLINE_ALL_COMMANDS") == "1"
LIMIT = 3600 if ALL else 300  # seconds for a block
PORT = "8080"  # of `shardline serve`, as pages write it
MODELS = {"gpt2": "gpt2", "gpt2-medium": "gpt2", "gpt-j-6b": "gptj", "bert-base-uncased": "bert",
          "distilbert-base-uncased": "distilbert"}


def command_blocks(text):
    return [block for block in markdown.blocks(text)
            if "file" in block.markers or block.language in ("sh", "bash") or
            (block.language == "" and block.looks_like_commands())]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Page:
    """A folder in which the commands of one page run."""

    def __init__(self, folder):
        self.folder = folder
        self.servers = []
        for name in ("configs", "tools", "tests", "examples", "mkdocs.yml"):
            (folder / name).symlink_to(ROOT / name)
        shutil.copytree(ROOT / "docs", folder / "docs")  # commands write pictures there
        (folder / "build-test").symlink_to(BUILD)
        text = (ROOT / "configs/data/quickstart.txt").read_bytes()
        (folder / "train.txt").write_bytes(text[:20000])
        (folder / "validation.txt").write_bytes(text[20000:24000])
        (folder / "test.csv").write_text("sentence,label\na fine film,positive\n")
        write_mnli(folder / "glue/MNLI")
        models.write_squad(folder / "squad/train-v1.1.json", 40)
        models.write_squad(folder / "squad/dev-v1.1.json", 5)
        models.write_tokenised(folder / "polarity/train.jsonl", 128)
        models.write_tokenised(folder / "polarity/validation.jsonl", 16)
        (folder / "job.json").write_text(json.dumps(models.SAGEMAKER_JOB))
        self.settings = folder / ".settings"
        wrapper = folder / ".bin/shardline"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\n[ "$1" = train ] && set -- "$@" $(cat {self.settings})\nexec {PROGRAM} "$@"\n')
        wrapper.chmod(0o755)
        self.port = free_port()
        self.env = dict(os.environ, PATH=f"{wrapper.parent}:{os.environ['PATH']}", XDG_CACHE_HOME=str(folder / "cache"),
                        SAGEMAKER_BIND_TO_PORT=str(self.port), OMPI_ALLOW_RUN_AS_ROOT="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")

    def run(self, block):
        settings = block.markers.get("shortened", "").split()
        self.settings.write_text(" ".join(f"--set {setting}" for setting in settings))
        script = block.text.replace(f"localhost:{PORT}", f"localhost:{self.port}")
        served = re.match(r"shardline serve .*", script)
        if served:
            script = script[served.end():]
            self.serve(served[0])
        # A group of its own, so that what the shell started ends with it.
        with subprocess.Popen(["bash", "-e", "-o", "pipefail", "-c", script], cwd=self.folder, env=self.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", start_new_session=True) as shell:
            try:
                printed, _ = shell.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(shell.args, shell.returncode, printed)

    def serve(self, command):
        server = subprocess.Popen(["bash", "-c", "exec " + command], cwd=self.folder, env=self.env,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.servers.append(server)
        end = time.monotonic() + LIMIT
        while not self.serves() and server.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        if not self.serves():
            raise AssertionError(f"{command}: no server on port {self.port}; exit code {server.poll()}")

    def serves(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self):
        for server in self.servers:
            server.terminate()
            server.wait()
        self.servers = []


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = pathlib.Path(tempfile.mkdtemp(prefix="shardline-docs-"))
        cls.addClassCleanup(shutil.rmtree, cls.made, True)
        for name, model_type in MODELS.items():
            make = models.make_decoder if model_type.startswith("gpt") else models.make_encoder
            make(PROGRAM, cls.made / "models" / name, cls.made, model_type)
        models.make_classifier(PROGRAM, cls.made / "runs/sentiment", cls.made)
        cls.parts = models.make_parts(PROGRAM, cls.made / "hosts") if IS_ROOT else []

    def check_page(self, path):
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"shardline-{path.stem}-"))
        self.addCleanup(shutil.rmtree, folder, True)
        page = Page(folder)
        self.addCleanup(page.close)
        for name in ("models", "runs"):
            shutil.copytree(self.made / name, folder / name)
        for part in self.parts:
            shutil.copytree(part, folder / part.name)
        for block in command_blocks(path.read_text(encoding="utf-8")):
            place = f"{path.relative_to(ROOT)}:{block.line}"
            if block.text.startswith("shardline serve"):
                page.close()
            with self.subTest(place):
                needs = block.markers.get("needs")
                if needs and not (needs == "root" and IS_ROOT):
                    self.assertIn(needs, LACKS | {"root"})
                elif "file" in block.markers:
                    (folder / block.markers["file"]).write_text(block.text + "\n")
                elif "slow" not in block.markers or ALL:
                    begin = time.monotonic()
                    result = page.run(block)
                    print(f"{time.monotonic() - begin:6.1f} s  {place}", flush=True)
                    printed = f"{place}\n{block.text}\n--- printed\n{result.stdout}"
                    self.assertEqual(result.returncode, int(block.markers.get("fails", 0)), printed)
                    for words in block.markers.get("prints", "").splitlines():
                        self.assertRegex(result.stdout, words, printed)


def add_page(path):
    name = "test_" + re.sub(r"\W", "_", str(path.relative_to(ROOT).with_suffix("")))
    setattr(Commands, name, lambda self: self.check_page(path))


for page_path in markdown.pages():
    add_page(page_path)


class Markers(unittest.TestCase):
    def test_blocks_with_placeholders_are_not_commands(self):
        """A synopsis is a ```text block; a ```text block without placeholders would hide commands."""
        for path in markdown.pages():
            for block in markdown.blocks(path.read_text(encoding="utf-8")):
                if block.language == "text" and block.looks_like_commands():
                    with self.subTest(f"{path.relative_to(ROOT)}:{block.line}"):
                        for row in block.text.splitlines():
                            if row.startswith("shardline "):
                                self.assertRegex(row, r"[A-Z]{4,}|\[", "is a command: make it a ```sh block")


if __name__ == "__main__":
    unittest.main()
