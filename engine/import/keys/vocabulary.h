// The keys of job definitions of other programs, as tables: what an import does with each of them, and the tables of
// docs/sagemaker.md.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/import/keys/draft.h"

namespace shardline {

// A key of a job with its value.
struct Given {
  std::string name;                // as messages show it, such as "hyperparameters.learning_rate"
  std::vector<std::string> steps;  // below the object that the vocabulary describes
  const nlohmann::json& value;
  const nlohmann::json& root;  // the object that the vocabulary describes

  // Another value in `root`, or null.
  nlohmann::json at(const std::vector<std::string>& place) const;
};

struct Vocabulary;

struct ForeignKey {
  std::string name;  // steps with dots between them; "*" is any step
  Fate fate = Fate::mapped;
  std::string target;  // mapped: our keys
  std::string note;    // see Outcome
  // Reads the value; null: a mapped key gives it to `target`, the others have the outcome `note`.
  std::function<Outcome(const Given&, Draft&)> read = nullptr;
  // Not null: the value is an object with keys of this vocabulary, that object as JSON text, or the name of a file.
  const Vocabulary& (*inner)() = nullptr;
  // Keys that depend on others are read after them: those of phase 1 after those of phase 0.
  int phase = 0;
  // Called for all keys before any of them is read: gives the draft facts that other keys depend on.
  std::function<void(const Given&, Draft&)> facts = nullptr;
  nlohmann::json usual = nullptr;  // refused: the value, besides off or empty, that is accepted

  ForeignKey in_phase(int number) const;
};

struct Vocabulary {
  std::string title;         // such as "DeepSpeed config"
  std::string introduction;  // precedes its table
  std::vector<ForeignKey> keys;
  bool names_vary = false;  // dashes may stand for underscores, and leading dashes do not count
  // Keys that are also in a table of our own; the table in the documentation leaves them out.
  std::vector<ForeignKey> own_keys = {};
  // Called with each object of this vocabulary after all keys of the job have been read: adds the program's defaults
  // for keys that the object leaves out.
  std::function<void(const nlohmann::json& root, Draft& draft)> add_defaults = nullptr;
  // Whether another key of the object switches off this one and all below it.
  std::function<bool(const nlohmann::json& root, const std::string& key)> is_unused = nullptr;

  const ForeignKey* find(const std::vector<std::string>& steps) const;
  bool has_below(const std::vector<std::string>& steps) const;
  std::vector<std::string> names_at(size_t depth) const;  // the names of the steps at this depth, without "*"
};

// A key that sets `target` to its value. `note` describes the conversion of the value, if the type alone does not.
ForeignKey maps(std::string name, std::string target, std::string note = "");
// A key that `read` maps; target and note are for the documentation.
ForeignKey reads(std::string name, std::string target, std::string note,
                 std::function<Outcome(const Given&, Draft&)> read);
ForeignKey ignores(std::string name, std::string reason);
// A key that is refused unless its value is off, empty or `usual`.
ForeignKey refuses(std::string name, std::string advice, nlohmann::json usual = nullptr);
ForeignKey holds(std::string name, const Vocabulary& (*inner)(), std::string note = "");

// The keys of a section of our config under all their names, as hyperparameters.
std::vector<ForeignKey> keys_of_section(const std::string& section);

// The vocabularies, each in a file of its own.
const Vocabulary& training_job_keys();    // describe-training-job
const Vocabulary& estimator_keys();       // the arguments of an estimator
const Vocabulary& container_keys();       // what a container finds below /opt/ml
const Vocabulary& distribution_keys();    // the argument `distribution`
const Vocabulary& model_parallel_keys();  // its `parameters`
const Vocabulary& hyperparameter_keys();  // for scripts; also the arguments of Hugging Face's example scripts
const Vocabulary& deepspeed_keys();
const Vocabulary& accelerate_keys();
const Vocabulary& fsdp_keys();      // the argument `fsdp_config`
const Vocabulary& launcher_keys();  // options before a command's script: torchrun, deepspeed, accelerate launch

}  // namespace shardline
