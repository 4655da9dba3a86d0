// Targets that a model of an encoder and a decoder writes for sources.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/generate/generator.h"
#include "engine/tasks/task.h"

namespace shardline {

// Returns the tokens that the model writes for each source (not empty), without the token that ends them. The whole
// model runs again for every token, on up to `most_together` sources at a time, or fewer if the model takes fewer;
// replicas share the sources. No target is longer than the model allows. Collective over the world; every rank returns
// all targets. columns_of: the columns of tensors of some sources, if they have any.
using ColumnsOf = std::function<std::map<std::string, at::Tensor>(int64_t begin, int64_t count)>;
std::vector<std::vector<int32_t>> generate_targets(RankTrainer& model, const ModelSpec& spec,
                                                   const std::vector<std::vector<int32_t>>& sources,
                                                   const TargetRule& rule, const Sampling& sampling,
                                                   int64_t most_together, const ColumnsOf& columns_of = {});

// The sources of examples, and their columns.
std::vector<std::vector<int32_t>> sources_of(const Examples& examples);
ColumnsOf columns_of(const Examples& examples);

}  // namespace shardline
