"""Runs on two hosts."""
from hosts import HostsTest, unittest


class Hosts(HostsTest):
    def test_like_one_host(self):
        """Ranks of two hosts get the numbers of two ranks of one host."""
        self.train(**self.on_hosts(p=2))
        self.expect(0, "train", self.config(p=2, communicator="mpi", output_dir="one"))
        numbers = [[(line["step"], line["loss"], line["grad_norm"]) for line in self.metrics(folder)]
                   for folder in ("out", "one")]
        self.assertEqual(*numbers)
        self.assertEqual((self.dir / "out/model.safetensors").read_bytes(),
                         (self.dir / "one/model.safetensors").read_bytes())


if __name__ == "__main__":
    unittest.main(verbosity=2)
