// Saving and reading a model takes as long as the disk needs, and foreseeable failures come before the first step.
#include "engine/run/model_saver.h"

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/comm/communicator_base.h"
#include "core/comm/threads_communicator.h"
#include "core/comm/timeouts.h"
#include "core/error.h"
#include "engine/checkpoint/shared_directory.h"
#include "engine/config/config.h"
#include "engine/train/trainer.h"
#include "tests/engine/uneven_gpt2.h"
#include "tests/models/files/disk_calls.h"
#include "tests/models/files/files.h"
#include "tests/models/golden.h"

#include "tests/catch.h"

namespace shardline::model_saver_test {

using namespace std::chrono_literals;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

struct ShortLimit {
  explicit ShortLimit(std::chrono::milliseconds limit) : before(timeouts()) { set_timeouts({limit, limit, limit}); }
  ~ShortLimit() { set_timeouts(before); }
  const Timeouts before;
};

// One rank of a run whose parameters are random numbers.
struct Run {
  Run(const nlohmann::json& smp, const nlohmann::json& model_section, const CommunicatorPtr& world)
      : config(parse_config(file(smp, model_section, world->size()).dump(), "saver test")),
        planned(plan_model(config, world->size())),
        groups(make_rank_groups(planned.plan.layout.mesh(), world, world)),
        trainer({config, planned.plan, model, groups, at::kCPU}, 1) {}

  static nlohmann::json file(const nlohmann::json& smp, const nlohmann::json& model, int ranks) {
    return {{"model", model},
            {"data", {{"train", "unused"}, {"tokenizer", "bytes"}, {"sequence_length", 8}}},
            {"training", {{"global_batch_size", 4}}},
            {"smp_options", smp},
            {"mpi_options", {{"processes_per_host", ranks}}},
            {"runtime", {{"communicator", "threads"}}},
            {"output_dir", "unused"}};
  }
  void fill(int64_t seed = 7) { fill_parameters(config.model, model, seed, trainer.parameters()); }

  Config config;
  PlannedModel planned;
  const ModelSource& model = planned.model;
  RankGroups groups;
  RankTrainer trainer;
};

nlohmann::json small_model() {
  nlohmann::json config = uneven_gpt2(300);
  config["n_layer"] = 4;
  return {{"config", config}};
}
const nlohmann::json kRandom = small_model();

bool has_model(const fs::path& directory) {
  return fs::exists(directory / "config.json");
}

std::string message_of_ranks(int ranks, const std::function<void(CommunicatorPtr)>& action) {
  return message_of<RunError>([&] { run_ranks(ranks, action); });
}

}  // namespace

TEST_CASE("a disk may need longer for the model, or for one layer, than ranks wait for one another") {
  const ShortLimit limit(800ms);
  const nlohmann::json smp =
      GENERATE(nlohmann::json{{"pipeline_parallel_degree", 2}},
               nlohmann::json{{"sharded_data_parallel_degree", 2}, {"sdp_param_persistence_threshold", 0}});
  CAPTURE(smp.dump());
  const ScratchDirectory scratch;
  std::atomic<int64_t> shown_done = 0, shown_total = 0;
  std::atomic<double> seconds = 0;
  run_ranks(2, [&](CommunicatorPtr world) {
    Run run(smp, kRandom, world);
    run.fill();
    ModelSaver saver(scratch.path(), run.model, at::kFloat, "bytes", run.groups);
    const auto start = std::chrono::steady_clock::now();
    if (world->rank() == 0) disk_calls::pause = 100ms;
    saver.save(run.trainer.parameters(), [&](int64_t done, int64_t total) {
      shown_done = done;
      shown_total = total;
    });
    CHECK(has_model(scratch.path()));  // on all ranks
    if (world->rank() == 0) seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
  CHECK(seconds > 2);
  CHECK(shown_done == shown_total);
  const HfDirectory saved(scratch.path());
  CHECK(shown_total > 0);
  CHECK(shown_total < static_cast<int64_t>(fs::file_size(scratch / "model.safetensors")));
  CHECK(fs::file_size(scratch / "model.safetensors") < static_cast<size_t>(shown_total) + 10'000);  // the header
}

TEST_CASE("a disk may need longer to read the model than ranks wait for one another") {
  const ScratchDirectory scratch;
  run_ranks(1, [&](CommunicatorPtr world) {
    Run run(nlohmann::json::object(), kRandom, world);
    run.fill();
    ModelSaver(scratch.path(), run.model, at::kFloat, "bytes", run.groups).save(run.trainer.parameters());
  });
  const ShortLimit limit(1s);
  std::atomic<double> seconds = 0;
  run_ranks(2, [&](CommunicatorPtr world) {
    Run run({{"pipeline_parallel_degree", 2}}, {{"path", scratch.path()}}, world);
    const auto start = std::chrono::steady_clock::now();
    if (world->rank() == 1) disk_calls::read_pause = 100ms;
    run.fill();
    world->barrier();
    if (world->rank() == 0) seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
  CHECK(seconds > 1.2);
}

TEST_CASE("a disk that stands still while the model is written ends the job") {
  const ShortLimit limit(500ms);
  const ScratchDirectory scratch;
  const auto message = message_of_ranks(2, [&](CommunicatorPtr world) {
    Run run({{"pipeline_parallel_degree", 2}}, kRandom, world);
    run.fill();
    ModelSaver saver(scratch.path(), run.model, at::kFloat, "bytes", run.groups);
    if (world->rank() == 1) disk_calls::pause = 3s;
    saver.save(run.trainer.parameters());
  });
  CHECK_THAT(message, Contains("writing the model") && Contains("time limit"));
}

TEST_CASE("hosts that write the model without sharing the directory are found before the first step") {
  const ScratchDirectory one, two;
  const auto directory = [&](int rank) { return rank < 2 ? one.path() : two.path(); };
  for (const bool is_there : {true, false}) {
    const auto message = message_of_ranks(4, [&](CommunicatorPtr world) {
      Run run({{"pipeline_parallel_degree", 4}}, kRandom, world);
      const auto mine = directory(world->rank()) + (is_there || world->rank() < 2 ? "" : "/nothing");
      require_shared_directory(mine, *world, true, 200ms);
    });
    CHECK_THAT(message, Contains("(rank 2, 3)") && Contains("No such file or directory") && Contains(host_name()) &&
                            Contains("a file system that all these hosts share"));
  }
  CHECK(fs::is_empty(one.path()));
  CHECK(fs::is_empty(two.path()));

  // In a job, ModelSaver checks the disk and leaves nothing behind.
  const auto message = message_of_ranks(2, [&](CommunicatorPtr world) {
    Run run({{"pipeline_parallel_degree", 2}}, kRandom, world);
    ModelSaver(world->rank() == 0 ? one.path() : two.path(), run.model, at::kFloat, "bytes", run.groups);
  });
  CHECK_THAT(message, Contains("(rank 1)") && Contains("/output_dir"));
  CHECK(fs::is_empty(one.path()));
}

TEST_CASE("a directory that appears late, or that only replicas do not see, is shared") {
  const ScratchDirectory one, two;
  fs::create_directory_symlink(one.path(), two / "link");
  run_ranks(2, [&](CommunicatorPtr world) {
    if (world->rank() == 1) fs::remove(two / "link");
    world->barrier();
    std::thread late([&] {
      std::this_thread::sleep_for(500ms);
      if (world->rank() == 1) fs::create_directory_symlink(one.path(), two / "link");
    });
    require_shared_directory(world->rank() == 0 ? one.path() : two / "link", *world, true);
    late.join();
  });
  run_ranks(2, [&](CommunicatorPtr world) {  // rank 1 holds the second replica and writes nothing
    Run run(nlohmann::json::object(), kRandom, world);
    run.fill();
    ModelSaver saver(world->rank() == 0 ? one.path() : two.path(), run.model, at::kFloat, "bytes", run.groups);
    saver.save(run.trainer.parameters());
  });
  CHECK(has_model(one.path()));
}

TEST_CASE("a saver that saves again writes the current values of every rank") {
  const ScratchDirectory scratch;
  const nlohmann::json smp =
      GENERATE(nlohmann::json{{"pipeline_parallel_degree", 2}}, nlohmann::json{{"tensor_parallel_degree", 2}});
  CAPTURE(smp.dump());
  run_ranks(2, [&](CommunicatorPtr world) {
    Run run(smp, kRandom, world);
    run.fill(8);
    ModelSaver saver(scratch / "both", run.model, at::kFloat, "bytes", run.groups);
    saver.save(run.trainer.parameters());
    run.fill(7);
    saver.save(run.trainer.parameters());
    ModelSaver(scratch / "second", run.model, at::kFloat, "bytes", run.groups).save(run.trainer.parameters());
  });
  const bool is_equal = contents(scratch / "both/model.safetensors") == contents(scratch / "second/model.safetensors");
  CHECK(is_equal);  // without printing the bytes
}

TEST_CASE("the room for the model is reserved before the first step and given back by a run that ends without it") {
  const ScratchDirectory scratch;
  run_ranks(1, [&](CommunicatorPtr world) {
    Run run(nlohmann::json::object(), kRandom, world);
    run.fill();
    {
      ModelSaver saver(scratch.path(), run.model, at::kFloat, "bytes", run.groups);
      CHECK_FALSE(has_model(scratch.path()));
      CHECK(fs::exists(scratch / "tokenizer.json.incomplete"));
      CHECK(fs::file_size(scratch / "model.safetensors.incomplete") >
            static_cast<size_t>(run.model.spec.parameter_count()) * 4);
    }
    CHECK(fs::is_empty(scratch.path()));

    // It does not matter if a tokenizer has been removed by the end of the run.
    put(scratch / "tokenizer-source", "{}");
    ModelSaver saver(scratch / "out", run.model, at::kFloat, scratch / "tokenizer-source", run.groups);
    fs::remove(scratch / "tokenizer-source");
    saver.save(run.trainer.parameters());
    CHECK(contents(scratch / "out/tokenizer.json") == "{}");

    disk_calls::only_writes = true;
    disk_calls::until_failure = 0;
    CHECK_THROWS_WITH(ModelSaver(scratch / "full", run.model, at::kFloat, "bytes", run.groups),
                      Contains("No space left") && Contains("free some space there"));
    disk_calls::until_failure = -1;
    disk_calls::only_writes = false;
    CHECK(fs::is_empty(scratch / "full"));
  });
}

TEST_CASE("a small vocabulary does not get the family's default end-of-text ids, which are outside of it") {
  const ScratchDirectory scratch;
  nlohmann::json stated = kRandom;
  stated["config"]["eos_token_id"] = 7;
  run_ranks(1, [&](CommunicatorPtr world) {
    for (const auto& model : {kRandom, stated}) {
      Run run(nlohmann::json::object(), model, world);
      run.fill();
      ModelSaver(scratch.path(), run.model, at::kFloat, "bytes", run.groups).save(run.trainer.parameters());
      const auto saved = nlohmann::json::parse(contents(scratch / "config.json"));
      CHECK(saved.at("bos_token_id").is_null());
      CHECK(saved.at("eos_token_id") == (model == stated ? nlohmann::json(7) : nlohmann::json()));
    }
  });
}

TEST_CASE("an exported program has its disk space before the first step") {
  const ScratchDirectory scratch;
  const std::string file = golden("program/words.pt2");
  run_ranks(1, [&](CommunicatorPtr world) {
    Run run(nlohmann::json::object(), {{"path", file}}, world);
    run.fill();
    const std::string unfinished = scratch / "model.pt2.incomplete";
    {
      const ModelSaver unused(scratch.path(), run.model, at::kFloat, "bytes", run.groups);
      CHECK(fs::file_size(unfinished) >= fs::file_size(file));
    }
    CHECK_FALSE(fs::exists(unfinished));
    for (const int time : {1, 2}) {  // the best weights replace the last ones
      CAPTURE(time);
      ModelSaver saver(scratch.path(), run.model, at::kFloat, "bytes", run.groups);
      CHECK(fs::file_size(unfinished) >= fs::file_size(file));
      saver.save(run.trainer.parameters());
      CHECK_FALSE(fs::exists(unfinished));
      CHECK(fs::exists(scratch / "model.pt2"));
    }
  });
}

}  // namespace shardline::model_saver_test
