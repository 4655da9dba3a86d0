// An HTTP/1.1 server. One thread reads and writes for all connections; requests are answered on other threads.
//
// Clients cannot make it exceed its limits: on the time in which a connection sends a request and takes its answer, on
// the bytes of a body, with and without Content-Length, and on the bytes of all bodies held at a time. If there are too
// many connections, the one that has been without a complete request for the longest time makes room for a new one.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "engine/serve/http/http_message.h"
#include "engine/serve/http/listening_socket.h"

namespace shardline {

struct HttpLimits {
  size_t body_bytes = size_t{6} << 20;
  size_t held_bytes = size_t{256} << 20;   // bodies of all requests that are not answered yet
  std::chrono::milliseconds idle{75000};   // until the header of the next request has arrived
  std::chrono::milliseconds body{60000};   // until the body has arrived
  std::chrono::milliseconds write{30000};  // until the client has taken the answer
  int connections = 1024;
};

class HttpServer {
 public:
  // Answers a request: exactly once, but at any time and from any thread.
  using Respond = std::function<void(HttpResponse response)>;
  // Called on the server's thread, which must not wait.
  using Handle = std::function<void(HttpRequest request, Respond respond)>;
  // Called on the same thread for a request that the server itself answers, because it cannot read it.
  using Refused = std::function<void(int status)>;

  // Throws ConfigError if the program was built without Boost.
  HttpServer(ListeningSocket socket, const HttpLimits& limits, Handle handle, Refused refused = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  int connections() const;
  // Accepts no more connections, closes those without a request, and others after their answer.
  void begin_stop();
  bool has_stopped() const;  // all connections are closed

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Whether this build has a server.
bool has_http_server();

}  // namespace shardline
