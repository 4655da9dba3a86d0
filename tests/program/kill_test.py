"""Whichever process is killed, at any time, even while a checkpoint is saved, the run continues as if nothing had
happened.

    ctest --test-dir build-test -R all_kills        all layouts, about five minutes

SHARDLINE_KILL_LAYOUTS=1-7 in the environment selects some of the layouts, and SHARDLINE_KILL_SEED=2 other instants.

Each layout is trained once without interruption. Then the same run is killed again and again: some of the kills come
while it starts, some between steps, and some while a checkpoint is saved. After each kill, every checkpoint that is
complete must have the bytes of the run that was not interrupted, and none that was there may be lost; the next start
must continue the newest one and compute the same numbers, up to the weights of the finished model.
"""
import collections
import json
import os
import random
import re
import shutil
import time

import records
from harness import LIMIT, TINY, ProgramTest, signal, unittest

STEPS, SAVE_STEPS, KEEP = 48, 2, 2  # an epoch has 32 steps, the last one of which is short
SEED = int(os.environ.get("SHARDLINE_KILL_SEED", "1"))
FP16 = {"fp16": True, "dynamic_loss_args": {"init_scale": 65536, "scale_window": 3}}
ACCUMULATION = {"gradient_accumulation_steps": 4}
BEST = {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True}
ZERO1 = {"shard_optimizer_state": True}
ZERO2 = {"shard_optimizer_state": True, "shard_gradients": True}


def zero3(degree):
    return {"sharded_data_parallel_degree": degree, "sdp_param_persistence_threshold": 0}


def layout(name, communicator, ranks=1, p=1, t=1, training=None, data=None, **smp):
    if p > 1:
        smp = {"pipeline_parallel_degree": p, "microbatches": p, **smp}
    if t > 1:
        smp["tensor_parallel_degree"] = t
    return name, {"communicator": communicator, "smp_options": smp, "training": training or {}, "data": data or {},
                  "mpi_options": {"processes_per_host": ranks}}


LAYOUTS = [
    layout("one process", "local"),
    layout("P=2 T=2 D=2 spread, ZeRO-1", "threads", 8, p=2, t=2, placement_strategy="spread", **ZERO1),
    layout("P=2", "mpi", 2, p=2),
    layout("D=2, ZeRO-1", "mpi", 2, **ZERO1),
    layout("one process, fp16", "local", training=FP16),
    layout("one process, bf16, Adafactor", "local", training={"bf16": True, "optim": "adafactor"}),
    layout("one process, accumulation", "local", training=ACCUMULATION),
    layout("T=4, activations replicated", "threads", 4, t=4, optimize="speed"),
    layout("D=3, ZeRO-2, accumulation", "threads", 3, training={"global_batch_size": 12, **ACCUMULATION},
           **ZERO2),
    layout("D=4, ZeRO-3", "threads", 4, **zero3(4)),
    layout("D=4 T=2, sharded by 2", "threads", 8, t=2, **zero3(2)),
    layout("P=3 T=2, recomputed and offloaded", "threads", 6, p=3, t=2, training={"global_batch_size": 9},
           activation_checkpointing="contiguous", offload_activations=True),
    layout("T=3 D=2 PTD, sharded by 2", "threads", 6, t=3, placement_strategy="PTD", **zero3(2)),
    layout("P=2 D=2 zb_h1, selective", "threads", 4, p=2, pipeline="zb_h1", activation_checkpointing="selective"),
    layout("P=2 dualpipev, fp16", "threads", 2, p=2, pipeline="dualpipev", microbatches=4, training=FP16),
    layout("P=2 in 4 chunks, bf16", "threads", 2, p=2, pipeline="interleaved_1f1b", virtual_pipeline_degree=2,
           microbatches=4, training={"bf16": True}),
    layout("P=4 simple, all recomputed", "threads", 4, p=4, pipeline="simple", activation_checkpointing="each"),
    layout("best of the evaluations", "threads", 2, p=2, training=BEST, data={"validation_split_percentage": 10}),
    layout("D=2, mostly frozen", "mpi", 2, training={"trainable": ["transformer.h.2.*", "transformer.ln_f.*"]}, ddp=True),
    layout("T=2, fp16", "mpi", 2, t=2, training=FP16),
    layout("D=2, ZeRO-2, accumulation", "mpi", 2, training=ACCUMULATION, **ZERO2),
    layout("D=2, ZeRO-3", "mpi", 2, **zero3(2)),
    layout("D=2, ZeRO-1, bf16, Adafactor", "mpi", 2, training={"bf16": True, "optim": "adafactor"}, **ZERO1),
    layout("P=2 in 4 chunks, offloaded", "mpi", 2, p=2, pipeline="interleaved_1f1b", virtual_pipeline_degree=2,
           microbatches=4, activation_checkpointing="each", offload_activations=True),
    layout("P=2 zbv, best of the evaluations", "mpi", 2, p=2, pipeline="zbv", microbatches=4, training=BEST,
           data={"validation_split_percentage": 10}),
    layout("P=2 T=2", "mpi", 4, p=2, t=2),
    layout("D=3, ZeRO-2", "mpi", 3, training={"global_batch_size": 9}, **ZERO2),
    layout("P=2 D=2 zb_h1, ZeRO-1", "mpi", 4, p=2, pipeline="zb_h1", microbatches=4, **ZERO1),
]
REPRESENTATIVE = 4  # the first ones
# The stages of a save: files are written; the manifest exists; older checkpoints are removed; the file `newest` is
# written.
STAGES = ["write", "publish", "remove", "tidy"]


def chosen_layouts():
    """(number, name, options, kills) of each layout."""
    kills = os.environ.get("SHARDLINE_KILLS")
    count = len(LAYOUTS) if kills else REPRESENTATIVE
    each, more = divmod(int(kills or 8), count)
    shares = [(i + 1, *LAYOUTS[i], each + (i < more)) for i in range(count)]
    first, last = os.environ.get("SHARDLINE_KILL_LAYOUTS", f"1-{count}").split("-")
    return shares[int(first) - 1:int(last)]


def checkpoint_files(folder):
    """Returns the contents by name of each complete checkpoint, by step, without the limit on checkpoints that the
    uninterrupted run lacks."""
    found = {}
    for manifest in folder.glob("checkpoint-*/manifest.json"):
        if not re.fullmatch(r"checkpoint-\d+", manifest.parent.name):
            continue
        files = {file.name: file.read_bytes() for file in manifest.parent.iterdir()}
        listed, config = json.loads(files["manifest.json"]), json.loads(files["config.resolved.json"])
        del listed["checksum"], listed["files"]["config.resolved.json"], config["training"]["save_total_limit"]
        files.update({"manifest.json": listed, "config.resolved.json": config})
        found[int(manifest.parent.name.split("-")[1])] = files
    return found


def newest_complete(folder):
    return max((int(path.parent.name.split("-")[1]) for path in folder.glob("checkpoint-*/manifest.json")
                if path.parent.name.split("-")[1].isdigit()), default=0)


def stage_of_save(folder, continued):
    """Returns what a save was doing, judged from the files: one of STAGES, or empty if there was none. continued: the
    step after which the run continued; it has removed unfinished files of earlier runs."""
    names = {path.name for path in folder.glob("checkpoint-*")}
    unfinished = [name for name in names if re.fullmatch(r"checkpoint-\d+\.\w+\.incomplete", name)]
    if unfinished:
        return "publish" if any((folder / name / "manifest.json").exists() for name in unfinished) else "write"
    if any(name.endswith(".incomplete") for name in names):
        return "remove"
    newest, published = folder / "newest", newest_complete(folder)
    is_named = newest.exists() and newest.read_text().strip() == f"checkpoint-{published}"
    return "tidy" if published > continued and not is_named else ""


def last_step(folder):
    """The last step in the records; 0 if there are none."""
    path = folder / "metrics.jsonl"
    steps = re.findall(rb'^\{"step":(\d+).*\n', path.read_bytes(), re.MULTILINE) if path.exists() else []
    return int(steps[-1]) if steps else 0


def changed_at(path):
    return path.stat().st_mtime_ns if path.exists() else 0


def show(number, name, kills, stages, continued, compared):
    saving = ", ".join(f"{stages[stage]} {stage}" for stage in STAGES if stages[stage])
    print(f"{number:>3} | {name:<33} | {kills:>2} kills | {sum(stages.values()):>2} in a save ({saving}) | {compared} "
          f"checkpoints compared | continued after {' '.join(map(str, continued))} | equal bits", flush=True)


class Kills(ProgramTest):
    def setUp(self):
        super().setUp()
        self.out = self.dir / "out"

    def sections(self, name, options, limit):
        model = {"config": dict(TINY["model"]["config"], n_layer=6 if "P=3" in name else 4, n_head=4)}
        training = {"max_steps": STEPS, "save_steps": SAVE_STEPS, "save_total_limit": limit, "logging_steps": 3,
                    "report_to": "tensorboard", "resume_from_checkpoint": "auto", **options["training"]}
        return dict(options, model=model, training=training, runtime={"timeline_steps": 0})

    def run_uninterrupted(self, name, options):
        """Trains without interruption; keeps its records, all its checkpoints, its weights, and the time to its first
        step."""
        process = self.start("train", self.config(**self.sections(name, options, limit=1000)))
        self.addCleanup(process.kill)
        begin = time.monotonic()
        self.wait_for_steps(1)
        self.seconds_to_start = time.monotonic() - begin
        result = self.finish(process)
        self.assertEqual(result.code, 0, str(result))
        self.metrics_of_all, self.scalars_of_all = records.metrics(self.out), records.scalars(self.out)
        self.checkpoints_of_all = checkpoint_files(self.out)
        self.assertEqual(sorted(self.checkpoints_of_all), list(range(SAVE_STEPS, STEPS + 1, SAVE_STEPS)))
        self.weights = (self.out / "model.safetensors").read_bytes()
        shutil.rmtree(self.out)

    # ---- one kill

    def wait_while_runs(self, process, condition, limit):
        end = time.monotonic() + limit
        while process.poll() is None and time.monotonic() < end and not condition():
            time.sleep(0.001)

    def wait_for_instant(self, process, luck):
        """Waits for some moment of the start, between steps or of a save. Returns the processes to kill then, as ids,
        and a function that says what a save is doing."""
        moment = luck.choices(["start", "step", "save"], [15, 35, 50])[0]
        if moment == "start":
            self.wait_while_runs(process, lambda: False, luck.uniform(0, self.seconds_to_start))
            return self.victims(luck), lambda: ""
        file, continued = self.out / "metrics.jsonl", newest_complete(self.out)
        before, wanted = changed_at(file), continued + luck.randint(2, 9)
        self.wait_while_runs(process, lambda: changed_at(file) != before and last_step(self.out) >= wanted, LIMIT)
        victims, stage = self.victims(luck), lambda: stage_of_save(self.out, continued)
        if moment == "save":
            wanted = luck.choice(STAGES)
            self.wait_while_runs(process, lambda: stage() == wanted, 1)
        else:
            self.wait_while_runs(process, lambda: False, luck.uniform(0, 0.05))
        return victims, stage

    def victims(self, luck):
        """Kills a rank, mpirun or the launcher, or all of them."""
        running = self.processes()
        ranks = [pid for pid, rank in running.items() if rank is not None]
        parents = [pid for pid in running if pid not in ranks]
        choices = {"rank": ranks or parents, "parent": parents or ranks, "all": list(running)}
        kind = luck.choice(sorted(choices))
        return choices[kind] if kind == "all" or not running else [luck.choice(choices[kind])]

    def kill_once(self, process, luck):
        """Returns the newest checkpoint and what the save was about to do at that instant, or None if the run had ended
        earlier."""
        victims, stage = self.wait_for_instant(process, luck)
        good = newest_complete(self.out)
        if process.poll() is not None:
            return None
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return good, stage()

    def assert_nothing_lost(self, good):
        """Checks that complete checkpoints have the bytes of the uninterrupted run, that the last good one exists, and
        that the file `newest` names one of them."""
        complete = checkpoint_files(self.out)
        self.assertGreaterEqual(max(complete, default=0), good, "the last good checkpoint is lost")
        if (self.out / "newest").exists():
            self.assertIn((self.out / "newest").read_text(), [f"checkpoint-{step}\n" for step in complete])
        for step, files in complete.items():
            wanted = self.checkpoints_of_all[step]
            self.assertEqual(sorted(files), sorted(wanted))
            self.assertEqual([file for file in files if files[file] != wanted[file]], [], f"checkpoint-{step}")
        if (self.out / "metrics.jsonl").exists():
            recorded = records.metrics(self.out)
            self.assertEqual(recorded, self.metrics_of_all[:len(recorded)])
        return len(complete)

    def assert_continues(self, result, newest):
        """Checks that the run printed where it continues, which must be the newest complete checkpoint."""
        self.assertNotIn("damaged", result.out + result.err)
        said = re.findall(r"^continues out/checkpoint-(\d+) after", result.out, re.MULTILINE)
        self.assertLessEqual(set(said), {str(newest)}, str(result))
        return bool(said) or newest == 0

    def assert_finished(self, result):
        self.assertEqual(result.code, 0, str(result))
        self.assert_nothing_lost(STEPS)
        self.assertEqual(records.metrics(self.out), self.metrics_of_all)
        self.assertEqual(records.scalars(self.out), self.scalars_of_all)
        self.assertEqual((self.out / "model.safetensors").read_bytes(), self.weights)
        self.assertEqual([file for file in self.files() if ".incomplete" in file], [])
        self.assertEqual((self.out / "newest").read_text(), f"checkpoint-{STEPS}\n")
        shutil.rmtree(self.out)

    # ---- all of them

    def kill_often(self, name, options, kills, luck):
        """Prints the number of kills in each stage of a save, the steps after which runs continued, and the number of
        checkpoints compared."""
        self.run_uninterrupted(name, options)
        config = self.config(**self.sections(name, options, limit=KEEP))
        stages, continued, compared = collections.Counter(), [], 0
        while kills >= 0:
            newest = newest_complete(self.out)
            process = self.start("train", config)
            self.addCleanup(process.kill)
            killed = self.kill_once(process, luck) if kills > 0 else None
            result = self.finish(process)
            self.assert_all_gone()
            if self.assert_continues(result, newest) and newest:
                continued.append(newest)
            if killed:
                good, stage = killed
                compared += self.assert_nothing_lost(good)
                stages.update([stage] if stage else [])
            else:
                self.assert_finished(result)
            kills -= bool(killed) or kills == 0
        return stages, continued, compared

    def test_kill_at_any_instant(self):
        sums = collections.Counter(layouts=0, kills=0, saving=0, compared=0)
        for number, name, options, kills in chosen_layouts():
            with self.subTest(name):
                shutil.rmtree(self.out, ignore_errors=True)
                stages, continued, compared = self.kill_often(name, options, kills, random.Random(f"{SEED} {name}"))
                show(number, name, kills, stages, continued, compared)
                sums.update(layouts=1, kills=kills, saving=sum(stages.values()), compared=compared)
        print("{layouts} layouts, {kills} kills, {saving} of them in a save; {compared} checkpoints compared: all have the "
              "bytes of the runs that were not interrupted".format(**sums), flush=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
