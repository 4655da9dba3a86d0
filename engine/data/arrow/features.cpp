#include "engine/data/arrow/features.h"

namespace shardline {
namespace {

using nlohmann::json;

constexpr int kDeepest = 32;

Feature feature_of(const json& description, int depth);

std::shared_ptr<const Feature> item_of(const json& description, int depth) {
  return std::make_shared<const Feature>(feature_of(description, depth));
}

Feature feature_of(const json& description, int depth) {
  Feature feature;
  if (depth > kDeepest) return feature;
  if (description.is_array() && description.size() == 1) feature.item = item_of(description[0], depth + 1);
  if (!description.is_object()) return feature;
  const auto type = description.find("_type");
  if (type == description.end() || !type->is_string()) {
    for (const auto& [name, field] : description.items()) feature.fields.emplace(name, feature_of(field, depth + 1));
  } else if (*type == "ClassLabel") {
    const json names = description.value("names", json());
    if (!names.is_array()) return feature;
    for (const json& name : names) feature.names.push_back(name.is_string() ? name.get<std::string>() : name.dump());
  } else if (description.contains("feature")) {  // Sequence, List and LargeList
    feature.item = item_of(description["feature"], depth + 1);
  }
  return feature;
}

}  // namespace

const Feature& Feature::of_field(const std::string& field) const {
  static const Feature kUnknown;
  const auto& known = item ? item->fields : fields;
  const auto found = known.find(field);
  return found == known.end() ? kUnknown : found->second;
}

const std::vector<std::string>& Feature::label_names() const {
  return item ? item->label_names() : names;
}

Feature read_features(const std::string& metadata) {
  const json parsed = json::parse(metadata, nullptr, /*allow_exceptions=*/false);
  const auto info = parsed.is_object() ? parsed.find("info") : parsed.end();
  if (info == parsed.end() || !info->is_object() || !info->contains("features")) return {};
  return feature_of((*info)["features"], 0);
}

}  // namespace shardline
