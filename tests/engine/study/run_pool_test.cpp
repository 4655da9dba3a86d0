#include "engine/study/run_pool.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/comm/clock.h"
#include "core/error.h"
#include "tests/engine/observe/scratch_folder.h"

#include "tests/catch.h"

namespace shardline::run_pool_test {
namespace {

class Shell {
 public:
  explicit Shell(const ScratchFolder& folder) : folder_(folder.path()) {}

  void add(const std::string& script, int cores = 1, int seconds = 60) {
    const std::string log = folder_ + "/" + std::to_string(programs.size());
    ends.emplace_back();
    programs.push_back({.command = {"/bin/sh", "-c", script},
                        .output = log,
                        .errors = log,
                        .cores = cores,
                        .limit = std::chrono::seconds(seconds),
                        .starts = [this] { most_at_once = std::max(most_at_once, ++running); },
                        .ends =
                            [this, i = programs.size()](const ProgramEnd& end) {
                              --running;
                              ends[i] = end;
                            }});
  }
  std::string said(int program) const {
    std::ifstream in(folder_ + "/" + std::to_string(program));
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::vector<PoolProgram> programs;
  std::vector<ProgramEnd> ends;
  int running = 0, most_at_once = 0;

 private:
  std::string folder_;
};

}  // namespace

TEST_CASE("Programs that end leave their exit codes and output", "[study]") {
  const ScratchFolder folder;
  Shell shell(folder);
  shell.add("echo out; echo err >&2; read line || echo nothing to read");
  shell.add("exit 3");
  shell.add("kill -9 $$");
  run_programs(shell.programs, 2, 0);
  CHECK(shell.ends[0].code == 0);
  CHECK(shell.said(0) == "out\nerr\nnothing to read\n");
  CHECK(shell.ends[1].code == 3);
  CHECK(shell.ends[2].code == 128 + 9);
  CHECK(shell.running == 0);
}

TEST_CASE("As many programs run at once as there are cores, and no more than asked for", "[study]") {
  const ScratchFolder folder;
  const auto most_of = [&](int cores, int at_once, int cores_of_one) {
    Shell shell(folder);
    for (int i = 0; i < 5; ++i) shell.add("sleep 0.2", cores_of_one);
    run_programs(shell.programs, cores, at_once);
    return shell.most_at_once;
  };
  CHECK(most_of(3, 0, 1) == 3);
  CHECK(most_of(4, 2, 1) == 2);
  CHECK(most_of(4, 0, 2) == 2);
  CHECK(most_of(2, 0, 8) == 1);  // a run that is larger than the machine runs alone
}

TEST_CASE("A program that takes too long is stopped", "[study]") {
  const ScratchFolder folder;
  Shell shell(folder);
  shell.add("exec sleep 100", 1, 1);
  const double begin = steady_seconds();
  run_programs(shell.programs, 1, 0);
  CHECK(shell.ends[0].timed_out);
  CHECK(shell.ends[0].code == 128 + 15);
  CHECK(steady_seconds() - begin < 50);
}

TEST_CASE("A program that does not exist has a separate exit code", "[study]") {
  const ScratchFolder folder;
  Shell shell(folder);
  shell.add("");
  shell.programs[0].command = {"/does/not/exist"};
  run_programs(shell.programs, 1, 0);
  CHECK(shell.ends[0].code == 127);
}

}  // namespace shardline::run_pool_test
