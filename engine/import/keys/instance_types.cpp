#include "engine/import/keys/instance_types.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace shardline {
namespace {

// The sizes of a family that have more than one GPU.
struct Family {
  int gpus;  // the number that the other sizes have
  std::map<std::string, int> sizes = {};
};

const std::map<std::string, Family>& families_with_gpus() {
  static const std::map<std::string, Family> families = {
      {"p2", {1, {{"8xlarge", 8}, {"16xlarge", 16}}}},
      {"p3", {1, {{"8xlarge", 4}, {"16xlarge", 8}}}},
      {"p3dn", {8}},
      {"p4d", {8}},
      {"p4de", {8}},
      {"p5", {8, {{"4xlarge", 1}}}},
      {"p5e", {8}},
      {"p5en", {8}},
      {"g4dn", {1, {{"12xlarge", 4}, {"metal", 8}}}},
      {"g5", {1, {{"12xlarge", 4}, {"24xlarge", 4}, {"48xlarge", 8}}}},
      {"g6", {1, {{"12xlarge", 4}, {"24xlarge", 4}, {"48xlarge", 8}}}},
      {"g6e", {1, {{"12xlarge", 4}, {"24xlarge", 4}, {"48xlarge", 8}}}},
  };
  return families;
}

}  // namespace

std::optional<int> gpus_of_instance(const std::string& type) {
  if (type == "local") return 0;
  const std::string_view prefix = "ml.";
  const std::string name = type.starts_with(prefix) ? type.substr(prefix.size()) : type;
  const auto dot = name.find('.');
  if (dot == std::string::npos) return {};
  const std::string family = name.substr(0, dot), size = name.substr(dot + 1);
  if (const auto found = families_with_gpus().find(family); found != families_with_gpus().end()) {
    const auto& [gpus, sizes] = found->second;
    const auto special = sizes.find(size);
    return special == sizes.end() ? gpus : special->second;
  }
  const bool is_for_cpus = !family.empty() && std::string_view("cmrt").find(family[0]) != std::string_view::npos &&
                           family.size() > 1 && family[1] >= '0' && family[1] <= '9';
  return is_for_cpus ? std::optional(0) : std::nullopt;
}

}  // namespace shardline
