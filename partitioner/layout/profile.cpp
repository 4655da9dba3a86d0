#include "partitioner/layout/profile.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/files/json_data.h"

namespace shardline {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TracedOp, name, shapes, calls, flops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LayerMeasurement, name, kind, forward_seconds, backward_seconds,
                                   backward_input_seconds, backward_weight_seconds, recompute_core_seconds,
                                   forward_flops, backward_flops, kept_bytes, border_bytes, parameters, forward_ops,
                                   backward_ops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LinkMeasurement, group, operation, ranks, bytes, seconds, hidden)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceMeasurement, memory_bytes, precision, flops_per_second,
                                   memory_bytes_per_second, launch_seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Profile, valid_for, device, layers, links, clear_seconds_per_gradient,
                                   join_seconds_per_gradient, optimizer_seconds_per_stored)

namespace {

constexpr double kMostBytes = 1LL << 53;

void require(bool holds, const std::string& path, const std::string& rule) {
  if (!holds) throw DataError(cat(path, ": ", rule, "; measure again with shardline profile"));
}

// nlohmann accepts 3.7 and true as the integers 3 and 1, and truncates what does not fit.
void require_integers(const JsonValue& value, double largest) {
  static const std::map<std::string, double> integers = {{"kept_bytes", kMostBytes},
                                                         {"border_bytes", kMostBytes},
                                                         {"parameters", kMostBytes},
                                                         {"calls", kMostBytes},
                                                         {"shapes", kMostBytes},
                                                         {"bytes", kMostBytes},
                                                         {"ranks", std::numeric_limits<int>::max()}};
  if (value.json().is_object()) {
    for (const auto& [key, member] : value.members()) {
      const auto found = integers.find(key);
      require_integers(member, found == integers.end() ? 0 : found->second);
    }
  } else if (value.json().is_array()) {
    for (const auto& item : value.items()) require_integers(item, largest);
  } else if (largest > 0) {
    value.require(json_integer(0, largest));
  }
}

bool is_amount(double number) {
  return std::isfinite(number) && number >= 0;
}

void check(const Profile& profile, const std::string& path) {
  const auto amounts = [](std::initializer_list<double> numbers) {
    return std::all_of(numbers.begin(), numbers.end(), is_amount);
  };
  for (const auto& layer : profile.layers) {
    const bool good = amounts({layer.forward_seconds, layer.backward_seconds, layer.backward_input_seconds,
                               layer.backward_weight_seconds, layer.recompute_core_seconds, layer.forward_flops,
                               layer.backward_flops}) &&
                      layer.kept_bytes >= 0 && layer.border_bytes >= 0 && layer.parameters >= 0;
    require(good, path, cat("/layers: ", layer.name, ": times and sizes must be finite and not negative"));
  }
  for (const auto& link : profile.links) {
    const std::string where = cat("/links: ", link.operation, " over ", link.group, ": ");
    require(link.ranks > 1, path, cat(where, "needs at least 2 ranks; got ", link.ranks));
    require(!link.bytes.empty() && link.bytes.size() == link.seconds.size(), path,
            cat(where, "needs a time for every size"));
    require(std::adjacent_find(link.bytes.begin(), link.bytes.end(), std::greater_equal<>()) == link.bytes.end() &&
                link.bytes.front() > 0,
            path, cat(where, "bytes must be positive and ascending"));
    require(std::all_of(link.seconds.begin(), link.seconds.end(), is_amount), path,
            cat(where, "seconds must be finite and not negative"));
    require(link.hidden >= 0 && link.hidden <= 1, path, cat(where, "hidden must be from 0 to 1; got ", link.hidden));
  }
  const auto& device = profile.device;
  require(
      amounts({device.memory_bytes, device.flops_per_second, device.memory_bytes_per_second, device.launch_seconds}) &&
          device.flops_per_second > 0 && device.memory_bytes_per_second > 0 && device.memory_bytes > 0,
      path, "/device: memory and rates must be positive");
  require(amounts({profile.clear_seconds_per_gradient, profile.join_seconds_per_gradient,
                   profile.optimizer_seconds_per_stored}),
          path, "/..._seconds_per_...: must be finite and not negative");
}

}  // namespace

std::string mismatch(const Profile& profile, const std::map<std::string, std::string>& needed) {
  std::string text;
  for (const auto& [what, value] : needed) {
    const auto found = profile.valid_for.find(what);
    const std::string measured = found == profile.valid_for.end() ? "unknown" : found->second;
    if (measured != value) text += cat(text.empty() ? "" : "; ", what, ": ", measured, ", not ", value);
  }
  return text;
}

double link_seconds(const LinkMeasurement& link, double bytes) {
  const auto size = [&](size_t i) -> double { return link.bytes[i]; };
  const size_t last = link.bytes.size() - 1;
  if (bytes <= size(0)) return link.seconds[0];
  if (bytes >= size(last)) return link.seconds[last] * bytes / size(last);
  size_t above = 1;
  while (size(above) < bytes) ++above;
  const double part = (bytes - size(above - 1)) / (size(above) - size(above - 1));
  return link.seconds[above - 1] + part * (link.seconds[above] - link.seconds[above - 1]);
}

const LayerMeasurement* find_layer(const Profile& profile, const LayerSpec& layer) {
  const auto kind = layer_kind(layer);
  const auto found = std::find_if(profile.layers.begin(), profile.layers.end(),
                                  [&](const LayerMeasurement& one) { return one.kind == kind; });
  return found == profile.layers.end() ? nullptr : &*found;
}

const LinkMeasurement* find_link(const Profile& profile, const std::string& group, const std::string& operation,
                                 int ranks) {
  const auto found = std::find_if(profile.links.begin(), profile.links.end(), [&](const LinkMeasurement& one) {
    return one.group == group && one.operation == operation && one.ranks == ranks;
  });
  return found == profile.links.end() ? nullptr : &*found;
}

void write_profile(const Profile& profile, const std::string& path) {
  write_file(path, nlohmann::json(profile).dump(1) + '\n');
}

Profile read_profile(const std::string& path) {
  const nlohmann::json json = read_data_json(path);
  require_integers(JsonValue(json, path), 0);
  Profile profile;
  try {
    profile = json.get<Profile>();
  } catch (const nlohmann::json::exception& error) {
    throw DataError(cat(path, ": is not a profile: ", error.what(), "; measure again with shardline profile"));
  }
  check(profile, path);
  return profile;
}

}  // namespace shardline
