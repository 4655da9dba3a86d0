#include "engine/study/prices.h"

namespace shardline {

std::optional<double> Prices::of(const std::string& machine) const {
  const auto found = hourly.find(machine);
  return found == hourly.end() ? std::nullopt : std::optional(found->second);
}

Prices prices_from_json(const JsonDocument& document) {
  Prices prices;
  JsonReader root(document);
  if (const auto* currency = root.find("currency", json_text())) prices.currency = currency->get<std::string>();
  JsonReader hourly = root.child("hourly_prices");
  const nlohmann::json machines = hourly.value();
  for (const auto& [machine, ignored] : machines.items())
    if (const auto* price = hourly.find(machine, json_number(0, 1e9))) prices.hourly[machine] = price->get<double>();
  if (machines.empty()) root.fail("hourly_prices", "must have the price of a node of at least one machine", "");
  root.find("sources", json_any());
  root.report_unknown_keys();
  root.throw_problems();
  return prices;
}

Prices read_prices(const std::string& path) {
  return prices_from_json(read_json_file(path));
}

}  // namespace shardline
