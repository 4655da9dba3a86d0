// A listening socket that outlives the processes that serve with it.
#include "engine/serve/http/socket_keeper.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

#include "core/error.h"
#include "core/files/descriptor.h"

#include "tests/catch.h"

namespace shardline::socket_keeper_test {
namespace {

using namespace std::chrono_literals;

int connected_to(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return client;
  ::close(client);
  return -1;
}

bool takes_time_to_begin(SocketKeeper& keeper) {
  for (int i = 0; i < 1000; ++i, std::this_thread::sleep_for(1ms))
    if (keeper.take_begin()) return true;
  return false;
}

}  // namespace

TEST_CASE("without a keeper, a socket is closed when its owner ends") {
  CHECK_FALSE(has_socket_keeper());
  int port = 0;
  {
    const ListeningSocket socket = kept_socket("127.0.0.1", 0);
    port = socket.port();
    const Descriptor client{connected_to(port)};
    CHECK(client.fd >= 0);
    CHECK_THROWS_AS(kept_socket("127.0.0.1", port), ConfigError);
  }
  CHECK(connected_to(port) == -1);
  CHECK_THROWS_AS(kept_socket("here", 0), ConfigError);
  CHECK(ListeningSocket("localhost", 0).port() > 0);
  CHECK_FALSE(ListeningSocket("0.0.0.0", 0).is_ipv6());
}

TEST_CASE("connections wait for the next serving process") {
  std::optional<SocketKeeper> keeper(std::in_place);
  CHECK(has_socket_keeper());
  CHECK_FALSE(keeper->take_begin());
  CHECK_THROWS_AS(kept_socket("here", 0), ConfigError);
  int port = 0;
  {
    const ListeningSocket first = kept_socket("127.0.0.1", 0);
    port = first.port();
    CHECK(takes_time_to_begin(*keeper));
    CHECK_FALSE(keeper->take_begin());
  }
  const Descriptor client{connected_to(port)};
  REQUIRE(client.fd >= 0);
  REQUIRE(::send(client.fd, "?", 1, MSG_NOSIGNAL) == 1);
  const ListeningSocket second = kept_socket("127.0.0.1", 0);
  CHECK(second.port() == port);
  CHECK(takes_time_to_begin(*keeper));
  const Descriptor served{::accept(second.descriptor(), nullptr, nullptr)};
  REQUIRE(served.fd >= 0);
  char received = 0;
  CHECK(::recv(served.fd, &received, 1, 0) == 1);
  CHECK(received == '?');

  second.end();
  CHECK(connected_to(port) == -1);
  keeper.reset();
  CHECK_FALSE(has_socket_keeper());
}

}  // namespace shardline::socket_keeper_test
