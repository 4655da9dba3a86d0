#include "engine/step_timeline.h"

#include <ATen/ops/full.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "engine/observe/timeline_page.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// A file that says so where it cannot be written.
class OutputFile {
 public:
  explicit OutputFile(fs::path path) : path_(std::move(path)), out_(path_, std::ios::binary) {}
  std::ostream& out() { return out_; }
  void close() {
    if (!out_.flush()) throw RunError(cat("cannot write ", path_.string(), ": ", std::strerror(errno)));
  }

 private:
  fs::path path_;
  std::ofstream out_;
};

double smallest(Communicator& world, double value) {
  const at::Tensor negative = at::full({1}, -value, at::kDouble);
  world.all_reduce(negative, {.op = ReduceOp::max, .what = "timeline"})->wait();
  return -negative.const_data_ptr<double>()[0];
}

}  // namespace

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
  const RankTimeline mine = rank_timeline(plan_.mesh, context_.world->rank(), records, offset_);
  const double zero = smallest(*context_.world, mine.start);
  if (context_.first())
    write(step, mine, zero);
  else
    gather_on_first(*context_.world, to_text(mine), {});
}

// The trace is written as the ranks' parts come, since all of them together may be larger than memory; of the page only
// the instructions are kept. A file that cannot be written shows when it is closed: all ranks' parts are received
// first.
void StepTimelines::write(int64_t step, const RankTimeline& mine, double zero) {
  const fs::path folder = fs::path(config_.output_dir) / "timeline";
  std::error_code error;  // of the file, if there is one
  fs::create_directories(folder, error);
  OutputFile trace_file(folder / cat("step-", step, ".json")), page_file(folder / cat("step-", step, ".html"));
  ChromeTrace trace(plan_.mesh, zero, trace_file.out());
  std::vector<RankTimeline> ranks;
  gather_on_first(*context_.world, "", [&](int rank, const std::string& text) {
    ranks.push_back(rank == 0 ? mine : timeline_from_text(text));
    trace.add(ranks.back());
    ranks.back().spans = {};
  });
  trace.finish();
  run_.attempt("timeline", [&] {
    trace_file.close();
    page_file.out() << timeline_page(plan_.mesh, plan_.train, step, ranks);
    page_file.close();
  });
}

}  // namespace shardline
