// Keeps the socket of a server while the processes that serve with it end and begin again, so that connections wait
// instead of being refused. The launcher, which the user started, has a SocketKeeper; the process that serves asks it
// for the socket. mpirun passes no descriptors on to its ranks: the socket travels through a Unix socket of this host.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "engine/serve/http/listening_socket.h"

namespace shardline {

class SocketKeeper {
 public:
  using Clock = std::chrono::steady_clock;

  // From now on, processes that this one starts find the keeper. A request to stop (engine/run/stop.h) ends listening.
  // Throws RunError.
  SocketKeeper();
  ~SocketKeeper();
  SocketKeeper(const SocketKeeper&) = delete;
  SocketKeeper& operator=(const SocketKeeper&) = delete;

  // When a process began to serve with the socket since the last call; unset: none did.
  std::optional<Clock::time_point> take_begin();

 private:
  void run();
  void attend();

  int unix_socket_;
  std::atomic<bool> ends_ = false;
  std::mutex mutex_;  // guards `begin_`
  std::optional<Clock::time_point> begin_;
  std::unique_ptr<ListeningSocket> kept_;  // used only by thread_
  std::thread thread_;
};

// Whether a process with a keeper has started this one on the same host, directly or through mpirun.
bool has_socket_keeper();

// Returns the socket of this process's keeper, if it has one; otherwise, makes a new one and passes it to the keeper.
// Without a keeper, returns a new one. Throws ConfigError as ListeningSocket does.
ListeningSocket kept_socket(const std::string& host, int port);

}  // namespace shardline
