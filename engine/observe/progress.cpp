#include "engine/observe/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string_view>

#include "core/error.h"
#include "engine/observe/format.h"

namespace shardline {
namespace {

constexpr double redraw_seconds = 0.1;
constexpr double line_seconds = 10;
constexpr int smallest_bar = 6, largest_bar = 30;

std::string printed(const char* format, double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string loss_text(double loss) {
  return printed(std::abs(loss) < 1e4 ? "%.4f" : "%.4g", loss);
}

std::string norm_text(double norm) {
  const double size = std::abs(norm);
  return printed(size == 0 || (size >= 0.01 && size < 1000) ? "%.2f" : "%.2e", norm);
}

std::string whole_percent(double fraction) {
  return printed("%.0f%%", std::floor(fraction * 100));
}

// At most `columns` bytes, without cutting a UTF-8 sequence.
std::string cut(std::string text, size_t columns) {
  if (text.size() <= columns) return text;
  while (columns > 0 && (text[columns] & 0xc0) == 0x80) --columns;
  text.resize(columns);
  return text;
}

}  // namespace

Console console_of(int file_descriptor) {
  Console console;
  const char* kind = std::getenv("TERM");
  console.terminal = ::isatty(file_descriptor) && kind && std::string_view(kind) != "dumb";
  winsize size{};
  if (console.terminal && ::ioctl(file_descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    console.columns = size.ws_col;
  }
  return console;
}

Progress::Progress(std::ostream& out, Console console, LoggedSteps logged, Clock clock)
    : out_(out), console_(console), logged_(logged), clock_(std::move(clock)) {}

void Progress::add(const StepMetrics& metrics, int64_t total_steps) {
  const double now = clock_();
  const bool first = first_step_ == 0, last = metrics.step == total_steps;
  if (first) {
    first_step_ = metrics.step;
    first_step_at_ = now;
  }
  const bool regular = logged_.every > 0 && metrics.step % logged_.every == 0;
  if (metrics.loss_scale && metrics.loss_scale->overflowed)
    line(cat("step ", metrics.step, " is skipped: gradients overflowed with loss scale ", metrics.loss_scale->scale));
  if (regular || (first && logged_.first) || (last && logged_.last) || (!console_.terminal && (first || last)))
    line(console_line(metrics, total_steps));
  if (!console_.terminal) return;
  if (!first && !last && now - last_output_ < redraw_seconds) return;
  const double fraction = total_steps > 0 ? 1.0 * metrics.step / total_steps : 0;
  const int64_t memory = largest_resident(metrics);
  draw(with_bar(cat("step ", metrics.step, "/", total_steps), fraction,
                cat("loss ", loss_text(metrics.loss), " | ", format_count(metrics.tokens_per_second), " tok/s | ",
                    format_duration(metrics.step_seconds), memory > 0 ? " | " + format_bytes(memory) : "", " | ETA ",
                    format_duration(seconds_left(metrics, total_steps)))));
}

void Progress::add(const EvaluationMetrics& metrics) {
  line(console_line(metrics));
}

void Progress::update(int64_t done, int64_t total, const std::string& text, Unit unit) {
  const double now = clock_();
  const bool first = text != work_.text || done < work_.done;
  if (first) work_ = {text, done, now, false};
  if (work_.ended) return;
  work_.done = done;
  work_.ended = total > 0 && done >= total;
  if (first && work_.ended) return;
  const double pause = console_.terminal ? redraw_seconds : line_seconds;
  if (!first && !work_.ended && now - last_output_ < pause) return;

  const double fraction = total > 0 ? 1.0 * done / total : 0;
  const auto shown = [&](int64_t amount) { return unit == Unit::bytes ? format_bytes(amount) : cat(amount); };
  std::string parts = shown(done);
  if (total > 0) parts += " of " + shown(total);
  if (work_.ended) parts += " in " + format_duration(now - work_.since);
  if (!console_.terminal) {
    line(cat(text, ": ", parts, total > 0 && !work_.ended ? " (" + whole_percent(fraction) + ")" : ""));
  } else {
    draw(total > 0 ? with_bar(text, fraction, parts) : text + ": " + parts);
    if (work_.ended) finish();
  }
}

void Progress::line(const std::string& text) {
  if (drawn_) out_ << "\r\x1b[K";
  drawn_ = false;
  out_ << text << '\n' << std::flush;
  last_output_ = clock_();
}

void Progress::finish() {
  if (drawn_) out_ << '\n' << std::flush;
  drawn_ = false;
}

void Progress::draw(const std::string& text) {
  const size_t room = std::max(console_.columns - 1, 1);  // a full line would wrap
  out_ << '\r' << cut(text, room) << "\x1b[K" << std::flush;
  drawn_ = true;
  last_output_ = clock_();
}

// The bar takes the space that the text leaves; if that is too little, only the percentage is shown.
std::string Progress::with_bar(const std::string& before, double fraction, const std::string& after) const {
  fraction = std::clamp(fraction, 0.0, 1.0);
  const std::string head = before + " " + whole_percent(fraction) + " ";
  const int room = console_.columns - 1 - (std::ssize(head) + std::ssize(after) + 3);
  if (room < smallest_bar) return head + after;
  const int width = std::min(room, largest_bar);
  std::string bar(fraction * width, '=');
  bar.resize(width, ' ');
  return head + "[" + bar + "] " + after;
}

// Estimated from the time since the first step ended, which includes evaluation and saving but not the first step's
// warm-up.
double Progress::seconds_left(const StepMetrics& metrics, int64_t total_steps) const {
  const int64_t since_first = metrics.step - first_step_;
  const double pace = since_first > 0 ? (clock_() - first_step_at_) / since_first : metrics.step_seconds;
  return pace * (total_steps - metrics.step);
}

std::string console_line(const StepMetrics& metrics, int64_t total_steps) {
  const int64_t memory = largest_resident(metrics);
  return cat("step ", metrics.step, "/", total_steps, " | loss ", loss_text(metrics.loss), " | norm ",
             norm_text(metrics.grad_norm), " | lr ", printed("%.1e", metrics.learning_rate), " | ",
             format_duration(metrics.step_seconds), " | ", format_count(metrics.tokens_per_second), " tok/s",
             memory > 0 ? " | mem " + format_bytes(memory) : "");
}

std::string console_line(const EvaluationMetrics& metrics) {
  std::string text = cat("step ", metrics.step);
  for (const auto& [name, value] : metrics.values) text += cat(" | ", name, " ", loss_text(value));
  return text;
}

}  // namespace shardline
