#!/usr/bin/env python3
"""Removes the bound of the norm's backward kernel, whose blocks have up to 1024 threads: it must not compile for GPUs.

  compile_for_gpus_test.py NVCC ROOT FOLDER      FOLDER: for what is compiled
"""
import pathlib
import subprocess
import sys

nvcc, root, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
source = (root / "tensor_parallel/kernels/cuda/norm_kernels.cu").read_text()
bound = "SHARDLINE_KERNEL(kMostThreads, norm_gradient_rows, "
if source.count(bound) != 1:
    sys.exit(f"norm_kernels.cu has {bound} {source.count(bound)} times; bring this test up to date")
folder.mkdir(parents=True, exist_ok=True)
changed, made = folder / "norm_kernels.cu", folder / "norm_kernels.o"
changed.write_text(source.replace(bound, "__global__ void norm_gradient_rows(BlockOf<kMostThreads>, "))
run = subprocess.run([sys.executable, root / "tests/core/cuda/compile_for_gpus.py", nvcc, "-std=c++20",
                      "--expt-relaxed-constexpr", "-O2", f"-I{root}", "-gencode", "arch=compute_80,code=sm_80",
                      "-gencode", "arch=compute_80,code=compute_80", "-c", changed, "-o", made],
                     stderr=subprocess.PIPE, text=True)
refused = "norm_gradient_rows" in run.stderr and "too many for a block of 1024 threads" in run.stderr
if run.returncode == 0 or not refused or made.exists():
    sys.exit("a kernel that large blocks cannot start was accepted:\n" + run.stderr)
