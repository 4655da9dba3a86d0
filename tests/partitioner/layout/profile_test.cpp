#include "partitioner/layout/profile.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::profile_test {
namespace {

Profile example() {
  Profile profile;
  profile.valid_for = {{"device", "cpu"}, {"microbatch_size", "4"}};
  profile.layers = {{.name = "h.0",
                     .kind = "a",
                     .forward_seconds = 0.25,
                     .backward_seconds = 0.5,
                     .backward_input_seconds = 0.3,
                     .backward_weight_seconds = 0.2,
                     .recompute_core_seconds = 0.125,
                     .forward_flops = 96,
                     .kept_bytes = 8192,
                     .border_bytes = 4096,
                     .parameters = 100,
                     .forward_ops = {{"aten::mm", {{2, 3}, {3, 4}, {}}, 2, 96}}}};
  profile.device = {.memory_bytes = 1e9, .flops_per_second = 1e11, .memory_bytes_per_second = 1e10};
  profile.links = {{"tp", "all_reduce", 2, {1000, 2000, 4000}, {1, 3, 4}, 0.5}};
  profile.optimizer_seconds_per_stored = 1e-9;
  return profile;
}

std::string write_json(const nlohmann::json& json) {
  const auto path = std::filesystem::temp_directory_path() / "shardline_profile_test.json";
  std::ofstream(path) << json;
  return path;
}

}  // namespace

TEST_CASE("a profile is read as it was written") {
  const auto path = (std::filesystem::temp_directory_path() / "shardline_profile_test.json").string();
  write_profile(example(), path);
  CHECK(read_profile(path) == example());
  CHECK_THROWS_WITH(write_profile(example(), "/no/such/folder/profile.json"),
                    Catch::Contains("/no/such/folder/profile.json.incomplete: cannot be opened"));
}

TEST_CASE("a damaged profile is refused, and the error states the place") {
  write_profile(example(), write_json({}));
  std::ifstream in(std::filesystem::temp_directory_path() / "shardline_profile_test.json");
  const nlohmann::json whole = nlohmann::json::parse(in);
  const auto refused = [&](const std::string& pointer, const nlohmann::json& value, const std::string& message) {
    nlohmann::json broken = whole;
    broken[nlohmann::json::json_pointer(pointer)] = value;
    INFO(pointer);
    CHECK_THROWS_WITH(read_profile(write_json(broken)), Catch::Contains(message));
    CHECK_THROWS_AS(read_profile(write_json(broken)), DataError);
  };
  refused("/layers/0/forward_seconds", -1, "h.0: times and sizes must be finite");
  refused("/layers/0/forward_seconds", "soon", "is not a profile");
  refused("/layers", 7, "is not a profile");
  refused("/layers/0/kept_bytes", 8192.5, "/layers/0/kept_bytes: must be an integer >= 0");
  refused("/layers/0/parameters", true, "/layers/0/parameters: must be an integer");
  refused("/layers/0/border_bytes", 1e300, "/layers/0/border_bytes: must be an integer");
  refused("/layers/0/forward_ops/0/shapes/0/0", 0.5, "/layers/0/forward_ops/0/shapes/0/0: must be an integer");
  refused("/links/0/ranks", 4294967298, "/links/0/ranks: must be an integer");
  refused("/links/0/bytes", {1000, 1000, 4000}, "all_reduce over tp: bytes must be positive and ascending");
  refused("/links/0/bytes", {1000, 2000}, "needs a time for every size");
  refused("/links/0/ranks", 1, "needs at least 2 ranks; got 1");
  refused("/links/0/hidden", 1.5, "hidden must be from 0 to 1; got 1.5");
  refused("/device/flops_per_second", 0, "/device: memory and rates must be positive");
  refused("/optimizer_seconds_per_stored", nullptr, "is not a profile");
  refused("/join_seconds_per_gradient", -1, "must be finite and not negative");
}

TEST_CASE("link times are interpolated between sizes and scaled beyond them") {
  const auto link = example().links[0];
  CHECK(link_seconds(link, 1) == 1);
  CHECK(link_seconds(link, 1500) == 2);
  CHECK(link_seconds(link, 2000) == 3);
  CHECK(link_seconds(link, 3000) == 3.5);
  CHECK(link_seconds(link, 8000) == 8);
}

TEST_CASE("a profile states in which way it does not match") {
  CHECK(mismatch(example(), {{"device", "cpu"}}).empty());
  CHECK(mismatch(example(), {{"device", "cpu"}, {"microbatch_size", "2"}, {"torch", "2.11"}}) ==
        "microbatch_size: 4, not 2; torch: unknown, not 2.11");
}

TEST_CASE("layers are distinguished by shapes and code, not by names") {
  LayerSpec a{.name = "h.0", .is_block = true, .params = {{.name = "w", .shape = {3, 4}, .split_dim = 0}}};
  LayerSpec b = a;
  b.name = "h.1";
  CHECK(layer_kind(a) == layer_kind(b));
  b.params[0].split_dim = -1;
  CHECK(layer_kind(a) != layer_kind(b));
  b = a;
  b.params[0].shape = {4, 3};
  CHECK(layer_kind(a) != layer_kind(b));
  b = a;
  b.code = "keeps more";
  CHECK(layer_kind(a) != layer_kind(b));
}

}  // namespace shardline::profile_test
