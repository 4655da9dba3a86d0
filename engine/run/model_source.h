// Where a run's model comes from: a Hugging Face directory, an exported program, a program's own modules, or a config
// and random numbers.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/comm/long_work.h"
#include "core/model/model_spec.h"
#include "engine/config/keys/options.h"
#include "models/families/head_choice.h"
#include "models/files/hf_directory.h"
#include "models/program/layers/program_buffers.h"
#include "models/program/program.h"
#include "models/program/split/program_specs.h"
#include "optim/flat/stage_parameters.h"

namespace shardline {

// A program and its specs before the config's rules about parameters.
struct ExportedModel {
  std::shared_ptr<const Program> program;
  ProgramSpecs specs;
};

struct ModelSource {
  nlohmann::json hf_config;  // the contents of the saved config.json
  HeadChoice head;           // with nothing left open
  ModelSpec spec;
  std::shared_ptr<const HfDirectory> directory;   // null: the model is made from a config alone
  NameReport names;                               // how its files differ, if weights are read from them
  std::shared_ptr<const ExportedModel> exported;  // also set for traced modules; null: the model belongs to a family
  // What traced modules start with, unless weights are read from `directory`.
  std::shared_ptr<const HfDirectory> own_values;
  // Parameters of a program that no layer uses. Copies of this source share them.
  std::shared_ptr<BufferValues> unused = std::make_shared<BufferValues>();
  // See HfModel. Both are set for a program's own modules.
  int64_t features = 0;
  std::function<std::function<void(Parameter&)>(uint64_t seed)> initial_values = nullptr;

  // Whether layers keep keys and values in generation.
  bool has_caches() const { return !exported && !initial_values; }
};

// Where the weights come from: "models/gpt2", "random", or "random (config of models/gpt2)".
std::string weights_text(const ModelOptions& options);

// Returns the values of ModelSpec::buffers after a number of training steps.
std::function<BufferValues(int64_t steps)> buffers_of(const ModelSource& source);

// Continues after `steps` training steps with those that the files have. Throws a DataError as the function for
// programs does (models/program/layers/program_buffers.h).
void continue_buffers(const HfDirectory& files, const ModelSource& source, int64_t steps);

// Whether the directory has a config.json and weights.
bool holds_model(const std::string& directory);

// The model.path with which the directory's model is used: the directory or, for an exported program, its file.
std::string path_of_model(const std::string& directory);
// "--set model.path=PATH" for a shell.
std::string setting_of_model(const std::string& directory);

// The same config with the length of the samples of a program with columns of tensors: the rows of its hidden states
// and, with targets, data.max_target_length. Throws a ConfigError if the config states another one.
Config with_sample_length(const Config& config);

// Opens the model with a spec in which every unit is split. Throws ConfigError or DataError.
ModelSource open_model(const Config& config);

// Throws a ConfigError if the model is a program from a file that mixes samples (models/traced/sample_check.h). It runs
// the program's layers, so one rank does this for all. Traced modules are checked when they are opened.
void check_program(const Config& config, const ModelSource& model);

// The only way from a config to a spec: the result contains everything in the config about the model. To change
// the splits, make another spec. Throws ConfigError.
ModelSpec make_spec(const Config& config, const ModelSource& model, const SplitChoices& splits = {});

// For each parameter, by its full name, the number that determines its random values (init_parameter).
std::map<std::string, int> parameter_numbers(const ModelSpec& spec);

// Collective over the world: fills each rank's parameters with its slices of the directory's files, or with random
// numbers that do not depend on the layout; tensors and rows that the files lack (ModelSource::names) get such numbers,
// too. The time limit is renewed while any rank makes progress. `show` receives the bytes of all
// ranks. Returns what identifies the source, for ranks to compare.
std::string fill_parameters(const ModelOptions& options, const ModelSource& source, uint64_t seed,
                            StageParameters& parameters, const LongWork::Show& show = {});
// The same from the files of a directory, whose names have been checked and in which nothing is missing.
std::string read_parameters(const HfDirectory& directory, StageParameters& parameters, const LongWork::Show& show = {});

}  // namespace shardline
