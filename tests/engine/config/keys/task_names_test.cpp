#include "engine/config/keys/task_names.h"

#include "core/error.h"
#include "engine/config/config.h"

#include "tests/catch.h"

namespace shardline::task_names_test {

using Catch::Contains;

TEST_CASE("a task with the hub's name is refused, and the error suggests shardline's name", "[config]") {
  for (const auto& [hub, task] : tasks_by_hub_name()) {
    CAPTURE(hub);
    CHECK(task_traits().contains(task));
    CHECK_FALSE(task_traits().contains(hub));
    CHECK_THROWS_WITH(parse_config(R"({"task": ")" + hub + R"("})", "c.json"),
                      Contains("got \"" + hub + "\"; did you mean \"" + task + "\"?"));
  }
  CHECK(tasks_by_hub_name().at("ner") == "token-classification");
}

}  // namespace shardline::task_names_test
