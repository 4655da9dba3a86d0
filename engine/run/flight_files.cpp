#include "engine/run/flight_files.h"

#include <filesystem>
#include <fstream>

#include "core/comm/communicator_base.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "core/hex.h"
#include "engine/config/rules/sizes.h"
#include "engine/observe/doctor/job_records.h"

namespace shardline {
namespace {

// Timelines are made from these records and need all of one step; without timelines the records only explain hangs.
int records_kept(const Config& config) {
  return config.runtime.timeline_steps > 0 ? 1 << 14 : 1 << 10;
}

bool shares_file(const Config& config) {
  return resolved_communicator(config) == CommunicatorChoice::threads;
}

FlightRing::Options ring_options(const Config& config, int rank, int world_size) {
  FlightRing::Options options{.capacity = records_kept(config), .first_rank = rank, .world_size = world_size};
  if (shares_file(config)) options.ranks = world_size;
  return options;
}

// A run that is refused must not remove the records of the failed run before it. If those had already been set aside,
// the other records belong to a run that did not begin its steps.
void set_aside_earlier_records(const std::filesystem::path& output_dir) {
  const auto folder = flight_folder(output_dir), previous = previous_flight_folder(output_dir);
  std::error_code error;
  if (!std::filesystem::exists(previous, error)) std::filesystem::rename(folder, previous, error);
  std::filesystem::remove_all(folder, error);
}

}  // namespace

void keep_flight_records(const Config& config, const RankContext& context, const Mesh& mesh) {
  const int rank = context.world->rank();
  const auto folder = flight_folder(config.output_dir);
  std::error_code error;
  if (context.local_rank == 0) set_aside_earlier_records(config.output_dir);  // also on other hosts
  // No rank continues from here before all have arrived, so that no rank removes files of this job.
  JobPlaces places{.hosts = gather_strings(*context.world, host_name())};
  places.job = broadcast_string(*context.world, context.first() ? random_digits() : "", 0);
  for (int other = 0; other < mesh.size(); ++other) places.stages.push_back(mesh.at(other).p);
  if (shares_file(config) && !context.first()) return;
  std::filesystem::create_directories(folder, error);
  if (context.local_rank == 0) write_job_places(folder, rank, places);
  FlightRing::Options options = ring_options(config, rank, mesh.size());
  options.path = folder / cat("rank-", rank);
  options.job = places.job;
  open_flight_ring(options);
}

void forget_earlier_flight_records(const Config& config, const RankContext& context) {
  std::error_code error;
  if (context.local_rank == 0) std::filesystem::remove_all(previous_flight_folder(config.output_dir), error);
}

double flight_file_bytes(const Config& config) {
  const int world_size = configured_world_size(config), files = shares_file(config) ? 1 : world_size;
  return 1.0 * files * FlightRing::bytes_of(ring_options(config, 0, world_size));
}

void note_end_of_rank(const std::function<void()>& run) {
  const auto note = [](FlightEnd end, const std::string& reason) {
    flight_ring().end_rank(current_rank(), end, reason);
  };
  try {
    run();
    note(FlightEnd::done, "");
  } catch (const Interrupted& error) {
    note(FlightEnd::done, error.what());
    throw;
  } catch (const DistributedError& error) {
    note(FlightEnd::gave_up, error.what());
    throw;
  } catch (const std::exception& error) {
    note(FlightEnd::failed, error.what());
    throw;
  }
}

}  // namespace shardline
