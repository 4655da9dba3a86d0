#include "engine/launch/container_hosts.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "core/error.h"
#include "core/files/descriptor.h"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr size_t kLongestName = 256, kLongestEnd = 2048;  // bytes of lines
constexpr auto kGreetingTime = 5s;
constexpr int kProbeSeconds = 10, kProbes = 6;  // probes of an idle connection
constexpr auto kPause = 500ms;                  // between attempts to connect

// The kernel ends a connection whose other side does not answer.
void keep_alive(int socket) {
  const auto set = [&](int level, int name, int value) { ::setsockopt(socket, level, name, &value, sizeof value); };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kProbeSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

bool is_readable(int socket, std::chrono::milliseconds patience) {
  pollfd wanted{.fd = socket, .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, std::max<int>(0, patience.count())) > 0;
}

void send_line(int socket, const std::string& text) {
  const std::string line = text + '\n';
  (void)!::send(socket, line.data(), line.size(), MSG_NOSIGNAL);
}

// Reads a line. Returns an empty string if the connection or the time ends first, or if the line is too long.
std::string received_line(int socket, size_t longest, std::optional<Clock::time_point> deadline = {}) {
  std::string line;
  for (char c; line.size() < longest;) {
    if (deadline &&
        !is_readable(socket, std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - Clock::now())))
      return "";
    const ssize_t count = ::recv(socket, &c, 1, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count != 1) return "";
    if (c == '\n') return line;
    line += c;
  }
  return "";
}

// Returns a connected socket, or -1 if the host does not listen yet.
int connected(const std::string& host, int port) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_family = AF_INET;
  wanted.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) return -1;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  const int milliseconds = 5000;
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
  if (::connect(socket, found->ai_addr, found->ai_addrlen) == 0) {
    const int none = 0;
    ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none);
    return socket;
  }
  ::close(socket);
  return -1;
}

}  // namespace

int container_port() {
  const char* text = std::getenv("SHARDLINE_CONTAINER_PORT");
  if (!text) return 23117;
  const int port = std::atoi(text);
  if (port < 1 || port > 65535)
    throw ConfigError(cat("SHARDLINE_CONTAINER_PORT must be a port from 1 to 65535; got \"", text, '"'));
  return port;
}

OtherHosts::OtherHosts(std::vector<std::string> names) : names_(std::move(names)) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(container_port());
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  if (listener_ >= 0) ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(listener_, SOMAXCONN) != 0) {
    const std::string reason = std::strerror(errno);
    if (listener_ >= 0) ::close(listener_);
    throw RunError(cat("cannot listen on port ", container_port(), " for the other hosts: ", reason,
                       "; set SHARDLINE_CONTAINER_PORT to another port on all hosts"));
  }
}

OtherHosts::~OtherHosts() {
  for (const auto& line : lines_) ::close(line.socket);
  ::close(listener_);
}

void OtherHosts::accept_one(std::chrono::milliseconds patience) {
  if (!is_readable(listener_, patience)) return;
  const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (socket < 0) return;
  keep_alive(socket);
  const std::string name = received_line(socket, kLongestName, Clock::now() + kGreetingTime);
  const auto expected = std::ranges::find(names_, name);
  if (expected == names_.end()) {  // a client that is not one of the hosts
    ::close(socket);
    return;
  }
  names_.erase(expected);
  lines_.push_back({socket, name});
}

void OtherHosts::wait(std::chrono::seconds limit) {
  for (const auto deadline = Clock::now() + limit; !names_.empty();) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left <= 0ms) {
      std::string list;
      for (const auto& name : names_) list += (list.empty() ? "" : ", ") + name;
      throw RunError(cat("no message from host ", list, " after ", limit.count(),
                         " s; see the output of `shardline train` on that host, or set a larger training.ddp_timeout"));
    }
    accept_one(std::min(left, 1000ms));
  }
}

void OtherHosts::end(int code, std::string reason) {
  std::ranges::replace(reason, '\n', ' ');
  reason = reason.substr(0, kLongestEnd / 2);
  for (const auto& line : lines_) send_line(line.socket, cat(code, reason.empty() ? "" : " ", reason));
}

JobEnd wait_for_first_host(const std::string& first, const std::string& name, std::chrono::seconds limit) {
  const int port = container_port();
  int socket = -1;
  for (const auto deadline = Clock::now() + limit; (socket = connected(first, port)) < 0;) {
    if (Clock::now() > deadline)
      throw RunError(cat("host ", first, " does not answer on port ", port, " after ", limit.count(),
                         " s; see the output of `shardline train` there"));
    std::this_thread::sleep_for(kPause);
  }
  const Descriptor line{socket};
  keep_alive(socket);
  send_line(socket, name);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) std::signal(signal, SIG_IGN);
  const std::string end = received_line(socket, kLongestEnd);
  const size_t space = std::min(end.find(' '), end.size());
  const std::string code = end.substr(0, space);
  if (code.empty() || code.size() > 3 || code.find_first_not_of("0123456789") != std::string::npos)
    throw RunError(cat("the connection to host ", first, " ended before the job did; see the output of that host"));
  return {.code = std::atoi(code.c_str()), .reason = end.substr(std::min(space + 1, end.size()))};
}

}  // namespace shardline
