"""`shardline plan`: clusters, searches and partitions, and runs that do what their plan states."""
import json

from harness import ProgramTest, ROOT, tiny, unittest

CLUSTERS = ROOT / "configs/clusters"
P4D = str(CLUSTERS / "p4d.24xlarge.json")
RECIPE_175B = str(ROOT / "configs/gpt-175b-p4d.json")
CLASSES = {"weights", "gradients", "optimizer", "activations", "communication", "workspace"}


class Forecasts(ProgramTest):
    def plan(self, *arguments):
        return json.loads(self.expect(0, "plan", *arguments, "--json").out)

    def check_contract(self, plan):
        mesh = plan["mesh"]
        world = mesh["d"] * mesh["p"] * mesh["t"]
        self.assertEqual([r["rank"] for r in plan["ranks"]], list(range(world)))
        for rank in plan["ranks"]:
            memory = rank["memory_bytes"]
            self.assertEqual(set(memory), CLASSES | {"total"})
            self.assertTrue(all(value >= 0 for value in memory.values()))
            self.assertAlmostEqual(memory["total"], sum(memory[name] for name in CLASSES), delta=len(CLASSES))
            self.assertEqual(rank["fits"], memory["total"] <= plan["cluster"]["memory_bytes"])
            self.assertLess(rank["stage"], mesh["p"])
        self.assertEqual(plan["fits"], all(rank["fits"] for rank in plan["ranks"]))
        self.assertEqual(len(plan["stages"]), mesh["p"])
        self.assertIn("name", plan["schedule"])
        self.assertGreater(plan["step_seconds"], 0)
        self.assertGreaterEqual(plan["bubble_fraction"], 0)
        self.assertLess(plan["bubble_fraction"], 1)
        self.assertGreater(plan["model_flops_utilization"], 0)
        self.assertLess(plan["model_flops_utilization"], 1)
        batch = plan["sizes"]["global_batch"]
        self.assertAlmostEqual(plan["samples_per_second"], batch / plan["step_seconds"], delta=1e-6 * batch)
        for key in ("tokens_per_second", "parameters", "flops_per_step", "disk_bytes"):
            self.assertGreater(plan[key], 0, key)
        for key in ("total_steps", "total_seconds", "node_hours", "cost"):
            self.assertIn(key, plan)

    def test_a_plan_for_a_cluster_has_all_that_scripts_rely_on(self):
        config = self.config(p=2, t=2, training={"max_steps": 100})
        plan = self.plan(config, "--cluster", P4D)
        self.check_contract(plan)
        self.assertNotIn("instructions", plan["schedule"])
        self.assertEqual(plan["total_steps"], 100)
        self.assertAlmostEqual(plan["total_seconds"], 100 * plan["step_seconds"])
        self.assertAlmostEqual(plan["node_hours"], plan["total_seconds"] / 3600)
        self.assertAlmostEqual(plan["cost"], plan["node_hours"] * 32.77)
        self.assertEqual(plan, self.plan(config, "--set", f"cluster={P4D}"))
        self.assertIn("instructions", self.plan(config, "--cluster", P4D, "--instructions")["schedule"])
        epochs = self.plan(config, "--cluster", P4D, "--set", "training.max_steps=-1")
        self.assertIsNone(epochs["total_steps"])
        self.check_contract(self.plan(config, "--cluster", "local"))
        self.expect(0, "plan", config, "--cluster", P4D, says=["p4d.24xlarge", "samples/s", "fits", "activations"])

    def test_a_saved_schedule_trains_as_the_named_one_however_the_run_shards(self):
        shardings = {"none": {}, "zero2": {"shard_optimizer_state": True, "shard_gradients": True},
                     "zero3": {"sharded_data_parallel_degree": 2}}

        def config(name, pipeline, sharding):
            return self.config(f"{name}.json", p=2, smp_options={**shardings[sharding], "pipeline": pipeline},
                               mpi_options={"processes_per_host": 4}, output_dir=name)

        for saver, runner in (("zero2", "zero2"), ("zero3", "none"), ("none", "zero3")):
            with self.subTest(saver=saver, runner=runner):
                named = self.plan(config("saver", "zb_h1", saver), "--cluster", "local", "--instructions")["schedule"]
                (self.dir / "mine.json").write_text(json.dumps(named))
                self.expect(0, "train", config(f"named-{runner}", "zb_h1", runner))
                self.expect(0, "train", config(f"read-{runner}", "mine.json", runner))
                losses = [[step["loss"] for step in self.metrics(f"{run}-{runner}")] for run in ("named", "read")]
                self.assertEqual(len(losses[0]), 3)
                self.assertEqual(losses[1], losses[0])

    def test_weights_of_all_ranks_are_the_models(self):
        plan = self.plan(self.config(p=2, t=2), "--cluster", "local")
        replicated = sum(rank["memory_bytes"]["weights"] for rank in plan["ranks"]) / 4
        self.assertGreaterEqual(replicated, plan["parameters"])
        self.assertLess(replicated, 2.5 * plan["parameters"])  # norms on every tensor rank, and the tied table twice
        half = self.plan("config.json", "--cluster", P4D, "--precision", "bf16")
        self.assertEqual(half["ranks"][0]["memory_bytes"]["weights"] * 2, plan["ranks"][0]["memory_bytes"]["weights"])

    def test_what_does_not_fit_is_reported_with_the_cheapest_change(self):
        cluster = json.loads((CLUSTERS / "p4d.24xlarge.json").read_text())
        cluster["device"]["memory_gib"] = 0.25
        (self.dir / "small.json").write_text(json.dumps(cluster))
        model = {"config": {"model_type": "gpt2", "vocab_size": 256, "n_positions": 512, "n_embd": 128, "n_layer": 12,
                            "n_head": 4}}
        config = self.config(model=model, data={"sequence_length": 512}, training={"global_batch_size": 64})
        plan = self.plan(config, "--cluster", "small.json")
        self.check_contract(plan)
        self.assertFalse(plan["fits"])
        self.assertIn("stage 0 needs", plan["memory"])
        self.assertIn("microbatches of", plan["advice"]["text"])
        changes = [word for setting in plan["advice"]["settings"] for word in ("--set", setting)]
        changed = self.plan(config, "--cluster", "small.json", *changes)
        self.assertTrue(changed["fits"], changed["memory"])
        self.assertEqual(changed["sizes"]["global_batch"], 64)
        self.expect(0, "plan", config, "--cluster", "small.json", says=["NO: stage 0", "to fit", "--set smp_options.microbatches"])

    def test_a_run_goes_on_without_a_forecast_and_says_why(self):
        cluster = json.loads((CLUSTERS / "p4d.24xlarge.json").read_text())
        cluster["device"]["peak_tflops"] = {"fp32": 19.5}
        (self.dir / "fp32.json").write_text(json.dumps(cluster))
        config = self.config(training={"bf16": True}, cluster="fp32.json", smp_options={"auto_partition": False})
        reason = "does not specify device.peak_tflops.bf16"
        self.expect(2, "plan", config, says=reason)
        self.expect(0, "train", config, says=["note: the run has no forecast", reason, "saved the model"])
        self.assertEqual(len(self.metrics()), 3)

    def test_the_copies_of_a_checkpoint_are_as_large_as_its_files(self):
        config = self.config(p=2)
        plan = self.plan(config, "--cluster", P4D)
        self.expect(0, "plan", config, "--cluster", P4D, says="copies a checkpoint before it is written: ")
        self.expect(0, "train", config)
        files = sum(file.stat().st_size for file in (self.dir / "out/checkpoint-3").glob("*.safetensors"))
        self.assertAlmostEqual(sum(rank["snapshot_bytes"] for rank in plan["ranks"]), files, delta=2)
        none = self.plan(config, "--cluster", P4D, "--set", "training.save_strategy=no")
        self.assertNotIn("snapshot_bytes", none["ranks"][0])
        # Ranks exchange what they do not write themselves. If hosts have their own directories, each may receive
        # everything.
        self.assertIn("exchange_bytes", plan["ranks"][0])
        self.assertNotIn("exchange_bytes", self.plan(self.config("one.json"), "--cluster", P4D)["ranks"][0])
        cluster = json.loads((CLUSTERS / "p4d.24xlarge.json").read_text())
        (self.dir / "small.json").write_text(json.dumps(dict(cluster, devices_per_node=1)))
        on_two = ("--cluster", "small.json", "--nodes", "2", "--set", "training.save_on_each_node=true")
        everywhere = self.plan(config, *on_two)
        self.assertAlmostEqual(sum(rank["snapshot_bytes"] for rank in everywhere["ranks"]), 2 * files, delta=4)
        self.expect(0, "plan", config, *on_two, says=" per rank for messages")

    def test_sizes_have_units_that_fit(self):
        """Sizes have suitable units, even if the model uses only a tiny part of a device's memory."""
        said = self.expect(0, "plan", self.config(p=2), "--cluster", P4D, "--search", "memory").out
        self.assertRegex(said, r"fits +yes: stage 0 needs \d\S* [KM]iB of 40\.0 GiB: weights \d\S* [KM]iB, ")
        self.assertRegex(said, r"\nplace  +layout .*\n-.*\n1  .* \d\S* [KM]iB +\S+ +the best\n")
        self.assertNotRegex(said, r"(?<![\d.])0(\.0)? GiB")
        cluster = json.loads((CLUSTERS / "p4d.24xlarge.json").read_text())
        cluster["device"]["memory_gib"] = 0.00002
        (self.dir / "small.json").write_text(json.dumps(cluster))
        said = self.expect(0, "plan", self.config(p=2), "--cluster", "small.json", "--search", "memory").out
        self.assertRegex(said, r"the closest: .*: needs \d\S* [KM]iB or more of 21\.0 KiB for states and activations")

    def test_optimizer_states_on_the_host_are_shown_next_to_the_devices(self):
        config = self.config(p=2, t=2, training={"use_cpu": False}, runtime={"device": "auto"})
        key = ("--set", "smp_options.offload_optimizer_states=true")
        there, here = (self.plan(config, "--cluster", P4D, "--precision", "bf16", *more) for more in ((), key))
        self.check_contract(here)
        for device, host in zip(there["ranks"], here["ranks"]):
            self.assertNotIn("host_bytes", device)
            self.assertEqual(device["snapshot_bytes"], host["snapshot_bytes"])
            states = device["memory_bytes"]["optimizer"]
            self.assertEqual(host["memory_bytes"]["optimizer"], 0)
            self.assertEqual(device["memory_bytes"]["total"] - host["memory_bytes"]["total"], states)
            self.assertEqual(host["host_bytes"] * 12, states * 18)
        self.assertGreater(here["seconds"]["optimizer"], there["seconds"]["optimizer"])
        self.expect(0, "plan", config, "--cluster", P4D, *key, says="has the optimizer's states: up to")
        cpus = self.config(p=2, t=2)
        self.assertEqual(self.plan(cpus, "--cluster", P4D), self.plan(cpus, "--cluster", P4D, *key))

    def test_a_page_needs_nothing_from_elsewhere(self):
        config = self.config(p=2, t=2)
        self.expect(0, "plan", config, "--cluster", P4D, "--search", "time", "--html", "plan.html")
        page = (self.dir / "plan.html").read_text()
        self.assertEqual(page.count("<svg"), 2)
        for words in ("rank 3 (stage 1, d 0, t 1)", "40.0 GiB of a device", "stage 1", "why not first"):
            self.assertIn(words, page)
        for outside in ("<script", "<link", "href=", "src="):
            self.assertNotIn(outside, page)
        self.expect(1, "plan", config, "--html", "no-such-folder/plan.html", says="no-such-folder")

    def test_a_run_is_compared_with_its_plan(self):
        said = self.train(p=2, communicator="threads", cluster="local").out
        for words in ("predicted", "measured", "median of 2 steps", "outside passes"):
            self.assertIn(words, said)
        saved = json.loads((self.dir / "out/plan.json").read_text())
        self.check_contract(saved)
        again = self.plan("--from-run", "out", "--search", "time")
        self.check_contract(again)
        steps = sorted(line["step_seconds"] for line in self.metrics()[1:])
        self.assertAlmostEqual(again["run"]["step_seconds"]["measured"], sum(steps) / 2)
        self.assertEqual(again["run"]["step_seconds"]["predicted"], again["step_seconds"])
        self.assertGreaterEqual(again["run"]["gain"]["factor"], 1 - 1e-9)
        self.assertEqual(len(again["run"]["ranks"]), 2)
        self.expect(0, "plan", "--from-run", "out", says=["predicted", "measured"])
        self.expect(2, "plan", "--from-run", "nowhere", says="nowhere")
        self.expect(2, "plan", "config.json", "--from-run", "out", says="either a config file or")
        self.expect(2, "plan", says="config")

    def test_a_run_that_is_far_from_its_plan(self):
        """A percentage with many digits would be less clear than a factor."""
        self.train(p=2, communicator="threads", cluster="local")
        lines = self.metrics()
        for factor, tokens in ((1e6, "over 10 times"), (1e-6, "under 1/10")):
            (self.dir / "out/metrics.jsonl").write_text("".join(json.dumps(
                dict(line, tokens_per_second=line["tokens_per_second"] / factor)) + "\n" for line in lines))
            said = self.expect(0, "plan", "--from-run", "out").out
            self.assertRegex(said, r"\nmedian of 2 steps +predicted +measured +relative to measured\n")
            self.assertRegex(said, rf"\ntokens/s +\S+ +\S+ +{tokens}\n")

    def test_wrong_clusters_are_refused(self):
        good = json.loads((CLUSTERS / "p4d.24xlarge.json").read_text())
        config = self.config(p=2, t=2)

        def refused(change, *words):
            cluster = json.loads(json.dumps(good))
            change(cluster)
            (self.dir / "c.json").write_text(json.dumps(cluster))
            self.expect(2, "plan", config, "--cluster", "c.json", says=words)

        refused(lambda c: c.pop("device"), "/device")
        refused(lambda c: c["device"].update(memory_gib=-40), "/device/memory_gib", "-40")
        refused(lambda c: c["device"]["peak_tflops"].update(bf16=1), "bf16", "fp32")
        refused(lambda c: c.update(nodes=2) or c.pop("inter_node"), "/inter_node", "missing")
        refused(lambda c: c.update(devices_per_node=2), "4 ranks", "2 devices")
        refused(lambda c: c.update(spot_price=99), "spot_price")
        refused(lambda c: c.update(bandwith=1), "bandwith")
        self.expect(2, "plan", config, "--cluster", "missing.json", says="missing.json")
        self.expect(2, "plan", config, "--cluster", P4D, "--nodes", "0")
        self.expect(2, "plan", config, "--cluster", str(CLUSTERS / "h200.json"), "--nodes", "4", says="inter_node")

    def test_175_billion_parameters_on_960_devices(self):
        print("\n175B on 120 x p4d.24xlarge, global batch 1920; published: 32 samples/s, sequence length not stated")
        for length in (512, 1024, 2048):
            plan = self.plan(RECIPE_175B, "--cluster", P4D, "--precision", "bf16", "--search", "time",
                             "--set", f"data.sequence_length={length}")
            self.check_contract(plan)
            self.assertEqual(len(plan["ranks"]), 960)
            self.assertAlmostEqual(plan["parameters"] / 175e9, 1, delta=0.02)
            candidates = plan["candidates"]
            best = candidates[0]
            self.assertEqual(best["place"], 1)
            self.assertIsNone(best["reason"])
            self.assertTrue(all(c["reason"] for c in candidates[1:]))
            times = [c["step_seconds"] for c in candidates if c["place"]]
            self.assertEqual(times, sorted(times))
            print(f"  {length:4}: as configured {plan['samples_per_second']:6.1f} samples/s, "
                  f"{'fits' if plan['fits'] else 'does not fit: ' + plan['memory']}; best "
                  f"{best['samples_per_second']:6.1f}, {best['layout']['text']}, "
                  f"{best['memory_bytes'] / 2**30:.1f} GiB; search {plan['search_seconds']:.1f} s")
            self.assertTrue(1 < best["samples_per_second"] / 32 < 20)


class Searches(ProgramTest):
    def test_the_settings_of_a_candidate_make_it(self):
        config = self.config(training={"global_batch_size": 16})
        arguments = ("plan", config, "--cluster", P4D, "--json")
        plan = json.loads(self.expect(0, *arguments, "--search", "time").out)
        half = json.loads(self.expect(0, *arguments, "--search", "time", "--precision", "bf16").out)
        self.assertIn("training.bf16=true", half["candidates"][0]["settings"])
        for candidate in plan["candidates"][:3] + half["candidates"][:2]:
            settings = [word for setting in candidate["settings"] for word in ("--set", setting)]
            made = json.loads(self.expect(0, *arguments, *settings).out)
            layout = candidate["layout"]
            self.assertEqual(made["mesh"]["p"], layout["pipeline"])
            self.assertEqual(made["mesh"]["t"], layout["tensor"])
            self.assertEqual(made["mesh"]["d"], layout["replicas"])
            self.assertAlmostEqual(made["step_seconds"] / candidate["step_seconds"], 1, delta=1e-6)
        cheap = json.loads(self.expect(0, *arguments, "--search", "cost", "--nodes", "4").out)["candidates"]
        small = json.loads(self.expect(0, *arguments, "--search", "memory").out)["candidates"]
        self.assertLessEqual(small[0]["memory_bytes"], plan["candidates"][0]["memory_bytes"])
        self.assertLess(cheap[0]["hourly_cost"], 4 * 32.77)
        self.expect(0, "plan", config, "--cluster", P4D, "--search", "time", says=["why not first", "the best", "config"])
        self.expect(2, "plan", config, "--search", "speed", says="--search")
        self.expect(2, "plan", config, "--cluster", "local", "--search", "cost", says="hourly_price")

    def test_auto_degrees_train_with_the_winner(self):
        smp = {"pipeline_parallel_degree": "auto", "tensor_parallel_degree": "auto", "microbatches": "auto"}
        config = self.config(smp_options=smp, mpi_options={"processes_per_host": 2}, communicator="threads")
        plan = json.loads(self.expect(0, "plan", config, "--json").out)
        mesh = plan["mesh"]
        self.assertEqual(mesh["d"] * mesh["p"] * mesh["t"], 2)
        self.expect(0, "train", config, says="saved the model")
        self.assertEqual(plan, json.loads((self.dir / "out/plan.json").read_text()))
        resolved = json.loads((self.dir / "out/config.resolved.json").read_text())["smp_options"]
        self.assertEqual(resolved["pipeline_parallel_degree"], mesh["p"])
        self.assertEqual(resolved["microbatches"], plan["sizes"]["microbatches"])

    def test_auto_degrees_for_the_model_of_a_directory(self):
        self.train()
        self.expect(0, "eval", "out", "--set", "smp_options.tensor_parallel_degree=auto", "--set",
                    "training.global_batch_size=4", "--set", "data.validation=text.txt", says="perplexity")
        self.expect(2, "plan", "out", says="out")  # "out" has no job

    def test_everything_auto_trains_as_planned_on_four_ranks(self):
        degrees = ("pipeline_parallel_degree", "tensor_parallel_degree", "microbatches", "virtual_pipeline_degree",
                   "sharded_data_parallel_degree")
        model = {"config": dict(tiny()["model"]["config"], n_layer=4)}
        config = self.config(model=model, smp_options={**dict.fromkeys(degrees, "auto"), "pipeline": "interleaved_1f1b"},
                             mpi_options={"processes_per_host": 4}, communicator="threads")
        plan = json.loads(self.expect(0, "plan", config, "--json").out)
        mesh = plan["mesh"]
        self.assertEqual(mesh["d"] * mesh["p"] * mesh["t"], 4)
        self.expect(0, "train", config, says="saved the model")
        self.assertEqual(plan, json.loads((self.dir / "out/plan.json").read_text()))
        resolved = json.loads((self.dir / "out/config.resolved.json").read_text())["smp_options"]
        self.assertEqual([key for key in degrees if not isinstance(resolved[key], int)], [])
        self.assertEqual(resolved["pipeline_parallel_degree"], mesh["p"])
        self.assertEqual(resolved["shard_optimizer_state"], plan["sharding"]["stage"] in (1, 2))
        said = self.expect(0, "plan", config, "--search", "time", says=["why not first", "to use the best one"]).out
        self.assertIn("slower", said)

    def test_auto_shards_what_does_not_fit_otherwise(self):
        cluster = json.loads((CLUSTERS / "p4d.24xlarge.json").read_text())
        cluster.update(devices_per_node=4)
        model = {"config": dict(tiny()["model"]["config"], n_embd=512)}  # 6.4 million parameters
        smp = {"sharded_data_parallel_degree": "auto"}
        config = self.config(model=model, smp_options=smp, mpi_options={"processes_per_host": 4},
                             communicator="threads", cluster="c.json", training={"max_steps": 1})

        def planned(mebibytes, *arguments):
            cluster["device"]["memory_gib"] = mebibytes / 1024
            (self.dir / "c.json").write_text(json.dumps(cluster))
            return self.run_program("plan", config, "--json", *arguments)

        whole = json.loads(planned(40960, "--set", "smp_options.sharded_data_parallel_degree=1").out)
        needed = whole["ranks"][0]["memory_bytes"]["total"] / 2**20
        tight = json.loads(planned(0.7 * needed).out)
        self.assertGreater(tight["sharding"]["stage"], 0)
        self.assertTrue(tight["fits"], tight["memory"])
        self.expect(0, "train", config, says=["saved the model", "over 4 replicas"])
        self.assertEqual(json.loads((self.dir / "out/plan.json").read_text())["sharding"], tight["sharding"])
        hopeless = planned(0.1 * needed)
        self.assertEqual(hopeless.code, 2)
        self.assertIn("recompute or shard more", hopeless.err)

    def test_auto_takes_all_devices_of_a_cluster(self):
        smp = {"pipeline_parallel_degree": "auto", "tensor_parallel_degree": "auto", "microbatches": "auto"}
        config = self.config(smp_options=smp, training={"global_batch_size": 32})
        for nodes in (1, 2):
            plan = json.loads(self.expect(0, "plan", config, "--cluster", P4D, "--nodes", str(nodes), "--json").out)
            self.assertEqual(len(plan["ranks"]), 8 * nodes)

    def test_auto_needs_a_global_batch_and_nothing_that_contradicts_it(self):
        for sections, words in [
            ({"training": {"global_batch_size": None}}, ["\"auto\"", "global_batch_size"]),
            ({"training": {"per_device_train_batch_size": 2}}, ["\"auto\"", "leave"]),
            ({"smp_options": {"tensor_parallel_degree": "auto", "pipeline": "mine.csv"}}, ["\"auto\"", "file"]),
            ({"smp_options": {"virtual_pipeline_degree": "auto"}}, ["virtual_pipeline_degree", "interleaved_1f1b"]),
            ({"smp_options": {"sharded_data_parallel_degree": "auto", "shard_optimizer_state": True}},
             ["sharded_data_parallel_degree", "shard_optimizer_state"]),
            ({"smp_options": {"tensor_parallel_degree": "some"}}, ["tensor_parallel_degree", "auto"]),
        ]:
            with self.subTest(sections):
                options = tiny(**sections)
                options["smp_options"].setdefault("tensor_parallel_degree", "auto")
                if options["training"]["global_batch_size"] is None:
                    del options["training"]["global_batch_size"]
                (self.dir / "c.json").write_text(json.dumps(options))
                self.expect(2, "plan", "c.json", says=words)


class Partitions(ProgramTest):
    def stages(self, config):
        plan = json.loads(self.expect(0, "plan", config, "--json").out)
        return [[name for chunk in stage["chunks"] for name in chunk] for stage in plan["stages"]]

    def partitioned(self, name="config.json", **options):
        model = {"config": dict(tiny()["model"]["config"], n_layer=4)}
        smp = {"pipeline_parallel_degree": 2, "microbatches": 2, **options}
        return self.config(name, model=model, smp_options=smp, communicator="threads")

    def test_partitions_by_hand(self):
        self.assertEqual(self.stages(self.partitioned(auto_partition=False, manual_partition=[1, 3])),
                         [["embedding", "h.0"], ["h.1", "h.2", "h.3", "head"]])
        rules = [{"layers": "h.[0-2]", "stage": 0}, {"layers": "embedding", "stage": 0}]
        config = self.partitioned(auto_partition=False, default_partition=1, manual_partition=rules)
        self.assertEqual(self.stages(config), [["embedding", "h.0", "h.1", "h.2"], ["h.3", "head"]])
        self.expect(0, "train", config, says="saved the model")
        self.assertEqual(self.stages(self.partitioned(auto_partition=False, manual_partition=[0, 4])),
                         [["embedding"], ["h.0", "h.1", "h.2", "h.3", "head"]])

    def test_what_is_wrong_with_partitions_by_hand(self):
        for options, words in [
            (dict(manual_partition=[1, 2]), ["places 3 blocks", "4"]),
            (dict(manual_partition=[4]), ["1 numbers", "2 stages"]),
            (dict(manual_partition=[1, -3]), ["-3", "use either numbers only or entries only"]),
            (dict(manual_partition="even"), ["manual_partition", "list"]),
            (dict(manual_partition=[{"layers": "h.*", "stage": 5}], default_partition=0), ["h.0", "stage 5"]),
            (dict(manual_partition=[{"layers": "h.*", "stage": 1}]), ["embedding, head"]),
            (dict(manual_partition=[{"layers": "h.*", "stage": 1}], default_partition=0), ["head", "execution order"]),
            (dict(manual_partition=[{"layers": "h.[0-2]", "stage": 0}, {"layers": "h.7", "stage": 1}],
                  default_partition=1), ["/smp_options/manual_partition/1", '"h.7" matches no layer', "h.0, h.1, h.2, ..., head"]),
            (dict(manual_partition=[{"layers": "*", "stage": 0}, {"layers": "h.3", "stage": 1}]),
             ["/smp_options/manual_partition/1", "that earlier entries have not matched"]),
            (dict(manual_partition=[{"layers": "h\\.[0-2]", "stage": 0}], default_partition=1),
             ["is a regular expression", 'write "h.[0-2]"']),
            (dict(default_partition=1), ["stage 0 has no layer"]),
            (dict(default_partition=2), ["default_partition", "pipeline_parallel_degree 2"]),
            (dict(auto_partition=True, manual_partition=[2, 2]), ["contradicts auto_partition"]),
        ]:
            with self.subTest(options):
                self.expect(2, "plan", self.partitioned(**{"auto_partition": False, **options}), says=words)

    def test_a_saved_partition_is_honoured(self):
        self.expect(0, "train", self.partitioned(auto_partition=False, manual_partition=[3, 1]))
        config = self.partitioned("again.json", load_partition=True, partition_file="out/plan.json")
        self.assertEqual(self.stages(config), [["embedding", "h.0", "h.1", "h.2"], ["h.3", "head"]])
        self.expect(2, "plan", self.partitioned(load_partition=True), says="without partition_file")
        self.expect(2, "plan", self.partitioned(partition_file="out/plan.json"), says="load_partition")

    def test_a_file_that_is_not_of_this_model_is_refused(self):
        good = {"stages": [{"stage": 0, "chunks": [["embedding", "h.0", "h.1"]]},
                           {"stage": 1, "chunks": [["h.2", "h.3", "head"]]}]}
        config = self.partitioned(load_partition=True, partition_file="p.json")

        def with_file(text, code, *words):
            (self.dir / "p.json").write_text(text)
            self.expect(code, "plan", config, says=words)

        def edited(*changes):
            text = json.dumps(good)
            for old, new in changes:
                self.assertIn(old, text)
                text = text.replace(old, new)
            return text

        with_file(json.dumps(good), 0, "h.1")
        with_file(edited(('"h.1"', '"h.7"')), 2, "partition_file p.json", "h.7", "not a layer")
        with_file(edited(('"h.1"', '"h.0"')), 2, "h.0", "twice")
        with_file(edited((', "h.1"', '')), 2, "does not place h.1")
        with_file(edited(('"h.1"', '"h.X"'), ('"h.2"', '"h.1"'), ('"h.X"', '"h.2"')), 2, "execution order")
        with_file(json.dumps({"stages": good["stages"][:1]}), 2, "1 stages", "2")
        with_file(edited(('"stage": 1', '"stage": 0')), 2, "in order")
        with_file(json.dumps({"stages": [{"chunks": [["embedding"], ["h.0"]]}, good["stages"][1]]}), 2, "2 chunks")
        with_file('{"stages": 7}', 2, "stages")
        with_file('{"stages": [1, 2]}', 2, "chunks")
        with_file("[", 2, "p.json")


if __name__ == "__main__":
    unittest.main()
