// Metrics of named entities in tagged words, equal to seqeval's in its default mode.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/metrics/precision_recall.h"

namespace shardline {

using Tags = std::vector<std::string_view>;  // the words' tags in a sentence: "O", "B-PER", "I-PER", ...

struct EntityScores {
  PrecisionRecall scores;
  int64_t number = 0;  // entities in the labels
};

struct TaggingMetrics {
  EntityScores overall;  // from the summed counts
  std::map<std::string, EntityScores> by_type;
  double accuracy = 0;  // share of the words with the right tag; NaN without words
};

// An entity is right if its type, first word and last word are right. IOB1, IOB2, IOE and IOBES are read alike: B and S
// begin an entity, E and S end one, and so does a change of type; a tag that does not fit begins an entity, too. The
// type is what follows the tag's first letter and hyphen, "_" if nothing does. Both spans have the same number of
// sentences, and each sentence has the same number of words in both. Throws DataError for an empty tag.
TaggingMetrics tagging_metrics(std::span<const Tags> predictions, std::span<const Tags> labels);

}  // namespace shardline
