// Precision, recall and F1 from counts, for classes as well as for entities.
#pragma once
#include <cstdint>

namespace shardline {

// Of one class, or sums over several.
struct MatchCounts {
  int64_t correct = 0;    // predicted and expected
  int64_t predicted = 0;  // correct or not
  int64_t expected = 0;   // predicted or not

  MatchCounts& operator+=(const MatchCounts& other);
};

struct PrecisionRecall {
  double precision = 0;  // correct / predicted
  double recall = 0;     // correct / expected
  double f1 = 0;         // their harmonic mean
};

// 0 where nothing was predicted or expected: zero_division of scikit-learn and seqeval at its default.
PrecisionRecall precision_recall(const MatchCounts& counts);

}  // namespace shardline
