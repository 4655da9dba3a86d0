#!/usr/bin/env python3
"""Compiles kernels with nvcc, and fails if one needs more registers for its largest block than a GPU has for a block.

  compile_for_gpus.py NVCC OPTION... -o OBJECT      OPTION: of nvcc; the code must include PTX of one architecture

The largest block has the threads that the kernel declares (SHARDLINE_KERNEL in core/cuda/device_code.h), else 1024.
A GPU refuses to start a block for which it lacks registers, so without this check the fault would show only on GPUs.
"""
import pathlib
import re
import subprocess
import sys

LARGEST_BLOCK = 1024
REGISTERS = 65536  # per block, from compute capability 8.0 on


def rounded_up(count, unit):
    return -(-count // unit) * unit


def registers_of_block(registers, threads):
    """A warp allocates eight registers of each thread at a time, and the warps of a block are distributed over four
    schedulers."""
    return rounded_up(registers, 8) * rounded_up(threads, 4 * 32)


def used_registers(log):
    """Reads the output of ptxas -v: (kernel, architecture) -> registers of a thread."""
    entries = re.findall(r"Compiling entry function '(\w+)' for '(\w+)'.*?Used (\d+) registers", log, re.DOTALL)
    return {(kernel, architecture): int(registers) for kernel, architecture, registers in entries}


def declared_threads(code):
    """Reads PTX: kernel -> threads of a block, for kernels that declare them."""
    entries = re.findall(rb"\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)", code)
    return {kernel.decode(): int(threads) for kernel, threads in entries}


def main():
    command = sys.argv[1:]
    done = subprocess.run([*command, "-Xptxas", "-v", "--no-compress"], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    used = used_registers(done.stderr)
    target = pathlib.Path(command[command.index("-o") + 1])
    declared = declared_threads(target.read_bytes())
    unlaunchable = []
    for (kernel, architecture), registers in used.items():
        threads = declared.get(kernel, LARGEST_BLOCK)
        if registers_of_block(registers, threads) > REGISTERS:
            unlaunchable.append(f"{kernel} for {architecture} uses {registers} registers, too many for a block of "
                                f"{threads} threads; declare its blocks with SHARDLINE_KERNEL")
    if unlaunchable or not used:
        target.unlink()
        sys.exit("\n".join(unlaunchable) or "no kernel in the output of ptxas:\n" + done.stderr)


main()
