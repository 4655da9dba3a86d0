// A TCP socket that listens. Processes can hand it on: connections wait in its queue while none of them accepts any.
#pragma once
#include <string>
#include <utility>

namespace shardline {

class ListeningSocket {
 public:
  // Port 0: any free one. Throws ConfigError for a host that is not an address of this machine, and for a port that is
  // in use.
  ListeningSocket(const std::string& host, int port);
  // Takes over a socket that listens.
  explicit ListeningSocket(int descriptor) : descriptor_(descriptor) {}
  ListeningSocket(ListeningSocket&& other) noexcept : descriptor_(other.release()) {}
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  int descriptor() const { return descriptor_; }
  int port() const;
  bool is_ipv6() const;
  // Ends listening for all processes that hold the socket: connections that wait are reset, new ones refused.
  void end() const;
  // Leaves the descriptor to the caller.
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

}  // namespace shardline
