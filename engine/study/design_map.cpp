#include "engine/study/design_map.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace shardline {
namespace {

struct DesignQuantity {
  std::string name;
  std::function<std::optional<double>(const StudyRow&)> of;
  bool is_chosen = true;
};

std::optional<double> mean_in(const std::optional<Spread>& spread) {
  return spread ? std::optional(spread->mean) : std::nullopt;
}

// All quantities that are numbers, including those of the config's keys.
std::vector<DesignQuantity> quantities_of(const StudyTable& table) {
  std::vector<DesignQuantity> all = {
      {"devices", [](const StudyRow& row) { return std::optional<double>(row.first->devices); }},
      {"samples",
       [](const StudyRow& row) {
         return row.first->samples ? std::optional<double>(*row.first->samples) : std::nullopt;
       }},
      {"batch per device", [](const StudyRow& row) { return std::optional(row.first->batch_per_device); }},
      {"global batch", [](const StudyRow& row) { return std::optional<double>(row.first->global_batch); }},
      {"learning rate", [](const StudyRow& row) { return std::optional(row.first->learning_rate); }}};
  for (const auto& key : table.columns) {
    if (key.find('.') == std::string::npos) continue;
    all.push_back({key, [key](const StudyRow& row) {
                     const auto value = row.first->factors.value(key, nlohmann::json());
                     return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
                   }});
  }
  const auto result = [&](const std::string& name, std::optional<Spread> StudyRow::*field) {
    all.push_back({name, [field](const StudyRow& row) { return mean_in(row.*field); }, /*is_chosen=*/false});
  };
  result("job time", &StudyRow::job_seconds);
  result("samples/s", &StudyRow::samples_per_second);
  result("cost", &StudyRow::cost);
  result(table.metric.empty() ? "metric" : table.metric, &StudyRow::metric);
  return all;
}

Points pairs_of(const StudyTable& table, const DesignQuantity& one, const DesignQuantity& other) {
  Points points;
  for (const auto& row : table.rows) {
    const auto x = one.of(row), y = other.of(row);
    if (x && y) points.emplace_back(*x, *y);
  }
  return points;
}

// Whether the quantity differs from row to row.
bool varies(const StudyTable& table, const DesignQuantity& quantity) {
  const Points own = pairs_of(table, quantity, quantity);
  return own.size() > 1 && correlation(own).has_value();
}

std::optional<DesignMap::Pair> largest_pair(const DesignMap& map, size_t end_of_one, size_t begin_of_other,
                                            size_t end_of_other) {
  std::optional<DesignMap::Pair> largest;
  for (size_t one = 0; one < end_of_one; ++one)
    for (size_t other = std::max(begin_of_other, one + 1); other < end_of_other; ++other)
      if (const auto cell = map.cells[one][other];
          cell && (!largest || std::abs(*cell) > std::abs(largest->coefficient)))
        largest = DesignMap::Pair{one, other, *cell};
  return largest;
}

}  // namespace

std::optional<DesignMap::Pair> DesignMap::largest_of_design() const {
  return largest_pair(*this, chosen, 0, chosen);
}
std::optional<DesignMap::Pair> DesignMap::largest_of_results() const {
  return largest_pair(*this, chosen, chosen, names.size());
}

DesignMap design_map(const StudyTable& whole) {
  StudyTable table = whole;
  const auto is_of = [](RunKind kind) { return [kind](const StudyRow& row) { return row.first->kind == kind; }; };
  const bool is_measured = std::ranges::any_of(whole.rows, is_of(RunKind::measured));
  std::erase_if(table.rows, std::not_fn(is_of(is_measured ? RunKind::measured : RunKind::planned)));
  std::vector<DesignQuantity> shown = quantities_of(table);
  std::erase_if(shown, [&](const DesignQuantity& quantity) { return !varies(table, quantity); });
  DesignMap map;
  for (const auto& one : shown) {
    map.names.push_back(one.name);
    map.chosen += one.is_chosen;
    auto& cells = map.cells.emplace_back();
    for (const auto& other : shown) {
      const Points points = pairs_of(table, one, other);
      cells.push_back(points.size() > 1 ? correlation(points) : std::nullopt);
    }
  }
  return map;
}

}  // namespace shardline
