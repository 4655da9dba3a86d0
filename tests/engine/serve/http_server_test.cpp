// What clients may send, and what the server keeps of it.
#include "engine/serve/http/http_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "tests/catch.h"

#ifndef SHARDLINE_NO_SERVER
namespace shardline::http_server_test {
namespace {

using namespace std::chrono_literals;

// Answers with the length of the body.
class Echo {
 public:
  explicit Echo(const HttpLimits& limits = {})
      : server_(
            {"127.0.0.1", 0}, limits,
            [](const HttpRequest& request, const HttpServer::Respond& respond) {
              respond({.content_type = "text/plain",
                       .body = cat(request.accept, request.method, ' ', request.path, ' ', request.body.size())});
            },
            [this](int status) {
              const std::lock_guard lock(mutex_);
              refused_.push_back(status);
            }) {}
  HttpServer& server() { return server_; }
  std::vector<int> refused() {
    const std::lock_guard lock(mutex_);
    return refused_;
  }

 private:
  std::mutex mutex_;  // guards the next one
  std::vector<int> refused_;
  HttpServer server_;
};

class Client {
 public:
  explicit Client(const HttpServer& server) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(server.port())};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit = {.tv_sec = 30};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    is_connected = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool send(std::string_view bytes) const { return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0; }
  void end() const { ::shutdown(socket_, SHUT_WR); }
  // What arrives before the connection ends or `until` has arrived.
  std::string receive(const std::string& until = "") const {
    std::string all;
    char piece[4096];
    while (until.empty() || all.find(until) == std::string::npos) {
      const auto count = ::recv(socket_, piece, sizeof piece, 0);
      if (count <= 0) break;
      all.append(piece, count);
    }
    return all;
  }

  bool is_connected = false;

 private:
  int socket_;
};

std::string get(const HttpServer& server) {
  const Client client(server);
  client.send("GET /ping?x=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  return client.receive();
}

}  // namespace

TEST_CASE("a connection carries several requests") {
  Echo echo;
  const Client client(echo.server());
  client.send("POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n\r\n");
  const std::string both = client.receive("GET /b 0");
  CHECK(both.find("POST /a 3") < both.find("GET /b 0"));
  client.send("POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n2\r\nef\r\n0\r\n\r\n");
  CHECK(client.receive("POST /c 6").ends_with("POST /c 6"));
  client.send("POST /d HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  CHECK(client.receive("100 Continue").find("100 Continue") != std::string::npos);
  client.send("ab");
  CHECK(client.receive("POST /d 2").ends_with("POST /d 2"));
  const Client old(echo.server());
  old.send("POST /o HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab");
  CHECK(old.receive().starts_with("HTTP/1.0 200"));
  CHECK(get(echo.server()).ends_with("GET /ping 0"));
  client.send("GET http://host:80/e?x=1 HTTP/1.1\r\nHost: host\r\n\r\nGET http://host HTTP/1.1\r\nHost: host\r\n\r\n");
  const std::string absolute = client.receive("GET / 0");
  CHECK(absolute.find("GET /e 0") < absolute.find("GET / 0"));
}

TEST_CASE("a header in several lines is one list") {
  Echo echo;
  const Client client(echo.server());
  client.send("GET / HTTP/1.1\r\nAccept: text/html\r\nAccept: text/csv\r\nConnection: close\r\n\r\n");
  CHECK(client.receive().ends_with("text/html,text/csvGET / 0"));
}

TEST_CASE("bodies beyond the limit are refused with and without a length") {
  Echo echo({.body_bytes = 1000});
  const std::string chunk = "100\r\n" + std::string(256, 'x') + "\r\n";
  const Client stated(echo.server()), chunked(echo.server()), exact(echo.server());
  stated.send("POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n");
  CHECK(stated.receive().find("413") != std::string::npos);
  chunked.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 8; ++i) chunked.send(chunk);
  CHECK(chunked.receive().find("413") != std::string::npos);
  exact.send("POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x'));
  CHECK(exact.receive("POST / 1000").ends_with("POST / 1000"));
  const Client header(echo.server());
  header.send("GET / HTTP/1.1\r\nA: " + std::string(40000, 'x'));
  CHECK(header.receive().find("431") != std::string::npos);
  CHECK(echo.refused() == std::vector{413, 413, 431});
  CHECK(get(echo.server()).ends_with("GET /ping 0"));
  CHECK(echo.refused().size() == 3);
}

TEST_CASE("connections that do not send their request are closed to make room for others") {
  Echo echo({.idle = 60s, .connections = 4});
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 12; ++i) {
    slow.push_back(std::make_unique<Client>(echo.server()));
    slow.back()->send(i % 2 == 0 ? "GET /" : "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\na");
    CHECK(get(echo.server()).ends_with("GET /ping 0"));
  }
  CHECK(echo.server().connections() <= 6);
}

TEST_CASE("connections end when their time is over") {
  Echo echo({.idle = 100ms, .body = 100ms});
  const Client idle(echo.server()), slow(echo.server());
  slow.send("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\na");
  CHECK(idle.receive().empty());
  CHECK(slow.receive().empty());
}

TEST_CASE("the connection of a client that does not read its answer is closed") {
  const std::string large(size_t{32} << 20, 'x');
  const HttpServer server({"127.0.0.1", 0}, {.write = 200ms},
                          [&](const HttpRequest& request, const HttpServer::Respond& respond) {
                            respond({.content_type = "text/plain", .body = request.path == "/large" ? large : "small"});
                          });
  const Client slow(server);
  slow.send("GET /large HTTP/1.1\r\n\r\n");
  CHECK(get(server).ends_with("small"));
  while (server.connections() > 0) std::this_thread::sleep_for(1ms);
  const std::string begin = slow.receive();
  CHECK(begin.starts_with("HTTP/1.1 200 OK"));
  CHECK(begin.size() < large.size());
}

TEST_CASE("bodies are refused if all bodies together exceed a limit") {
  std::vector<HttpServer::Respond> unanswered;
  std::mutex mutex;
  const HttpServer server({"127.0.0.1", 0}, {.body_bytes = 1000, .held_bytes = 1500},
                          [&](const HttpRequest& request, const HttpServer::Respond& respond) {
                            const std::lock_guard lock(mutex);
                            if (request.path == "/wait") return unanswered.push_back(respond);
                            respond({.body = cat(request.body.size())});
                          });
  const std::string body(1000, 'x'), head = " HTTP/1.1\r\nContent-Length: 1000\r\n\r\n";
  const Client waiting(server), refused(server), later(server);
  waiting.send("POST /wait" + head + body);
  const auto waits = [&] {
    const std::lock_guard lock(mutex);
    return !unanswered.empty();
  };
  while (!waits()) std::this_thread::sleep_for(1ms);
  refused.send("POST /" + head + body);
  const std::string answer = refused.receive();
  CHECK(answer.starts_with("HTTP/1.1 503"));
  CHECK(answer.find("Retry-After: 1") != std::string::npos);
  const Client small(server);
  small.send("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
  CHECK(small.receive("\r\n\r\n3").ends_with("\r\n\r\n3"));
  {
    const std::lock_guard lock(mutex);
    unanswered.front()({.body = "at last"});
    unanswered.clear();  // which must not outlive the server
  }
  CHECK(waiting.receive("at last").ends_with("at last"));
  later.send("POST /" + head + body);
  CHECK(later.receive("\r\n\r\n1000").ends_with("\r\n\r\n1000"));
}

TEST_CASE("a server that is stopping answers the requests that it has accepted") {
  Echo echo;
  const Client idle(echo.server()), half(echo.server());
  half.send("POST /half HTTP/1.1\r\nContent-Length: 2\r\n\r\na");
  while (echo.server().connections() < 2) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);  // the header is read
  echo.server().begin_stop();
  CHECK(idle.receive().empty());
  half.send("b");
  CHECK(half.receive().ends_with("POST /half 2"));
  while (!echo.server().has_stopped()) std::this_thread::sleep_for(1ms);
  CHECK_FALSE(Client(echo.server()).is_connected);
}

TEST_CASE("no input can end the server") {
  Echo echo({.body_bytes = 5000, .idle = 2s, .body = 2s});
  std::mt19937 draw(3);
  const std::vector<std::string> parts = {"GET ",
                                          "POST ",
                                          "/ping",
                                          " HTTP/1.1\r\n",
                                          "\r\n",
                                          "Content-Length: ",
                                          "7",
                                          "99999999999999999999",
                                          "Transfer-Encoding: chunked\r\n",
                                          "5\r\nabcde\r\n",
                                          "0\r\n\r\n",
                                          "ffffffffffffffffff\r\n",
                                          "Expect: 100-continue\r\n",
                                          ": x\r\n",
                                          "Connection: close\r\n",
                                          std::string(1, '\0'),
                                          "\xff\xfe",
                                          "abcdefg"};
  const int inputs = std::getenv("SHARDLINE_ALL_CASES") ? 100000 : 1500;
  for (int i = 0; i < inputs; ++i) {
    const Client client(echo.server());
    std::string bytes = draw() % 3 == 0 ? "" : "POST / HTTP/1.1\r\n";
    for (int count = draw() % 9; count >= 0; --count) bytes += parts[draw() % parts.size()];
    client.send(bytes);
    if (draw() % 4 == 0) continue;  // lost
    client.end();
    client.receive();
  }
  CHECK(get(echo.server()).ends_with("GET /ping 0"));
}

}  // namespace shardline::http_server_test
#endif
