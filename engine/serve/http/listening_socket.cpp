#include "engine/serve/http/listening_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "core/error.h"

namespace shardline {
namespace {

// The local address of a bound socket, IPv4 or IPv6.
sockaddr_in6 address_of(int descriptor) {
  sockaddr_in6 address{};
  socklen_t length = sizeof address;
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length);
  return address;
}

}  // namespace

ListeningSocket::ListeningSocket(const std::string& host, int port) : descriptor_(-1) {
  const addrinfo wanted{.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const std::string numbers = host == "localhost" ? "127.0.0.1" : host;
  if (::getaddrinfo(numbers.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0)
    throw ConfigError(cat("--host: \"", host, "\" is not an IP address; use 127.0.0.1, or 0.0.0.0 for all"));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> address(found, ::freeaddrinfo);
  descriptor_ = ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  if (descriptor_ < 0 || ::setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(descriptor_, address->ai_addr, address->ai_addrlen) != 0 || ::listen(descriptor_, SOMAXCONN) != 0) {
    const std::string reason = std::strerror(errno);
    if (descriptor_ >= 0) ::close(descriptor_);
    throw ConfigError(
        cat("--port: the server cannot listen on ", host, ":", port, ": ", reason, "; choose another port or address"));
  }
}

ListeningSocket::~ListeningSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int ListeningSocket::port() const {
  return ntohs(address_of(descriptor_).sin6_port);  // at the same place as in sockaddr_in
}

bool ListeningSocket::is_ipv6() const {
  return address_of(descriptor_).sin6_family == AF_INET6;
}

void ListeningSocket::end() const {
  ::shutdown(descriptor_, SHUT_RDWR);
}

}  // namespace shardline
