// What mpirun and its ranks write to standard error, made into last words that name what ended the job.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

namespace shardline {

// "error: rank 3: <reason>", further lines of the reason indented: how a failing rank says it, for people and for
// RankMessages.
std::string rank_error(int rank, const std::string& reason);

// Passes lines on to `log` as they come, except the errors of ranks and mpirun's own notices.
class RankMessages {
 public:
  explicit RankMessages(std::ostream& log) : log_(log) {}

  void add(const std::string& bytes);
  // The end of a failed job. Errors that several ranks found are said once; a rank that a signal killed comes last.
  // stopped: people asked for the end, no rank is to blame. Mpirun's notices are shown when there is nothing better.
  void tell_failure(int exit_code, bool stopped);

 private:
  struct Failure {
    int rank;
    std::string reason;
  };
  void add_line(const std::string& line);
  std::string killed_rank() const;

  std::ostream& log_;
  std::string rest_;  // of a line that has not ended
  std::string notices_;
  std::vector<Failure> failures_;
  bool in_notice_ = false, continues_ = false, said_error_ = false;
};

}  // namespace shardline
