"""`shardline profile`: its file is used again as long as it is valid; otherwise the reason is printed."""
import json
import unittest

import harness


class ProfileTest(harness.ProgramTest):
    def profile(self, path="out/profile.json"):
        return json.loads((self.dir / path).read_text())

    def test_measured_once_and_kept(self):
        for p, t, communicator, groups in ((1, 1, "auto", set()), (2, 2, "mpi", {"pp", "tp"})):
            with self.subTest(communicator):
                out = f"out-{communicator}"
                config = self.config(f"{out}.json", p=p, t=t, communicator=communicator, output_dir=out,
                                     model={"config": {**harness.tiny()["model"]["config"], "n_layer": 5}})
                result = self.expect(0, "profile", config, says=["embedding", "h.0", "head", f"written to {out}"])
                self.assertNotIn("h.1", result.out)
                measured = self.profile(f"{out}/profile.json")
                self.assertEqual([layer["name"] for layer in measured["layers"]], ["embedding", "h.0", "head"])
                self.assertEqual({link["group"] for link in measured["links"]}, groups)
                block = measured["layers"][1]
                for key in ("forward_seconds", "backward_seconds", "forward_flops", "kept_bytes", "border_bytes"):
                    self.assertGreater(block[key], 0, key)
                self.expect(0, "profile", config, says="is still valid")
                self.assertEqual(self.profile(f"{out}/profile.json"), measured)
                self.expect(0, "train", config)  # the folder does not count as used
                self.assertEqual(self.profile(f"{out}/profile.json"), measured)

    def test_measured_again_where_it_does_not_hold(self):
        self.expect(0, "profile", self.config(), "--output", "kept.json", says="written to kept.json")
        self.expect(0, "profile", self.config(data={"sequence_length": 8}), "--output", "kept.json",
                    says=["sequence_length: 16, not 8", "measuring again", "written to kept.json"])
        self.assertEqual(self.profile("kept.json")["valid_for"]["sequence_length"], "8")
        (self.dir / "kept.json").write_text('{"layers": 7}')
        self.expect(0, "profile", self.config(), "--output", "kept.json", says=["is not a profile", "measuring again"])
        self.assertEqual(self.profile("kept.json")["valid_for"]["sequence_length"], "16")

    def test_half_precision_is_measured_and_planned_with(self):
        for precision in ("bf16", "fp16"):
            with self.subTest(precision):
                config = self.config(training={precision: True})
                self.expect(0, "profile", config, "--output", f"{precision}.json")
                self.assertEqual(self.profile(f"{precision}.json")["device"]["precision"], precision)
                self.expect(0, "plan", config, "--profile", f"{precision}.json", says="samples/s")

    def test_a_profile_of_another_optimizer_is_refused(self):
        sgd, adamw = self.config("sgd.json", training={"optim": "sgd"}), self.config()
        self.expect(0, "profile", sgd, "--output", "kept.json")
        for command in ("plan", "train"):
            self.expect(2, command, adamw, "--set", "profile=kept.json",
                        says=["/profile: kept.json was measured with optimizer: sgd, not adamw", "measure again"])
        self.expect(0, "profile", adamw, "--output", "kept.json", "--set", "profile=kept.json",
                    says=["optimizer: sgd, not adamw", "measuring again"])
        self.expect(0, "plan", adamw, "--profile", "kept.json", says="samples/s")

    def test_degrees_that_are_chosen_with_the_profile(self):
        """The first profile is measured without an existing one, and an invalid profile is replaced."""
        config = self.config(smp_options={"microbatches": "auto"}, profile="kept.json")
        for says in ("written to kept.json", "is still valid"):
            self.expect(0, "profile", config, "--output", "kept.json", says=says)
        self.expect(0, "plan", config, says="mesh")
        self.expect(0, "profile", config, "--output", "kept.json", "--set", "data.sequence_length=8",
                    says=["measuring again", "written to kept.json"])

    def test_a_file_that_cannot_be_written(self):
        self.expect(1, "profile", self.config(), "--output", "text.txt/profile.json", says="text.txt/profile.json")


if __name__ == "__main__":
    unittest.main()
