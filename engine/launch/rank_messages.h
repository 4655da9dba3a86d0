// Turns the standard error of mpirun and its ranks into a final message that names the cause of the job's end.
#pragma once
#include <iosfwd>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/run/launcher_news.h"

namespace shardline {

// "error: rank 3: <reason>", with further lines of the reason indented: how a failing rank reports its error to users
// and to RankMessages. Without a rank, "error: all ranks: <reason>": all of them report it.
std::string rank_error(std::optional<int> rank, const std::string& reason);

// The lines of a failure after which the program continues: indented, and without "error: ".
std::string lines_without_prefix(const std::string& failure);

// Passes lines on to `log` as they arrive, except the errors of ranks, their news and mpirun's own notices.
class RankMessages {
 public:
  explicit RankMessages(std::ostream& log) : log_(log) {}

  void add(const std::string& bytes);
  const std::set<News>& news() const { return news_; }
  // The rank that a signal killed, if mpirun has reported one.
  struct Killed {
    int rank = 0;
    std::string process;  // "process 712 on host a"
    int signal = 0;
    std::string how;  // "was killed by signal 9 (Killed)"
  };
  std::optional<Killed> killed_rank() const;

  // The lines that report the end of a failed job. Errors of several ranks are reported once, and those of all ranks
  // without a rank; a rank that a signal killed comes last. stopped: the user asked for the end, and no rank is to
  // blame. explanation: last lines that replace mpirun's notices, which are shown only if there is nothing more
  // informative. Returns an empty string if an error was already passed on.
  std::string failure(int exit_code, bool stopped, const std::string& explanation = "");

 private:
  struct Failure {
    std::optional<int> rank;  // unset: all ranks
    std::string reason;
  };
  // The parts of a line that rank_error has made from the first line of a reason.
  static std::optional<Failure> failure_in(std::string_view line);
  void add_line(const std::string& line);

  std::ostream& log_;
  std::string rest_;  // the beginning of an incomplete line
  std::string notices_;
  std::vector<Failure> failures_;
  std::set<News> news_;
  bool in_notice_ = false, continues_ = false, said_error_ = false;
};

}  // namespace shardline
