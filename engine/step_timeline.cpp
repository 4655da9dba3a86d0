#include "engine/step_timeline.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/clock.h"
#include "core/error.h"
#include "engine/observe/timeline_page.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) throw RunError(cat("cannot write ", path.string(), ": ", std::strerror(errno)));
}

}  // namespace

bool records_timelines(const Config& config) {
  return config.runtime.timeline_steps > 0;
}

StepTimelines::StepTimelines(const Config& config, const Plan& plan, const RankContext& context)
    : config_(config), plan_(plan), context_(context) {
  if (records_timelines(config)) offset_ = clock_offset(*context.world);
}

bool StepTimelines::wants(int64_t step) const {
  const int64_t first = config_.runtime.timeline_first_step;
  return step >= first && step < first + config_.runtime.timeline_steps;
}

void StepTimelines::begin(int64_t step) {
  if (wants(step)) first_flight_ = flight_ring().next_ticket();
}

void StepTimelines::finish(int64_t step, StepRecords records) {
  if (!wants(step)) return;
  records.flights = flight_ring().records();
  records.first_flight = first_flight_;
  const int rank = context_.world->rank();
  const auto texts = gather_strings(*context_.world, to_text(rank_timeline(plan_.mesh, rank, records, offset_)));
  if (rank != 0) return;
  std::vector<RankTimeline> ranks;
  for (const auto& text : texts) ranks.push_back(timeline_from_text(text));
  const fs::path folder = fs::path(config_.output_dir) / "timeline";
  std::error_code error;  // of the file, if there is one
  fs::create_directories(folder, error);
  write_text(folder / cat("step-", step, ".json"), chrome_trace(plan_.mesh, ranks));
  write_text(folder / cat("step-", step, ".html"), timeline_page(plan_.mesh, plan_.train, step, ranks));
}

}  // namespace shardline
