// The training and validation data of a job: what is wrong with it before anything is read, and the sources that read
// token caches, which the ranks of a host share.
#pragma once
#include <memory>
#include <string>

#include "engine/commands/job_parts.h"
#include "engine/config/keys/options.h"
#include "engine/data/dataset/batch_source.h"
#include "engine/run/ranks.h"

namespace shardline {

// What is wrong with the tokenizer, the data files, and the run's length where files of token ids give it, before any
// text is read: ConfigError, DataError. must_be_there: a file that is not is an error, too.
void check_token_data(const Config& config, const PlannedModel& planned, bool must_be_there);
// The same for evaluation alone.
void check_validation_data(const Config& config, const PlannedModel& planned);

// Steps of the run. ConfigError where the schedule of the learning rate does not fit into them.
int64_t count_steps(const Config& config, int64_t steps_per_epoch);

struct TokenData {
  std::unique_ptr<DatasetSource> train, validation;  // null where there is none
};
// Collective over the world: the first rank of each host makes the token caches, which may take long, and the others
// open them.
TokenData open_data(const Config& config, const ModelSource& model, const Layout& layout, RankContext& context,
                    bool with_train);

}  // namespace shardline
