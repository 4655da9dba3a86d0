"""Exported programs whose samples are tensors: columns of .safetensors files, and .npy files that rows name."""
import array
import json
import unittest

from harness import ROOT, ProgramTest, tiny

MODELS = ROOT / "tests/models/golden/program"
SAMPLES, STEPS = 16, 4
IMAGE = [2, 4, 4]
PICTURES = {"pixel_values": "image", "labels": "labels"}


def numbers(sample, count):
    """Returns the numbers of a sample, which differ from sample to sample."""
    return [((sample * 7 + i * 13) % 19 - 9) / 4 for i in range(count)]


def floats(values):
    return array.array("f", values).tobytes()


def safetensors(tensors):
    """Returns the bytes of a file from (name, dtype, shape, bytes)."""
    header, data = {}, b""
    for name, dtype, shape, values in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def npy(values, shape, descr="<f4"):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}".encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + values


class TensorColumns(ProgramTest):
    def setUp(self):
        super().setUp()
        images = [numbers(i, 32) for i in range(SAMPLES)]
        self.classes = [i * 2 % 3 for i in range(SAMPLES)]
        (self.dir / "images.safetensors").write_bytes(safetensors([
            ("image", "F32", [SAMPLES, *IMAGE], floats(sum(images, []))),
            ("labels", "I64", [SAMPLES], array.array("q", self.classes).tobytes())]))
        (self.dir / "files").mkdir()
        rows = []
        for i, image in enumerate(images):
            (self.dir / f"files/{i}.npy").write_bytes(npy(floats(image), IMAGE))
            rows.append({"image": f"{i}.npy", "label": self.classes[i]})
        self.write_rows("files/rows.jsonl", rows)
        (self.dir / "letters").mkdir()
        (self.dir / "letters/tokenizer.json").write_text(json.dumps(
            {"model": {"type": "BPE", "vocab": {letter: i for i, letter in enumerate("abcdefghijk")}, "merges": []},
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}, "decoder": {"type": "ByteLevel"}}))

    def write_rows(self, name, rows):
        (self.dir / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def pictures(self, file="images.safetensors", name="config.json", inputs=None, **sections):
        config = tiny(**sections)
        config["task"] = "sequence-classification"
        config["model"] = {"path": str(MODELS / "pictures.pt2"), "inputs": inputs or PICTURES,
                           "config": {"num_labels": 3}}
        config["data"] = {"train": file, "validation": file, "test": file, "shuffle": False,
                          **sections.get("data", {})}
        config["runtime"]["dtype"] = "float64"
        (self.dir / name).write_text(json.dumps(config))
        return name

    def sounds(self, file="sounds.safetensors", name="config.json", **sections):
        config = tiny(**sections)
        config["task"] = "seq2seq-lm"
        config["model"] = {"path": str(MODELS / "sounds.pt2"), "inputs": {"input_features": "sound"}}
        config["data"] = {"train": file, "validation": file, "tokenizer": "letters", "shuffle": False,
                          "max_target_length": 6, **sections.get("data", {})}
        config["runtime"]["dtype"] = "float64"
        (self.dir / name).write_text(json.dumps(config))
        return name

    def losses(self, make, out, **sections):
        training = {"max_steps": STEPS, "do_eval": True, **sections.pop("training", {})}
        self.expect(0, "train", make(output_dir=out, training=training, **sections))
        rows = self.metrics(out)
        return [row["loss"] for row in rows if "loss" in row] + [row["eval_loss"] for row in rows if "eval_loss" in row]

    def assert_same(self, some, others):
        self.assertEqual(len(some), len(others))
        for one, other in zip(some, others):
            self.assertAlmostEqual(one, other, delta=1e-12 * abs(other))

    def test_images_train_alike_on_all_layouts(self):
        one = self.losses(self.pictures, "one")
        self.assertLess(one[STEPS - 1], one[0])
        for layout in ({"p": 2}, {"t": 2}, {"p": 2, "t": 2}):
            name = "-".join(f"{key}{value}" for key, value in layout.items())
            self.assert_same(self.losses(self.pictures, name, communicator="threads", **layout), one)
        replicas = {"smp_options": {"ddp": True}, "mpi_options": {"processes_per_host": 2}, "communicator": "threads"}
        self.assert_same(self.losses(self.pictures, "d2", **replicas), one)
        short = {"training": {"global_batch_size": 6, "max_steps": 5}, "data": {"shuffle": True}}  # a last step of 4
        one = self.losses(self.pictures, "short-one", **short)
        self.assert_same(self.losses(self.pictures, "short-d2", **short, **replicas), one)

    def test_files_of_arrays_are_the_same_samples(self):
        self.assert_same(self.losses(self.pictures, "rows", file="files/rows.jsonl"),
                         self.losses(self.pictures, "tensors"))

    def test_a_trained_program_predicts(self):
        self.losses(self.pictures, "out")
        self.expect(0, "predict", self.pictures(), "--set", "model.path=out/model.pt2", "--output", "labels.jsonl")
        lines = [json.loads(line) for line in (self.dir / "labels.jsonl").read_text().splitlines()]
        self.assertEqual(len(lines), SAMPLES)
        self.assertTrue(all(0 < line["score"] < 1 for line in lines))
        self.expect(0, "predict", self.pictures(), "--set", "model.path=out/model.pt2")
        self.expect(0, "report", "out")
        self.assertNotIn("this task reads", (self.dir / "out/report.html").read_text())

    def test_a_program_of_a_fixed_batch_evaluates_and_predicts_alike(self):
        scores, losses = [], []
        for model in ("pictures", "fixed_pictures"):
            used = ["--set", f"model.path={MODELS / model}.pt2"]
            losses.append(json.loads(self.expect(0, "eval", self.pictures(), *used).out.splitlines()[-1])["eval_loss"])
            self.expect(0, "predict", self.pictures(), *used, "--output", f"{model}.jsonl")
            lines = [json.loads(line) for line in (self.dir / f"{model}.jsonl").read_text().splitlines()]
            self.assertEqual(len(lines), SAMPLES)  # the last batch has one sample less than the program takes
            scores.append([line["score"] for line in lines])
        self.assert_same(*scores)
        self.assertAlmostEqual(*losses, delta=1e-12)
        for command in (["eval"], ["predict", "--output", "labels.jsonl"]):
            self.expect(2, *command, self.pictures(training={"per_device_eval_batch_size": 4}), *used, says=[
                "/training/per_device_eval_batch_size: makes microbatches of 4 samples", "takes at most 3; set it to 3"])

    def test_commands_know_what_a_sample_is(self):
        self.expect(0, "plan", self.pictures())
        self.expect(0, "profile", self.pictures())
        self.expect(0, "train", self.pictures(), says=f"{SAMPLES} examples, image [2, 4, 4]")
        self.expect(2, "train", self.pictures(data={"sequence_length": 7}),
                    says="/data/sequence_length: must be 5 because samples are columns of tensors")

    def test_sounds_train_alike_on_all_layouts_and_are_written_down(self):
        targets = [[2 + (i + k) % 8 if k < 2 + i % 3 else -100 for k in range(4)] for i in range(SAMPLES)]
        (self.dir / "sounds.safetensors").write_bytes(safetensors([
            ("sound", "F32", [SAMPLES, 3, 9], floats(sum((numbers(i, 27) for i in range(SAMPLES)), []))),
            ("labels", "I64", [SAMPLES, 4], array.array("q", sum(targets, [])).tobytes())]))
        one = self.losses(self.sounds, "one")
        self.assertIn("eval_rouge1", self.metrics("one")[-1])
        for layout in ({"p": 2}, {"t": 2}, {"p": 2, "t": 2}):
            name = "-".join(f"{key}{value}" for key, value in layout.items())
            self.assert_same(self.losses(self.sounds, name, communicator="threads", **layout), one)
        self.expect(2, "generate", self.sounds(), "--prompt", "x", says="generate takes texts")

    def test_targets_are_texts_in_some_rows_and_ids_in_others(self):
        rows = []
        for i in range(SAMPLES):
            (self.dir / f"files/sound{i}.npy").write_bytes(npy(floats(numbers(i, 27)), [3, 9]))
            rows.append({"sound": f"sound{i}.npy", "labels": [2 + (i + k) % 8 for k in range(4)], "target": None})
        self.write_rows("files/ids.jsonl", rows)
        for row in rows[::2]:
            row["target"] = "".join("abcdefghijk"[word] for word in row["labels"])
            row["labels"] = None
        self.write_rows("files/both.jsonl", rows)
        self.assert_same(self.losses(self.sounds, "both", file="files/both.jsonl"),
                         self.losses(self.sounds, "ids", file="files/ids.jsonl"))

    def test_data_that_does_not_fit_is_refused(self):
        def refused(rows, says, code=1):
            self.write_rows("files/bad.jsonl", rows)
            self.expect(code, "train", self.pictures(file="files/bad.jsonl"), says=says)

        (self.dir / "outside.npy").write_bytes(npy(floats(numbers(0, 32)), IMAGE))
        (self.dir / "files/small.npy").write_bytes(npy(floats(numbers(0, 4)), [2, 2]))
        (self.dir / "files/objects.npy").write_bytes(npy(b"pickle", [1], "|O"))
        for path in ("../outside.npy", str(self.dir / "outside.npy"), "a/../../outside.npy"):
            refused([{"image": path, "label": 1}], "must be the path of a .npy file in the folder of the data file")
        refused([{"image": "small.npy", "label": 1}],
                ["has the sizes [2, 2], but the program takes [2, 4, 4]", "bad.jsonl:1"])
        refused([{"image": "objects.npy", "label": 1}], "pickles are not read")
        refused([{"image": "absent.npy", "label": 1}], "does not exist or is not a file")
        refused([{"image": "0.txt", "label": 1}], "name a .npy file")
        refused([{"image": numbers(0, 32), "label": 1}], "'image' is array, but rows name the .npy file")
        refused([{"label": 1}], "has no 'image'", code=2)
        (self.dir / "uneven.safetensors").write_bytes(safetensors([
            ("image", "F32", [1, *IMAGE], floats(numbers(0, 32))),
            ("labels", "I64", [2], array.array("q", [0, 1]).tobytes())]))
        self.expect(1, "train", self.pictures(file="uneven.safetensors"),
                    says="the tensor labels has 2 samples, but image has 1")

    def test_contradictions_in_the_config_are_refused(self):
        self.expect(2, "plan", self.pictures(data={"format": "text"}),
                    says="is a format without columns")
        self.expect(2, "train", self.pictures(inputs={"pixel_values": "picture"}), says="has no tensor picture")
        self.expect(2, "train", self.pictures(inputs={"pixels": "image"}), says="the program has no such argument")
        self.expect(2, "plan", self.pictures(data={"tokenizer": "bytes"}), says="/data/tokenizer: has no effect")
        self.expect(2, "train", self.pictures(data={"label_column": "coarze"}), says="coarze")


if __name__ == "__main__":
    unittest.main()
