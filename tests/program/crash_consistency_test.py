"""Checkpoints survive a crash of the machine at any instant.

A preloaded library (file_calls/recorder.cpp) records every call that changes files while checkpoints are saved. The
calls are then replayed on a model of a disk that keeps only what was synced: at every cut, data that was not synced is
lost, or any part of it remains. Whatever then looks like a checkpoint must be one, and there must always be one.
SHARDLINE_ALL_CRASHES=1 looks at more states after each cut.
"""
import os
import pathlib
import random
import re
import shutil
import unittest

from harness import TINY, ProgramTest

RECORDER = os.environ["FILE_CALLS"]
THOROUGH = bool(os.environ.get("SHARDLINE_ALL_CRASHES"))
MODEL = {"config": dict(TINY["model"]["config"], n_layer=4, attn_pdrop=0.1)}
TRAINING = {"max_steps": 12, "save_steps": 2, "save_total_limit": 1, "resume_from_checkpoint": "auto",
            "report_to": "tensorboard"}
LAYOUTS = {"one": {"communicator": "local"},
           "records elsewhere": {"communicator": "local", "records": "run/"},  # not in the directory of checkpoints
           "threads": {"p": 2, "t": 2, "communicator": "threads"},
           "ZeRO": {"communicator": "mpi", "smp_options": {"shard_optimizer_state": True},
                    "mpi_options": {"processes_per_host": 2}}}
CHECKPOINT = re.compile(r"checkpoint-(\d+)$")
# Finds the steps in a record, by the beginning of the file's name.
EVENT = re.compile(rb"\x09.{8}\x10(.)\x2a", re.DOTALL)  # time, step and values of a tensorflow.Event
RECORDS = {"metrics.jsonl": lambda data: {int(step) for step in re.findall(rb'"step":(\d+),', data)},
           "events.out.tfevents.": lambda data: {ord(step) for step in EVENT.findall(data)}}


def sections_of(layout, folder):
    """Returns the config sections of a run whose checkpoints are in `folder`."""
    sections = dict(layout, model=MODEL, training=TRAINING, output_dir=folder, runtime={"timeline_steps": 0})
    if records := sections.pop("records", ""):
        sections.update(training=dict(TRAINING, checkpoint_dir=folder), output_dir=folder + "/" + records)
    return sections


class File:
    def __init__(self):
        self.durable, self.pending = b"", []

    def contents(self, chosen):
        """chosen: which of the pending changes are on the disk; the last one may be torn."""
        if not any(chosen):
            return self.durable
        data = bytearray(self.durable)
        for (offset, change), is_there in zip(self.pending, chosen):
            if not is_there:
                continue
            if isinstance(change, int):  # a new length
                data = data[:change].ljust(change, b"\0")
            else:
                part = change if is_there is True else change[:len(change) // 2]
                data = data.ljust(offset, b"\0")
                data[offset:offset + len(part)] = part
        return bytes(data)

    def sync(self):
        self.durable, self.pending = self.contents([True] * len(self.pending)), []


class Folder:
    def __init__(self):
        self.durable, self.live = {}, {}  # by name


class Disk:
    """The contents of a disk below `root`, and what the processes see."""

    def __init__(self, root):
        self.root, self.top = root, Folder()
        self.files = {}    # by inode
        self.pending = []  # changes of folders: lists of (folder, name, node or None)

    def find(self, path):
        node = self.top
        for name in pathlib.PurePath(path).relative_to(self.root).parts:
            node = node.live[name]
        return node

    def place(self, path):
        path = pathlib.PurePath(path)
        return self.find(path.parent), path.name

    def change(self, *changes):
        for folder, name, node in changes:
            if node is None:
                folder.live.pop(name, None)
            else:
                folder.live[name] = node
        self.pending.append(changes)

    def apply(self, line):
        call, *rest = line.split(" ")
        if call == "mkdir":
            if rest[0] != self.root:
                self.change((*self.place(rest[0]), Folder()))
        elif call == "make":
            self.files[rest[1]] = File()
            self.change((*self.place(rest[0]), self.files[rest[1]]))
        elif call == "open":
            self.files[rest[1]] = self.find(rest[0])
        elif call == "write":
            self.files[rest[0]].pending.append((int(rest[1]), bytes.fromhex(rest[2])))
        elif call == "size":
            self.files[rest[0]].pending.append((None, int(rest[1])))
        elif call == "sync":
            self.files[rest[0]].sync()
        elif call == "sync-directory":
            self.sync_folder(self.find(rest[0]))
        elif call == "rename":
            node = self.find(rest[0])
            self.change((*self.place(rest[0]), None), (*self.place(rest[1]), node))
        elif call == "exchange":
            one, other = self.find(rest[0]), self.find(rest[1])
            self.change((*self.place(rest[0]), other), (*self.place(rest[1]), one))
        elif call in ("unlink", "rmdir"):
            self.change((*self.place(rest[0]), None))
        else:
            raise ValueError(line)

    def sync_folder(self, folder):
        left = []
        for changes in self.pending:
            if any(where is folder for where, _, _ in changes):
                for where, name, node in changes:
                    if node is None:
                        where.durable.pop(name, None)
                    else:
                        where.durable[name] = node
            else:
                left.append(changes)
        self.pending = left

    def after_crash(self, choose):
        """Returns the contents of each file by path. choose(): whether a change that was not synced is on the disk."""
        entries = {}

        def entries_of(folder):
            return entries.setdefault(id(folder), dict(folder.durable))

        for changes in self.pending:
            if choose():
                for folder, name, node in changes:
                    if node is None:
                        entries_of(folder).pop(name, None)
                    else:
                        entries_of(folder)[name] = node
        found = {}

        def walk(folder, path):
            for name, node in entries_of(folder).items():
                if isinstance(node, Folder):
                    found[path + name + "/"] = None
                    walk(node, path + name + "/")
                else:
                    found[path + name] = node.contents([choose() for _ in node.pending])

        walk(self.top, "")
        return found

    def synced_checkpoints(self):
        """Returns the steps of the checkpoints that no pending change can affect."""
        touched = {(id(folder), name) for changes in self.pending for folder, name, _ in changes}

        def is_synced(node):
            if isinstance(node, File):
                return not node.pending
            return node.live == node.durable and all(map(is_synced, node.live.values()))

        return [int(CHECKPOINT.match(name)[1]) for name, node in self.top.durable.items()
                if CHECKPOINT.match(name) and self.top.live.get(name) is node and (id(self.top), name) not in touched
                and is_synced(node)]


def checkpoints_in(files):
    """Returns, by step, the contents of files by name. Only directories with a manifest are checkpoints."""
    found = {}
    for path, contents in files.items():
        folder, _, name = path.partition("/")
        if name and CHECKPOINT.match(folder):
            found.setdefault(int(CHECKPOINT.match(folder)[1]), {})[name] = contents
    return {step: files for step, files in found.items() if "manifest.json" in files}


class CrashTest:
    """Replays a log; see run(). records: where the run's records are, below `root`."""

    def __init__(self, root, log, seed=1, crashes=6, records=""):
        self.disk, self.log, self.crashes, self.records = Disk(root), log, crashes, records
        self.luck = random.Random(seed)
        self.whole = {}  # contents that a checkpoint may have, by step
        self.states, self.cuts, self.newest, self.violations, self.samples = 0, 0, -1, [], []

    def run(self):
        for number, line in enumerate(self.log):
            self.disk.apply(line)
            if line.startswith(("rename ", "exchange ")):
                for step, files in checkpoints_in(self.disk.after_crash(lambda: True)).items():
                    if files not in self.whole.setdefault(step, []):
                        self.whole[step].append(files)
            self.cut(number)
        return self

    def choices(self):
        yield lambda: False
        yield lambda: True
        for _ in range(self.crashes):
            share = self.luck.random()
            yield lambda: self.luck.random() < share and (True if self.luck.random() < 0.8 else "torn")

    def cut(self, number):
        self.cuts += 1
        place = f"after call {number}, {self.log[number][:120]}"
        promised = self.disk.synced_checkpoints()
        self.newest = max([self.newest, *promised])
        for choose in self.choices():
            files = self.disk.after_crash(choose)
            found = checkpoints_in(files)
            self.states += 1
            for step, contents in found.items():
                if contents not in self.whole.get(step, []):
                    self.violations.append(f"{place}: checkpoint-{step} is not whole")
            for step in promised:
                if step not in found:
                    self.violations.append(f"{place}: checkpoint-{step} is lost")
            if (named := files.get("newest")) is not None and named not in [b"checkpoint-%d\n" % step for step in found]:
                self.violations.append(f"{place}: `newest` names {named}, which is not there")
            if files.get(self.records + "metrics.jsonl") and self.records + "config.resolved.json" not in files:
                self.violations.append(f"{place}: nothing shows whose records these are, so the run cannot continue")
            for name, steps_in in RECORDS.items():
                data = b"".join(data for path, data in files.items() if data and path.startswith(self.records + name))
                if missing := set(range(1, max(found, default=0) + 1)) - steps_in(data):
                    self.violations.append(f"{place}: {name} lacks steps {missing} before checkpoint-{max(found)}")
            if max(found, default=-1) < self.newest:
                self.violations.append(f"{place}: checkpoint-{self.newest} is lost, and there is no later one")
            if self.luck.random() < 0.002:
                self.samples.append(files)


class CrashConsistency(ProgramTest):
    luck = random.Random(int(os.environ.get("SHARDLINE_CRASH_SEED", "1")))

    def record(self, folder, layout):
        log = self.dir / "calls.log"
        log.write_text("")
        env = dict(self.env, LD_PRELOAD=RECORDER, FILE_CALLS_LOG=str(log), FILE_CALLS_ROOT=str(self.dir / folder))
        self.env, kept = env, self.env
        try:
            self.train(**sections_of(layout, folder))
        finally:
            self.env = kept
        return str(self.dir / folder), log.read_text().splitlines()

    def test_crashes(self):
        """Wherever a run that saves six checkpoints is cut off, each checkpoint is complete, and none is lost."""
        for name, layout in LAYOUTS.items():
            with self.subTest(name):
                folder = f"out-{name.split()[0]}"
                root, log = self.record(folder, layout)
                records = layout.get("records", "")
                test = CrashTest(root, log, crashes=100 if THOROUGH else 6, records=records).run()
                print(f"{name}: {test.cuts} calls, {test.states} states after a crash, checkpoints of the steps "
                      f"{sorted(test.whole)}", flush=True)
                self.assertEqual(sorted(test.whole), [2, 4, 6, 8, 10, 12])
                self.assertEqual(test.violations[:5], [])
                self.continue_from(test.luck.sample(test.samples, min(len(test.samples), 20 if THOROUGH else 2)),
                                   folder, layout)

    def continue_from(self, samples, folder, layout):
        """Runs that start on such a disk end with the weights of a run that did not crash."""
        self.assertTrue(samples)
        records = layout.get("records", "")
        want = (self.dir / folder / records / "model.safetensors").read_bytes()
        (self.dir / folder).rename(self.dir / f"{folder}-whole")  # the disk after a crash has no other directory
        for files in samples:
            root = self.dir / "crashed"
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            for path, contents in files.items():
                if contents is None:
                    (root / path).mkdir(parents=True, exist_ok=True)
            for path, contents in files.items():
                if contents is not None:
                    (root / path).write_bytes(contents)
            self.train(**sections_of(layout, "crashed"))
            self.assertEqual((root / records / "model.safetensors").read_bytes(), want)
            self.assertEqual([line["step"] for line in self.metrics(root / records)], list(range(1, 13)))

    def test_lost_syncs_are_noticed(self):
        """The test finds a program that does not sync, and one that removes the old checkpoint too early."""
        root, log = self.record("out", LAYOUTS["one"])

        def early_removal(lines):
            """Moves the renaming that begins a removal before the syncs of the renaming that published a checkpoint."""
            moved = list(lines)
            for i, line in enumerate(lines):
                if re.search(r"^rename .*checkpoint-\d+ .*\.incomplete$", line):
                    published = max(k for k in range(i) if re.search(r"^rename .*incomplete .*checkpoint-\d+$", lines[k]))
                    moved.remove(line)
                    moved.insert(published + 1, line)
            return moved

        def without_sync_of_newest(lines):
            """Removes the sync that follows the write to the file `newest`."""
            named = [i for i, line in enumerate(lines) if re.search(r"^rename .*/newest$", line)]
            left_out = [next(k for k in range(i, len(lines)) if lines[k].startswith("sync-directory")) for i in named]
            return [line for i, line in enumerate(lines) if i not in left_out]

        faults = {"no file is synced": [line for line in log if not line.startswith("sync ")],
                  "no directory is synced": [line for line in log if not line.startswith("sync-directory")],
                  "the manifest is not synced": self.without_sync_of(log, "manifest.json"),
                  "the states are not synced": self.without_sync_of(log, "optimizer.safetensors"),
                  "the metrics are not synced": self.without_sync_of(log, "metrics.jsonl"),
                  "the events are not synced": self.without_sync_of(log, "events.out.tfevents."),
                  "the old one is removed early": early_removal(log),
                  "the name of the newest is not synced": without_sync_of_newest(log)}
        self.assertEqual(CrashTest(root, log).run().violations[:5], [])
        for name, lines in faults.items():
            with self.subTest(name):
                self.assertNotEqual(lines, log)
                self.assertNotEqual(CrashTest(root, lines).run().violations, [])

    def without_sync_of(self, log, name):
        inodes, kept = set(), []
        for line in log:
            call, *rest = line.split(" ")
            if call in ("make", "open"):
                (inodes.add if name in rest[0] else inodes.discard)(rest[1])
            if call != "sync" or rest[0] not in inodes:
                kept.append(line)
        return kept


if __name__ == "__main__":
    unittest.main(verbosity=2)
