#include "engine/study/run_config.h"

#include <cmath>

#include "core/error.h"
#include "engine/run/local_cluster.h"

#include "tests/catch.h"

namespace shardline::run_config_test {
namespace {

using nlohmann::json;

const char* kCluster = SHARDLINE_SOURCE_DIR "/configs/clusters/p3.16xlarge.json";

StudyFile study_of(const json& factors, const json& more = json::object()) {
  json study = {{"output_dir", "out"},
                {"runs", json::array({factors})},
                {"config",
                 {{"output_dir", "unused"},
                  {"model", {{"config", {{"model_type", "gpt2"}, {"n_layer", 4}, {"n_head", 2}, {"n_embd", 8}}}}},
                  {"data", {{"train", "text.txt"}, {"tokenizer", "bytes"}, {"sequence_length", 16}}},
                  {"runtime", {{"device", "cpu"}, {"threads_per_rank", 1}}},
                  {"training", {{"learning_rate", 1e-3}, {"per_device_train_batch_size", 2}}}}}};
  study.update(more);
  return study_from_json(parse_json(study.dump(), "study.json"));
}

}  // namespace

TEST_CASE("Factors become keys of an ordinary config", "[study]") {
  const StudyFile study = study_of({{"devices", 1},
                                    {"samples", 100},
                                    {"batch", 8},
                                    {"epochs", 3},
                                    {"precision", "bf16"},
                                    {"warmup_share", 0.1},
                                    {"training.weight_decay", 0.5}});
  const auto runs = expand(study);
  REQUIRE(runs.size() == 1);
  const StudyRun& run = runs[0];
  CHECK_FALSE(run.planned());
  CHECK(run.config.training.bf16);
  CHECK(run.config.training.warmup_steps == 0.1);
  CHECK(run.config.training.weight_decay == 0.5);
  CHECK(run.config.training.num_train_epochs == 3);
  CHECK(run.config.output_dir == "out/runs/run/output");
  CHECK(run.global_batch == 8);
  CHECK(run.steps == 39);  // three epochs of 13
  CHECK(run.nominal_steps == 37.5);
  // The config that is written for the run is the same when it is read.
  CHECK(parse_config(resolved(run.config).dump(), "config.json") == run.config);
}

TEST_CASE("With a fixed global batch, more devices have smaller batches", "[study]") {
  for (const int devices : {1, 4, 16}) {
    const StudyFile study =
        study_of({{"devices", devices}, {"global_batch", 32}, {"steps", 10}, {"cluster", kCluster}});
    const auto runs = expand(study);
    CHECK(runs[0].planned());
    CHECK(runs[0].global_batch == 32);
    CHECK(runs[0].batch_per_device == 32.0 / devices);
    CHECK(runs[0].nodes == (devices + 7) / 8);
    CHECK(runs[0].steps == 10);
  }
  CHECK_THROWS_AS(expand(study_of({{"devices", 3}, {"global_batch", 32}, {"steps", 10}, {"cluster", kCluster}})),
                  ConfigError);
}

TEST_CASE("A layout determines how the devices are used", "[study]") {
  const json layout = {{"pipeline_parallel_degree", 2}, {"tensor_parallel_degree", 2}, {"microbatches", 2}};
  const StudyFile study = study_of({{"devices", 8}, {"layout", layout}, {"steps", 1}, {"cluster", kCluster}});
  const auto runs = expand(study);
  CHECK(runs[0].config.smp.pipeline_parallel_degree == 2);
  CHECK(runs[0].global_batch == 8);  // 2 x T=2 x D=2
  // The number of ranks in the study's config does not matter.
  StudyFile other = study;
  other.inline_config["mpi_options"] = {{"processes_per_host", 3}};
  CHECK(expand(other)[0].global_batch == 8);
}

TEST_CASE("A run on several nodes uses the config's hosts, or is planned", "[study]") {
  StudyFile study = study_of({{"devices", 2}, {"nodes", 2}, {"steps", 1}});
  CHECK_THROWS_AS(expand(study), ConfigError);
  study.cluster = kCluster;
  const auto planned = expand(study);
  CHECK(planned[0].planned());
  CHECK(planned[0].nodes == 2);
  study.inline_config["mpi_options"] = {{"hosts", {"a", "b"}}};
  const auto runs = expand(study);
  CHECK_FALSE(runs[0].planned());
  CHECK(runs[0].config.mpi.processes_per_host == 1);
}

TEST_CASE("Degrees may be auto", "[study]") {
  const json layout = {{"pipeline_parallel_degree", "auto"}, {"microbatches", "auto"}};
  const StudyFile study =
      study_of({{"devices", 8}, {"layout", layout}, {"global_batch", 16}, {"steps", 1}, {"cluster", kCluster}});
  CHECK(expand(study)[0].global_batch == 16);
}

TEST_CASE("The learning rate grows with the batch, or with its square root", "[study]") {
  const auto rate = [](const char* scaling) {
    const StudyFile study = study_of({{"devices", 32},
                                      {"batch", 2},
                                      {"steps", 1},
                                      {"learning_rate_scaling", scaling},
                                      {"reference_batch", 2},
                                      {"cluster", kCluster}});
    return expand(study)[0].config.training.learning_rate;
  };
  CHECK(rate("none") == 1e-3);
  CHECK(rate("linear") == Approx(32e-3));
  CHECK(rate("sqrt") == Approx(1e-3 * std::sqrt(32)));
}

TEST_CASE("Measured runs are repeated with seeds, plans are not", "[study]") {
  const StudyFile seeded = study_of({{"devices", 1}}, {{"seeds", {7, 3}}});
  const auto runs = expand(seeded);
  REQUIRE(runs.size() == 2);
  CHECK(runs[1].name == "run,seed=3");
  CHECK(runs[1].config.training.seed == 3);
  CHECK(runs[1].config.output_dir == "out/runs/run,seed=3/output");
  const StudyFile planned = study_of({{"devices", 1}, {"steps", 2}, {"cluster", kCluster}}, {{"repeats", 3}});
  CHECK(expand(planned).size() == 1);
  CHECK(cores_of(runs[0]) == 1);
}

TEST_CASE("Runs start from the beginning, each with checkpoints of its own", "[study]") {
  const auto run_with = [](const json& resume) {
    json factors = {{"devices", 1}, {"training.resume_from_checkpoint", resume}};
    factors["training.checkpoint_dir"] = "shared";
    return expand(study_of(factors, {{"repeats", 2}}))[1].config.training;
  };
  CHECK(run_with("auto").resume_from_checkpoint.is_null());
  CHECK(run_with(true).resume_from_checkpoint.is_null());
  CHECK(run_with(json{"auto", "old/checkpoint-5"}).resume_from_checkpoint == "old/checkpoint-5");
  CHECK(run_with("old/checkpoint-5").resume_from_checkpoint == "old/checkpoint-5");
  CHECK(run_with("auto").checkpoint_dir == "out/runs/run,seed=43/checkpoints");
}

TEST_CASE("Runs that do the same are recognised under other names", "[study]") {
  const json factors = {{"devices", 1}, {"learning_rate", 1e-3}};
  auto named = factors;
  named["name"] = "other";
  const auto one = expand(study_of(factors)), other = expand(study_of(named));
  CHECK(one[0].name != other[0].name);
  CHECK(work_of(one[0]) == work_of(other[0]));
  named["learning_rate"] = 2e-3;
  CHECK(work_of(one[0]) != work_of(expand(study_of(named))[0]));
}

TEST_CASE("Runs that do not fit this machine need a cluster", "[study]") {
  const json many = {{"devices", usable_cores() + 1}, {"steps", 2}};
  CHECK_THROWS_AS(expand(study_of(many)), ConfigError);
  const StudyFile study = study_of(many, {{"cluster", kCluster}});
  CHECK(expand(study)[0].cluster == kCluster);
  // The number of steps of an epoch follows from the samples.
  CHECK_THROWS_AS(expand(study_of({{"devices", 64}, {"epochs", 1}}, {{"cluster", kCluster}})), ConfigError);
}

}  // namespace shardline::run_config_test
