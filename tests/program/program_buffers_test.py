"""Buffers of exported programs in the files that a run writes and reads."""
import json
import struct
import unittest
import zipfile

from harness import ROOT, ProgramTest, tiny

MODELS = ROOT / "tests/models/golden/program"
LENGTH, STEPS, WORDS, FEATURES = 6, 4, 12, 8


def tensors_of(path):
    """The tensors of a .safetensors file: type, shape and bytes by name."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[begin:][slice(*entry["data_offsets"])])
            for name, entry in header.items()}


class ProgramBuffers(ProgramTest):
    def setUp(self):
        super().setUp()
        rows = [{"input_ids": [(i * i + k) % 9 + 3 for k in range(LENGTH)], "labels": [(i + k) % WORDS for k in range(LENGTH)]}
                for i in range(8 * STEPS)]
        (self.dir / "words").mkdir()
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(WORDS - 5))]
        (self.dir / "words/vocab.txt").write_text("\n".join(words))
        (self.dir / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def exported(self, model, name="config.json", **sections):
        config = tiny(**sections)
        config["task"] = "token-classification"
        config["model"] = {"path": str(MODELS / f"{model}.pt2"), "config": {"num_labels": WORDS}}
        config["data"] = {"train": "rows.jsonl", "tokenizer": "words", "sequence_length": LENGTH,
                          "shuffle": False}
        config["runtime"]["dtype"] = "float64"
        (self.dir / name).write_text(json.dumps(config))
        return name

    def losses(self, out, model="counted", training=None, **sections):
        training = {"max_steps": STEPS, "save_steps": 2, **(training or {})}
        self.expect(0, "train", self.exported(model, output_dir=out, training=training, **sections))
        return [row["loss"] for row in self.metrics(out)]

    def assert_same(self, some, others):
        self.assertEqual(len(some), len(others))
        for one, other in zip(some, others):
            self.assertAlmostEqual(one, other, delta=1e-12 * abs(other))

    def check_buffers(self, path, steps):
        tensors = tensors_of(self.dir / path / "model.safetensors")
        first = [1 + i / (FEATURES - 1) for i in range(FEATURES)]
        self.assertEqual(tensors["steps"], ("I64", [], struct.pack("<q", steps)))
        self.assertEqual(tensors["odd"], ("U8", [3], bytes([1, 2, 3])))
        self.assertEqual(tensors["blocks.0.flags"][:2], ("BOOL", [FEATURES]))
        for name, halvings in (("share", steps), ("before", steps - 1)):
            dtype, shape, values = tensors[name]
            self.assertEqual((dtype, shape), ("F32", [FEATURES]))
            for value, begin in zip(struct.unpack(f"<{FEATURES}f", values), first):
                self.assertAlmostEqual(value, begin / 2 ** halvings, places=6)
        self.assertEqual(tensors["spare.weight"][:2], ("F32", [2, 3]))  # no layer uses it
        for absent in ("fixed", "blocks.1.flags"):  # not persistent; the same tensor as blocks.0.flags
            self.assertNotIn(absent, tensors)
        return tensors

    def test_files_have_the_buffers_of_their_step_on_every_layout(self):
        one = self.losses("one")
        kept = {}
        for out, options in (("stages", {"p": 2, "communicator": "threads"}), ("tensor", {"t": 2}),
                             ("replicas", {"communicator": "threads", "mpi_options": {"processes_per_host": 2},
                                           "smp_options": {"shard_optimizer_state": True}})):
            self.assert_same(self.losses(out, **options), one)
            for path, steps in ((f"{out}", STEPS), (f"{out}/checkpoint-2", 2)):
                tensors = self.check_buffers(path, steps)
                for name in ("steps", "share", "before", "odd", "blocks.0.flags", "spare.weight", "spare.bias"):
                    self.assertEqual(kept.setdefault((steps, name), tensors[name]), tensors[name])

    def test_a_program_that_returns_its_buffers_has_the_same_files(self):
        self.assert_same(self.losses("returned", model="returned"), self.losses("counted"))
        self.check_buffers("returned", STEPS)
        self.check_buffers("returned/checkpoint-2", 2)
        # The trained program begins where the first run ended.
        config = json.loads((self.dir / "config.json").read_text())
        config["model"]["path"] = "returned/model.pt2"
        config["output_dir"] = "next"
        (self.dir / "next.json").write_text(json.dumps(config))
        self.expect(0, "train", "next.json")
        self.check_buffers("next", 2 * STEPS)

    def test_a_run_continues_with_files_that_have_buffers_and_with_older_ones(self):
        whole = self.losses("whole")
        checkpoint = str(self.dir / "whole/checkpoint-2")
        resumed = {"training": {"resume_from_checkpoint": checkpoint}}
        self.assert_same(self.losses("resumed", **resumed, p=2, communicator="threads"), whole[2:])
        self.check_buffers("resumed", STEPS)

    def test_a_run_continues_with_the_checkpoint_s_parameters_that_no_layer_uses(self):
        self.losses("whole")
        with zipfile.ZipFile(MODELS / "counted.pt2") as given, zipfile.ZipFile(self.dir / "other.pt2", "w") as other:
            names = given.namelist()
            config = next(name for name in names if name.endswith("weights_config.json"))
            spare = json.loads(given.read(config))["config"]["spare.weight"]["path_name"]
            for name in names:
                data = given.read(name)
                other.writestr(name, bytes(len(data)) if name.endswith("data/weights/" + spare) else data)
        config = json.loads((self.dir / "config.json").read_text())
        config["model"]["path"] = "other.pt2"
        config["training"].update(resume_from_checkpoint="whole/checkpoint-2", resume_with_changes=True)
        config["output_dir"] = "resumed"
        (self.dir / "resumed.json").write_text(json.dumps(config))
        self.expect(0, "train", "resumed.json")
        self.assertEqual(self.check_buffers("resumed", STEPS)["spare.weight"],
                         self.check_buffers("whole/checkpoint-2", 2)["spare.weight"])


if __name__ == "__main__":
    unittest.main()
