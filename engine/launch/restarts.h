// When a training job whose ranks have ended is started again.
#pragma once
#include <string>

namespace shardline {

// How one attempt to run the ranks ended.
struct AttemptEnd {
  int exit_code = 0;  // see exit_codes.h
  bool asked_to_stop = false;
  bool finished = false;         // the run was at its end; another attempt would add nothing
  bool saved_something = false;  // a checkpoint was published during the attempt
};

class Restarts {
 public:
  explicit Restarts(int most) : most_(most) {}

  // Whether to start the ranks again. If not, reason() says why; it is empty if a restart was out of the question.
  bool again_after(const AttemptEnd& end);
  const std::string& reason() const { return reason_; }
  int attempts() const { return attempts_; }  // attempts that have ended

 private:
  int most_, attempts_ = 0, without_progress_ = 0;
  std::string reason_;
};

}  // namespace shardline
