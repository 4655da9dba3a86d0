"""Truncated, inconsistent or wrong files: a clear error, no hang, no partial output that looks complete."""
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess

from harness import ProgramTest, as_nobody, tiny, unittest


class DamagedFiles(ProgramTest):
    @classmethod
    def setUpClass(cls):
        """A good model directory, to be damaged in copies."""
        maker = cls("make_model")
        maker.setUp()
        maker.make_model()
        cls.good = maker.dir / "out"
        cls.addClassCleanup(maker.doCleanups)

    def make_model(self):
        self.train()

    def damaged(self, name, content):
        """A copy of the model whose file `name` is `content`, or what the function `content` makes of its bytes."""
        model = self.dir / "model"
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(self.good, model)
        file = model / name
        file.write_bytes(content(file.read_bytes()) if callable(content) else content)
        return model

    def refused(self, *says, **sections):
        """Training is refused at once, with one message, and leaves nothing like a model."""
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
        self.refused("folder", data={"train": "folder"})
        # Found by the one rank of a host that reads the text: one message, with its name, and the others end.
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
        self.assertIn("reading text", first.out)

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
        self.assertTrue(foreign.exists())  # its process cannot be seen from here


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
        """Checkpoints that cannot be listed are not taken for none."""
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
