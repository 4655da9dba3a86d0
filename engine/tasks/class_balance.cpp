#include "engine/tasks/class_balance.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/number_text.h"

namespace shardline {
namespace {

constexpr int64_t kMostShown = 12, kShownEnds = 4;  // limits for tasks with many labels

std::string name_of(size_t label, const std::vector<std::string>& names) {
  return label < names.size() ? names[label] : cat(label);
}

}  // namespace

std::vector<int64_t> count_labels(const Examples& data, const HeadChoice& head) {
  using Kind = HeadChoice::Kind;
  const bool has_tags = head.kind == Kind::token_classification;
  if (!has_tags && head.kind != Kind::sequence_classification) return {};
  if (!has_tags && head.problem == HeadChoice::Problem::regression) return {};
  std::vector<int64_t> counts(head.labels);
  for (int64_t i = 0; i < data.size(); ++i) {
    for (const int32_t tag : data.set->labels(data[i]))
      if (tag != kNoLabel) ++counts[tag];
    const auto targets = data.set->targets(data[i]);
    if (data.set->shape().targets == TargetKind::classes) {
      const int64_t label = targets[0];
      if (label != kNoLabel) ++counts[label];
    } else {
      for (size_t label = 0; label < targets.size(); ++label) counts[label] += targets[label] == 1;
    }
  }
  return counts;
}

std::string describe_labels(const std::vector<int64_t>& counts, const std::vector<std::string>& names) {
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto shown = [&](size_t label) {
    return cat(name_of(label, names), ' ', counts[label], " (",
               format_decimals(total > 0 ? 100.0 * counts[label] / total : 0, 1), " %)");
  };
  std::string text;
  const auto add = [&](const std::string& more) { text += cat(text.empty() ? "" : ", ", more); };
  if (std::ssize(order) <= kMostShown) {
    for (const size_t label : order) add(shown(label));
    return text;
  }
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t label) { return counts[label]; });
  for (int64_t i = 0; i < kShownEnds; ++i) add(shown(order[i]));
  add(cat(std::ssize(order) - 2 * kShownEnds, " more"));
  for (int64_t i = std::ssize(order) - kShownEnds; i < std::ssize(order); ++i) add(shown(order[i]));
  return text;
}

nlohmann::json label_counts_json(const std::vector<int64_t>& counts, const std::vector<std::string>& names) {
  nlohmann::json record = nlohmann::json::array();
  for (size_t label = 0; label < counts.size(); ++label)
    record.push_back({{"label", name_of(label, names)}, {"count", counts[label]}});
  return record;
}

std::string describe_recorded_labels(const JsonValue& record) {
  std::vector<int64_t> counts;
  std::vector<std::string> names;
  for (const auto& one : record.items()) {
    names.push_back(one.at("label").text());
    counts.push_back(one.at("count").require(json_integer(0, 1e15)).get<int64_t>());
  }
  return describe_labels(counts, names);
}

}  // namespace shardline
