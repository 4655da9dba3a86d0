// The console output of a run. On a terminal one line is redrawn with a bar and the remaining time; elsewhere (a pipe,
// a log file) plain lines appear from time to time. Writes only to the given stream. Only one thread may use it at a
// time.
#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>

#include "core/comm/clock.h"
#include "engine/observe/metrics.h"

namespace shardline {

struct Console {
  bool terminal = false;
  int columns = 80;
};
// Asks the system about an open file: 1 is standard output, 2 standard error. TERM=dumb does not count as a terminal.
Console console_of(int file_descriptor);

class Progress {
 public:
  using Clock = std::function<double()>;  // seconds since an arbitrary moment

  // Which steps are printed as a line: every n-th (0: none), and these. Without a terminal the first and the last
  // always are; on a terminal every step advances a bar.
  struct LoggedSteps {
    int64_t every = 0;
    bool first = false, last = false;
  };
  Progress(std::ostream& out, Console console, LoggedSteps logged, Clock clock = shardline::steady_seconds);

  void add(const StepMetrics& metrics, int64_t total_steps);
  void add(const EvaluationMetrics& metrics);

  // Progress of long work outside of training: `done` of `total` (0: unknown) of what `text` names. A new text, or a
  // smaller `done`, begins new work; done == total ends it, and work that ends as it begins is not shown. May be called
  // at any rate. Without a terminal it prints a line at the beginning, every ten seconds and at the end.
  enum class Unit { bytes, things };
  void update(int64_t done, int64_t total, const std::string& text, Unit unit = Unit::bytes);

  // A separate line, above the bar.
  void line(const std::string& text);

  // Ends the line that is being overwritten; the last state stays readable. Safe to call twice.
  void finish();

 private:
  void draw(const std::string& text);
  std::string with_bar(const std::string& before, double fraction, const std::string& after) const;
  double seconds_left(const StepMetrics& metrics, int64_t total_steps) const;

  struct Work {
    std::string text;
    int64_t done = 0;
    double since = 0;
    bool ended = true;
  };

  std::ostream& out_;
  Console console_;
  LoggedSteps logged_;
  Clock clock_;
  bool drawn_ = false;  // the cursor is after a line that will be overwritten
  double last_output_ = 0;
  int64_t first_step_ = 0;  // the first step of this run; 0: none yet
  double first_step_at_ = 0;
  Work work_;
};

// step 12/500 | loss 3.2145 | norm 0.84 | lr 3.0e-05 | 412 ms | 39.8k tok/s | mem 1.2 GiB
// mem: resident bytes of the rank that has the most; omitted if nothing was measured.
std::string console_line(const StepMetrics& metrics, int64_t total_steps);
// step 500 | eval_loss 3.1021 | eval_perplexity 22.2450
std::string console_line(const EvaluationMetrics& metrics);

}  // namespace shardline
