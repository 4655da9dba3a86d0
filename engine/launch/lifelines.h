// Connections between the launcher and its ranks that show whether the other side is alive. After a greeting they
// carry no data.
//
// mpirun notices a lost host late or never, and ranks that it can no longer reach would continue to run. Therefore
// every rank holds a TCP connection to the launcher, which the kernels of both hosts probe even if the processes are
// stopped. If the connection ends, the rank ends its process: the launcher has ended, has ended the attempt, or cannot
// be reached. The launcher finds out which hosts do not answer.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace shardline {

// The launcher's side. Not thread-safe.
class Lifelines {
 public:
  // Listens on all addresses of this host. limit: how long a peer may be silent. Throws RunError.
  explicit Lifelines(std::chrono::seconds limit);
  ~Lifelines();
  Lifelines(const Lifelines&) = delete;
  Lifelines& operator=(const Lifelines&) = delete;

  // The value of kLifelineVariable for the ranks.
  std::string address() const;

  // Accepts ranks that connect and notices those that have ended; does not wait.
  void attend();
  int connected() const;
  // Hosts that did not answer within the limit. A rank that ends does not count as silent, because its host closes the
  // connection.
  const std::vector<std::string>& silent_hosts() const { return silent_hosts_; }
  // Lets all connected ranks end.
  void let_go();
  // Lets all ranks end and waits for them for up to `patience`. Returns the hosts of the ranks that remain.
  std::vector<std::string> release(std::chrono::milliseconds patience);

 private:
  struct Line {
    int socket = -1;
    std::string greeting;  // what has arrived of it
    std::string host;      // known when the greeting is complete
  };
  bool accept_one();
  void read_from(Line& line);
  bool greets(Line& line) const;

  std::chrono::seconds limit_;
  int listener_ = -1, port_ = 0;
  std::string token_;  // ranks of this attempt know it
  std::vector<Line> lines_;
  std::vector<std::string> silent_hosts_;
};

// The ranks' side: connects to the launcher at `address` in the background and calls `lost` when the connection ends.
// If it cannot connect, calls `unreachable` with the reason; the rank then runs without a connection.
void hold_lifeline(const std::string& address, std::function<void()> lost,
                   std::function<void(const std::string& reason)> unreachable);

// In a rank that a launcher started: ends the process when the launcher is gone or cannot be reached.
void end_with_launcher();

}  // namespace shardline
