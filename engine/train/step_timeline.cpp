#include "engine/train/step_timeline.h"

#include <ATen/ops/full.h>

#include <exception>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/comm/clock.h"
#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/flight/flight_ring.h"
#include "engine/observe/timeline_page.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// A file that is written in parts and takes its name when it is complete. After a failure further parts are dropped,
// and finish() throws the error.
class FileInParts {
 public:
  explicit FileInParts(std::string path) : path_(std::move(path)), unfinished_(path_ + ".incomplete") {
    attempt([&] {
      fs::create_directories(fs::path(path_).parent_path());
      file_.emplace(DiskFile::create(unfinished_));
      file_->reserve(0);
    });
  }

  void add(std::string_view text) {
    attempt([&] { file_->write_at(bytes_, text); });
    bytes_ += text.size();
  }

  void finish() {
    attempt([&] {
      file_->sync();
      rename_file(unfinished_, path_);
    });
    if (!failure_) return;
    std::error_code ignored;
    fs::remove(unfinished_, ignored);
    std::rethrow_exception(failure_);
  }

 private:
  template <class Function>
  void attempt(const Function& function) {
    if (failure_) return;
    try {
      function();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  std::string path_, unfinished_;
  std::optional<DiskFile> file_;
  int64_t bytes_ = 0;
  std::exception_ptr failure_;
};

double smallest(Communicator& world, double value) {
  const at::Tensor negative = at::full({1}, -value, at::kDouble);
  world.all_reduce(negative, {.op = ReduceOp::max, .what = "timeline"})->wait();
  return -negative.const_data_ptr<double>()[0];
}

}  // namespace

StepTimelines::StepTimelines(const Config& config, const Plan& plan, const RankContext& context, RunRecords& run)
    : config_(config), plan_(plan), context_(context), run_(run) {
  if (config.runtime.timeline_steps > 0) offset_ = clock_offset(*context.world);
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
  const RankTimeline mine = rank_timeline(plan_.layout.mesh(), context_.world->rank(), records, offset_);
  const double zero = smallest(*context_.world, mine.start);
  if (context_.first())
    write(step, mine, zero);
  else
    gather_on_first(*context_.world, to_text(mine), {});
}

// The trace is written while the ranks' parts arrive, since all of them together may be larger than memory; for the
// page only the instructions are kept. After a failure the parts are still received, because the other ranks wait for
// that.
void StepTimelines::write(int64_t step, const RankTimeline& mine, double zero) {
  const fs::path folder = fs::path(config_.output_dir) / "timeline";
  FileInParts file(folder / cat("step-", step, ".json"));
  std::ostringstream part;
  ChromeTrace trace(plan_.layout.mesh(), zero, part);
  std::vector<RankTimeline> ranks;
  gather_on_first(*context_.world, "", [&](int rank, const std::string& text) {
    ranks.push_back(rank == 0 ? mine : timeline_from_text(text));
    trace.add(ranks.back());
    ranks.back().spans = {};
    file.add(std::exchange(part, {}).view());
  });
  trace.finish();
  run_.attempt("timeline", [&] {
    file.add(part.view());
    file.finish();
    write_file(folder / cat("step-", step, ".html"), timeline_page(plan_.layout.mesh(), plan_.train, step, ranks));
  });
}

}  // namespace shardline
