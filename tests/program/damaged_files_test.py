"""Truncated, inconsistent or wrong files: a clear error, no hang, no partial output that looks complete."""
import json
import os
import pathlib
import resource
import shutil
import socket
import struct
import subprocess

from harness import ProgramTest, as_nobody, tiny, unittest


class DamagedFiles(ProgramTest):
    @classmethod
    def setUpClass(cls):
        """Makes a valid model directory, of which copies are damaged."""
        cls.good = cls.done_once("make_model").dir / "out"

    def make_model(self):
        self.train()

    def damaged(self, name, content):
        """Copies the model with the file `name` replaced by `content`, or by what the function `content` makes of its
        bytes."""
        model = self.dir / "model"
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(self.good, model)
        file = model / name
        file.write_bytes(content(file.read_bytes()) if callable(content) else content)
        return model

    def refused(self, *says, **sections):
        """Checks that training is refused at once, with one message, and leaves nothing that looks like a model."""
        result = self.run_program("train", self.config(**sections))
        self.assertIn(result.code, (1, 2), str(result))
        self.assertEqual(len(result.errors), 1, str(result))
        for words in says:
            self.assertIn(words, result.err, str(result))
        self.assert_no_finished_model()
        return result

    def from_model(self, **more):
        config = tiny(**more)
        return dict(more, model={"path": "model", "config": {}}, data=config["data"])

    def test_safetensors(self):
        def with_header(change):
            def made(data):
                (length,) = struct.unpack("<Q", data[:8])
                header = json.loads(data[8:8 + length])
                name = next(n for n in header if n != "__metadata__")
                change(header, name)
                text = json.dumps(header).encode()
                return struct.pack("<Q", len(text)) + text + data[8 + length:]
            return made

        def set_entry(key, value):
            return with_header(lambda header, name: header[name].update({key: value}))

        damages = {
            "empty": lambda data: b"",
            "cut in the header": lambda data: data[:100],
            "cut in the data": lambda data: data[:-1],
            "too long": lambda data: data + b"\0",
            "endless header": lambda data: struct.pack("<Q", 2**63) + data[8:],
            "a header of 4 GiB": lambda data: struct.pack("<Q", 2**32) + data[8:],
            "junk": lambda data: os.urandom(4096),
            "offsets beyond the file": set_entry("data_offsets", [0, 2**40]),
            "offsets backwards": set_entry("data_offsets", [64, 0]),
            "negative offsets": set_entry("data_offsets", [-8, 8]),
            "a shape that overflows": set_entry("shape", [2**32, 2**32]),
            "another shape": set_entry("shape", [3, 5]),
            "an unknown dtype": set_entry("dtype", "F31"),
            "a tensor less": with_header(lambda header, name: header.pop(name)),
        }
        for name, damage in damages.items():
            with self.subTest(name):
                self.damaged("model.safetensors", damage)
                self.refused("model", **self.from_model())
        self.damaged("model.safetensors", damages["cut in the data"])
        result = self.refused("model.safetensors", **self.from_model(p=2, t=2))
        self.assertNotIn("mpirun -np", result.err)  # found before ranks are started
        self.refused("model.safetensors", **self.from_model(p=2, communicator="threads"))
        self.expect(1, "generate", "model", "--prompt", "x", says="model.safetensors")

    def test_model_directory(self):
        for content in (b"", b"{", b"[]", b'{"model_type": "gpt2", "n_embd": "wide"}', os.urandom(200)):
            with self.subTest(content[:20]):
                self.damaged("config.json", content)
                self.refused("config.json", **self.from_model())
        shutil.rmtree(self.dir / "model")
        self.refused("model", **self.from_model())
        (self.dir / "model").mkdir()
        self.refused("config.json", **self.from_model())

    def test_tokenizer(self):
        for content in (b"", b"{", b"{}", b'{"model": {"type": "WordPiece"}}', b'{"model": {"type": "BPE", "vocab": 3}}',
                        b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b c"]}}', os.urandom(500)):
            with self.subTest(content[:40]):
                (self.dir / "tokenizer.json").write_bytes(content)
                self.refused("tokenizer.json", data={"tokenizer": "tokenizer.json"})
        self.refused("no-such-tokenizer", data={"tokenizer": "no-such-tokenizer"})

    def test_data(self):
        cases = {
            "empty": ("e.txt", b"", "empty"),
            "binary junk as text": ("junk.txt", bytes(range(256)) * 20, "junk.txt"),
            "shorter than one block": ("short.txt", b"abc", ""),
            "no JSON in a line": ("a.jsonl", b'{"text": "one"}\n{"text": \n', "a.jsonl"),
            "no text in a line": ("b.jsonl", b'{"text": "one"}\n{"body": "two"}\n', "text"),
            "an odd number of bytes": ("t.bin", b"\1\0\2", "t.bin"),
            "ids beyond the vocabulary": ("u.bin", struct.pack("<40H", *[300] * 40), "300"),
            "an unknown extension": ("x.parquet", b"PAR1", "parquet"),
        }
        for name, (file, content, says) in cases.items():
            with self.subTest(name):
                (self.dir / file).write_bytes(content)
                self.refused(file if says == "" else says, data={"train": file})
        self.refused("no-such-file", data={"train": "no-such-file.txt"})
        (self.dir / "folder").mkdir()
        result = self.refused("folder", "the folder contains no files", data={"train": "folder"})
        self.assertEqual(result.code, 2, str(result))
        # Found by the one rank of a host that reads the text: it prints one message with the file's name, and the other
        # ranks end.
        (self.dir / "b.jsonl").write_bytes(cases["no text in a line"][1])
        result = self.refused("b.jsonl", p=2, data={"train": "b.jsonl"})
        self.assertRegex(result.errors[0], r"^error: rank 0: ")
        self.refused("b.jsonl", p=2, communicator="threads", data={"train": "b.jsonl"})

    def test_damaged_cache_is_made_again(self):
        first = self.train()
        losses = [line["loss"] for line in self.metrics()]
        caches = list((self.dir / "cache").rglob("*.bin"))
        self.assertTrue(caches)
        for cache in caches:
            for damage in (lambda data: data[:-7], lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: b""):
                cache.write_bytes(damage(cache.read_bytes()))
                self.train(training={"overwrite_output_dir": True})
                self.assertEqual([line["loss"] for line in self.metrics()], losses)
        self.assertIn("reading data", first.out)

    def test_left_over_pieces_of_a_killed_reader_go(self):
        self.train()
        (cache,) = (self.dir / "cache").rglob("*.bin")
        with subprocess.Popen(["true"]) as gone:
            pass
        left = {}
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        here = f"{socket.gethostname()}-{boot}-{os.stat('/proc/self/ns/pid').st_ino}"
        for owner in (f"{here}.{gone.pid}", f"elsewhere.{gone.pid}"):
            left[owner] = cache.with_name(f"{cache.name}.partial.{owner}")
            left[owner].write_bytes(b"x" * 100)
        cache.unlink()
        self.train(training={"overwrite_output_dir": True})
        own, foreign = left.values()
        self.assertFalse(own.exists())
        self.assertTrue(foreign.exists())  # whether its process still runs cannot be seen from here


def flipped(data, place):
    return data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1:]


def places_in(data):
    """Bytes of a file to damage: at its beginning, in its header, in the middle and at its end."""
    return sorted({0, min(60, len(data) // 4), len(data) // 3, len(data) // 2, len(data) - 2, len(data) - 1})


def owner_of(name, data, place):
    """What a byte of a file belongs to, as messages name it: a tensor or the header; empty in files without tensors."""
    if not name.endswith(".safetensors"):
        return ""
    (length,) = struct.unpack("<Q", data[:8])
    for tensor, entry in json.loads(data[8:8 + length]).items():
        if tensor != "__metadata__" and entry["data_offsets"][0] <= place - 8 - length < entry["data_offsets"][1]:
            return tensor + ": "
    return "header: "


class DamagedCheckpoints(ProgramTest):
    """The newest checkpoint of a run is damaged: it is found, and `auto` continues from the previous one."""
    TRAINING = {"save_steps": 1, "resume_from_checkpoint": "auto"}

    @classmethod
    def setUpClass(cls):
        cls.good = cls.done_once("train_once").dir / "out"
        cls.newest = {file.name: file.read_bytes() for file in (cls.good / "checkpoint-3").iterdir()}

    def train_once(self):
        return self.train(training=self.TRAINING, runtime={"timeline_steps": 0})

    def setUp(self):
        super().setUp()
        if hasattr(self, "good"):
            shutil.copytree(self.good, self.dir / "out")
            self.checkpoint = self.dir / "out/checkpoint-3"

    def verify(self):
        return self.run_program("checkpoint", "verify", "out/checkpoint-3")

    def assert_found(self, *says):
        result = self.verify()
        self.assertEqual(result.code, 1, str(result))
        for words in ("out/checkpoint-3", *says):
            self.assertIn(words, result.err, str(result))

    def assert_auto_takes_the_one_before(self, *says):
        """Checks that the run continues from the previous checkpoint, and ends with the same checkpoint and model."""
        result = self.train_once()
        self.assertIn("continues out/checkpoint-2 after step 2", result.out, str(result))
        warnings = [line for line in result.out.splitlines() if line.startswith("warning: out/checkpoint-3 is damaged")]
        self.assertEqual(len(warnings), 1 if says else 0, str(result))
        for words in says:
            self.assertIn(words, warnings[0])
        self.assertEqual({file.name: file.read_bytes() for file in self.checkpoint.iterdir()}, self.newest)
        self.assertEqual((self.dir / "out/newest").read_text(), "checkpoint-3\n")
        self.assertEqual((self.dir / "out/model.safetensors").read_bytes(), (self.good / "model.safetensors").read_bytes())
        for folder in (self.dir / "out").glob("checkpoint-3.superseded*"):
            shutil.rmtree(folder)

    def test_one_flipped_bit(self):
        self.assertEqual(self.verify().code, 0)
        self.assertGreaterEqual(set(self.newest), {"config.json", "config.resolved.json", "manifest.json",
                                                   "model.safetensors", "optimizer.safetensors", "trainer_state.json"})
        owners = set()
        for number, (name, data) in enumerate(self.newest.items()):
            places = places_in(data)
            for place in places:
                with self.subTest(name, byte=place):
                    owner = owner_of(name, data, place)
                    owners.add(owner)
                    (self.checkpoint / name).write_bytes(flipped(data, place))
                    self.assert_found(f"{name}: {owner}" if owner else name)
                    (self.checkpoint / name).write_bytes(data)
            with self.subTest(name, source="auto"):
                place = places[number % len(places)]
                (self.checkpoint / name).write_bytes(flipped(data, place))
                self.assert_auto_takes_the_one_before(name, owner_of(name, data, place))
        self.assertIn("header: ", owners)
        self.assertTrue(any(owner.endswith(".exp_avg_sq: ") for owner in owners), owners)

    def test_truncated_and_removed(self):
        for name, data in self.newest.items():
            for kept in sorted({0, len(data) // 2, len(data) - 1}):
                with self.subTest(name, kept=kept):
                    (self.checkpoint / name).write_bytes(data[:kept])
                    self.assert_found(name)
            with self.subTest(name, removed=True):
                (self.checkpoint / name).unlink()
                if name == "manifest.json":  # without it, a directory is not a checkpoint
                    self.expect(2, "checkpoint", "verify", "out/checkpoint-3", says="is neither a checkpoint nor")
                    self.expect(0, "checkpoint", "verify", "out", says="out/checkpoint-2 is intact")
                else:
                    self.assert_found(f"{name}: is missing")
            (self.checkpoint / name).write_bytes(data)
        for name, kept in (("optimizer.safetensors", 1000), ("trainer_state.json", None), ("manifest.json", 0)):
            with self.subTest(name, kept=kept, source="auto"):
                if kept is None:
                    (self.checkpoint / name).unlink()
                else:
                    os.truncate(self.checkpoint / name, kept)
                self.assert_auto_takes_the_one_before(name)
        (self.checkpoint / "manifest.json").unlink()
        self.assert_auto_takes_the_one_before()

    def test_added(self):
        """Added files that would be read with the others, or in place of them, count as damage; other files do not."""
        index = json.dumps({"weight_map": {"wte.weight": "model-2.safetensors"}}).encode()
        for name, data in (("model-2.safetensors", self.newest["model.safetensors"]),
                           ("model.safetensors.index.json", index)):
            with self.subTest(name):
                (self.checkpoint / name).write_bytes(data)
                self.assert_found(f"{name}: was added to the checkpoint", "remove it")
                self.assert_auto_takes_the_one_before(name)
        (self.checkpoint / "notes.txt").write_text("the best one so far")
        self.expect(0, "checkpoint", "verify", "out/checkpoint-3", says="not part of the checkpoint: notes.txt")
        self.assertIn("continues out/checkpoint-3 after step 3", self.train_once().out)

    def test_files_of_a_stranger_that_are_none(self):
        """Reading such files might never end."""
        def small_memory():
            resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))

        file = self.checkpoint / "trainer_state.json"
        for kind, make in {"pipe": os.mkfifo, "device": lambda path: os.symlink("/dev/zero", path),
                           "holes": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40)}.items():
            with self.subTest(kind):
                file.unlink()
                make(file)
                result = self.finish(self.start("checkpoint", "inspect", "out/checkpoint-3", preexec_fn=small_memory), 20)
                self.assertEqual(result.code, 1, str(result))
                self.assertIn("trainer_state.json: cannot be read: it ", result.last)

    def test_what_a_terminal_would_obey(self):
        escape = "\x1b[2J"
        (self.checkpoint / f"notes{escape}").write_text("")
        (self.checkpoint / "config.json").write_text(json.dumps({"model_type": f"gpt2{escape}"}))
        result = self.expect(0, "checkpoint", "inspect", "out/checkpoint-3", says="gpt2?[2J")
        self.assertNotIn("\x1b", result.out)
        result = self.expect(1, "checkpoint", "verify", "out/checkpoint-3")
        self.assertNotIn("\x1b", result.err)
        (self.checkpoint / "config.json").write_bytes(self.newest["config.json"])
        result = self.expect(0, "checkpoint", "verify", "out/checkpoint-3", says="not part of the checkpoint: notes?[2J")
        self.assertNotIn("\x1b", result.out)
        twice = '{"' + escape.replace("\x1b", "\\u001b") + '": 1, "' + escape.replace("\x1b", "\\u001b") + '": 2}'
        (self.checkpoint / "trainer_state.json").write_text(twice)
        result = self.expect(1, "checkpoint", "inspect", "out/checkpoint-3", says="does not match its checksum")
        self.assertNotIn("\x1b", result.err)
        (self.checkpoint / "trainer_state.json").write_bytes(self.newest["trainer_state.json"])
        (self.checkpoint / f"model{escape}.safetensors").write_bytes(self.newest["model.safetensors"])
        named = self.config("named.json", training=dict(self.TRAINING, resume_from_checkpoint="out/checkpoint-3"))
        result = self.expect(1, "train", named, says="model?[2J.safetensors: was added to the checkpoint")
        self.assertNotIn("\x1b", result.err)
        result = self.train_once()
        self.assertRegex(result.out, r"warning: out/checkpoint-3 is damaged and skipped: .*model\?\[2J.safetensors: was added")
        self.assertNotIn("\x1b", result.out)

    def test_all_are_damaged(self):
        for step in (1, 2, 3):
            file = self.dir / f"out/checkpoint-{step}/model.safetensors"
            file.write_bytes(flipped(file.read_bytes(), 5000))
        self.expect(1, "train", self.config(training=self.TRAINING, runtime={"timeline_steps": 0}),
                    says=["has checkpoints, but none from which the run can continue", "to start from the beginning"])
        shutil.rmtree(self.dir / "out")
        (self.dir / "out/checkpoint-3").mkdir(parents=True)
        (self.dir / "out/checkpoint-3/pytorch_model.bin").write_bytes(b"of another program")
        for source in ("auto", True):
            result = self.run_program("train", self.config(p=2, training={"resume_from_checkpoint": source}))
            self.assertRegex(result.last, "^error: .*out has no checkpoint that shardline has saved: "
                                          "out/checkpoint-3 is skipped: it has no manifest.json")


class Rights(ProgramTest):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        for name in ("cache", "closed", "open"):
            (self.dir / name).mkdir()
            os.chmod(self.dir / name, 0o777)
        os.chmod(self.dir / "closed", 0o555)
        self.options = {"preexec_fn": as_nobody}
        self.env["HOME"] = str(self.dir / "open")

    def refuse(self, says, **sections):
        result = self.run_program("train", self.config(**sections), **self.options)
        self.assertIn(result.code, (1, 2), str(result))
        self.assertEqual(len(result.errors), 1, str(result))
        self.assertIn("ermission denied", result.err, str(result))
        self.assertIn(says, result.err, str(result))

    def test_output_dir(self):
        self.refuse("closed", output_dir="closed")
        self.refuse("closed", output_dir="closed/deeper/out")
        self.refuse("closed", output_dir="closed/out", p=2)
        os.chmod(self.dir / "open", 0o333)  # may be written, not listed
        self.refuse("open", output_dir="open")

    def test_checkpoint_dir(self):
        """Checkpoints that cannot be listed are not treated as absent."""
        os.chmod(self.dir / "open", 0o333)
        (self.dir / "out").mkdir()
        os.chmod(self.dir / "out", 0o777)
        for source in (True, "auto"):
            self.refuse("open: the checkpoints there cannot be listed",
                        training={"checkpoint_dir": "open", "resume_from_checkpoint": source})

    def test_unreadable_files(self):
        os.chmod(self.dir / "text.txt", 0)
        self.refuse("text.txt", output_dir="open/out")

    def test_cache(self):
        os.chmod(self.dir / "cache", 0o555)
        self.refuse("cache", output_dir="open/out")


if __name__ == "__main__":
    unittest.main()
