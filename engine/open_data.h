// The training and validation data of a job, from token caches that the ranks of a host share.
#pragma once
#include <memory>
#include <string>

#include "engine/config/options.h"
#include "engine/config/sizes.h"
#include "engine/data/batch_source.h"
#include "engine/model_source.h"
#include "engine/ranks.h"

namespace shardline {

struct TokenData {
  std::unique_ptr<DatasetSource> train, validation;  // null where there is none
  std::string digest;
};
// Collective over the world: the first rank of each host makes the token caches, which may take long, and the others
// open them.
TokenData open_data(const Config& config, const ModelSource& model, const ResolvedSizes& sizes, RankContext& context,
                    bool with_train);

}  // namespace shardline
