// Profiles: what is accepted is written and read back unchanged, and the times and rates that follow are finite.
#include <cmath>
#include <optional>

#include "partitioner/layout/profile.h"
#include "partitioner/layout/profiled_cluster.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::profile_fuzz {

FUZZ_TARGET(profile) {
  const std::string path = fuzz::file_with("profile.json", fuzz::text_of(data, size));
  std::optional<Profile> profile;
  if (!fuzz::accepts(size, [&] { profile = read_profile(path); })) return false;
  const std::string copy = fuzz::file_with("copy.json", "");
  write_profile(*profile, copy);
  FUZZ_REQUIRE(read_profile(copy) == *profile, "the profile changes when it is written");

  for (const auto& link : profile->links)
    for (const double bytes : {0.0, 1.0, 1500.0, 1e6, 1e15}) {
      const double seconds = link_seconds(link, bytes);
      FUZZ_REQUIRE(std::isfinite(seconds) && seconds >= 0, bytes, " bytes take ", seconds, " s");
    }
  mismatch(*profile, {{"device", "cpu"}, {"microbatch_size", "4"}});
  find_link(*profile, "tp", "all_reduce", 2);
  find_layer(*profile, {.name = "h.0"});
  std::optional<Cluster> cluster;
  if (!fuzz::accepts(size, [&] { cluster = profiled_cluster(*profile, 8); })) return false;
  FUZZ_REQUIRE(cluster->devices_per_node >= 1 && cluster->nodes >= 1, cluster->nodes);
  FUZZ_REQUIRE(std::isfinite(cluster->intra_node.bytes_per_second) && cluster->intra_node.bytes_per_second >= 0,
               cluster->intra_node.bytes_per_second);
  return true;
}

}  // namespace shardline::profile_fuzz
