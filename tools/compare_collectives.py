#!/usr/bin/env python3
"""Measures shardline's collectives against Open MPI's own and PyTorch's over Gloo: one run, alternating.

In every round bench_collectives runs first (alternating between shared memory, messages and Open MPI), then Gloo, with
as many processes and the same operations, sizes and numbers of repetitions, so that disturbances of the machine affect
all of them. Prints one markdown table per operation and number of ranks: algbw in GB/s (bytes / time, as in
nccl-tests), the median of the rounds' medians, and in brackets their range; the last columns are the medians of the
rounds' ratios.

  tools/compare_collectives.py [--ranks 2,4] [--operations all_reduce,...] [--smallest 1024] [--rounds 5]

Needs torch in the Python that runs it, and a built bench_collectives.
"""
import argparse
import collections
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "send_recv"]
COLUMNS = {"shared": "shared memory", "messages": "messages", "openmpi": "Open MPI", "gloo": "Gloo"}
# Ranks may share cores, as with `shardline train`.
MPI_ENVIRONMENT = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
                   "OMPI_MCA_mpi_yield_when_idle": "1", "OMP_NUM_THREADS": "1"}


def sizes(options):
    size = options.smallest
    while size <= options.largest:
        yield size
        size *= options.factor


def gloo_rank(options):
    """Runs one of Gloo's processes, like `measure` in bench_collectives.cpp; rank 0 prints its rows."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()

    def run(operation, given, result):
        if operation == "all_reduce":
            dist.all_reduce(result)
        elif operation == "reduce_scatter":
            dist.reduce_scatter_tensor(result, given)
        elif operation == "all_gather":
            dist.all_gather_into_tensor(result, given)
        elif operation == "all_to_all":
            dist.all_to_all_single(result, given)
        elif operation == "broadcast":
            dist.broadcast(result, 0)
        else:
            works = [dist.irecv(result, (rank - 1) % n), dist.isend(given, (rank + 1) % n)]
            for work in works:
                work.wait()

    def largest(value):
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.item()

    for operation in options.operations:
        for size in sizes(options):
            elements = max(1, size // 4 // n) * n
            given = torch.full([elements // n if operation == "all_gather" else elements], 0.0)
            result = torch.full([elements // n if operation == "reduce_scatter" else elements], 0.0)
            in_a_row = min(max(1, (4 << 20) // size), 200)
            run(operation, given, result)
            times = []
            for _ in range(options.repetitions):
                largest(0)
                start = time.perf_counter()
                for _ in range(in_a_row):
                    run(operation, given, result)
                times.append(largest((time.perf_counter() - start) / in_a_row))
            if rank == 0:
                print("gloo", n, operation, size, 1e6 * statistics.median(times), flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_gloo(ranks, options):
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks),
                   "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--gloo-rank", *sys.argv[1:]]
    processes = [subprocess.Popen(command, env={**environment, "RANK": str(rank)}, text=True,
                                  stdout=subprocess.PIPE if rank == 0 else None) for rank in range(ranks)]
    text = processes[0].communicate()[0]
    if any(process.wait() for process in processes):
        sys.exit("Gloo's processes failed")
    return text


def run_ours(ranks, options):
    command = ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "-np", str(ranks), options.bench,
               "--operations", ",".join(options.operations), "--rounds", "1"]
    for name in ("smallest", "largest", "factor", "repetitions"):
        command += [f"--{name}", str(getattr(options, name))]
    return subprocess.run(command, env={**os.environ, **MPI_ENVIRONMENT}, check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def read_rows(text, times):
    for line in text.splitlines():
        words = line.split()
        if words and words[0] in COLUMNS:
            times[words[2], int(words[3]), words[0]].append(float(words[4]))


def human(size):
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or unit == "MiB":
            return f"{size:g} {unit}"
        size /= 1024


def print_table(operation, ranks, times, options):
    print(f"\n{operation}, {ranks} ranks, GB/s\n")
    others = [name for name in COLUMNS if name != "shared"]
    print("| bytes | " + " | ".join(COLUMNS.values()) + " | " + " | ".join(f"/ {COLUMNS[name]}" for name in others) + " |")
    print("| --- |" + " ---: |" * (len(COLUMNS) + len(others)))
    for size in sizes(options):
        rates = {name: [size / us / 1e3 for us in times[operation, size, name]] for name in COLUMNS}
        cells = [f"{statistics.median(r):.3f} ({min(r):.3f} to {max(r):.3f})" for r in rates.values()]
        cells += ["%.2g" % statistics.median(a / b for a, b in zip(rates["shared"], rates[name])) for name in others]
        print(f"| {human(size)} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    comma_list = lambda kind: lambda text: [kind(item) for item in text.split(",")]
    parser.add_argument("--ranks", type=comma_list(int), default=[2, 4])
    parser.add_argument("--operations", type=comma_list(str), default=OPERATIONS)
    parser.add_argument("--smallest", type=int, default=1 << 10)
    parser.add_argument("--largest", type=int, default=64 << 20)
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--bench", default=str(HERE.parent / "build-test" / "tools" / "bench_collectives"))
    parser.add_argument("--gloo-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.gloo_rank:
        return gloo_rank(options)
    for ranks in options.ranks:
        times = collections.defaultdict(list)
        for _ in range(options.rounds):
            read_rows(run_ours(ranks, options), times)
            read_rows(run_gloo(ranks, options), times)
        for operation in options.operations:
            print_table(operation, ranks, times, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
