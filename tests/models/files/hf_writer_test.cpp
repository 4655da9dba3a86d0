#include "models/files/hf_writer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/util/accumulate.h>
#include <sys/resource.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "models/files/hf_directory.h"
#include "models/files/safetensors.h"
#include "tests/models/files/disk_calls.h"
#include "tests/models/files/files.h"

#include "tests/catch.h"

namespace shardline::hf_writer_test {

using Catch::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Sizes that are not divisible: rows, a fused and transposed weight, a parameter of two tensors, an odd bias, a tied
// head.
ModelSpec toy() {
  ModelSpec spec{.family = "toy"};
  spec.layers = {
      {.name = "embedding",
       .params = {{.name = "wte", .shape = {7, 4}, .split_dim = 0, .sources = {{.tensor = "wte"}}}}},
      {.name = "h.0",
       .params = {{.name = "qkv",
                   .shape = {3, 5, 2, 4},
                   .split_dim = 1,
                   .sources = {{"c_attn", {4, 3, 5, 2}, {1, 2, 3, 0}, {}, {4, 30}}}},
                  {.name = "kv",
                   .shape = {2, 5, 3},
                   .split_dim = 1,
                   .sources = {{"k", {1, 5, 3}, {}, {0, 0, 0}, {15}}, {"v", {1, 5, 3}, {}, {1, 0, 0}, {15}}}},
                  {.name = "bias", .shape = {3}, .sources = {{.tensor = "bias"}}}}},
      {.name = "head",
       .params = {{.name = "weight",
                   .shape = {7, 4},
                   .split_dim = 0,
                   .tied_to = "embedding.wte",
                   .sources = {{.tensor = "lm_head"}}}}}};
  return spec;
}

// The whole parameter; every element is a different number that bfloat16 represents exactly.
at::Tensor whole(const ParamSpec& param) {
  const auto first = static_cast<int64_t>(param.name.size()) * 10;
  return at::arange(first, first + param.numel(), at::kFloat).view(param.shape);
}

at::Tensor slice(const ParamSpec& param, int t, int ranks) {
  if (param.split_dim < 0) return whole(param);
  const auto mine = param.split(t, ranks);
  return whole(param).narrow(param.split_dim, mine.begin, mine.length);
}

template <class Action>
void for_each_param(const ModelSpec& spec, const Action& action) {
  for (const auto& layer : spec.layers)
    for (const auto& param : layer.params)
      if (param.tied_to.empty()) action(param, layer.full_name(param));
}

// One writer per rank, as in separate processes.
void write_model(const std::string& path, const ModelSpec& spec, int ranks, at::ScalarType dtype, int64_t shard_bytes,
                 const json& config = {{"model_type", "toy"}},
                 const std::map<std::string, std::string>& companions = {}) {
  HfWriter first(path, spec, dtype, shard_bytes);
  first.create(config, companions);
  for (int t = 0; t < ranks; ++t) {
    HfWriter writer(path, spec, dtype, shard_bytes);
    for_each_param(spec, [&](const ParamSpec& param, const std::string& name) {
      if (param.split_dim >= 0 || t == ranks - 1) writer.write(param, name, t, ranks, slice(param, t, ranks));
    });
    writer.flush();
  }
  first.finish();
}

void check_model(const std::string& path, const ModelSpec& spec, int ranks) {
  const HfDirectory directory(path);
  directory.check_names(spec);
  for_each_param(spec, [&](const ParamSpec& param, const std::string& name) {
    for (int t = 0; t < ranks; ++t) {
      auto local = at::full(param.local_shape(t, ranks), -99, at::kFloat);
      directory.read(param, name, t, ranks, local);
      INFO(name << " on rank " << t << " of " << ranks);
      CHECK(at::equal(local, slice(param, t, ranks)));
    }
  });
}

std::set<std::string> names_in(const std::string& path) {
  std::set<std::string> names;
  for (const auto& file : fs::directory_iterator(path)) names.insert(file.path().filename().string());
  return names;
}

}  // namespace

TEST_CASE("files written by any number of ranks can be read by any other number", "[hf_writer]") {
  const auto spec = toy();
  for (int writers = 1; writers <= 6; ++writers) {
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      for (const int64_t shard_bytes : {int64_t{1}, int64_t{400}, FileLayout::kMostBytes}) {
        const ScratchDirectory scratch;
        write_model(scratch.path(), spec, writers, dtype, shard_bytes);
        INFO(writers << " writers, " << c10::toString(dtype) << ", shards of " << shard_bytes);
        for (int readers = 1; readers <= 4; ++readers) check_model(scratch.path(), spec, readers);
      }
    }
  }
}

TEST_CASE("files do not depend on which ranks write them", "[hf_writer]") {
  const ScratchDirectory one, four;
  write_model(one / "m", toy(), 1, at::kFloat, FileLayout::kMostBytes);
  write_model(four / "m", toy(), 4, at::kFloat, FileLayout::kMostBytes);
  CHECK(contents(one / "m/model.safetensors") == contents(four / "m/model.safetensors"));
}

TEST_CASE("a file has the form that the reference expects", "[hf_writer]") {
  const ScratchDirectory scratch;
  write_model(scratch.path(), toy(), 2, at::kHalf, FileLayout::kMostBytes);
  const SafetensorsFile file(scratch / "model.safetensors");
  CHECK(file.header().size() % 8 == 0);
  CHECK(json::parse(file.header())["__metadata__"] == json{{"format", "pt"}});
  CHECK(file.tensors().size() == 5);
  CHECK(file.tensors().at("c_attn").shape == std::vector<int64_t>{4, 30});
  CHECK(file.tensors().at("k").shape == std::vector<int64_t>{15});
  for (const char* name : {"wte", "c_attn"}) CHECK(file.tensors().at(name).begin % 8 == 0);
}

TEST_CASE("buffers have types of their own, and every tensor begins where its elements are aligned", "[hf_writer]") {
  auto spec = toy();
  spec.buffers = {{"flags", {3}, at::kBool},
                  {"steps", {}, at::kLong},
                  {"half", {5}, at::kHalf},
                  {"none", {0}, at::kFloat},
                  {"share", {1, 3}, at::kFloat}};
  const auto values = [](const BufferSpec& buffer) {
    const int64_t count = c10::multiply_integers(buffer.shape);
    return at::arange(1, count + 1).to(buffer.dtype).view(buffer.shape);
  };
  for (const int64_t shard_bytes : {int64_t{1}, FileLayout::kMostBytes}) {
    const ScratchDirectory scratch;
    HfWriter writer(scratch.path(), spec, at::kFloat, shard_bytes);
    writer.create({{"model_type", "toy"}}, {});
    for_each_param(spec, [&](const ParamSpec& param, const std::string& name) {
      writer.write(param, name, 0, 1, slice(param, 0, 1));
    });
    for (const auto& buffer : spec.buffers) writer.write(buffer, values(buffer));
    writer.finish();
    check_model(scratch.path(), spec, 2);
    const HfDirectory directory(scratch.path());
    for (const auto& buffer : spec.buffers) {
      CAPTURE(buffer.name);
      const at::Tensor read = directory.buffer(buffer);
      CHECK(read.scalar_type() == buffer.dtype);
      CHECK(read.sizes() == at::IntArrayRef(buffer.shape));
      CHECK(read.equal(values(buffer)));
    }
    for (const auto& [name, file] : open_weights(scratch.path()))
      for (const auto& [tensor, entry] : file.tensors()) {
        CAPTURE(tensor);
        CHECK(entry.begin % c10::elementSize(entry.dtype) == 0);
      }
  }
}

TEST_CASE("config.json keeps its keys, and other files are copied", "[hf_writer]") {
  const ScratchDirectory scratch;
  const json config = {{"model_type", "toy"}, {"strange", {1, nullptr}}, {"torch_dtype", "float16"}};
  write_model(scratch / "m", toy(), 1, at::kBFloat16, 1, config, {{"tokenizer.json", "{\"t\":1}"}});
  auto written = json::parse(contents(scratch / "m/config.json"));
  CHECK(written["torch_dtype"] == "bfloat16");
  written["torch_dtype"] = "float16";
  CHECK(written == config);
  CHECK(contents(scratch / "m/tokenizer.json") == "{\"t\":1}");
  write_model(scratch / "m", toy(), 1, at::kFloat, 1, {{"a", 1}}, {{"tokenizer.json", "{}"}});
  CHECK(json::parse(contents(scratch / "m/config.json")) == json{{"a", 1}, {"dtype", "float32"}});
  CHECK(contents(scratch / "m/tokenizer.json") == "{}");
}

TEST_CASE("no files of an earlier model with another form are left", "[hf_writer]") {
  const ScratchDirectory scratch;
  const std::set<std::string> single{"config.json", "model.safetensors"};
  write_model(scratch.path(), toy(), 1, at::kFloat, 200);
  CHECK(names_in(scratch.path()).size() > 3);
  write_model(scratch.path(), toy(), 2, at::kFloat, FileLayout::kMostBytes);
  CHECK(names_in(scratch.path()) == single);
  write_model(scratch.path(), toy(), 2, at::kFloat, 200);
  CHECK(names_in(scratch.path()).count("model.safetensors") == 0);
  check_model(scratch.path(), toy(), 3);
}

TEST_CASE("a run that dies while it writes leaves nothing that looks like a model", "[hf_writer]") {
  const ScratchDirectory scratch;
  const auto spec = toy();
  const auto begin = [&] {
    HfWriter writer(scratch.path(), spec, at::kFloat);
    writer.create({}, {});
    writer.write(spec.layers[0].params[0], "embedding.wte", 0, 1, at::full({7, 4}, 0, at::kFloat));
  };
  begin();
  CHECK(names_in(scratch.path()) == std::set<std::string>{"config.json.incomplete", "model.safetensors.incomplete"});
  CHECK_THROWS_AS(HfDirectory(scratch.path()), DataError);

  // An earlier model remains unchanged.
  write_model(scratch.path(), spec, 1, at::kFloat, FileLayout::kMostBytes);
  begin();
  check_model(scratch.path(), spec, 2);
}

TEST_CASE("a full disk is reported before anything is lost", "[hf_writer]") {
  const ScratchDirectory scratch;
  write_model(scratch.path(), toy(), 1, at::kFloat, 300);
  const auto before = names_in(scratch.path());

  // A limit on the size of files simulates a full disk: the second file is refused.
  auto spec = toy();
  spec.layers[1].params[0].shape[1] = 5000;
  spec.layers[1].params[0].sources[0] = {"c_attn", {4, 3, 5000, 2}, {1, 2, 3, 0}, {}, {4, 30000}};
  HfWriter writer(scratch.path(), spec, at::kFloat, 300);
  struct rlimit old {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 10'000, old.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const auto message = message_of<RunError>([&] { writer.create({}, {}); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);

  CHECK_THAT(message, Contains("cannot be reserved") && Contains("bytes left") && Contains("free some space"));
  CHECK(names_in(scratch.path()) == before);
  check_model(scratch.path(), toy(), 1);
}

TEST_CASE("a directory that cannot be created is reported", "[hf_writer]") {
  const ScratchDirectory scratch;
  put(scratch / "file", "");
  HfWriter writer(scratch / "file/m", toy(), at::kFloat);
  CHECK_THAT(message_of<RunError>([&] { writer.create({}, {}); }), Contains("cannot be created"));
}

TEST_CASE("if the disk fails at any call, the new model or the earlier one is complete", "[hf_writer]") {
  const auto spec = toy();
  const json config = {{"model_type", "toy"}}, earlier = {{"model_type", "earlier"}};
  disk_calls::only_writes = GENERATE(true, false);
  bool failed = true;
  for (int call = 0; failed; ++call) {
    REQUIRE(call < 200);
    const ScratchDirectory scratch;
    write_model(scratch.path(), spec, 1, at::kBFloat16, 200, earlier, {{"tokenizer.json", "earlier"}});
    const auto before = names_in(scratch.path());
    HfWriter writer(scratch.path(), spec, at::kFloat, 200);
    bool is_created = false, is_written = false;
    disk_calls::until_failure = call;
    const auto message = message_of<RunError>([&] {
      writer.create(config, {{"tokenizer.json", "new"}});
      is_created = true;
      for_each_param(spec, [&](const ParamSpec& param, const std::string& name) {
        writer.write(param, name, 0, 1, whole(param));
      });
      writer.flush();
      is_written = true;
      writer.finish();
    });
    disk_calls::until_failure = -1;

    INFO("call " << call << ": " << message);
    failed = !message.empty();
    if (failed) CHECK_THAT(message, Contains(scratch.path()) && Contains("No space left"));
    if (!is_created) CHECK(names_in(scratch.path()) == before);
    if (!is_written) CHECK_THAT(message, Contains("bytes left; free some space there"));
    if (!fs::exists(scratch / "config.json")) {
      CHECK((is_written && !disk_calls::only_writes));  // finish() only renames
      continue;
    }
    const bool is_new = json::parse(contents(scratch / "config.json"))["model_type"] == "toy";
    CHECK((is_new ? is_written : failed));
    CHECK(contents(scratch / "tokenizer.json") == (is_new ? "new" : "earlier"));
    check_model(scratch.path(), spec, 2);
  }
  disk_calls::only_writes = false;
}

TEST_CASE("files that are removed before the weights are written are created again", "[hf_writer]") {
  const ScratchDirectory scratch;
  const auto spec = toy();
  HfWriter writer(scratch / "m", spec, at::kFloat, 200);
  writer.create({}, {{"tokenizer.json", "{}"}});
  fs::remove_all(scratch / "m");
  writer.create({}, {{"tokenizer.json", "{}"}});
  for_each_param(
      spec, [&](const ParamSpec& param, const std::string& name) { writer.write(param, name, 0, 1, whole(param)); });
  writer.finish();
  check_model(scratch / "m", spec, 3);
  CHECK(contents(scratch / "m/tokenizer.json") == "{}");
}

TEST_CASE("a larger unfinished file of another layout does not show in the new one", "[hf_writer]") {
  const ScratchDirectory scratch;
  put(scratch / "model.safetensors.incomplete", std::string(100'000, 'x'));
  put(scratch / "config.json.incomplete", std::string(100'000, 'x'));
  write_model(scratch.path(), toy(), 2, at::kFloat, FileLayout::kMostBytes);
  check_model(scratch.path(), toy(), 3);
}

TEST_CASE("progress of a rank counts the bytes of its own slices", "[hf_writer]") {
  const ScratchDirectory scratch;
  const auto spec = toy();
  HfWriter writer(scratch.path(), spec, at::kFloat);
  writer.create({}, {});
  int64_t bytes = 0;
  for_each_param(spec, [&](const ParamSpec& param, const std::string& name) {
    for (int t = 0; t < 3; ++t) {
      if (param.split_dim < 0 && t > 0) continue;
      const auto local = slice(param, t, 3);
      const int64_t before = bytes;
      writer.write(param, name, t, 3, local, [&](int64_t now) { bytes += now; });
      CHECK(bytes - before == static_cast<int64_t>(local.nbytes()));
    }
  });
}

}  // namespace shardline::hf_writer_test
