#include "engine/data/dataset/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/number_text.h"
#include "engine/data/dataset/seeded_shuffle.h"

namespace shardline {
namespace {

// The purpose (see shuffled_numbers) of the order of a part's own epoch; it differs from those of a mixture's epochs.
uint64_t purpose_of(size_t part, int64_t own_epoch) {
  return (uint64_t{part + 1} << 40) + own_epoch;
}

}  // namespace

Mixture::Mixture(std::vector<MixedPart> parts) : parts_(std::move(parts)), counts_(parts_.size()) {
  double weights = 0;
  for (const MixedPart& part : parts_) {
    SL_ASSERT(part.weight > 0, "a weight of ", part.weight);
    if (part.samples == 0)
      throw DataError(cat("data.train: a file or folder gives no samples, but has the weight ", part.weight,
                          "; leave out the file and its weight"));
    samples_ += part.samples;
    weights += part.weight;
  }
  std::vector<double> exact;
  for (const MixedPart& part : parts_) exact.push_back(samples_ * (part.weight / weights));
  std::ranges::transform(exact, counts_.begin(), [](double count) { return std::floor(count); });
  std::vector<size_t> by_remainder(parts_.size());
  std::iota(by_remainder.begin(), by_remainder.end(), size_t{0});
  std::ranges::stable_sort(by_remainder, std::ranges::greater(), [&](size_t i) { return exact[i] - counts_[i]; });
  const int64_t missing = samples_ - std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  for (int64_t i = 0; i < missing; ++i) ++counts_[by_remainder[i % by_remainder.size()]];
  for (size_t part = 0; part < parts_.size(); ++part)
    if (counts_[part] == 0)
      throw DataError(cat("data.train_weights: ", parts_[part].weight, " of ", weights,
                          " gives no sample in an epoch of ", samples_, "; use a larger weight"));
}

std::vector<uint32_t> Mixture::parts_in_turn(int64_t epoch, uint64_t seed, bool shuffle) const {
  std::vector<uint32_t> turns;
  if (shuffle) {
    for (size_t part = 0; part < parts_.size(); ++part) turns.insert(turns.end(), counts_[part], part);
    std::vector<uint32_t> shuffled = shuffled_numbers(samples_, seed, epoch);
    for (uint32_t& number : shuffled) number = turns[number];
    return shuffled;
  }
  std::vector<int64_t> used(parts_.size());
  for (int64_t turn = 0; turn < samples_; ++turn) {  // each turn goes to the part that is furthest behind its share
    const auto lag = [&](size_t part) { return 1.0 * counts_[part] * (turn + 1) / samples_ - used[part]; };
    size_t next = 0;
    for (size_t part = 1; part < parts_.size(); ++part)
      if (lag(part) > lag(next)) next = part;
    ++used[next];
    turns.push_back(next);
  }
  return turns;
}

std::vector<uint32_t> Mixture::samples_of_epoch(int64_t epoch, uint64_t seed, bool shuffle) const {
  struct Own {  // a part's own epochs
    int64_t first, next, epoch = -1;
    std::vector<uint32_t> order;
  };
  std::vector<Own> own;
  int64_t first = 0;
  for (size_t part = 0; part < parts_.size(); first += parts_[part++].samples)
    own.push_back({.first = first, .next = epoch * counts_[part]});
  std::vector<uint32_t> samples = parts_in_turn(epoch, seed, shuffle);
  for (uint32_t& turn : samples) {
    const size_t part = turn;
    auto& [first_of_part, next, own_epoch, order] = own[part];
    const int64_t place = next % parts_[part].samples;
    if (shuffle && next / parts_[part].samples != own_epoch) {
      own_epoch = next / parts_[part].samples;
      order = shuffled_numbers(parts_[part].samples, seed, purpose_of(part, own_epoch));
    }
    turn = first_of_part + (shuffle ? order[place] : place);
    ++next;
  }
  return samples;
}

std::string Mixture::describe(size_t part) const {
  const double share = 100.0 * counts_[part] / samples_, epochs = 1.0 * counts_[part] / parts_[part].samples;
  return cat(counts_[part], " samples of an epoch (", format_decimals(share, 1), " %), ", format_decimals(epochs, 2),
             " times its own ", parts_[part].samples);
}

}  // namespace shardline
