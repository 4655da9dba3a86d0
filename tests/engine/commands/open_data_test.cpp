// How the ranks of a job open their data: one rank of each host creates the token cache, however long that takes.
#include "engine/commands/open_data.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/comm/threads_communicator.h"
#include "core/comm/timeouts.h"
#include "core/error.h"
#include "engine/commands/job_parts.h"
#include "engine/config/config.h"
#include "engine/data/cache/file_lock.h"
#include "engine/data/cache/partial_file.h"
#include "tests/engine/data/temp_folder.h"

#include "tests/catch.h"

namespace shardline::open_data_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Catch::Contains;

// Caches and time limits of a test.
class Place {
 public:
  explicit Place(std::chrono::milliseconds limit) : before_(timeouts()) {
    set_timeouts({limit, limit, limit});
    ::setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  }
  ~Place() {
    set_timeouts(before_);
    ::unsetenv("XDG_CACHE_HOME");
  }

  fs::path cache() const {
    for (const auto& entry : fs::directory_iterator(folder.path() / "shardline"))
      if (entry.path().extension() == ".bin") return entry.path();
    return {};
  }

  const TempFolder folder;

 private:
  const Timeouts before_;
};

Config config_in(const Place& place) {
  const nlohmann::json file = {{"model",
                                {{"config",
                                  {{"model_type", "gpt2"},
                                   {"n_layer", 1},
                                   {"n_head", 2},
                                   {"n_embd", 8},
                                   {"n_positions", 16},
                                   {"vocab_size", 256}}},
                                 {"init", "random"}}},
                               {"data",
                                {{"train", place.folder.write("a.txt", std::string(1000, 'x'))},
                                 {"tokenizer", "bytes"},
                                 {"sequence_length", 16}}},
                               {"runtime", {{"communicator", "threads"}}},
                               {"mpi_options", {{"processes_per_host", 3}}},
                               {"output_dir", (place.folder.path() / "out").string()}};
  return parse_config(file.dump(), "open data test");
}

// On three ranks; what rank 0 tells its user.
std::string open_on_ranks(const Config& config) {
  std::ostringstream out;
  const PlannedModel planned = plan_model(config, 3);
  run_ranks(3, [&](CommunicatorPtr world) {
    RankContext context{.world = world, .device_world = world, .local_rank = world->rank(), .local_size = 3};
    context.out = context.first() ? &out : nullptr;
    const JobData data = open_data(config, planned.model, planned.plan.layout, context, /*with_train=*/true);
    CHECK(data.train->samples() == 1000 / 16);
  });
  return out.str();
}

TEST_CASE("open data: one rank reads the text and all open its cache") {
  const Place place(10s);
  const Config config = config_in(place);
  CHECK_THAT(open_on_ranks(config), Contains("reading text: 2.0k of 2.0k"));
  // Whoever holds the lock: nobody makes the cache again.
  const FileLock held(place.cache().string() + ".lock", 1s, [] { return 0; });
  open_on_ranks(config);
}

TEST_CASE("open data: waits for another job's cache as long as that grows, and shows it") {
  const Place place(1200ms);
  const Config config = config_in(place);
  open_on_ranks(config);
  const fs::path path = place.cache();
  fs::remove(path);
  auto held = std::make_unique<FileLock>(path.string() + ".lock", 1s, [] { return 0; });
  PartialFile others(path, "elsewhere");
  others.append("tokens");
  CHECK_THROWS_WITH(open_on_ranks(config), Contains("made no progress for 0.9 s") && Contains(".lock"));

  std::jthread maker([&] {  // three times as long as the limit
    for (int i = 0; i < 36; ++i) {
      std::this_thread::sleep_for(100ms);
      others.append("tokens");
    }
    held.reset();
  });
  CHECK_THAT(open_on_ranks(config), Contains("waiting for another job's token cache: "));
}

TEST_CASE("open data: waits for another job that has not begun to write its cache, as long as that goes on") {
  const Place place(1200ms);
  const Config config = config_in(place);
  open_on_ranks(config);
  const fs::path path = place.cache(), lock = path.string() + ".lock";
  fs::remove(path);
  auto held = std::make_unique<FileLock>(lock, 1s, [] { return 0; });
  std::jthread maker([&] {  // as long as above
    for (int i = 0; i < 36; ++i) {
      std::this_thread::sleep_for(100ms);
      fs::last_write_time(lock, fs::file_time_type::clock::now());
    }
    held.reset();
  });
  CHECK_THAT(open_on_ranks(config), Contains("waiting for another job's token cache: "));
}

}  // namespace
}  // namespace shardline::open_data_test
