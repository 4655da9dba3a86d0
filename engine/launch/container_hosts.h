// The hosts of a job in containers. The first one starts all ranks; the others wait until it ends, because the platform
// ends a container whose program has ended. A connection from each of them to the first shows that both are there.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace shardline {

// The port on which the first host listens: SHARDLINE_CONTAINER_PORT, or 23117.
int container_port();

// The first host's side. Not thread-safe.
class OtherHosts {
 public:
  // Listens on all addresses of this host. Throws RunError.
  explicit OtherHosts(std::vector<std::string> names);
  ~OtherHosts();
  OtherHosts(const OtherHosts&) = delete;
  OtherHosts& operator=(const OtherHosts&) = delete;

  // Waits until all hosts have connected. Throws a RunError that names those that have not.
  void wait(std::chrono::seconds limit);
  // Lets all hosts end with this exit code, for this reason if the job has failed.
  void end(int code, std::string reason = "");

 private:
  struct Line {
    int socket;
    std::string greeting;
  };
  void accept_one(std::chrono::milliseconds patience);

  std::vector<std::string> names_;  // the hosts that have not connected
  int listener_ = -1;
  std::vector<Line> lines_;
};

struct JobEnd {
  int code = 0;
  std::string reason;  // why the job has failed, in one line; may be empty
};
// The side of every other host, called `name`: connects to the first host, which must answer within `limit`, and
// returns how the job ended once it has ended. Signals that ask to stop are left to the first host. Throws RunError if
// it cannot connect, or if the connection ends before the job does.
JobEnd wait_for_first_host(const std::string& first, const std::string& name, std::chrono::seconds limit);

}  // namespace shardline
