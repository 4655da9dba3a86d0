#include "engine/launch/lifelines.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>

#include "core/comm/communicator_base.h"
#include "core/error.h"
#include "core/flight/flight_ring.h"
#include "core/hex.h"
#include "engine/launch/exit_codes.h"
#include "engine/run/launcher_news.h"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr size_t kLongestGreeting = 512;
constexpr auto kPatience = 5s;  // for a rank to reach an address of the launcher

void set_option(int socket, int level, int name, int value) {
  ::setsockopt(socket, level, name, &value, sizeof value);
}

// An idle connection is probed from a third of the limit on, and ends at the limit.
void probe(int socket, std::chrono::seconds limit) {
  const int seconds = limit.count();
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 3));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 6));
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * seconds);
}

// The addresses of this host. The loopback address comes last, because ranks on other hosts cannot use it.
std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses, loopback;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw RunError(cat("cannot list the addresses of this host: ", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, ::freeifaddrs);
  for (const ifaddrs* at = all; at; at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || !(at->ifa_flags & IFF_UP)) continue;
    char text[INET_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr, text, sizeof text);
    (at->ifa_flags & IFF_LOOPBACK ? loopback : addresses).emplace_back(text);
  }
  addresses.insert(addresses.end(), loopback.begin(), loopback.end());
  return addresses;
}

// Waits until the socket can be read or written.
bool is_ready(int socket, short events, Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  pollfd wanted{.fd = socket, .events = events, .revents = 0};
  return ::poll(&wanted, 1, std::max<int>(0, left.count())) > 0;
}

// A line that ends with '\n'; empty if none comes.
std::string read_line(int socket, Clock::time_point deadline) {
  std::string line;
  for (char c; line.size() < kLongestGreeting && is_ready(socket, POLLIN, deadline); line += c) {
    if (::recv(socket, &c, 1, 0) != 1) return "";
    if (c == '\n') return line;
  }
  return "";
}

// A connection to the launcher, which answers the greeting with the token; -1: none.
int connected_socket(const std::string& address, int port, const std::string& token) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  if (::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) return -1;
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return -1;
  const auto deadline = Clock::now() + kPatience;
  const auto answers = [&] {
    if (::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS) return false;
    if (!is_ready(socket, POLLOUT, deadline)) return false;
    const std::string greeting = cat(token, ' ', host_name(), '\n');
    return ::send(socket, greeting.data(), greeting.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(greeting.size()) &&
           read_line(socket, deadline) == token;
  };
  if (answers()) return socket;
  ::close(socket);
  return -1;
}

void wait_for_end(int socket) {
  ::fcntl(socket, F_SETFL, 0);
  char c;
  ssize_t count = 0;
  do {
    count = ::recv(socket, &c, 1, 0);
  } while (count > 0 || (count < 0 && errno == EINTR));
  ::close(socket);
}

// Raises the limit of open files, because the launcher has a connection to every rank.
void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Lifelines::Lifelines(std::chrono::seconds limit) : limit_(limit) {
  token_ = random_digits();
  allow_many_files();
  sockaddr_in at{};
  at.sin_family = AF_INET;
  socklen_t length = sizeof at;
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(listener_, SOMAXCONN) != 0 || ::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &length) != 0) {
    const std::string reason = std::strerror(errno);
    if (listener_ >= 0) ::close(listener_);
    throw RunError("cannot listen for the ranks: " + reason);
  }
  port_ = ntohs(at.sin_port);
}

Lifelines::~Lifelines() {
  for (const auto& line : lines_) ::close(line.socket);
  ::close(listener_);
}

std::string Lifelines::address() const {
  std::string text = cat(token_, ',', port_, ',', limit_.count());
  for (const auto& address : own_addresses()) text += "," + address;
  return text;
}

bool Lifelines::accept_one() {
  const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) return false;
  probe(socket, limit_);
  lines_.push_back({.socket = socket, .greeting = "", .host = ""});
  return true;
}

// Whether the bytes received so far may be the greeting of a rank. Answers a complete greeting.
bool Lifelines::greets(Line& line) const {
  const auto end = line.greeting.find('\n'), space = line.greeting.find(' ');
  if (end == std::string::npos) return line.greeting.size() < kLongestGreeting;
  if (space > end || line.greeting.substr(0, space) != token_) return false;
  line.host = line.greeting.substr(space + 1, end - space - 1);
  const std::string answer = token_ + "\n";
  return ::send(line.socket, answer.data(), answer.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(answer.size());
}

void Lifelines::read_from(Line& line) {
  char bytes[256];
  while (line.socket >= 0) {
    const ssize_t count = ::recv(line.socket, bytes, sizeof bytes, 0);
    const int error = errno;
    if (count < 0 && error == EINTR) continue;
    if (count < 0 && error == EAGAIN) return;
    bool stays = false;
    if (count > 0 && line.host.empty()) {
      line.greeting.append(bytes, count);
      stays = greets(line);
    }
    if (stays) continue;
    // The kernel has given up; a host that is up closes or resets the connection.
    if (count < 0 && error != ECONNRESET && error != EPIPE && !line.host.empty() &&
        std::ranges::find(silent_hosts_, line.host) == silent_hosts_.end())
      silent_hosts_.push_back(line.host);
    ::close(line.socket);
    line.socket = -1;
  }
}

void Lifelines::attend() {
  while (accept_one()) {
  }
  for (auto& line : lines_) read_from(line);
  std::erase_if(lines_, [](const Line& line) { return line.socket < 0; });
}

int Lifelines::connected() const {
  return std::ranges::count_if(lines_, [](const Line& line) { return !line.host.empty(); });
}

void Lifelines::let_go() {
  for (const auto& line : lines_) ::shutdown(line.socket, SHUT_WR);
}

std::vector<std::string> Lifelines::release(std::chrono::milliseconds patience) {
  attend();
  let_go();
  for (const auto deadline = Clock::now() + patience; !lines_.empty() && Clock::now() < deadline; attend())
    std::this_thread::sleep_for(10ms);
  std::vector<std::string> left;
  for (const auto& line : lines_)
    if (std::ranges::find(left, line.host) == left.end()) left.push_back(line.host);
  return left;
}

void hold_lifeline(const std::string& address, std::function<void()> lost,
                   std::function<void(const std::string&)> unreachable) {
  std::istringstream text(address);
  std::vector<std::string> fields;
  for (std::string field; std::getline(text, field, ',');) fields.push_back(field);
  SL_ASSERT(fields.size() >= 3, kLifelineVariable, " is \"", address, '"');
  const auto hold = [fields, lost = std::move(lost), unreachable = std::move(unreachable)] {
    for (size_t i = 3; i < fields.size(); ++i) {
      const int socket = connected_socket(fields[i], std::atoi(fields[1].c_str()), fields[0]);
      if (socket < 0) continue;
      probe(socket, std::chrono::seconds(std::atoi(fields[2].c_str())));
      wait_for_end(socket);
      return lost();
    }
    std::string tried;
    for (size_t i = 3; i < fields.size(); ++i) tried += cat(i > 3 ? ", " : "", fields[i]);
    unreachable(cat("no connection to the launcher on port ", fields[1], " of ", tried));
  };
  sigset_t all, before;  // signals are for the program's own threads
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(hold).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void end_with_launcher() {
  if (!has_launcher()) return;
  // Exits without reporting a reason, because mpirun may be unreachable, too.
  hold_lifeline(
      std::getenv(kLifelineVariable),
      [] {
        flight_ring().end_ranks(FlightEnd::cut_off, "the connection to the launcher has ended");
        ::_exit(kExitFailed);
      },
      [](const std::string& reason) {
        std::cerr << "note: " << host_name() << ": " << reason
                  << "; ranks on this host will not notice when they are cut off" << std::endl;
      });
}

}  // namespace shardline
