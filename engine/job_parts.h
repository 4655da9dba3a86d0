// The steps that the commands share.
#pragma once
#include <memory>
#include <string>

#include "engine/data/batch_source.h"
#include "engine/model_source.h"
#include "engine/plan.h"
#include "engine/ranks.h"
#include "engine/trainer.h"

namespace shardline {

// Model and plan alone: no ranks, no weights.
struct PlannedModel {
  ModelSource model;
  PlannerCase planned;
  Plan plan;
};
// splits: what T ranks split, where that is decided already.
PlannedModel plan_model(const Config& config, int world_size, const Assumptions& assumed = {},
                        const std::optional<SplitChoices>& splits = {});

// An SVG. RunError when the file cannot be written.
void write_schedule_picture(const Plan& plan, const std::string& path);

// Model, plan and communicators of this rank.
struct JobParts {
  ModelSource model;
  PlannerCase planned;
  Plan plan;
  RankGroups groups;
};
JobParts make_parts(const Config& config, const RankContext& context);

struct TokenData {
  std::unique_ptr<DatasetSource> train, validation;  // null where there is none
  std::string digest;
};
// What is wrong with the tokenizer, the data files, and the run's length where files of token ids give it, before any
// text is read: ConfigError, DataError. must_be_there: a file that is not is an error, too.
void check_token_data(const Config& config, const PlannedModel& planned, bool must_be_there);
// The same for evaluation alone.
void check_validation_data(const Config& config, const PlannedModel& planned);
// Collective over the world: one rank of a host makes the token caches while the others wait.
TokenData open_data(const Config& config, const ModelSource& model, const ResolvedSizes& sizes, RankContext& context,
                    bool with_train);

// Steps of the run. ConfigError where the schedule of the learning rate does not fit into them.
int64_t count_steps(const Config& config, int64_t steps_per_epoch);

// "data.tokenizer", else that of the model's directory.
std::string tokenizer_source(const Config& config);
// ConfigError where there is none.
TokenizerPtr require_tokenizer(const Config& config);

// Stops the job unless all ranks have the same text for `what`; the error names the hosts that differ.
void require_equal(Communicator& world, const std::string& what, const std::string& text);

std::string digest_of(const std::string& text);

}  // namespace shardline
