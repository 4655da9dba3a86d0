#include "core/model/model_spec.h"

#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "core/model/layer.h"

#include "tests/catch.h"

namespace shardline::model_spec_test {
namespace {

ParamSpec param(const std::string& name, std::vector<int64_t> shape, int split_dim = -1) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.split_dim = split_dim;
  return spec;
}

LayerSpec layer(const std::string& name, std::vector<ParamSpec> params, bool is_block = false) {
  LayerSpec spec;
  spec.name = name;
  spec.params = std::move(params);
  spec.is_block = is_block;
  return spec;
}

ModelSpec tiny_model() {
  auto head = param("weight", {11, 4}, 0);
  head.tied_to = "wte.weight";
  ModelSpec model;
  model.family = "tiny";
  model.vocab_size = 11;
  model.layers = {layer("wte", {param("weight", {11, 4}, 0)}),
                  layer("h.0", {param("attn.qkv.weight", {3, 5, 2, 4}, 1), param("ln.weight", {4})}, true),
                  layer("h.1", {param("attn.qkv.weight", {3, 5, 2, 4}, 1), param("ln.weight", {4})}, true),
                  layer("head", {head})};
  return model;
}

}  // namespace

TEST_CASE("split_range: gives known splits") {
  CHECK(split_range(25, 4, 0) == Range{0, 7});
  CHECK(split_range(25, 4, 1) == Range{7, 6});
  CHECK(split_range(25, 4, 3) == Range{19, 6});
  CHECK(split_range(50257, 3, 0) == Range{0, 16753});
  CHECK(split_range(50257, 3, 1) == Range{16753, 16752});
  CHECK(split_range(50257, 3, 2) == Range{33505, 16752});
  CHECK(split_range(2, 4, 1) == Range{1, 1});
  CHECK(split_range(2, 4, 3) == Range{2, 0});
  CHECK(split_range(0, 3, 2) == Range{0, 0});
  CHECK(split_range(int64_t{1} << 40, 1, 0) == Range{0, int64_t{1} << 40});
}

TEST_CASE("split_range: parts are adjacent, cover everything, and differ in size by at most one") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 500; ++round) {
    const auto count = static_cast<int64_t>(random() % (round % 2 ? 40 : 1000000));
    const int parts = static_cast<int>(random() % 17) + 1;
    int64_t next = 0, longest = 0, shortest = count + 1, previous = count + 1;
    for (int part = 0; part < parts; ++part) {
      const auto range = split_range(count, parts, part);
      REQUIRE(range.begin == next);
      REQUIRE(range.length <= previous);  // the longer parts come first
      next = range.end();
      previous = range.length;
      longest = std::max(longest, range.length);
      shortest = std::min(shortest, range.length);
    }
    REQUIRE(next == count);
    REQUIRE(longest - shortest <= 1);
  }
}

TEST_CASE("a parameter's local shape cuts its split dimension and nothing else") {
  const auto qkv = param("qkv", {3, 25, 64, 1600}, 1);
  CHECK(qkv.numel() == 3 * 25 * 64 * 1600);
  CHECK(qkv.split(0, 4) == Range{0, 7});
  CHECK(qkv.local_shape(0, 4) == std::vector<int64_t>{3, 7, 64, 1600});
  CHECK(qkv.local_shape(3, 4) == std::vector<int64_t>{3, 6, 64, 1600});
  CHECK(qkv.local_shape(0, 1) == qkv.shape);
  CHECK(param("embedding", {50257, 8}, 0).local_shape(2, 3) == std::vector<int64_t>{16752, 8});

  const auto norm = param("norm", {1600});
  CHECK(norm.local_shape(2, 4) == std::vector<int64_t>{1600});
  CHECK(norm.split(2, 4) == Range{0, 0});
  CHECK(param("scalar", {}).numel() == 1);
  CHECK(param("none", {0, 3}).numel() == 0);
}

TEST_CASE("local shapes of all ranks add up to the parameter") {
  const auto split = param("split", {6, 13, 5}, 1);
  for (int degree = 1; degree <= 16; ++degree) {
    int64_t total = 0;
    for (int t = 0; t < degree; ++t) {
      const auto shape = split.local_shape(t, degree);
      total += shape[0] * shape[1] * shape[2];
    }
    CHECK(total == split.numel());
  }
}

TEST_CASE("the parameters of a large model are counted without allocating any") {
  ModelSpec model;
  for (int i = 0; i < 96; ++i) {
    const int64_t hidden = 12288;
    model.layers.push_back(layer(cat("h.", i), {param("w", {12 * hidden, hidden}, 0)}, true));
  }
  CHECK(model.parameter_count() == int64_t{96} * 12 * 12288 * 12288);
  CHECK(model.block_count() == 96);
}

TEST_CASE("tied parameters count once, blocks are the layers marked as such, and parameters are found by name") {
  const auto model = tiny_model();
  CHECK(model.parameter_count() == 11 * 4 + 2 * (3 * 5 * 2 * 4 + 4));
  CHECK(model.block_count() == 2);
  CHECK(&model.param("h.1.ln.weight") == &model.layers[2].params[1]);
  CHECK(model.param("head.weight").tied_to == "wte.weight");
  CHECK_THROWS_AS(model.param("h.2.ln.weight"), InvariantError);
}

TEST_CASE("a model prints its layers and parameters") {
  const nlohmann::json json = tiny_model();
  CHECK(json["family"] == "tiny");
  CHECK(json["parameters"] == tiny_model().parameter_count());
  REQUIRE(json["layers"].size() == 4);
  CHECK(json["layers"][1]["is_block"] == true);
  CHECK(json["layers"][1]["params"][0]["name"] == "h.0.attn.qkv.weight");
  CHECK(json["layers"][1]["params"][0]["shape"] == nlohmann::json({3, 5, 2, 4}));
  CHECK(json["layers"][1]["params"][0]["split_dim"] == 1);
  CHECK(json["layers"][3]["params"][0]["tied_to"] == "wte.weight");
}

}  // namespace shardline::model_spec_test
