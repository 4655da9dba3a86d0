// The queue between requests and the model, the limits of a service, archives, and the environment.
#include "engine/serve/service.h"

#include <unistd.h>

#include <future>
#include <nlohmann/json.hpp>

#include "engine/serve/model_archive.h"
#include "tests/engine/tiny_run.h"

#include "tests/catch.h"

namespace shardline::service_test {
namespace {

using namespace std::chrono_literals;
using Clock = ModelQueue::Clock;

Example example_of(int32_t tokens) {
  return {.ids = std::vector<int32_t>(tokens, 1), .types = std::vector<uint8_t>(tokens)};
}

HttpRequest invocation(const std::string& text) {
  return {.method = "POST", .path = "/invocations", .content_type = "text/plain", .body = text};
}

}  // namespace

TEST_CASE("a queue passes results to the requests that wait for them") {
  ModelQueue queue;
  auto first = std::async(std::launch::async, [&] {
    return queue.run({example_of(3), example_of(4)}, Clock::now() + 60s);
  });
  while (queue.waiting() < 2) std::this_thread::sleep_for(1ms);
  const auto items = queue.take({.most = 32, .most_tokens = 6}, 0ms);
  REQUIRE(items.size() == 1);  // both would have 7 tokens
  queue.finish(items[0], Logits{.width = 1, .values = {1}});
  const auto rest = queue.take({.most = 32, .most_tokens = 6}, 0ms);
  REQUIRE(rest.size() == 1);
  queue.finish(rest[0], Logits{.width = 1, .values = {2}});
  const auto results = first.get();
  CHECK(std::get<Logits>(results[0]).values[0] == 1);
  CHECK(std::get<Logits>(results[1]).values[0] == 2);
  CHECK(queue.take({}, 1ms).empty());

  SECTION("in turns") {
    auto large = std::async(std::launch::async, [&] {
      return queue.run({example_of(1), example_of(1), example_of(1)}, Clock::now() + 60s);
    });
    while (queue.waiting() < 3) std::this_thread::sleep_for(1ms);
    auto small = std::async(std::launch::async, [&] { return queue.run({example_of(2)}, Clock::now() + 60s); });
    while (queue.waiting() < 4) std::this_thread::sleep_for(1ms);
    const auto two = queue.take({.most = 2}, 0ms);
    REQUIRE(two.size() == 2);
    CHECK(ModelQueue::tokens_of(two[1].work) == 2);
    queue.finish(two[1], Logits());
    small.get();
    queue.close("the server is stopping");
    CHECK_THROWS_AS(large.get(), HttpError);
  }
  SECTION("of which some are too late") {
    CHECK_THROWS_AS(queue.run({example_of(1)}, Clock::now() + 1ms), HttpError);
    CHECK(queue.take({}, 0ms).empty());
  }
  SECTION("unless the model fails") {
    auto failing = std::async(std::launch::async, [&] { return queue.run({example_of(1)}, Clock::now() + 60s); });
    while (queue.waiting() == 0) std::this_thread::sleep_for(1ms);
    queue.fail(queue.take({}, 0ms)[0], "no memory");
    CHECK_THROWS_WITH(failing.get(), "no memory");
  }
  SECTION("or is gone") {
    queue.close("the server is stopping");
    CHECK_THROWS_WITH(queue.run({example_of(1)}, Clock::now() + 60s), "the server is stopping");
  }
}

TEST_CASE("a service refuses more requests than it has room for") {
  ModelQueue queue;
  ServeOptions options;
  options.workers = 1;
  options.queue_length = 1;
  const ModelFacts facts;
  ServeHandlers handlers = default_handlers();
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  handlers.transform_fn = [&](const ServedModel&, const std::string& body, const std::string&, const std::string&) {
    if (body == "bad") throw DataError("the request: is bad");
    if (body == "broken") throw std::runtime_error("no disk");
    if (body == "odd") throw 7;
    open.wait();
    return AnswerBody{"text/plain", body};
  };
  Service service(options, facts, handlers, queue);
  std::mutex mutex;
  std::map<std::string, int> statuses;
  const auto ask = [&](const std::string& text) {
    service.handle(invocation(text), [&, text](const HttpResponse& response) {
      const std::lock_guard lock(mutex);
      statuses[text] = response.status;
    });
  };
  const auto status_of = [&](const std::string& text) {
    for (int i = 0; i < 10000; ++i) {
      {
        const std::lock_guard lock(mutex);
        if (statuses.contains(text)) return statuses[text];
      }
      std::this_thread::sleep_for(1ms);
    }
    return 0;
  };
  ask("one");
  ask("two");
  ask("three");
  CHECK(status_of("three") == 429);
  gate.set_value();
  CHECK(status_of("one") == 200);
  CHECK(status_of("two") == 200);
  ask("bad");
  CHECK(status_of("bad") == 400);
  ask("broken");
  CHECK(status_of("broken") == 500);
  ask("odd");
  CHECK(status_of("odd") == 500);
  HttpRequest packed = invocation("packed");
  packed.content_encoding = "gzip";
  int status = 0;
  service.handle(packed, [&](const HttpResponse& response) { status = response.status; });
  CHECK(status == 415);
  service.finish();
  ask("late");
  CHECK(status_of("late") == 503);
  CHECK(service.counts().text({}).find("shardline_requests_total{status=\"429\"} 1\n") != std::string::npos);

  const std::string before = service.counts().text({});
  service.counts().refused(413);
  std::string after = service.counts().text({});
  const std::string counted = "shardline_requests_total{status=\"413\"} 1\n";
  REQUIRE(after.find(counted) != std::string::npos);
  after.erase(after.find(counted), counted.size());
  CHECK(after == before);  // no time was recorded
}

TEST_CASE("the environment variables of a platform set options") {
  std::map<std::string, const char*> variables = {{"SAGEMAKER_BIND_TO_PORT", "9000"},
                                                  {"SAGEMAKER_MODEL_SERVER_WORKERS", "4"},
                                                  {"SAGEMAKER_MODEL_SERVER_TIMEOUT", "17"},
                                                  {"HF_TASK", "ner"}};
  const Environment environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second;
  };
  const ServeOptions options = options_of_environment(environment);
  CHECK(options.port == 9000);
  CHECK(options.workers == 4);
  CHECK(options.timeout == 17);
  CHECK(task_of_environment(environment) == kTokenClassification);
  CHECK(served_task("fill-mask", "--task") == kMaskedLm);
  CHECK(served_task(kCausalLm, "--task") == kCausalLm);
  CHECK_THROWS_WITH(served_task("summarization", "--task"),
                    Catch::Contains("--task: the task \"summarization\" is not served"));
  variables["SAGEMAKER_BIND_TO_PORT"] = "70000";
  CHECK_THROWS_WITH(options_of_environment(environment),
                    "SAGEMAKER_BIND_TO_PORT: must be an integer from 1 to 65535; got \"70000\"");
}

#ifndef SHARDLINE_NO_SERVER
TEST_CASE("a model is packed and unpacked") {
  const RunFolder folder("archive");
  std::filesystem::create_directories(folder / "model/checkpoint-1");
  folder.write("model/config.json", "{}");
  folder.write("model/model.safetensors", std::string(3 << 20, 'x'));
  const std::vector<const char*> left_out = {"checkpoint-1/big", ".env",   "previous-model/model.safetensors",
                                             "metrics.jsonl",    "newest", "flight/rank-0"};
  for (const char* name : left_out) {
    const std::string place = std::string("model/") + name;
    std::filesystem::create_directories(std::filesystem::path(folder / place).parent_path());
    folder.write(place, "left out");
  }
  std::filesystem::create_directories(folder / "model/code");
  folder.write("model/code/metrics.jsonl", "of the model's own");
  folder.write("model/w\xc3\xb6rter.txt", "a name with letters beyond ASCII");
  for (int i = 0; i < 2; ++i) pack_model(folder / "model", folder / "model/model.tar.gz");
  std::filesystem::rename(folder / "model/model.tar.gz", folder / "model.tar.gz");
  std::filesystem::path unpacked;
  {
    const UnpackedModel model(folder / "model.tar.gz");
    unpacked = model.path();
    CHECK(std::filesystem::file_size(unpacked / "model.safetensors") == 3 << 20);
    CHECK(std::filesystem::exists(unpacked / "config.json"));
    CHECK(std::filesystem::exists(unpacked / "code/metrics.jsonl"));
    CHECK(std::filesystem::exists(unpacked / "w\xc3\xb6rter.txt"));
    CHECK_FALSE(std::filesystem::exists(unpacked / "model.tar.gz"));
    for (const char* name : left_out) CHECK_FALSE(std::filesystem::exists(unpacked / name));
  }
  CHECK_FALSE(std::filesystem::exists(unpacked));
  std::filesystem::create_directories(folder / "into");
  CHECK_THROWS_AS(unpack_model(folder / "model.tar.gz", folder / "into", 1000), DataError);
  folder.write("damaged.tar.gz", "no archive");
  CHECK_THROWS_AS(unpack_model(folder / "damaged.tar.gz", folder / "into", 1000), DataError);
  CHECK_THROWS_AS(pack_model(folder / "model/checkpoint-1", folder / "x.tar.gz"), ConfigError);
  std::filesystem::create_directories(folder / "other/model");
  folder.write("other/model/config.json", "{}");
  REQUIRE(std::system(cat("tar -C '", std::string(folder / "other"), "' -czf '", std::string(folder / "nested.tar.gz"),
                          "' model")
                          .c_str()) == 0);
  CHECK_THROWS_WITH(UnpackedModel(folder / "nested.tar.gz"),
                    Catch::Matchers::Contains("nested.tar.gz: has config.json in the folder model"));
}
#endif

}  // namespace shardline::service_test
