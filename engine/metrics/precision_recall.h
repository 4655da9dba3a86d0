// Precision, recall and F1 from counts, for classes as well as for entities.
#pragma once
#include <cstdint>

namespace shardline {

// Counts of one class, or sums over several classes.
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

// A value is 0 if its divisor is: the default of zero_division in scikit-learn and seqeval.
PrecisionRecall precision_recall(const MatchCounts& counts);

}  // namespace shardline
