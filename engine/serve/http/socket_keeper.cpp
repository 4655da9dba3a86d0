#include "engine/serve/http/socket_keeper.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "core/files/descriptor.h"
#include "core/hex.h"
#include "engine/run/stop.h"

namespace shardline {
namespace {

constexpr const char* kKeeperVariable = "SHARDLINE_SOCKET_KEEPER";  // the name of the Unix socket
constexpr int kKeeperPollMs = 100;
constexpr timeval kAnswerTime{.tv_sec = 5};  // for the other side, which answers at once

// An address in Linux's abstract namespace: it has no file and disappears with its socket.
struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    unix_address.sun_family = AF_UNIX;
    name.copy(unix_address.sun_path + 1, sizeof unix_address.sun_path - 1);
    length = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&unix_address); }

  sockaddr_un unix_address{};
  socklen_t length;
};

// Whether the peer belongs to the same user; others on the host can connect to an abstract address, too.
bool is_own_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

void limit_waits(int socket) {
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kAnswerTime, sizeof kAnswerTime);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &kAnswerTime, sizeof kAnswerTime);
}

// A message of one byte that may carry a descriptor; -1 stands for none.
class DescriptorMessage {
 public:
  DescriptorMessage() {
    header_.msg_iov = &part_;
    header_.msg_iovlen = 1;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  bool send(int socket, int descriptor) {
    if (descriptor >= 0) {
      header_.msg_control = control_;
      header_.msg_controllen = sizeof control_;
      cmsghdr* rights = CMSG_FIRSTHDR(&header_);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof descriptor);
      std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
    }
    return ::sendmsg(socket, &header_, MSG_NOSIGNAL) == 1;
  }

  // Returns the descriptor; -1 if the message carries none or does not arrive in time.
  int receive(int socket) {
    header_.msg_control = control_;
    header_.msg_controllen = sizeof control_;
    if (::recvmsg(socket, &header_, MSG_CMSG_CLOEXEC) != 1) return -1;
    int descriptor = -1;
    const cmsghdr* rights = CMSG_FIRSTHDR(&header_);
    if (rights && rights->cmsg_type == SCM_RIGHTS) std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    return descriptor;
  }

 private:
  char byte_ = '.';
  iovec part_{.iov_base = &byte_, .iov_len = 1};
  alignas(cmsghdr) char control_[CMSG_SPACE(sizeof(int))] = {};
  msghdr header_{};
};

// A connection to the keeper; -1 if no keeper runs on this host.
int connection_to_keeper() {
  const char* name = std::getenv(kKeeperVariable);
  const int socket = name ? ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
  if (socket < 0) return -1;
  const AbstractAddress address(name);
  limit_waits(socket);
  if (::connect(socket, address.get(), address.length) == 0 && is_own_user(socket)) return socket;
  ::close(socket);
  return -1;
}

}  // namespace

SocketKeeper::SocketKeeper() : unix_socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const std::string name = "shardline-" + random_digits();
  const AbstractAddress address(name);
  if (unix_socket_ < 0 || ::bind(unix_socket_, address.get(), address.length) != 0 ||
      ::listen(unix_socket_, SOMAXCONN) != 0) {
    const std::string reason = std::strerror(errno);
    if (unix_socket_ >= 0) ::close(unix_socket_);
    throw RunError("cannot create a socket for the process that serves: " + reason);
  }
  ::setenv(kKeeperVariable, name.c_str(), 1);
  thread_ = std::thread([this] { run(); });
}

SocketKeeper::~SocketKeeper() {
  ends_ = true;
  thread_.join();
  ::close(unix_socket_);
  ::unsetenv(kKeeperVariable);
}

std::optional<SocketKeeper::Clock::time_point> SocketKeeper::take_begin() {
  const std::lock_guard lock(mutex_);
  return std::exchange(begin_, std::nullopt);
}

void SocketKeeper::run() {
  while (!ends_) {
    pollfd readable{.fd = unix_socket_, .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, kKeeperPollMs) > 0) attend();
    if (stop_signal() != 0 && kept_) kept_->end();
  }
}

// Gives the socket to a process that asks for it, or takes one from it.
void SocketKeeper::attend() {
  const Descriptor asking{::accept4(unix_socket_, nullptr, nullptr, SOCK_CLOEXEC)};
  limit_waits(asking.fd);
  if (!is_own_user(asking.fd) || !DescriptorMessage().send(asking.fd, kept_ ? kept_->descriptor() : -1)) return;
  if (!kept_) {
    const int made = DescriptorMessage().receive(asking.fd);
    if (made < 0) return;
    kept_ = std::make_unique<ListeningSocket>(made);
  }
  const std::lock_guard lock(mutex_);
  begin_ = Clock::now();
}

bool has_socket_keeper() {
  return std::getenv(kKeeperVariable) != nullptr;
}

ListeningSocket kept_socket(const std::string& host, int port) {
  const Descriptor keeper{connection_to_keeper()};
  if (keeper.fd < 0) return {host, port};
  if (const int kept = DescriptorMessage().receive(keeper.fd); kept >= 0) return ListeningSocket(kept);
  ListeningSocket made(host, port);
  DescriptorMessage().send(keeper.fd, made.descriptor());
  return made;
}

}  // namespace shardline
