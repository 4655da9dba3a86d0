// No key of a job is lost: imports random jobs with known and unknown keys.
#include <map>
#include <random>
#include <set>

#include "tests/engine/import/job_definitions.h"

#include "tests/catch.h"

namespace shardline::every_key_test {
namespace {

using nlohmann::json;

class RandomJobs {
 public:
  RandomJobs(const Vocabulary& vocabulary, unsigned seed) : vocabulary_(vocabulary), random_(seed) {
    for (const auto* list : {&vocabulary.keys, &vocabulary.own_keys})
      for (const auto& key : *list) keys_.push_back(&key);
  }

  // A job with some keys, and the places of all of their values.
  struct Job {
    json value = json::object();
    std::set<std::string> places;
    std::set<std::string> unknown;
  };
  Job next() {
    Job job;
    for (size_t count = draw(12) + 1; count > 0; --count) {
      const ForeignKey& key = *keys_[draw(keys_.size())];
      if (key.inner)
        add_inner(job, key);
      else
        add(job, with_steps(key.name), any_value());
    }
    for (size_t count = draw(3); count > 0; --count) {
      const std::string name = "unknown_" + std::to_string(draw(1000));
      if (add(job, name, any_value())) job.unknown.insert(name);
    }
    return job;
  }

 private:
  size_t draw(size_t below) { return std::uniform_int_distribution<size_t>(0, below - 1)(random_); }

  json any_value() {
    static const std::vector<json> values = {true,   false,   0,       1,      3,      -1,     2.5,
                                             "true", "False", "7",     "1e-4", "text", "None", "\"quoted\"",
                                             "a,b",  "auto",  nullptr, "",     "fp16", "cpu",  "Pipe"};
    return values[draw(values.size())];
  }

  // Replaces each "*" by a name.
  std::string with_steps(std::string name) {
    for (size_t at; (at = name.find('*')) != std::string::npos;)
      name.replace(at, 1, draw(2) == 0 ? "train" : "validation");
    return name;
  }

  // Adds the value, unless the job already has one at this place, above it or below it.
  bool add(Job& job, const std::string& name, const json& value) {
    for (const auto& place : job.places)
      if (place == name || place.starts_with(name + ".") || name.starts_with(place + ".")) return false;
    json* at = &job.value;
    std::string rest = name;
    for (size_t dot; (dot = rest.find('.')) != std::string::npos; rest = rest.substr(dot + 1))
      at = &(*at)[rest.substr(0, dot)];
    (*at)[rest] = value;
    job.places.insert(name);
    return true;
  }

  void add_inner(Job& job, const ForeignKey& key) {
    RandomJobs inner(key.inner(), random_());
    inner.depth_ = depth_ + 1;
    const std::string name = with_steps(key.name);
    const Job below = depth_ > 2 ? Job() : inner.next();
    if (below.places.empty() || !add(job, name, below.value)) return;
    job.places.erase(name);
    for (const auto& place : below.places) job.places.insert(name + "." + place);
    for (const auto& place : below.unknown) job.unknown.insert(name + "." + place);
  }

  const Vocabulary& vocabulary_;
  std::mt19937 random_;
  std::vector<const ForeignKey*> keys_;
  int depth_ = 0;
};

}  // namespace

TEST_CASE("each key of a random job is in the table once, and unknown ones are refused by name") {
  for (const auto* vocabulary :
       {&training_job_keys(), &estimator_keys(), &container_keys(), &distribution_keys(), &model_parallel_keys(),
        &hyperparameter_keys(), &deepspeed_keys(), &accelerate_keys(), &launcher_keys()}) {
    INFO(vocabulary->title);
    RandomJobs jobs(*vocabulary, 7);
    std::set<std::string> mapped;
    for (int i = 0; i < 300; ++i) {
      const auto job = jobs.next();
      INFO(job.value.dump());
      const Import import = import_job({{"a job", "", *vocabulary, job.value}}, {.channels = {}, .hosts = {}},
                                       [](const std::string&) { return std::string("{}"); });
      std::map<std::string, int> rows;
      for (const auto& key : import.keys) {
        ++rows[key.name];
        if (key.outcome.fate == Fate::mapped) mapped.insert(key.name);
        if (key.outcome.fate != Fate::mapped) CHECK(!key.outcome.note.empty());
        if (key.outcome.fate == Fate::mapped) CHECK(!key.outcome.target.empty());
        if (job.unknown.contains(key.name)) CHECK(key.outcome.note.starts_with("unknown key"));
      }
      for (const auto& place : job.places) {
        INFO(place);
        CHECK(rows[place] == 1);
      }
      CHECK(rows.size() == job.places.size());
    }
    CHECK(mapped.size() > 3);
  }
}

}  // namespace shardline::every_key_test
