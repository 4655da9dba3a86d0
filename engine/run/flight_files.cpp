#include "engine/run/flight_files.h"

#include <filesystem>

#include "core/comm/flight_ring.h"
#include "core/error.h"
#include "engine/config/rules/sizes.h"

namespace shardline {
namespace {

// Timelines are made from these records and need all of one step; without timelines the records only explain hangs.
int records_kept(const Config& config) {
  return config.runtime.timeline_steps > 0 ? 1 << 14 : 1 << 10;
}

bool shares_file(const Config& config) {
  return resolved_communicator(config) == CommunicatorChoice::threads;
}

}  // namespace

void keep_flight_records(const Config& config, const RankContext& context) {
  if (shares_file(config) && !context.first()) return;
  const std::filesystem::path folder = std::filesystem::path(config.output_dir) / "flight";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  open_flight_ring(folder / cat("rank-", context.world->rank()), records_kept(config));
}

double flight_file_bytes(const Config& config) {
  const int files = shares_file(config) ? 1 : configured_world_size(config);
  return 1.0 * sizeof(FlightRecord) * records_kept(config) * files;
}

}  // namespace shardline
