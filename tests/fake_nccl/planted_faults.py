#!/usr/bin/env python3
"""Plants faults into the engine's own code for devices, one at a time, and fails if the quick suites do not notice one.
tests/core/cuda/mutants.py plants the faults of kernels.

  planted_faults.py NINJA BUILD ROOT FOLDER [WORD]     BUILD: with the suites; FOLDER: for what is compiled; WORD: only
                                                       faults whose description has it
  planted_faults.py --check ROOT     only whether the sources have the code that the faults change

A changed source is compiled as the build does it, and linked into a suite before the libraries, whose definitions of the
same functions are then not used.
"""
import pathlib
import shlex
import subprocess
import sys

DEVICE, RANKS, TENSORS, ENGINE = ("tests/fake_device/fake_device_tests", "tests/fake_nccl/device_ranks_tests",
                                  "tests/tensor_parallel/kernels/cuda/tensors/cuda_tensors_tests",
                                  "tests/engine/engine_tests")
TRAINING = "one rank on the device has the bits of one on a CPU"
OVER_NCCL = "training over NCCL and on a shared device*"
# What is wrong, where, the right and the wrong code, the suite that detects it, and its test case.
FAULTS = [
    ("a missing guard: the device of a rank is not the current one", "engine/run/ranks.cpp",
     "    const c10::DeviceGuard on_device(context.device);\n", "", DEVICE, "a rank makes its device the current one"),
    ("a dropped wait: gradients go to the host before they are there", "optim/flat/host_link.cpp",
     "    stream_waits_for(stream, streams_->current());\n", "", DEVICE, "a tensor may be dropped*"),
    ("a dropped wait: the device uses values before they have come from the host", "optim/flat/host_link.cpp",
     "made_.block(streams_->current());", "", DEVICE, TRAINING),
    ("an early free: of what is copied to the host", "optim/flat/host_link.cpp",
     "    (is_accelerator(to) ? to : from).record_stream(stream);\n", "", DEVICE, "a tensor may be dropped*"),
    ("an early read: the host updates with gradients that have not come", "optim/flat/host_link.cpp",
     "!made_.query();", "false;", DEVICE, TRAINING),
    ("a dropped wait: activations go to the host before they are made", "pipeline/activations/offload_host.cpp",
     "    stream_waits_for(streams.out, streams.current());\n", "", DEVICE, TRAINING),
    ("a dropped wait: activations come back before they have gone", "pipeline/activations/offload_host.cpp",
     "    stream_waits_for(streams.back, streams.out);\n", "", DEVICE, TRAINING),
    ("a dropped wait: activations come back to memory that is still in use", "pipeline/activations/offload_host.cpp",
     "    stream_waits_for(streams.back, streams.current());\n", "", DEVICE, TRAINING),
    ("a dropped wait: activations are used before they are back", "pipeline/activations/offload_host.cpp",
     "    stream_waits_for(host_->streams.current(), host_->streams.back);", "", DEVICE, TRAINING),
    ("a wrong stream: activations come back on that of the others", "pipeline/activations/offload_host.cpp",
     "const c10::StreamGuard on(streams.back);", "const c10::StreamGuard on(streams.out);", DEVICE, TRAINING),
    ("an early free: of activations that go to the host", "pipeline/activations/offload_host.cpp",
     "copies_.front().end.block(streams_.current());", "{}", DEVICE, TRAINING),
    ("a wrong stream: an event is recorded on the stream that waits", "core/memory/copy_streams.cpp",
     "event.record(other);", "event.record(stream);", DEVICE, TRAINING),
    ("an early read: of the squares of gradients", "core/device/accelerator.cpp", "    made_->synchronize();\n", "",
     TENSORS, "a run with the kernels of GPUs*"),
    ("a dropped wait: ranks of one device do not wait for each other", "core/comm/threads_communicator.cpp",
     "  for (const auto& event : meeting.ready) event->block(stream_of(device));\n", "", RANKS, OVER_NCCL),
    ("an early free: of what ranks of one device exchange", "core/comm/device_moves.cpp",
     "  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(tensor.device()));\n", "", RANKS,
     OVER_NCCL),
    ("a dropped wait: NCCL begins before its input is there", "core/comm/nccl/nccl_channel.cpp",
     "  given.block(stream_);\n", "", RANKS, OVER_NCCL),
    ("a wrong stream: the end of NCCL's work is that of the rank's", "core/comm/nccl/nccl_channel.cpp",
     "launching_->end.record(stream_);", "launching_->end.record(world_->current_stream());", RANKS, OVER_NCCL),
    ("a dropped wait: results of NCCL are used before they are there", "core/device/stream_wait.cpp",
     "  event.block(stream_);\n", "", RANKS, OVER_NCCL),
    ("a receive that is posted ahead in the first step", "pipeline/run/executor.cpp",
     "last_tokens.empty() || (offl", "!last_tokens.empty() || (offl", RANKS, "*no device waits for a receive*"),
    ("a receive that is posted ahead where memory may be page-locked", "pipeline/run/executor.cpp",
     "(offloads && last_tokens != tokens)", "(offloads && last_tokens == tokens)", RANKS, "no receive is posted ahead*"),
    ("channels that are not connected before the first run", "pipeline/run/messages.cpp",
     "      exchange_first_message(*made, stage_ == from);\n", "", RANKS, "each channel has carried*"),
    ("a communicator that is freed after it was aborted", "core/comm/nccl/nccl_channel.cpp",
     "if (world_->remove(comm_)) world_->", "world_->remove(comm_), world_->", RANKS, "nccl: a group that is aborted*"),
    ("a run that stops after saving ends as one that failed", "engine/commands/train_job.cpp", "    parts.reset();", "   ",
     RANKS, "a run over NCCL that stops after saving*"),
    ("communicators of messages that no plan counts", "partitioner/memory/device_bytes.cpp",
     "2 * static_cast<int>(neighbours.size());", "2;", RANKS, "a rank has as many communicators*"),
    ("a profile of messages over NCCL that is used where they go through the host", "engine/plan/profile_use.cpp",
     'context.uses_nccl() ? "nccl" : word_of(resolved_communicator(config))',
     "word_of(resolved_communicator(config))", ENGINE, "a profile is not used if a setting*"),
    ("CUDA that starts before the variables that it reads are set", "engine/run/ranks.cpp",
     "  prepare_for_pipelines(config);\n  set_timeouts", "  set_timeouts", ENGINE, "what CUDA reads when it starts*"),
    ("a host that runs away from its device", "core/device/host_pace.cpp", "  marks_.front().synchronize();\n", "", DEVICE,
     "a host that limits its lead*"),
    ("memory of the host that is logged as the device's", "engine/train/trainer.cpp",
     "  if (!is_accelerator(device)) return {memory_totals()", "  return {memory_totals()", DEVICE,
     "*same results on a device as on a CPU*"),
    ("activations that stay on the device until a run ends", "pipeline/activations/offload_host.cpp",
     "    host_->leaving.release(kLeavingStores - 1);\n", "", DEVICE, "buffers of offloaded tensors*"),
]
SECONDS = 300


class Build:
    def __init__(self, ninja, folder):
        self.ninja, self.folder, self.lines = ninja, pathlib.Path(folder), {}

    def commands(self, program):
        """Returns the lines that make a program; the last one links it."""
        if program not in self.lines:
            run = subprocess.run([self.ninja, "-t", "commands", program], cwd=self.folder, stdout=subprocess.PIPE, text=True,
                                 check=True)
            self.lines[program] = run.stdout.splitlines()
        return self.lines[program]

    def compilation(self, program, source):
        """Returns the words that compile a source, or the sources that are compiled together with it."""
        for line in self.commands(program):
            words = shlex.split(line)
            if "-c" not in words:
                continue
            compiled = pathlib.Path(words[words.index("-c") + 1])
            if compiled == source or (compiled.suffix == ".cxx" and f'"{source}"' in compiled.read_text()):
                return words
        sys.exit(f"{program} has no {source}")

    def compile(self, program, source, changed, made):
        words = self.compilation(program, source)
        for option, value in (("-c", changed), ("-o", made), ("-MF", f"{made}.d"), ("-MT", made)):
            words[words.index(option) + 1] = str(value)
        subprocess.run(words, cwd=self.folder, check=True)

    def link(self, program, first, made):
        line = self.commands(program)[-1]
        if line.count(f" -o {program} ") != 1:
            sys.exit(f"this does not link {program}: {line}")
        line = line.replace(f" -o {program} ", f" -Wl,-z,muldefs -o {shlex.quote(str(made))} {shlex.quote(str(first))} ")
        subprocess.run(line, cwd=self.folder, shell=True, check=True)


def planted(root, fault):
    """Returns the text of a source with a fault."""
    what, file, right, wrong, *_ = fault
    text = (root / file).read_text()
    if text.count(right) != 1:
        sys.exit(f"{what}: {file} has the code to change {text.count(right)} times; bring this list up to date")
    return text.replace(right, wrong)


def notices(build, root, folder, fault):
    what, file, _, _, program, case = fault
    source = root / file
    changed, made, mutant = folder / source.name, folder / "changed.o", folder / "mutant"
    changed.write_text(planted(root, fault))
    build.compile(program, source, changed, made)
    build.link(program, made, mutant)
    try:
        run = subprocess.run([mutant, case], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
        noticed = run.returncode != 0 and b"No test cases matched" not in run.stdout
    except subprocess.TimeoutExpired:  # a suite that hangs fails, too, but without output
        noticed = False
    print(("noticed: " if noticed else "NOT NOTICED: ") + what, flush=True)
    return noticed


def main():
    if sys.argv[1] == "--check":
        for fault in FAULTS:
            planted(pathlib.Path(sys.argv[2]), fault)
        return
    ninja, build, root, folder, *words = sys.argv[1:]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [fault for fault in FAULTS if all(word in fault[0] for word in words)]
    results = [notices(Build(ninja, build), pathlib.Path(root), folder, fault) for fault in chosen]
    sys.exit(0 if results and all(results) else 1)


main()
