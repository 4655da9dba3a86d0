#include "engine/step_timeline.h"

#include <filesystem>

#include "core/clock.h"
#include "core/disk_file.h"
#include "core/error.h"
#include "engine/observe/timeline_page.h"

namespace shardline {
namespace fs = std::filesystem;

bool records_timelines(const Config& config) {
  return config.runtime.timeline_steps > 0;
}

StepTimelines::StepTimelines(const Config& config, const Plan& plan, const RankContext& context, RunRecords& run)
    : config_(config), plan_(plan), context_(context), run_(run) {
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
  run_.attempt("timeline", [&] {
    std::vector<RankTimeline> ranks;
    for (const auto& text : texts) ranks.push_back(timeline_from_text(text));
    const fs::path folder = fs::path(config_.output_dir) / "timeline";
    fs::create_directories(folder);
    write_file(folder / cat("step-", step, ".json"), chrome_trace(plan_.mesh, ranks));
    write_file(folder / cat("step-", step, ".html"), timeline_page(plan_.mesh, plan_.train, step, ranks));
  });
}

}  // namespace shardline
