// The ranks of a job open their data: one rank of each host creates the token cache, however long that takes.
#include "engine/commands/parts/open_data.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "core/comm/threads_communicator.h"
#include "core/comm/timeouts.h"
#include "core/error.h"
#include "engine/commands/parts/job_parts.h"
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

// Opens the data on three ranks; returns what rank 0 prints.
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
  CHECK_THAT(open_on_ranks(config), Contains("reading data: 1000 B of 1000 B in "));
  // The lock is held, so no rank can make the cache again.
  const FileLock held(place.cache().string() + ".lock", 1s, [] { return 0; });
  open_on_ranks(config);
}

TEST_CASE("open data: waits for another job's cache while it grows, and shows the progress") {
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

TEST_CASE("open data: waits for another job that has not begun to write its cache while that job makes progress") {
  const Place place(1200ms);
  const Config config = config_in(place);
  open_on_ranks(config);
  const fs::path path = place.cache(), lock = path.string() + ".lock";
  fs::remove(path);
  auto held = std::make_unique<FileLock>(lock, 1s, [] { return 0; });
  std::jthread maker([&] {  // for as long as above
    for (int i = 0; i < 36; ++i) {
      std::this_thread::sleep_for(100ms);
      fs::last_write_time(lock, fs::file_time_type::clock::now());
    }
    held.reset();
  });
  CHECK_THAT(open_on_ranks(config), Contains("waiting for another job's token cache: "));
}

// Returns the data of one rank.
JobData open_alone(const Place& place, const nlohmann::json& data) {
  nlohmann::json file = nlohmann::json::parse(R"({"model": {"config": {"model_type": "gpt2", "n_layer": 1, "n_head": 2,
    "n_embd": 8, "n_positions": 16, "vocab_size": 2000}}, "data": {"tokenizer": "bytes", "sequence_length": 4}})");
  file["data"].update(data);
  file["output_dir"] = (place.folder.path() / "out").string();
  const Config config = parse_config(file.dump(), "open data test");
  const PlannedModel planned = plan_model(config, 1);
  std::optional<JobData> opened;
  run_ranks(1, [&](CommunicatorPtr world) {
    RankContext context{.world = world, .device_world = world, .local_rank = 0, .local_size = 1};
    opened.emplace(open_data(config, planned.model, planned.plan.layout, context, /*with_train=*/true));
  });
  return std::move(*opened);
}

// Returns the samples of an epoch as texts, in any order.
std::multiset<std::string> samples_of(EpochSource& source) {
  std::multiset<std::string> all;
  for (int64_t step = 0; step < source.steps_per_epoch(); ++step) {
    const Batch batch = source.batch(step, {0, source.samples_in_step(step)});
    for (int64_t sample = 0; sample < batch.global_samples; ++sample) {
      const Microbatch rows = part_of(batch.rows, batch.segments_of({sample, 1}));
      std::string text;
      for (int64_t row = 0; row < rows.tokens(); ++row) text += static_cast<char>(rows.ids[row].item<int64_t>());
      all.insert(text);
    }
  }
  return all;
}

TEST_CASE("open data: packed documents end with the end-of-text token once, and a wrapped stream has no such tokens") {
  const Place place(10s);
  const std::string tokenizer = SHARDLINE_SOURCE_DIR "/tests/engine/data/golden/gpt2";
  const int64_t eos = load_tokenizer(tokenizer)->eos().value();
  std::string rows;
  for (const char* text : {"a b", "c d e<|endoftext|>", "f"}) rows += nlohmann::json({{"text", text}}).dump() + "\n";
  const std::string file = place.folder.write("a.jsonl", rows);
  for (const char* packing : {"wrapped", "wrapped_reset", "bfd", "none"}) {
    CAPTURE(packing);
    const JobData data = open_alone(place, {{"train", file},
                                            {"tokenizer", tokenizer},
                                            {"packing", packing},
                                            {"sequence_length", std::string(packing) == "wrapped" ? 7 : 9}});
    std::vector<std::vector<int64_t>> segments;
    for (int64_t step = 0; step < data.train->steps_per_epoch(); ++step) {
      const Batch batch = data.train->batch(step, {0, data.train->samples_in_step(step)});
      for (int64_t segment = 0; segment < batch.rows.segments(); ++segment) {
        const at::Tensor ids = part_of(batch.rows, {segment, 1}).ids;
        segments.emplace_back(ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel());
      }
    }
    int64_t ends = 0, tokens = 0;
    for (const auto& segment : segments) {
      ends += std::ranges::count(segment, eos);
      tokens += std::ssize(segment);
    }
    const bool wrapped = std::string(packing) == "wrapped";
    CHECK(segments.size() == (wrapped ? 1 : 3));
    CHECK(ends == (wrapped ? 1 : 3));
    CHECK(tokens == (wrapped ? 7 : 9));
    if (!wrapped) CHECK(std::ranges::all_of(segments, [&](const auto& segment) { return segment.back() == eos; }));
  }
}

TEST_CASE("open data: samples are held out and chosen at random by seeds, for texts, documents and rows") {
  const Place place(10s);
  std::string text, rows;
  for (int i = 100; i < 150; ++i) text += cat(i, "\n");
  for (int i = 100; i < 150; ++i)
    rows += nlohmann::json({{"text", cat(i, "-")}, {"prompt", cat(i)}, {"completion", "-"}}).dump() + "\n";
  const std::string text_file = place.folder.write("a.txt", text), row_file = place.folder.write("a.jsonl", rows);
  const std::vector<nlohmann::json> kinds = {{{"train", text_file}},
                                             {{"train", row_file}, {"packing", "wrapped_reset"}},
                                             {{"train", row_file}, {"packing", "none"}},
                                             {{"train", row_file}, {"packing", "bfd"}},
                                             {{"train", row_file}, {"completion_only_loss", true}}};
  for (const nlohmann::json& kind : kinds) {
    CAPTURE(kind.dump());
    const auto open = [&](nlohmann::json options) {
      options.update(kind);
      options["validation_split_percentage"] = 20;
      const JobData data = open_alone(place, options);
      return std::pair(samples_of(*data.train), samples_of(*data.validation));
    };
    const auto [train, validation] = open({{"validation_split_seed", 1}});
    CHECK(train.size() == 40);
    CHECK(validation.size() == 10);
    std::multiset<std::string> all = train;
    all.insert(validation.begin(), validation.end());
    const auto [last, first] = open(nlohmann::json::object());
    std::multiset<std::string> expected = last;
    expected.insert(first.begin(), first.end());
    CHECK(all == expected);
    CHECK(std::set(all.begin(), all.end()).size() == 50);
    CHECK(first.contains(*all.begin()));
    CHECK(validation != first);
    CHECK((open({{"validation_split_seed", 1}}) == std::pair(train, validation)));
    CHECK(open({{"validation_split_seed", 2}}).second != validation);

    const auto [some, few] = open(
        {{"validation_split_seed", 1}, {"max_train_samples", 7}, {"max_eval_samples", 3}, {"max_samples_seed", 4}});
    CHECK(some.size() == 7);
    CHECK(few.size() == 3);
    CHECK(std::ranges::includes(train, some));
    CHECK(std::ranges::includes(validation, few));
    const auto [others, other_few] = open(
        {{"validation_split_seed", 1}, {"max_train_samples", 7}, {"max_eval_samples", 3}, {"max_samples_seed", 5}});
    CHECK(others != some);
    CHECK(open({{"validation_split_seed", 1}, {"max_train_samples", 7}, {"max_eval_samples", 99}}).second ==
          validation);
  }
}

// A run of sequence-classification on rows whose texts are their numbers.
Config labelled_run(const Place& place, const nlohmann::json& changes) {
  nlohmann::json file = nlohmann::json::parse(R"({"task": "sequence-classification", "model": {"config": {"model_type":
    "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8, "n_positions": 16, "vocab_size": 256, "pad_token_id": 0,
    "num_labels": 2}}, "data": {"tokenizer": "bytes", "sequence_length": 4}})");
  std::string rows;
  for (int i = 10; i < 60; ++i) rows += nlohmann::json({{"text", cat(i)}, {"label", 1}, {"set", {1}}}).dump() + "\n";
  file["data"]["train"] = file["data"]["test"] = place.folder.write("rows.jsonl", rows);
  file["output_dir"] = (place.folder.path() / "out").string();
  file.merge_patch(changes);
  return parse_config(file.dump(), "open data test");
}

TEST_CASE("open data: predictions are for max_predict_samples rows, the first ones or those that a seed chooses") {
  const Place place(10s);
  const auto texts = [&](const nlohmann::json& data) {
    const Config config = labelled_run(place, {{"data", data}});
    const PlannedModel planned = plan_model(config, 1);
    std::multiset<std::string> all;
    run_ranks(1, [&](CommunicatorPtr world) {
      RankContext context{.world = world, .device_world = world, .local_rank = 0, .local_size = 1};
      const PredictedData opened = open_predicted_data(config, planned.model, planned.plan.layout, context);
      all = samples_of(*opened.source);
      CHECK(std::cmp_equal(all.size(), opened.examples.size()));
    });
    return all;
  };
  CHECK(texts(nlohmann::json::object()).size() == 50);
  CHECK(texts({{"max_predict_samples", 3}}) == std::multiset<std::string>{"10", "11", "12"});
  CHECK(texts({{"max_predict_samples", 99}}).size() == 50);
  const auto chosen = texts({{"max_predict_samples", 3}, {"max_samples_seed", 1}});
  CHECK(chosen.size() == 3);
  CHECK(chosen != texts({{"max_predict_samples", 3}}));
}

TEST_CASE(
    "open data: a column that the first row lacks is the config's mistake, one that a later row lacks the data's") {
  const Place place(10s);
  Config config = config_in(place);
  config.data.text_column = "body";
  config.data.train = {place.folder.write("a.csv", "text\nx\n")};
  const PlannedModel planned = plan_model(config, 3);
  CHECK_THAT(message_of<ConfigError>([&] { check_data(config, planned, true); }),
             Contains("/data: ") && Contains("a.csv:2: has no 'body', only {text}; set data.text_column"));
  config.data.completion_only_loss = true;
  config.data.train = {place.folder.write("b.jsonl", "{\"prompt\": \"x\"}\n")};
  CHECK_THAT(message_of<ConfigError>([&] { check_data(config, planned, true); }),
             Contains("b.jsonl:1: has no 'completion'"));
  config.data.train = {
      place.folder.write("c.jsonl", "{\"prompt\": \"x\", \"completion\": \"y\"}\n{\"prompt\": \"z\"}\n")};
  CHECK_NOTHROW(check_data(config, planned, true));  // it stops reading there
}

TEST_CASE("open data: ids and labels that the model does not have are refused in any row before training") {
  const Place place(10s);
  for (const auto& [row, found] : std::map<std::string, std::string>{
           {R"({"input_ids": [1, 2000, 3]})", "the token id 2000"},
           {R"({"input_ids": [1, 2, 3], "labels": [-100, 2, 2001]})", "the label 2001"}}) {
    const std::string file = place.folder.write("a.jsonl", cat(R"({"input_ids": [1, 2, 1999]})", '\n', row, '\n'));
    CHECK_THROWS_WITH(open_alone(place, {{"train", file}, {"completion_only_loss", true}}),
                      Contains(cat("a.jsonl:2: has ", found, ", but the model has 2000 of them")));
  }
}

TEST_CASE("open data: label smoothing is refused where the loss does not use it") {
  const Place place(10s);
  const auto mistake = [&](const nlohmann::json& changes) -> std::string {
    nlohmann::json file = {{"training", {{"label_smoothing_factor", 0.1}}}};
    file.update(changes);
    const Config config = labelled_run(place, file);
    return message_of<ConfigError>([&] { check_data(config, plan_model(config, 1), true); });
  };
  const auto with = [](const char* problem) -> nlohmann::json {
    return {{"model", {{"config", {{"problem_type", problem}}}}}, {"data", {{"label_column", "set"}}}};
  };
  CHECK(mistake(nlohmann::json::object()).empty());
  CHECK_THAT(mistake(with("multi_label_classification")),
             Contains("/training/label_smoothing_factor: has no effect for several labels per text; leave it out"));
  CHECK_THAT(mistake(with("regression")), Contains("/training/label_smoothing_factor: has no effect for regression"));
  CHECK_THAT(mistake({{"task", "question-answering"}}),
             Contains("/training/label_smoothing_factor: has no effect for question answering"));
}

}  // namespace
}  // namespace shardline::open_data_test
