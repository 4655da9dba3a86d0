#include "engine/launch/lifelines.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "tests/catch.h"

namespace shardline::lifelines_test {

using namespace std::chrono_literals;
using Catch::Matchers::Contains;

namespace {

// The events that a rank has noticed. The threads that report them may outlive a test.
struct Rank {
  std::atomic<bool> lost{false}, unreachable{false};
};

std::shared_ptr<Rank> rank_at(const std::string& address) {
  auto rank = std::make_shared<Rank>();
  hold_lifeline(
      address, [rank] { rank->lost = true; }, [rank](const std::string&) { rank->unreachable = true; });
  return rank;
}

template <class Condition>
bool becomes_true(Lifelines& lifelines, const Condition& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) {
    lifelines.attend();
    std::this_thread::sleep_for(10ms);
  }
  return condition();
}

}  // namespace

TEST_CASE("Ranks notice that their launcher has released them", "[lifelines]") {
  Lifelines lifelines(30s);
  const auto one = rank_at(lifelines.address()), other = rank_at(lifelines.address());
  REQUIRE(becomes_true(lifelines, [&] { return lifelines.connected() == 2; }));
  CHECK_FALSE(one->lost);
  CHECK(lifelines.release(10s).empty());
  CHECK(becomes_true(lifelines, [&] { return one->lost && other->lost; }));
  CHECK(lifelines.silent_hosts().empty());
}

TEST_CASE("Ranks notice that their launcher has ended", "[lifelines]") {
  auto lifelines = std::make_unique<Lifelines>(30s);
  const auto rank = rank_at(lifelines->address());
  REQUIRE(becomes_true(*lifelines, [&] { return lifelines->connected() == 1; }));
  lifelines.reset();
  for (int i = 0; i < 1000 && !rank->lost; ++i) std::this_thread::sleep_for(10ms);
  CHECK(rank->lost);
}

TEST_CASE("A launcher answers only its own ranks", "[lifelines]") {
  Lifelines lifelines(30s);
  const std::string address = lifelines.address();
  const auto stranger = rank_at("0123" + address);
  CHECK(becomes_true(lifelines, [&] { return stranger->unreachable.load(); }));
  CHECK_FALSE(stranger->lost);
  CHECK(lifelines.connected() == 0);

  // A client that sends too much data.
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(std::atoi(address.substr(address.find(',') + 1).c_str()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  const std::string noise(10000, 'x');
  REQUIRE(::send(socket, noise.data(), noise.size(), MSG_NOSIGNAL) > 0);
  char c;
  CHECK(becomes_true(lifelines, [&] { return ::recv(socket, &c, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET; }));
  CHECK(lifelines.connected() == 0);
  CHECK(lifelines.silent_hosts().empty());
  ::close(socket);
}

}  // namespace shardline::lifelines_test
