"""The installed package in a temporary folder, and programs that are built against it."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "program"))
from harness import ROOT  # noqa: E402

BUILD = os.environ["SHARDLINE_BUILD"]
TORCH = os.environ["TORCH_ROOT"]


def run(command, cwd, code=0, timeout=900, **options):
    """Runs a command and returns its output; fails unless the command ends with this exit code."""
    result = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, errors="replace",
                            timeout=timeout, **options)
    output = f"{result.stdout}{result.stderr}"
    assert result.returncode == code, f"{' '.join(map(str, command))}: exit code {result.returncode}\n{output}"
    return output


class Package:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shardline-install-"))
        self.prefix = self.folder / "prefix"
        self.env = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"), OMPI_ALLOW_RUN_AS_ROOT="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                        OMPI_MCA_hwloc_base_binding_policy="none", OMP_NUM_THREADS="1")
        run(["cmake", "--install", BUILD, "--prefix", self.prefix], self.folder)

    def remove(self):
        shutil.rmtree(self.folder, True)

    def copied(self, source):
        """Copies a folder of the source tree to the same place below the temporary folder."""
        copy = self.folder / source
        shutil.copytree(ROOT / source, copy)
        if not (self.folder / "configs").exists():
            shutil.copytree(ROOT / "configs", self.folder / "configs")
        return copy

    def built(self, source):
        """Copies a folder likewise, and builds it as its README describes."""
        folder = self.copied(source)
        run(["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DTORCH_ROOT={TORCH}"], folder)
        run(["cmake", "--build", "build"], folder)
        return folder
