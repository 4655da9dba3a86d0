#include "engine/metrics/precision_recall.h"

namespace shardline {
namespace {

double share(int64_t part, int64_t all) {
  return all == 0 ? 0 : double(part) / double(all);
}

}  // namespace

MatchCounts& MatchCounts::operator+=(const MatchCounts& other) {
  correct += other.correct;
  predicted += other.predicted;
  expected += other.expected;
  return *this;
}

PrecisionRecall precision_recall(const MatchCounts& counts) {
  return {share(counts.correct, counts.predicted), share(counts.correct, counts.expected),
          share(2 * counts.correct, counts.predicted + counts.expected)};
}

}  // namespace shardline
