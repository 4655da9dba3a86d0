// The steps that the commands share.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/data/dataset/batch_source.h"
#include "engine/plan/plan.h"
#include "engine/run/model_source.h"
#include "engine/run/ranks.h"
#include "engine/train/trainer.h"

namespace shardline {

// Writes an SVG. Throws RunError if the file cannot be written.
void write_schedule_picture(const Plan& plan, const std::string& path);

// Returns the config. If the tokenizer has more tokens than the model in model.path has words, and the config does not
// set vocab_size itself, sets vocab_size in model.config to that of the tokenizer.
Config with_new_tokens(const Config& config);

// Collective over the world: the config that the job runs, completed by the first rank with the labels of the data,
// numbers in place of "auto" in `written`, and, if the job trains, vocab_size for new tokens. Stops the job unless all
// ranks have the same config and as many ranks were started as it asks for.
Config completed_config(const Config& written, Communicator& world, bool trains);

// Model, plan and communicators of this rank.
struct JobParts {
  ModelSource model;
  std::optional<Machines> machines;  // set on the first rank, which decides; the others price nothing
  Plan plan;
  RankGroups groups;
};
// Collective over the world: stops the job unless all ranks have the same model config and schedule file. The first
// rank plans; the others make their plans from its decisions.
JobParts make_parts(const Config& config, const RankContext& context);

// Collective over the world: fills each rank's parameters, and ends the job unless all ranks have the same model files.
// `show`: see fill_parameters.
void load_parameters(const Config& config, const JobParts& parts, StageParameters& parameters,
                     const LongWork::Show& show = {});

// The same from a checkpoint that this model saved after `steps` steps, with its buffers and the parameters that no
// layer uses. Throws DataError if the checkpoint belongs to another model.
void load_checkpoint_parameters(const std::string& checkpoint, int64_t steps, const JobParts& parts,
                                StageParameters& parameters, const LongWork::Show& show = {});

// Runs `work`. If it runs out of memory, the error explains this with the plan (engine/run/memory_room.h). trains:
// `work` has gradients; otherwise the plan counts only weights.
void explain_memory(const JobParts& parts, const RankContext& context, bool trains, const std::function<void()>& work);

// data.tokenizer, or else the model's directory.
std::string tokenizer_source(const Config& config);
// Throws ConfigError if tokenizer_source names nothing that exists, DataError if the tokenizer there is broken.
TokenizerPtr open_tokenizer(const Config& config);
// The same, and throws ConfigError if the config has neither a tokenizer nor a model directory.
TokenizerPtr require_tokenizer(const Config& config);

// Ends the job unless all ranks have the same text for `what`; the error names the hosts that differ.
void require_equal(Communicator& world, const std::string& what, const std::string& text);

std::string digest_of(const std::string& text);

}  // namespace shardline
