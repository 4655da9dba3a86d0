// The config that an import makes, key by key. For each value it stores the key of the job that it came from.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace shardline {

// The result for a key of a job.
enum class Fate {
  mapped,   // it set keys of ours
  neutral,  // it changes nothing here
  refused,  // the job must be changed
};
struct Outcome {
  Fate fate = Fate::mapped;
  std::string target;  // mapped: our keys, such as "training.learning_rate"
  std::string note;    // mapped: the conversion, if there is one; neutral: why; refused: why, and what to do
  bool operator==(const Outcome&) const = default;
};
Outcome mapped_to(std::string target, std::string note = "");
Outcome neutral(std::string reason);
Outcome refused(std::string reason);

// The user's additions to a job on the command line.
struct ImportOptions {
  std::map<std::string, std::string> channels;  // name of a data channel -> its files here
  std::vector<std::string> hosts;               // in place of the job's
  int ranks = 0;                                // processes on all hosts; 0: those of the job
  std::vector<std::string> settings;            // "path=VALUE" as for --set: replace values of the job
};

class Draft {
 public:
  // Throws ConfigError for settings that are not "path=VALUE".
  explicit Draft(ImportOptions options = {});

  // Gives a key of ours ("training.seed", "task", "model.config.n_layer", "training.lr_scheduler_kwargs.min_lr") a
  // value, which is converted to the key's type. Refused: the key does not take the value, or already has another one;
  // a value of the user replaces both.
  Outcome give(const std::string& target, const nlohmann::json& value, const std::string& source,
               const std::string& note = "");
  // Appends words to the value of a key whose type is text.
  Outcome append(const std::string& target, const std::string& words, const std::string& source);
  // Sets a key that has no value to one that does not come from a key of the job. Throws ConfigError if the key does
  // not take it.
  void add(const std::string& target, const nlohmann::json& value, const std::string& reason);

  // The same for a default of the job's program that always applies: if a key of the job sets another value, that key
  // is refused with `reason`.
  void require(const std::string& target, const nlohmann::json& value, const std::string& reason);
  // The keys of the job that `require` refuses, with the reasons.
  const std::map<std::string, std::string>& contradictions() const { return contradictions_; }

  bool has(const std::string& target) const { return said_.contains(target); }
  const nlohmann::json& value(const std::string& target) const { return said_.at(target).value; }
  // The value of an integer key, or `unset` if it has none.
  int64_t integer(const std::string& target, int64_t unset) const;
  const ImportOptions& options() const { return options_; }

  // An addition by `add`: target, value, reason.
  struct Addition {
    std::string target;
    nlohmann::json value;
    std::string reason;
  };
  const std::vector<Addition>& additions() const { return additions_; }
  nlohmann::json config() const;

  // Facts that determine several keys. Unset: the job does not state them.
  std::optional<int> machines;        // instance_count, num_machines
  std::optional<int> all_processes;   // num_processes
  std::optional<int> devices;         // GPUs of a machine; 0: it has none
  std::optional<std::string> script;  // without its folder
  std::set<std::string> channels;     // the names of the job's channels

  // Processes of the job: on one machine, and on all. 0: not stated.
  int64_t processes_per_host() const;
  int64_t processes() const;
  int64_t replicas() const;  // processes / (P x T)

 private:
  struct Said {
    nlohmann::json value;
    std::string source;
    bool by_user = false;
  };
  bool is_by_user(const std::string& place) const;
  Outcome replaced_by_user(const std::string& place) const;

  ImportOptions options_;
  std::map<std::string, Said> said_;
  std::vector<Addition> additions_;
  std::map<std::string, std::string> contradictions_;
};

}  // namespace shardline
