#include "engine/observe/progress.h"

#include <limits>
#include <sstream>

#include "tests/catch.h"

namespace shardline::progress_test {
namespace {

StepMetrics at_step(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 3.21451;
  metrics.grad_norm = 0.844;
  metrics.learning_rate = 3e-5;
  metrics.step_seconds = 0.412;
  metrics.tokens_per_second = 39800;
  metrics.peak_memory_bytes = {{7, 1 << 20}, {9, 1288490189}};
  return metrics;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// What a terminal would show in its last line, and the longest line that was ever drawn.
struct Screen {
  std::string last;
  size_t widest = 0;

  explicit Screen(const std::string& text) {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find_first_of("\r\n", begin);
      std::string piece = text.substr(begin, end == std::string::npos ? end : end - begin);
      if (const size_t erase = piece.find("\x1b[K"); erase != std::string::npos) piece.erase(erase);
      widest = std::max(widest, piece.size());
      if (!piece.empty()) last = piece;
      if (end == std::string::npos) break;
      begin = end + 1;
    }
  }
};

constexpr Console no_terminal{false, 80};

}  // namespace

TEST_CASE("the console line of a step") {
  CHECK(console_line(at_step(12), 500) ==
        "step 12/500 | loss 3.2145 | norm 0.84 | lr 3.0e-05 | 412 ms | 39.8k tok/s | mem 1.2 GiB");
  StepMetrics odd = at_step(1);
  odd.loss = -std::numeric_limits<double>::quiet_NaN();
  odd.grad_norm = 1e-6;
  odd.peak_memory_bytes.clear();
  CHECK(console_line(odd, 2) == "step 1/2 | loss nan | norm 1.00e-06 | lr 3.0e-05 | 412 ms | 39.8k tok/s");
  CHECK(console_line(EvaluationMetrics{500, 1, {{"eval_loss", 3.10211}, {"eval_perplexity", 22.245}}}) ==
        "step 500 | eval_loss 3.1021 | eval_perplexity 22.2450");
}

TEST_CASE("without a terminal: the first, the last and every n-th step, and no control characters") {
  std::ostringstream out;
  Progress progress(out, no_terminal, {4}, [] { return 0.; });
  for (int64_t step = 1; step <= 10; ++step) progress.add(at_step(step), 10);
  progress.finish();
  const auto lines = lines_of(out.str());
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].starts_with("step 1/10 "));
  CHECK(lines[1].starts_with("step 4/10 "));
  CHECK(lines[2].starts_with("step 8/10 "));
  CHECK(lines[3].starts_with("step 10/10 "));
  CHECK(out.str().find_first_of("\r\x1b") == std::string::npos);
}

TEST_CASE("a resumed run shows its own first step, and 0 turns the others off") {
  std::ostringstream out;
  Progress progress(out, no_terminal, {});
  for (int64_t step = 6; step <= 9; ++step) progress.add(at_step(step), 9);
  const auto lines = lines_of(out.str());
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].starts_with("step 6/9 "));
  CHECK(lines[1].starts_with("step 9/9 "));
}

TEST_CASE("on a terminal one line is redrawn, at most ten times a second") {
  std::ostringstream out;
  double now = 0;
  Progress progress(out, Console{true, 120}, {}, [&] { return now; });
  progress.add(at_step(1), 100);
  const std::string first = out.str();
  CHECK(Screen(first).last ==
        "step 1/100 1% [                              ] loss 3.2145 | 39.8k tok/s | 412 ms | 1.2 GiB | ETA 40.79 s");
  now = 0.05;
  progress.add(at_step(2), 100);
  CHECK(out.str() == first);
  now = 20;
  progress.add(at_step(51), 100);  // 0.4 s per step since the first one, 49 steps to go
  CHECK(Screen(out.str()).last ==
        "step 51/100 51% [===============               ] loss 3.2145 | 39.8k tok/s | 412 ms | 1.2 GiB | ETA 19.60 s");
  now = 20.01;
  progress.add(at_step(100), 100);  // the last is always drawn
  CHECK(Screen(out.str()).last.starts_with("step 100/100 100% [=============================="));
  CHECK(out.str().find('\n') == std::string::npos);
  progress.finish();
  progress.finish();
  CHECK(out.str().ends_with("\x1b[K\n"));
  CHECK(lines_of(out.str()).size() == 1);
}

TEST_CASE("logged steps are lines above the bar") {
  std::ostringstream out;
  Progress progress(out, Console{true, 100}, {.every = 2, .first = true}, [] { return 0.; });
  for (int64_t step = 1; step <= 3; ++step) progress.add(at_step(step), 9);
  const std::string text = out.str();
  CHECK(text.find("step 1/9 | loss") != std::string::npos);
  CHECK(text.find("step 2/9 | loss") != std::string::npos);
  CHECK(text.find("step 3/9 | loss") == std::string::npos);
}

TEST_CASE("printing a separate line erases the bar first") {
  std::ostringstream out;
  Progress progress(out, Console{true, 100}, {}, [] { return 0.; });
  progress.add(at_step(1), 2);
  const size_t before = out.str().size();
  progress.add(EvaluationMetrics{1, 0.5, {{"eval_loss", 3}}});
  CHECK(out.str().substr(before) == "\r\x1b[Kstep 1 | eval_loss 3.0000\n");
  progress.finish();
  CHECK(out.str().ends_with("3.0000\n"));
}

TEST_CASE("drawn lines do not wrap, however narrow the terminal is") {
  for (const int columns : {1, 2, 10, 40, 80, 85, 200}) {
    std::ostringstream out;
    Progress progress(out, Console{true, columns}, {}, [] { return 0.; });
    progress.add(at_step(1), 1000000);
    progress.update(1, 3, "tokenising a-file-with-a-rather-long-name-\xc3\xa9\xc3\xa9\xc3\xa9.txt");
    CHECK(Screen(out.str()).widest <= static_cast<size_t>(std::max(columns - 1, 1)));
  }
}

TEST_CASE("truncation never leaves part of a character") {
  std::ostringstream out;
  Progress progress(out, Console{true, 4}, {}, [] { return 0.; });
  progress.update(1, 0, "ab\xc3\xa9");
  CHECK(out.str() == "\rab\x1b[K");
}

TEST_CASE("set-up work without a terminal: beginning, every ten seconds, end, in any number of calls") {
  std::ostringstream out;
  double now = 0;
  Progress progress(out, no_terminal, {1}, [&] { return now; });
  const int64_t total = 2500 << 10;
  for (int64_t done = 0; done <= total; done += 1 << 10, now += 0.01) progress.update(done, total, "tokenising");
  progress.update(total, total, "tokenising");  // already ended
  CHECK(lines_of(out.str()) ==
        std::vector<std::string>{"tokenising: 0 B of 2.4 MiB (0%)", "tokenising: 1001.0 KiB of 2.4 MiB (40%)",
                                 "tokenising: 2.0 MiB of 2.4 MiB (80%)", "tokenising: 2.4 MiB of 2.4 MiB in 25.00 s"});
}

TEST_CASE("work that is counted in things has no bytes") {
  std::ostringstream out;
  Progress progress(out, no_terminal, {1}, [] { return 0.; });
  progress.update(1, 4, "timing layers", Progress::Unit::things);
  progress.update(4, 4, "timing layers", Progress::Unit::things);
  CHECK(lines_of(out.str()) ==
        std::vector<std::string>{"timing layers: 1 of 4 (25%)", "timing layers: 4 of 4 in 0 us"});
}

TEST_CASE("the same work may begin again, and the total may be unknown or nothing") {
  std::ostringstream out;
  Progress progress(out, no_terminal, {1}, [] { return 0.; });
  progress.update(0, 2, "evaluating");
  progress.update(2, 2, "evaluating");
  progress.update(0, 2, "evaluating");
  progress.update(5, 0, "reading");
  progress.update(0, -1, "writing");
  CHECK(lines_of(out.str()) == std::vector<std::string>{"evaluating: 0 B of 2 B (0%)", "evaluating: 2 B of 2 B in 0 us",
                                                        "evaluating: 0 B of 2 B (0%)", "reading: 5 B", "writing: 0 B"});
}

TEST_CASE("work that ends immediately is not shown") {
  for (const bool terminal : {false, true}) {
    std::ostringstream out;
    Progress progress(out, Console{terminal, 80}, {}, [] { return 0.; });
    progress.update(7, 7, "writing");
    progress.update(7, 7, "writing");
    CHECK(out.str().empty());
    progress.update(3, 7, "writing");
    CHECK_FALSE(out.str().empty());
  }
}

TEST_CASE("set-up work on a terminal leaves its last state on the screen") {
  std::ostringstream out;
  double now = 0;
  Progress progress(out, Console{true, 60}, {}, [&] { return now; });
  progress.update(0, 10, "loading");
  now = 3;
  progress.update(10, 10, "loading");
  CHECK(out.str() ==
        "\rloading 0% [                              ] 0 B of 10 B\x1b[K"
        "\rloading 100% [=====================] 10 B of 10 B in 3.00 s\x1b[K\n");
}

TEST_CASE("a file is not a terminal") {
  CHECK_FALSE(console_of(-1).terminal);
}

}  // namespace shardline::progress_test
