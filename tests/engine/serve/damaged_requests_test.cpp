// Damaged requests of several clients at a time, sent through the server to the service of each task. The model
// predicts the same for every input.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <vector>

#include "core/model/microbatch.h"
#include "engine/serve/http/http_server.h"
#include "engine/serve/rank_model.h"
#include "engine/serve/service.h"
#include "tensor_parallel/ops/cross_entropy.h"
#include "tests/engine/tiny_run.h"

#include "tests/catch.h"

#ifndef SHARDLINE_NO_SERVER
namespace shardline::damaged_requests_test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using Kind = HeadChoice::Kind;

constexpr std::array kKinds = {Kind::causal_lm, Kind::masked_lm, Kind::sequence_classification,
                               Kind::token_classification, Kind::question_answering};

ModelFacts facts_of(Kind kind) {
  const RunFolder folder("damaged-requests");
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfilm\ngood\n##ing\na\n.\n");
  const TokenizerPtr tokenizer = load_tokenizer(kind == Kind::causal_lm ? "bytes" : folder / "");
  ModelFacts facts{.head = {.kind = kind, .labels = 3, .names = {"O", "B-X", "I-X"}},
                   .tokenizer = tokenizer,
                   .vocab_size = tokenizer->vocab_size(),
                   .most_tokens = 40,
                   .ends = {0}};
  if (kind == Kind::sequence_classification) facts.head.problem = HeadChoice::Problem::single_label;
  return facts;
}

// A server for one task, with a thread in place of the model.
class Server {
 public:
  explicit Server(Kind kind)
      : facts_(facts_of(kind)),
        service_(options_, facts_, handlers_, queue_),
        server_(std::make_unique<HttpServer>(ListeningSocket("127.0.0.1", 0), options_.http,
                                             [this](HttpRequest request, HttpServer::Respond respond) {
                                               service_.handle(std::move(request), std::move(respond));
                                             })),
        model_([this] {
          while (!ends_)
            for (const auto& item : queue_.take({}, 20ms)) queue_.finish(item, result_of(item.work));
        }) {}
  ~Server() {
    ends_ = true;
    model_.join();
    queue_.close("the server is stopping");
    service_.finish();
    server_.reset();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return server_->port(); }

 private:
  ModelQueue::Result result_of(const ModelQueue::Work& work) const {
    if (const auto* prompt = std::get_if<Continuation>(&work)) return std::vector<int32_t>(prompt->most_new, 'x');
    const Kind kind = facts_.head.kind;
    const int64_t rows = logits_rows(std::get<Example>(work), kind);
    Logits made{.width = kind == Kind::masked_lm ? 2 * kBestWords : kind == Kind::question_answering ? 2 : 3};
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < made.width; ++j)
        made.values.push_back(kind == Kind::masked_lm ? (j < kBestWords ? 5 + j : -j) : (i + 2 * j) % 5);
    return made;
  }

  ServeOptions options_{.workers = 4};
  ModelFacts facts_;
  ServeHandlers handlers_ = default_handlers();
  ModelQueue queue_;
  Service service_;
  std::unique_ptr<HttpServer> server_;
  std::atomic<bool> ends_ = false;
  std::thread model_;
};

struct Answer {
  int status = 0;  // 0: none came
  std::string type, body;
};

class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit = {.tv_sec = 60};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& bytes) const { ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void end() const { ::shutdown(socket_, SHUT_WR); }

  Answer answer() {
    size_t head = 0;
    while ((head = received_.find("\r\n\r\n")) == std::string::npos)
      if (!receive()) return {};
    const std::string lines = received_.substr(0, head + 2);
    const auto value = [&](const std::string& name) {
      const size_t at = lines.find("\r\n" + name + ": ");
      if (at == std::string::npos) return std::string();
      const size_t begin = at + 2 + name.size() + 2;
      return lines.substr(begin, lines.find("\r\n", begin) - begin);
    };
    const size_t length = std::strtoul(value("Content-Length").c_str(), nullptr, 10);
    received_.erase(0, head + 4);
    while (received_.size() < length)
      if (!receive()) return {};
    const Answer made{.status = std::atoi(lines.substr(lines.find(' ') + 1).c_str()),
                      .type = value("Content-Type"),
                      .body = received_.substr(0, length)};
    received_.erase(0, length);
    return made;
  }
  std::string rest() {
    while (receive()) {
    }
    return std::move(received_);
  }

 private:
  bool receive() {
    char piece[4096];
    const auto count = ::recv(socket_, piece, sizeof piece, 0);
    if (count > 0) received_.append(piece, count);
    return count > 0;
  }

  int socket_;
  std::string received_;
};

struct Body {
  std::string type, text;
};

const std::vector<Body>& bodies() {
  static const std::vector<Body> all = {
      {"application/json", R"({"inputs": "a good film"})"},
      {"application/json", R"({"inputs": ["good", "filming ."], "parameters": {"top_k": 2, "truncation": true}})"},
      {"application/json", R"({"inputs": {"text": "good", "text_pair": "film"}, "parameters": {"top_k": null}})"},
      {"application/json", R"({"question": "good", "context": "a good film . a film"})"},
      {"application/json", R"({"inputs": [{"question": "a", "context": "film . good good film a a"}], )"
                           R"("parameters": {"top_k": 3, "doc_stride": 2, "max_seq_len": 12, "max_answer_len": 4}})"},
      {"application/json", R"({"inputs": "a [MASK] film [MASK]", "parameters": {"top_k": 3}})"},
      {"application/json", R"({"inputs": "good", "parameters": {"max_new_tokens": 5, "do_sample": true, )"
                           R"("temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 1, "num_return_sequences": 2}})"},
      {"application/json", R"({"inputs": "a film . good", "parameters": {"aggregation_strategy": "simple", )"
                           R"("ignore_labels": ["O"]}})"},
      {"application/jsonlines", "{\"inputs\": \"good\"}\n\"a film\"\n{\"inputs\": \"a [MASK]\"}\n"},
      {"text/csv", "inputs\ngood\n\"a film, \"\"good\"\"\"\na [MASK]\n"},
      {"text/csv", "question,context\ngood,a good film\nfilm,\"good\nfilm\"\n"},
      {"text/plain", "a good film \xc3\xa4 [MASK]"}};
  return all;
}

class Damage {
 public:
  explicit Damage(unsigned seed) : draw_(seed) {}

  size_t up_to(size_t most) { return draw_() % (most + 1); }
  bool one_in(size_t count) { return draw_() % count == 0; }
  template <class List>
  const auto& one_of(const List& list) {
    return list[draw_() % list.size()];
  }

  std::string of(std::string text) {
    static const std::vector<std::string> words = {"{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   "\"",
                                                   ":",
                                                   ",",
                                                   "null",
                                                   "true",
                                                   "-1",
                                                   "1e99",
                                                   "0.5",
                                                   "4294967296",
                                                   "[MASK]",
                                                   "inputs",
                                                   "top_k",
                                                   "\"parameters\"",
                                                   "\\u0000",
                                                   "\\",
                                                   "\n",
                                                   "\r\n",
                                                   "\xff",
                                                   "\xf0\x9f",
                                                   "\xc3\xa4",
                                                   "question",
                                                   "context",
                                                   "[[[[[[[[",
                                                   "999",
                                                   "good",
                                                   "##ing",
                                                   "max_length",
                                                   "truncation",
                                                   "simple",
                                                   "\"\"",
                                                   "text_pair",
                                                   "do_sample",
                                                   "max",
                                                   "none",
                                                   "max_new_tokens",
                                                   "doc_stride"};
    for (size_t left = up_to(3) + 1; left > 0; --left) {
      const size_t at = up_to(text.size());
      switch (up_to(4)) {
        case 0:
          text.insert(at, one_of(words));
          break;
        case 1:
          text.erase(at, up_to(8));
          break;
        case 2:
          if (at < text.size()) text[at] = up_to(255);
          break;
        case 3: {
          const std::string piece = text.substr(at, up_to(24));
          for (size_t times = one_in(8) ? up_to(200) : up_to(3); times > 0; --times) text.insert(at, piece);
          break;
        }
        default:
          if (one_in(4)) text.resize(at);
      }
    }
    return text;
  }

 private:
  std::mt19937 draw_;
};

std::string framed(const std::string& head, const std::string& body) {
  return cat("POST /invocations HTTP/1.1\r\nHost: x\r\n", head, "Content-Length: ", body.size(), "\r\n\r\n", body);
}

// What is wrong with the answer to a valid HTTP request; empty: nothing.
std::string flaw_of(const Answer& answer) {
  const json told = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (answer.status == 200)
    return answer.type == "application/json" && told.is_discarded() ? "an answer that is not JSON" : "";
  for (const int status : {400, 406, 413, 415})
    if (answer.status == status)
      return told.is_object() && told["code"] == status ? "" : "an error that does not state its status";
  return cat("status ", answer.status);
}

class Findings {
 public:
  void add(const std::string& flaw, const std::string& sent, const Answer& answer) {
    const std::lock_guard lock(mutex_);
    if (list_.size() < 5) list_.push_back(cat(flaw, "\n--- answer\n", answer.body, "\n--- request\n", sent));
  }
  void count(int status) {
    const std::lock_guard lock(mutex_);
    ++statuses_[status];
  }
  const std::vector<std::string>& list() const { return list_; }
  const std::map<int, int>& statuses() const { return statuses_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> list_;
  std::map<int, int> statuses_;  // 0: responses that are not HTTP
};

// One client's damaged requests, among which intact ones have the same answer every time.
void attack(const std::vector<std::unique_ptr<Server>>& servers, int requests, unsigned seed, Findings& findings) {
  static const std::vector<std::string> accepted = {
      "", "", "Accept: */*\r\n", "Accept: text/csv\r\n", "Accept: application/jsonlines\r\n", "Accept: image/png\r\n"};
  const std::string intact = framed("Content-Type: text/plain\r\n", "a [MASK]");
  Damage damage(seed);
  std::vector<std::unique_ptr<Client>> clients(servers.size());
  std::vector<Answer> before(servers.size());
  for (int i = 0; i < requests; ++i) {
    const size_t at = damage.up_to(servers.size() - 1);
    const Body& body = damage.one_of(bodies());
    const std::string& type = damage.one_in(8) ? damage.one_of(bodies()).type : body.type;
    const std::string head = cat("Content-Type: ", type, "\r\n", damage.one_of(accepted));
    if (damage.one_in(5)) {
      const std::string sent = damage.of(framed(head, body.text));  // which need not be HTTP
      Client client(servers[at]->port());
      client.send(sent);
      client.end();
      const std::string received = client.rest();
      findings.count(0);
      if (!received.empty() && !received.starts_with("HTTP/1.")) findings.add("no HTTP", sent, {.body = received});
      if (received.starts_with("HTTP/1.1 5")) findings.add("an error of the server", sent, {.body = received});
      continue;
    }
    if (!clients[at] || damage.one_in(20)) clients[at] = std::make_unique<Client>(servers[at]->port());
    const bool is_intact = damage.one_in(50);
    const std::string sent = is_intact ? intact : framed(head, damage.of(body.text));
    clients[at]->send(sent);
    const Answer answer = clients[at]->answer();
    findings.count(answer.status);
    if (const std::string flaw = flaw_of(answer); !flaw.empty()) findings.add(flaw, sent, answer);
    if (answer.status == 0) clients[at].reset();
    if (!is_intact) continue;
    if (before[at].status == 0) before[at] = answer;
    if (answer.status != before[at].status || answer.body != before[at].body)
      findings.add("not the answer as before", sent, answer);
  }
}

}  // namespace

TEST_CASE("damaged requests are answered or refused, and affect no others") {
  const int requests = std::getenv("SHARDLINE_ALL_CASES") ? 100000 : 2000;
  constexpr int kClients = 4;
  std::vector<std::unique_ptr<Server>> servers;
  for (const Kind kind : kKinds) servers.push_back(std::make_unique<Server>(kind));
  Findings findings;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i)
    clients.emplace_back([&, i] { attack(servers, requests / kClients, i + 1, findings); });
  for (std::thread& client : clients) client.join();
  for (const std::string& finding : findings.list()) UNSCOPED_INFO(finding);
  CHECK(findings.list().empty());
  CHECK(findings.statuses().at(200) > requests / 20);
  CHECK(findings.statuses().at(400) > requests / 20);
  for (const auto& [status, count] : findings.statuses())
    std::cout << count << (status == 0 ? std::string(" that need not be HTTP") : cat(" with status ", status)) << '\n';
}

}  // namespace shardline::damaged_requests_test
#endif
