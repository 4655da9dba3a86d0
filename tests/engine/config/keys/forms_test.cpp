#include "engine/config/keys/forms.h"

#include "core/error.h"
#include "engine/config/config.h"

#include "tests/catch.h"

namespace shardline::forms_test {
namespace {

using Catch::Matchers::Contains;
using nlohmann::json;

Config reading(const std::vector<std::string>& settings) {
  return parse_config(R"({"model": {"config": {"model_type": "gpt2", "n_layer": 2}},
                          "data": {"train": "a.txt", "tokenizer": "bytes"}, "output_dir": "out"})",
                      "c.json", settings);
}

std::string mistake(const std::string& setting) {
  try {
    reading({setting});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("--set extends a list by one item at a time", "[config]") {
  CHECK(reading({"data.train=[\"a\"]", "data.train.1=b"}).data.train == std::vector<std::string>{"a", "b"});
  CHECK_THAT(mistake("data.train.4000000=a"), Contains("the list has fewer items"));
  CHECK_THAT(mistake("training.lr_scheduler_kwargs.7=1"), Contains("the list has fewer items"));
  CHECK_THAT(mistake("/model/config/id2label/99999999999999999999=a"), Contains("the list has fewer items"));
  CHECK(reading({R"(model.config.id2label={"7": "a"})", "model.config.id2label.9=b"}).model.config["id2label"] ==
        json{{"7", "a"}, {"9", "b"}});
}

TEST_CASE("--set refuses bytes that a JSON file cannot contain", "[config]") {
  CHECK(reading({"output_dir=\xc3\xa9"}).output_dir == "\xc3\xa9");
  CHECK_THAT(mistake("output_dir=\xff"), Contains("must be UTF-8"));
  CHECK_THAT(mistake("data.\xff=1"), Contains("must be UTF-8"));
}

TEST_CASE("--set refuses a value that is nested deeper than a file may be", "[config]") {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  CHECK_THAT(mistake("training.lr_scheduler_kwargs=" + deep), Contains("/training/lr_scheduler_kwargs: must be an"));
  CHECK_THAT(mistake("data.shuffle=" + deep), Contains("/data/shuffle: must be true or false; got \"[[["));
  const std::string text = json(R"({"num_cycles": )" + deep + "}").dump();  // a string, whose content is JSON
  CHECK_THAT(mistake("training.lr_scheduler_kwargs=" + text), Contains("/training/lr_scheduler_kwargs: must be an"));
}

}  // namespace shardline::forms_test
