#include "engine/study/study_file.h"

#include <set>

#include "core/error.h"
#include "engine/study/prices.h"

#include "tests/catch.h"

namespace shardline::study_file_test {
namespace {

using nlohmann::json;

StudyFile read(const json& text) {
  return study_from_json(parse_json(text.dump(), "study.json"));
}

json minimal(const json& more) {
  json study = {{"config", "base.json"}, {"output_dir", "out"}};
  study.update(more);
  return study;
}

std::vector<std::string> names_of(const StudyFile& study) {
  std::vector<std::string> names;
  for (const auto& point : study.points) names.push_back(point.name);
  return names;
}

std::string refusal(const json& more) {
  try {
    read(minimal(more));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("A matrix becomes all combinations, after rules and before listed runs", "[study]") {
  const StudyFile study = read(minimal({{"rules", {{"steps", 5}, {"precision", "bf16"}}},
                                        {"matrix", {{"devices", {1, 2}}, {"learning_rate", {1e-3, 0.5}}}},
                                        {"runs", {{{"name", "one more"}, {"devices", 4}, {"precision", "fp32"}}}}}));
  CHECK(names_of(study) == std::vector<std::string>{"devices=1,learning_rate=0.001,precision=bf16",
                                                    "devices=1,learning_rate=0.5,precision=bf16",
                                                    "devices=2,learning_rate=0.001,precision=bf16",
                                                    "devices=2,learning_rate=0.5,precision=bf16", "one-more"});
  CHECK(study.points[0].factors == json{{"devices", 1}, {"learning_rate", 1e-3}, {"precision", "bf16"}, {"steps", 5}});
  CHECK(study.points[4].factors == json{{"devices", 4}, {"precision", "fp32"}, {"steps", 5}});
}

TEST_CASE("An axis may set several factors together, and layouts and keys of the config", "[study]") {
  const json machines = {{{"devices", 1}, {"cluster", "c/p3.2xlarge.json"}}, {{"devices", 8}, {"nodes", 2}}};
  const json layouts = {{{"pipeline_parallel_degree", 2}, {"microbatches", 4}}, {{"tensor_parallel_degree", 2}}};
  const StudyFile study = read(minimal(
      {{"matrix", {{"machine", machines}, {"layout", layouts}, {"training.weight_decay", json::array({0.1})}}}}));
  CHECK(study.points.size() == 4);
  CHECK(study.points[0].factors["layout"] == layouts[0]);
  CHECK(study.points[0].factors["training.weight_decay"] == 0.1);
  CHECK(study.points[0].name == "devices=1,layout=microbatches4+P2,cluster=p3.2xlarge");
  CHECK(study.points[3].name == "devices=8,nodes=2,layout=T2");
}

TEST_CASE("Each repeat has its own seed", "[study]") {
  CHECK(read(minimal({{"runs", json::array({json::object()})}, {"repeats", 3}})).repeats == 3);
  const StudyFile study = read(minimal({{"runs", json::array({json::object()})}, {"seeds", {7, 1}}}));
  CHECK(study.repeats == 2);
  CHECK(study.seeds == std::vector<int64_t>{7, 1});
  CHECK(names_of(study) == std::vector<std::string>{"run"});
}

TEST_CASE("Mistakes in a study's file are refused", "[study]") {
  const json one = json::array({json::object()});
  struct Mistake {
    json more;
    std::vector<std::string> says;
  };
  for (const auto& [more, says] : std::vector<Mistake>{
           {{{"runs", json::array()}}, {"needs 1 to"}},
           {{{"runs", one}, {"output_dir", ""}}, {"/output_dir", "is required"}},
           {{{"runs", one}, {"config", 3}}, {"/config"}},
           {{{"runs", one}, {"seeds", {1, 1}}}, {"/seeds", "twice"}},
           {{{"runs", one}, {"seeds", {1, 2}}, {"repeats", 2}}, {"/seeds", "contradicts repeats"}},
           {{{"runs", one}, {"metric", "f1"}}, {"/metric", "eval_f1"}},
           {{{"runs", one}, {"repeat", 2}}, {"/repeat", "repeats"}},
           {{{"runs", {{{"device", 2}}}}}, {"/device", "devices"}},
           {{{"runs", {{{"devices", 0}}}}}, {"/devices", ">= 1"}},
           {{{"runs", {{{"devices", 3}, {"nodes", 2}}}}}, {"/devices", "multiple of nodes, 2"}},
           {{{"runs", {{{"batch", 2}}}}, {"rules", {{"global_batch", 8}}}}, {"/batch", "contradicts global_batch"}},
           {{{"runs", {{{"epochs", 2}, {"steps", 8}}}}}, {"/epochs", "contradicts steps"}},
           {{{"runs", {{{"learning_rate_scaling", "sqrt"}}}}}, {"/learning_rate_scaling", "reference_batch"}},
           {{{"runs", {{{"learning_rate_scaling", "cube"}}}}}, {"sqrt"}},
           {{{"runs", {{{"published", {{"minutes", "5"}}}}}}}, {"/runs/0", "/published/minutes"}},
           {{{"runs", {3}}}, {"/runs/0", "object"}},
           {{{"matrix", {{"devices", json::array()}}}}, {"/matrix/devices", "no values"}},
           {{{"matrix", {{"devices", {2, 2}}}}}, {"two runs are called", "repeats"}},
           {{{"runs", {{{"name", ".."}}}}}, {"begins with a dot"}}}) {
    const std::string said = refusal(more);
    INFO(more.dump() << "\n" << said);
    for (const auto& words : says) CHECK(said.find(words) != std::string::npos);
  }
  const json many = std::vector<int>(45);
  CHECK(refusal({{"matrix", {{"a.b", many}, {"a.c", many}}}}).find("more than 2000 combinations") != std::string::npos);
}

TEST_CASE("Prices are looked up by the name of the machine", "[study]") {
  const Prices prices = prices_from_json(
      parse_json(R"({"currency": "USD", "hourly_prices": {"p3.2xlarge": 3.06, "local": 0}})", "prices.json"));
  CHECK(prices.of("p3.2xlarge") == 3.06);
  CHECK(prices.of(Prices::kLocal) == 0);
  CHECK_FALSE(prices.of("p4d"));
  CHECK_THROWS_AS(prices_from_json(parse_json(R"({"hourly_prices": {"a": -1}})", "prices.json")), ConfigError);
  CHECK_THROWS_AS(prices_from_json(parse_json("{}", "prices.json")), ConfigError);
}

}  // namespace shardline::study_file_test
