#include "engine/serve/http/http_server.h"

#ifdef SHARDLINE_SERVE
#include <utility>
// Boost's coroutines need the header above.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#endif

#include <array>
#include <atomic>
#include <list>
#include <optional>
#include <thread>

namespace shardline {

#ifdef SHARDLINE_SERVE
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::beast::error_code;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kHeaderBytes = 16 << 10;
constexpr auto kDrain = std::chrono::seconds(2);

auto into(error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

// The answer to a client whose request could not be read; unset if the client has closed the connection or has timed
// out.
std::optional<HttpResponse> response_to(const error_code& error, const HttpLimits& limits) {
  if (error == http::error::body_limit || error == http::error::buffer_overflow)
    return error_response(413, cat("the body has more than ", limits.body_bytes,
                                   " bytes; send less at a time, or start the server with a larger --max-body"));
  if (error == http::error::header_limit)
    return error_response(431, cat("the header has more than ", kHeaderBytes, " bytes"));
  const bool is_of_http = error.category() == http::make_error_code(http::error::bad_method).category();
  if (!is_of_http || error == http::error::end_of_stream || error == http::error::partial_message) return {};
  return error_response(400, cat("the request is not HTTP: ", error.message()));
}

}  // namespace

struct HttpServer::Parts {
  // A connection; all of it belongs to the server's thread.
  struct Connection {
    explicit Connection(tcp::socket socket) : stream(std::move(socket)), answered(stream.get_executor()) {}
    boost::beast::tcp_stream stream;
    boost::beast::flat_buffer buffer{kHeaderBytes + (64 << 10)};
    asio::steady_timer answered;  // ends when `response` is there
    std::optional<HttpResponse> response;
    std::list<std::shared_ptr<Connection>>::iterator place;  // in `waiting` below, until its request has arrived
    bool is_waiting = false;
    bool has_header = false;  // whether the header of this request has arrived
    size_t held = 0;
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  Parts(const HttpLimits& with_limits, Handle with_handle, Refused with_refused)
      : limits(with_limits),
        handle(std::move(with_handle)),
        refused(std::move(with_refused)),
        acceptor(context),
        retry(context) {}

  void listen(ListeningSocket socket) {
    port = socket.port();
    acceptor.assign(socket.is_ipv6() ? tcp::v6() : tcp::v4(), socket.descriptor());
    socket.release();
  }

  void run() {
    asio::co_spawn(context, accept(), asio::detached);
    thread = std::thread([this] { context.run(); });
  }

  void stop() {
    guard.reset();
    context.stop();
    if (thread.joinable()) thread.join();
  }

  asio::awaitable<void> accept() {
    while (!stopping) {
      error_code error;
      tcp::socket socket = co_await acceptor.async_accept(into(error));
      if (stopping) break;
      if (error) {  // no file descriptors are left, or the launcher has ended listening before this process stops
        if (error != asio::error::invalid_argument) make_room();
        retry.expires_after(std::chrono::milliseconds(50));
        co_await retry.async_wait(into(error));
        continue;
      }
      if (connections >= limits.connections) make_room();
      socket.set_option(tcp::no_delay(true), error);
      socket.set_option(asio::socket_base::keep_alive(true), error);
      ++connections;
      asio::co_spawn(context, serve(std::make_shared<Connection>(std::move(socket))), asio::detached);
    }
  }

  void make_room() {
    if (waiting.empty()) return;
    const ConnectionPtr oldest = waiting.front();
    no_longer_waits(*oldest);
    error_code ignored;
    oldest->stream.socket().close(ignored);
  }

  void no_longer_waits(Connection& connection) {
    if (std::exchange(connection.is_waiting, false)) waiting.erase(connection.place);
  }

  void count_held(Connection& connection, size_t bytes) {
    held += bytes - connection.held;
    connection.held = bytes;
  }

  asio::awaitable<void> serve(ConnectionPtr connection) {
    try {
      while (co_await serve_one(connection)) {
      }
    } catch (const std::exception&) {  // no memory, for instance: this connection ends
    }
    no_longer_waits(*connection);
    count_held(*connection, 0);
    error_code ignored;
    connection->stream.socket().close(ignored);
    --connections;
  }

  // Whether another request may follow.
  asio::awaitable<bool> serve_one(ConnectionPtr connection) {
    auto& stream = connection->stream;
    auto& buffer = connection->buffer;
    http::request_parser<http::string_body> parser;
    parser.header_limit(kHeaderBytes);
    parser.body_limit(limits.body_bytes);
    connection->place = waiting.insert(waiting.end(), connection);
    connection->is_waiting = true;
    connection->has_header = false;
    stream.expires_after(limits.idle);
    error_code error;
    co_await http::async_read_header(stream, buffer, parser, into(error));
    connection->has_header = !error;
    stream.expires_after(limits.body);
    const bool may_proceed = parser.get().version() >= 11;  // older clients would take this for the answer
    if (!error && may_proceed && http::token_list(parser.get()[http::field::expect]).exists("100-continue")) {
      http::response<http::empty_body> proceed(http::status::continue_, parser.get().version());
      co_await http::async_write(stream, proceed, into(error));
    }
    while (!error && !parser.is_done()) {
      co_await http::async_read_some(stream, buffer, parser, into(error));
      count_held(*connection, parser.get().body().size());
      if (held > limits.held_bytes) {
        std::string().swap(parser.get().body());  // makes room for other bodies while the answer is on its way
        count_held(*connection, 0);
        co_await refuse(stream, error_response(503, "the server holds too many unanswered requests", 1));
        co_return false;
      }
    }
    no_longer_waits(*connection);
    if (error) {
      if (const auto answer = response_to(error, limits)) co_await refuse(stream, *answer);
      co_return false;
    }
    const bool keeps = parser.get().keep_alive();
    const unsigned version = parser.get().version();
    const bool is_head = parser.get().method() == http::verb::head;
    connection->response.reset();
    connection->answered.expires_at(Clock::time_point::max());
    handle(request_of(parser.release()), [this, connection](HttpResponse made) {
      asio::post(context, [connection, made = std::move(made)]() mutable {
        connection->response = std::move(made);
        connection->answered.cancel();
      });
    });
    stream.expires_never();
    while (!connection->response) co_await connection->answered.async_wait(into(error));
    count_held(*connection, 0);
    const bool goes_on = keeps && !stopping;
    co_await write(stream, std::move(*connection->response), version, goes_on, is_head, error);
    co_return goes_on && !error && !stopping;
  }

  static HttpRequest request_of(http::request<http::string_body>&& message) {
    const auto text = [](boost::beast::string_view view) { return std::string(view.data(), view.size()); };
    const auto list = [&](http::field name) {  // which may be given in several lines
      std::string all;
      const auto [begin, end] = message.equal_range(name);
      for (auto line = begin; line != end; ++line) all += (all.empty() ? "" : ",") + text(line->value());
      return all;
    };
    HttpRequest request{.method = text(message.method_string()),
                        .path = text(message.target()),
                        .content_type = media_type(text(message[http::field::content_type])),
                        .accept = list(http::field::accept),
                        .content_encoding = list(http::field::content_encoding)};
    if (request.path.starts_with("http://")) {  // the absolute form, which clients send to proxies
      const size_t path = request.path.find('/', std::string_view("http://").size());
      request.path = path == std::string::npos ? "/" : request.path.substr(path);
    }
    request.path.resize(std::min(request.path.find('?'), request.path.size()));
    request.body = std::move(message.body());
    return request;
  }

  asio::awaitable<void> write(boost::beast::tcp_stream& stream, HttpResponse made, unsigned version, bool keeps,
                              bool is_head, error_code& error) {
    http::response<http::string_body> message;
    message.version(version);
    const unsigned status = made.status;
    message.result(status);
    message.set(http::field::content_type, made.content_type);
    for (const auto& [name, value] : made.headers) message.set(name, value);
    message.keep_alive(keeps);
    message.body() = std::move(made.body);
    message.prepare_payload();
    if (is_head) message.body().clear();
    stream.expires_after(limits.write);
    co_await http::async_write(stream, message, into(error));
  }

  // Answers a request without reading it to its end. The client may still be sending, and would not see the answer if
  // the connection were reset at once.
  asio::awaitable<void> refuse(boost::beast::tcp_stream& stream, HttpResponse answer) {
    if (refused) refused(answer.status);
    error_code error;
    co_await write(stream, std::move(answer), 11, false, false, error);
    if (error) co_return;
    stream.socket().shutdown(tcp::socket::shutdown_send, error);
    std::array<char, 64 << 10> rest;
    stream.expires_after(kDrain);
    while (!error) co_await stream.async_read_some(asio::buffer(rest), into(error));
  }

  void begin_stop() {
    asio::post(context, [this] {
      if (stopping.exchange(true)) return;
      error_code ignored;
      acceptor.close(ignored);
      for (const ConnectionPtr& connection : waiting)
        if (!connection->has_header) connection->stream.socket().close(ignored);
    });
  }

  HttpLimits limits;
  Handle handle;
  Refused refused;
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard = asio::make_work_guard(context);
  tcp::acceptor acceptor;
  asio::steady_timer retry;
  int port = 0;
  // Only the server's thread writes these; other threads read the atomic ones.
  std::atomic<bool> stopping = false;
  std::atomic<int> connections = 0;
  size_t held = 0;
  std::list<ConnectionPtr> waiting;  // for a request; the one that has waited longest is first
  std::thread thread;
};

HttpServer::HttpServer(ListeningSocket socket, const HttpLimits& limits, Handle handle, Refused refused)
    : parts_(std::make_unique<Parts>(limits, std::move(handle), std::move(refused))) {
  parts_->listen(std::move(socket));
  parts_->run();
}

HttpServer::~HttpServer() {
  parts_->stop();
}

int HttpServer::port() const {
  return parts_->port;
}

int HttpServer::connections() const {
  return parts_->connections;
}

void HttpServer::begin_stop() {
  parts_->begin_stop();
}

bool HttpServer::has_stopped() const {
  return parts_->stopping && parts_->connections == 0;
}

bool has_http_server() {
  return true;
}

#else

struct HttpServer::Parts {};

HttpServer::HttpServer(ListeningSocket, const HttpLimits&, Handle, Refused) {
  throw ConfigError(
      "this build of shardline has no server; install libboost-dev and libarchive-dev, and rebuild shardline");
}
HttpServer::~HttpServer() = default;
int HttpServer::port() const {
  return 0;
}
int HttpServer::connections() const {
  return 0;
}
void HttpServer::begin_stop() {}
bool HttpServer::has_stopped() const {
  return true;
}

bool has_http_server() {
  return false;
}

#endif

}  // namespace shardline
