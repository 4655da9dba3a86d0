"""Uses the library in ways other than `cmake --install` of a static build: add_subdirectory, shared libraries, and
packages made by cpack. Builds the library twice."""
import pathlib
import shutil
import unittest

from package import BUILD, ROOT, TORCH, Package, run

# A user's program that trains a little in its own loop.
PROGRAM = r"""
#include <shardline/nn.h>
#include <shardline/shardline.h>
#include <torch/torch.h>
#include <cstdio>
int main() {
  shardline::nn::ColumnLinear linear(3, 4);
  if (linear(torch::ones({2, 3})).size(1) != 4) return 1;
  shardline::Trainer trainer(R"({"model": {"config": {"model_type": "gpt2", "vocab_size": 31, "n_positions": 16,
    "n_embd": 16, "n_layer": 2, "n_head": 2}}, "data": {"sequence_length": 16}, "training": {"global_batch_size": 4,
    "max_steps": 5}, "runtime": {"device": "cpu"}})");
  const auto ids = torch::arange(64).remainder(31).view({4, 16});
  double loss = 0;
  for (int i = 0; i < 5; ++i) loss = trainer.step(ids).loss;
  std::printf("%s: trained to %f\n", shardline::version().c_str(), loss);
}
"""
UNITY = ["-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=12"]
CCACHE = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache')}"] if shutil.which("ccache") else []


class Builds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.package = Package()
        cls.addClassCleanup(cls.package.remove)

    def run_in(self, folder, *command):
        return run(command, folder, env=self.package.env, timeout=3600)

    def user(self, name, lines):
        """Makes a user's project with this line in its CMakeLists.txt."""
        folder = self.package.folder / name
        folder.mkdir()
        (folder / "user.cpp").write_text(PROGRAM)
        (folder / "CMakeLists.txt").write_text(
            f"cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES CXX)\n{lines}\nadd_executable(user user.cpp)\n"
            "target_link_libraries(user PRIVATE shardline::shardline)\n")
        return folder

    def trains(self, name, prefix):
        """Checks that a program that is built against an installed package runs."""
        folder = self.user(name, "find_package(shardline REQUIRED)")
        self.run_in(folder, "cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DTORCH_ROOT={TORCH}")
        self.run_in(folder, "cmake", "--build", "build")
        self.assertIn("trained to", self.run_in(folder, "build/user"))

    def test_subdirectory(self):
        folder = self.user("subdirectory", f"add_subdirectory({ROOT} shardline)")
        self.run_in(folder, "cmake", "-G", "Ninja", "-S", ".", "-B", "build", f"-DTORCH_ROOT={TORCH}", *UNITY, *CCACHE)
        self.run_in(folder, "cmake", "--build", "build", "--target", "user")
        self.assertIn("trained to", self.run_in(folder, "build/user"))

    def test_shared_libraries(self):
        folder, prefix = self.package.folder / "shared", self.package.folder / "shared-prefix"
        self.run_in(self.package.folder, "cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, f"-DTORCH_ROOT={TORCH}",
                    "-DBUILD_SHARED_LIBS=ON", "-DSHARDLINE_DEVELOPER=OFF", *UNITY, *CCACHE)
        self.run_in(folder, "cmake", "--build", ".")
        self.run_in(folder, "cmake", "--install", ".", "--prefix", prefix)
        libraries = [path.name for path in (prefix / "lib").rglob("libshardline*")]
        self.assertTrue(libraries and all(".so" in name for name in libraries), libraries)
        shutil.rmtree(folder)
        self.run_in(prefix, "bin/shardline", "--version")
        self.trains("user-of-shared", prefix)

    def test_packages(self):
        folder = self.package.folder / "packages"
        folder.mkdir()
        self.run_in(folder, "cpack", "--config", pathlib.Path(BUILD) / "CPackConfig.cmake", "-B", folder)
        tarball, = folder.glob("*.tar.gz")
        self.run_in(folder, "tar", "xf", tarball)
        unpacked, = [path for path in folder.iterdir() if path.is_dir() and path.name.startswith("shardline")]
        prefix = next(path.parent.parent for path in unpacked.rglob("bin/shardline"))
        self.run_in(prefix, "bin/shardline", "--version")
        self.trains("user-of-tarball", prefix)
        if not shutil.which("dpkg-deb"):
            return
        debian, = folder.glob("*.deb")
        listed = self.run_in(folder, "dpkg-deb", "--contents", debian)
        for name in ["./usr/bin/shardline", "./usr/include/shardline/shardline.h", "./usr/include/shardline/nn.h",
                     "./usr/share/man/man1/shardline.1"]:
            self.assertIn(name, listed)
        self.assertIn("libopenmpi", self.run_in(folder, "dpkg-deb", "--field", debian, "Depends"))
        self.run_in(folder, "dpkg-deb", "--extract", debian, folder / "debian")
        self.run_in(folder, folder / "debian/usr/bin/shardline", "--version")
        self.trains("user-of-debian", folder / "debian/usr")


if __name__ == "__main__":
    unittest.main()
