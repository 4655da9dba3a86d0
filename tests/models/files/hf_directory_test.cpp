#include "models/files/hf_directory.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/comm/clock.h"
#include "models/families/spec_maker.h"
#include "models/files/tensor_files.h"
#include "tests/models/files/files.h"
#include "tests/models/files/torch_bytes.h"
#include "tests/models/golden.h"

#include "tests/catch.h"

namespace shardline::hf_directory_test {

using Catch::Contains;
namespace fs = std::filesystem;

namespace {

// The model of the golden directory, with the prefix of a model with a head and a tied head.
ModelSpec toy() {
  ModelSpec spec{.family = "toy"};
  spec.layers = {
      {.name = "embedding",
       .params = {{.name = "wte", .shape = {7, 4}, .split_dim = 0, .sources = {{.tensor = "transformer.wte.weight"}}}}},
      {.name = "h.0",
       .params = {{.name = "qkv",
                   .shape = {3, 5, 2, 4},
                   .split_dim = 1,
                   .sources = {{"transformer.h.0.c_attn.weight", {4, 3, 5, 2}, {1, 2, 3, 0}, {}, {4, 30}}}}},
       .ignored_tensors = {"transformer.h.0.attn.bias"}},
      {.name = "head",
       .params = {{.name = "bias", .shape = {4}, .sources = {{.tensor = "transformer.ln_f.bias"}}},
                  {.name = "weight",
                   .shape = {7, 4},
                   .split_dim = 0,
                   .tied_to = "embedding.wte",
                   .sources = {{.tensor = "lm_head.weight"}}}}}};
  add_aliases(spec, "transformer.");
  return spec;
}

at::Tensor counted(at::IntArrayRef shape) {
  return at::arange(-3, c10::multiply_integers(shape) - 3, at::kFloat).view(shape);
}

std::string open(const std::string& path) {
  return message_of<DataError>([&] { HfDirectory directory(path); });
}

void copy_golden(const ScratchDirectory& scratch) {
  fs::copy(golden("sharded"), scratch.path());
}

std::string floats(const std::string& name, int64_t count) {
  const auto bytes = std::to_string(4 * count);
  return safetensors_bytes("{\"" + name + R"(":{"dtype":"F32","shape":[)" + std::to_string(count) +
                               R"(],"data_offsets":[0,)" + bytes + "]}}",
                           std::string(static_cast<size_t>(4 * count), '\0'));
}

// Returns the bytes of files that are in this process's memory.
int64_t file_bytes() {
  std::ifstream status("/proc/self/status");
  int64_t kibibytes = 0;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssFile:") || line.starts_with("RssShmem:"))
      kibibytes += std::stoll(line.substr(line.find(':') + 1));
  return kibibytes * 1024;
}

}  // namespace

TEST_CASE("the parts of a file that have been read do not stay in the process's memory", "[hf_directory]") {
  constexpr int64_t count = 1 << 23, bytes = 4 * count;
  const ScratchDirectory scratch;
  put(scratch / "config.json", R"({"model_type": "toy"})");
  put(scratch / "model.safetensors", floats("large", count));
  const HfDirectory directory(scratch.path());
  const ParamSpec param{.name = "large", .shape = {count}, .split_dim = 0, .sources = {{.tensor = "large"}}};
  auto half = at::full({count / 2}, 1, at::kFloat);
  const int64_t before = file_bytes();
  for (int t = 0; t < 2; ++t) directory.read(param, "large", t, 2, half);
  CHECK(file_bytes() - before < bytes / 8);
  CHECK(at::equal(half, at::zeros({count / 2})));
  half.fill_(1);
  directory.read(param, "large", 0, 2, half);
  CHECK(at::equal(half, at::zeros({count / 2})));
}

TEST_CASE("a large tensor is read in pieces, each of which is progress", "[hf_directory]") {
  constexpr int64_t rows = 1500, columns = 7001, bytes = 4 * rows * columns;
  const auto values = counted({rows, columns});
  const std::string data(static_cast<const char*>(values.const_data_ptr()), bytes);
  const ScratchDirectory scratch;
  put(scratch / "config.json", R"({"model_type": "toy"})");
  put(scratch / "model.safetensors", safetensors_bytes(R"({"large":{"dtype":"F32","shape":[1500,7001],)"
                                                       R"("data_offsets":[0,42006000]}})",
                                                       data));
  const HfDirectory directory(scratch.path());
  const ParamSpec param{.name = "large",
                        .shape = {columns, 1, rows},
                        .split_dim = 0,
                        .sources = {{"large", {1, rows, columns}, {2, 0, 1}, {}, {rows, columns}}}};
  for (int t = 0; t < 2; ++t) {
    auto half = at::full(param.local_shape(t, 2), -99, at::kFloat);
    int64_t copied = 0, pieces = 0;
    directory.read(param, "large", t, 2, half, [&](int64_t piece) {
      CHECK(piece <= static_cast<int64_t>(HfDirectory::kPieceBytes));
      copied += piece;
      ++pieces;
    });
    CHECK(pieces == 2);
    CHECK(copied == static_cast<int64_t>(half.nbytes()));
    const auto mine = split_range(columns, 2, t);
    CHECK(at::equal(half, values.t().narrow(0, mine.begin, mine.length).unsqueeze(1)));
  }
}

TEST_CASE("every rank reads its slice, for any number of ranks", "[hf_directory]") {
  const HfDirectory directory(golden(GENERATE("sharded", "torch/sharded")));
  const auto spec = toy();
  directory.check_names(spec);
  CHECK(directory.config()["unknown"][1]["kept"].is_null());

  const auto wte = counted({7, 4});
  const auto qkv = counted({4, 3, 5, 2}).permute({1, 2, 3, 0});
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int t = 0; t < ranks; ++t) {
      const auto read = [&](const std::string& name, at::ScalarType dtype) {
        const auto& param = spec.param(name);
        auto local = at::full(param.local_shape(t, ranks), -99, dtype);
        directory.read(param, name, t, ranks, local);
        return local;
      };
      const auto rows = split_range(7, ranks, t), heads = split_range(5, ranks, t);
      CHECK(at::equal(read("embedding.wte", at::kFloat), wte.narrow(0, rows.begin, rows.length)));
      CHECK(at::equal(read("h.0.qkv", at::kDouble), qkv.narrow(1, heads.begin, heads.length).to(at::kDouble)));
      CHECK(at::equal(read("head.bias", at::kFloat), counted({4})));
    }
  }
}

TEST_CASE("several tensors make one parameter", "[hf_directory]") {
  // Three biases as the parts of one, split along the dimension in which they are stacked, so that a part spans two
  // files.
  const ScratchDirectory scratch;
  put(scratch / "config.json", "{}");
  std::string data;
  for (int i = 0; i < 9; ++i) {
    const float value = static_cast<float>(i);
    data.append(reinterpret_cast<const char*>(&value), 4);
  }
  put(scratch / "model.safetensors", safetensors_bytes(R"({"q":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                                                       R"("k":{"dtype":"F32","shape":[3],"data_offsets":[16,28]},)"
                                                       R"("v":{"dtype":"F32","shape":[2],"data_offsets":[28,36]}})",
                                                       data));
  const ParamSpec param{.name = "bias",
                        .shape = {9},
                        .split_dim = 0,
                        .sources = {{"q", {4}, {}, {}, {}}, {"k", {3}, {}, {4}, {}}, {"v", {2}, {}, {7}, {}}}};
  const HfDirectory directory(scratch.path());
  for (int ranks = 1; ranks <= 10; ++ranks) {
    for (int t = 0; t < ranks; ++t) {
      auto local = at::full(param.local_shape(t, ranks), -99, at::kFloat);
      directory.read(param, "bias", t, ranks, local);
      const auto mine = split_range(9, ranks, t);
      CHECK(at::equal(local, at::arange(9, at::kFloat).narrow(0, mine.begin, mine.length)));
    }
  }
}

TEST_CASE("all differences of names and shapes are reported in one error", "[hf_directory]") {
  const HfDirectory directory(golden("sharded"));
  auto spec = toy();
  spec.layers[1].ignored_tensors.clear();
  spec.layers[0].params[0].sources[0] = {.tensor = "transformer.wtf.weight", .aliases = {"wtf.weight"}};
  spec.layers[1].params[0].sources[0].shape = {30, 4};
  spec.layers[2].params[0].shape = {5};
  const auto message = message_of<DataError>([&] { directory.check_names(spec); });
  CHECK_THAT(message, Contains("missing: transformer.wtf.weight (nearest in the files: wte.weight)"));
  CHECK_THAT(message, Contains("surplus: wte.weight") && Contains("surplus: h.0.attn.bias"));
  CHECK_THAT(message, Contains("h.0.c_attn.weight") && Contains("has the shape [4, 30], but the model needs [30, 4]"));
  CHECK_THAT(message, Contains("ln_f.bias") && Contains("[4], but the model needs [5]"));
  CHECK_THAT(message, !Contains("lm_head"));

  auto local = at::empty({5}, at::kFloat);
  CHECK_THAT(message_of<DataError>([&] { directory.read(spec.layers[2].params[0], "head.bias", 0, 1, local); }),
             Contains("parameter head.bias") && Contains("needs [5]"));
}

TEST_CASE("a directory full of foreign names fails soon, with a message that can be read", "[hf_directory]") {
  const ScratchDirectory scratch;
  put(scratch / "config.json", "{}");
  // Unknown names: as many as a hostile file may have, and then as long as they may be.
  for (const auto& [count, stem] : {std::pair{90'000, std::string("model.layers.attention.out_projection.weight")},
                                    std::pair{900, std::string(1'000, 'w')}}) {
    std::string header = "{";
    for (int i = 0; i < count; ++i)
      header += cat(i ? "," : "", "\"", i, ".", stem, R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
    put(scratch / "model.safetensors", safetensors_bytes(header + "}", ""));
    ModelSpec spec{.family = "toy", .layers = {{.name = "h"}}};
    for (int i = 0; i < count; ++i) {
      const std::string name = cat("h.", i, ".", stem);
      spec.layers[0].params.push_back({.name = name, .shape = {2}, .sources = {{.tensor = name}}});
    }
    const HfDirectory directory(scratch.path());
    const double start = steady_seconds();
    const auto message = message_of<DataError>([&] { directory.check_names(spec); });
    CHECK(steady_seconds() - start < 2);
    CHECK(std::count(message.begin(), message.end(), '\n') < 50);
    CHECK_THAT(message, Contains("missing: h.0.") && Contains("surplus: 0."));
    CHECK_THAT(message, Contains(cat("missing: ", count - 20, " more")));
    CHECK_THAT(message, Contains(cat("surplus: ", count - 20, " more")));
  }
}

TEST_CASE("if many tensors have a wrong shape, the error names the first ones", "[hf_directory]") {
  const ScratchDirectory scratch;
  put(scratch / "config.json", "{}");
  std::string header = "{";
  ModelSpec spec{.family = "toy", .layers = {{.name = "h"}}};
  for (int i = 0; i < 300; ++i) {
    header += cat(i ? "," : "", "\"x", i, R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
    spec.layers[0].params.push_back({.name = cat(i), .shape = {2}, .sources = {{.tensor = cat("x", i)}}});
  }
  put(scratch / "model.safetensors", safetensors_bytes(header + "}", ""));
  const auto message = message_of<DataError>([&] { HfDirectory(scratch.path()).check_names(spec); });
  CHECK_THAT(message, Contains("x0 in ") && Contains("the model needs [2]") && Contains("280 more"));
  CHECK(std::count(message.begin(), message.end(), '\n') < 25);
}

TEST_CASE("a tensor may have any of its names in the files, but only one of them", "[hf_directory]") {
  const ScratchDirectory scratch;
  put(scratch / "config.json", "{}");
  ModelSpec spec{.family = "toy", .layers = {{.name = "h"}}};
  spec.layers[0].params = {
      {.name = "w", .shape = {2}, .sources = {{.tensor = "bert.LayerNorm.weight"}}},
      {.name = "b", .shape = {2}, .may_be_missing = true, .sources = {{.tensor = "bert.LayerNorm.bias"}}}};
  spec.layers[0].ignored_tensors = {"bert.position_ids"};
  add_aliases(spec, "bert.");
  const ParamSpec &weight = spec.layers[0].params[0], &bias = spec.layers[0].params[1];
  for (const char* name : {"bert.LayerNorm.weight", "LayerNorm.weight", "bert.LayerNorm.gamma", "LayerNorm.gamma"}) {
    put(scratch / "model.safetensors", floats(name, 2));
    const HfDirectory directory(scratch.path());
    const std::vector<std::string> lacking = {"bert.LayerNorm.bias"};
    CHECK(directory.check_names(spec).missing == lacking);
    CHECK(directory.check_names(spec).notes(spec).size() == 1);
    ModelSpec frozen = spec;
    frozen.layers[0].params[1].trainable = false;
    CHECK_THAT(directory.check_names(frozen).notes(frozen).at(1),
               Contains("training.trainable does not select them: bert.LayerNorm.bias"));
    CHECK(directory.holds(weight));
    CHECK_FALSE(directory.holds(bias));
    auto local = at::full({2}, 1, at::kFloat);
    directory.read(weight, "h.w", 0, 1, local);
    CHECK(at::equal(local, at::full({2}, 0, at::kFloat)));
  }
  put(scratch / "model.safetensors", floats("LayerNorm.beta", 2));
  CHECK(HfDirectory(scratch.path()).holds(bias));
  CHECK_THAT(message_of<DataError>([&] { HfDirectory(scratch.path()).check_names(spec); }),
             Contains("missing: bert.LayerNorm.weight"));

  put(scratch / "model.safetensors",
      safetensors_bytes(R"({"LayerNorm.gamma":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                        R"("bert.LayerNorm.gamma":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                        "ab"));
  CHECK_THAT(message_of<DataError>([&] { HfDirectory(scratch.path()).check_names(spec); }),
             Contains("is the same tensor as"));
}

TEST_CASE("a missing tensor may be replaced by another one, which is left out if the files have both",
          "[hf_directory]") {
  const ScratchDirectory scratch;
  put(scratch / "config.json", "{}");
  ModelSpec spec{.family = "toy", .layers = {{.name = "h"}}, .surplus = {"cls."}};
  spec.layers[0].params = {{.name = "b",
                            .shape = {1},
                            .may_be_missing = true,
                            .sources = {{.tensor = "cls.decoder.bias", .stand_in = "cls.bias"}}}};
  const auto read = [&](const std::string& header, const std::string& bytes) {
    put(scratch / "model.safetensors", safetensors_bytes(header, bytes));
    const HfDirectory directory(scratch.path());
    auto value = at::full({1}, 7, at::kFloat);
    directory.read(spec.layers[0].params[0], "h.b", 0, 1, value);
    return std::pair(value.item<float>(), directory.check_names(spec));
  };
  const std::string one("\0\0\x80\x3f", 4), two("\0\0\0\x40", 4);
  const auto [alone, older] = read(R"({"cls.bias":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", one);
  CHECK(alone == 1);
  CHECK(older.missing.empty());
  CHECK(older.left_out.empty());
  const auto [own, both] = read(R"({"cls.bias":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                R"("cls.decoder.bias":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                one + two);
  CHECK(own == 2);
  CHECK(both.left_out == std::vector<std::string>{"cls.bias"});
}

TEST_CASE("unused tensors of other heads and buffers are reported, all other unused tensors are errors",
          "[hf_directory]") {
  const ScratchDirectory scratch;
  put(scratch / "config.json", "{}");
  put(scratch / "model.safetensors",
      safetensors_bytes(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                        R"("position_ids":{"dtype":"I64","shape":[1],"data_offsets":[4,12]},)"
                        R"("pooler.dense.bias":{"dtype":"U8","shape":[1],"data_offsets":[12,13]}})",
                        std::string(13, '\0')));
  ModelSpec spec{.family = "toy", .layers = {{.name = "h"}}, .surplus = {"pooler."}};
  spec.layers[0].params = {{.name = "w", .shape = {1}, .sources = {{.tensor = "bert.w"}}}};
  spec.layers[0].ignored_tensors = {"bert.position_ids"};
  add_aliases(spec, "bert.");
  const NameReport report = HfDirectory(scratch.path()).check_names(spec);
  CHECK(report.missing.empty());
  CHECK(report.left_out == std::vector<std::string>{"pooler.dense.bias", "position_ids"});
  CHECK(report.notes(spec) ==
        std::vector<std::string>{
            "tensors in the model's files that the model does not use are left out: pooler.dense.bias, position_ids"});
  CHECK_THAT(NameReport({std::vector<std::string>(15, "score.weight"), {}}).notes(spec).at(0),
             Contains("initial values: score.weight, ") && Contains(" and 3 more"));
  spec.surplus.clear();
  CHECK_THAT(message_of<DataError>([&] { HfDirectory(scratch.path()).check_names(spec); }),
             Contains("surplus: pooler.dense.bias") && !Contains("position_ids"));
}

TEST_CASE("buffers may be missing, have another name or another width, but no other shape or kind", "[hf_directory]") {
  const ScratchDirectory scratch;
  put(scratch / "config.json", "{}");
  put(scratch / "model.safetensors",
      safetensors_bytes(R"({"steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                        R"("second.share":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
                        std::string(1, '\7') + std::string(11, '\0')));
  const auto problem = [&](const BufferSpec& buffer) {
    const ModelSpec spec{.family = "toy", .layers = {{.name = "h"}}, .surplus = {"s"}, .buffers = {buffer}};
    return message_of<DataError>([&] { HfDirectory(scratch.path()).check_names(spec); });
  };
  const HfDirectory directory(scratch.path());
  const BufferSpec steps{"steps", {}, at::kLong}, share{"first.share", {1}, at::kDouble, {"second.share"}};
  CHECK(problem(steps).empty());
  CHECK(problem(share).empty());
  CHECK(problem({"missing", {2}, at::kBool}).empty());
  CHECK(directory.buffer(steps).item<int64_t>() == 7);
  CHECK(directory.buffer(share).scalar_type() == at::kDouble);
  CHECK_FALSE(directory.buffer({"missing", {2}, at::kBool}).defined());
  CHECK_THAT(problem({"steps", {1}, at::kLong}), Contains("steps in") && Contains("has the shape []"));
  CHECK_THAT(problem({"steps", {}, at::kFloat}), Contains("has the dtype I64, but the model's buffer has F32"));
  CHECK_THROWS_WITH(directory.buffer({"steps", {}, at::kInt}), Contains("but the model's buffer has I32"));
}

TEST_CASE("integers are not parameters", "[hf_directory]") {
  const ScratchDirectory scratch;
  put(scratch / "config.json", "{}");
  put(scratch / "model.safetensors",
      safetensors_bytes(R"({"x":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", "ab"));
  auto local = at::empty({2}, at::kFloat);
  const ParamSpec param{.name = "x", .shape = {2}, .sources = {{.tensor = "x"}}};
  CHECK_THAT(message_of<DataError>([&] { HfDirectory(scratch.path()).read(param, "x", 0, 1, local); }),
             Contains("dtype I8") && Contains("quantized"));
}

TEST_CASE("the error about a directory without a model states what to do", "[hf_directory]") {
  const ScratchDirectory scratch;
  CHECK_THAT(open(scratch / "absent"), Contains("is not a directory"));
  CHECK_THAT(open(scratch.path()), Contains("config.json"));
  put(scratch / "config.json", "[]");
  CHECK_THAT(open(scratch.path()), Contains("must hold a JSON object"));
  put(scratch / "config.json", R"({"a":1,"a":2})");
  CHECK_THAT(open(scratch.path()), Contains("given twice"));
  put(scratch / "config.json", "{}");

  // A config alone is enough to start with random weights.
  CHECK(HfDirectory(scratch.path()).config().empty());
  const auto check = [&] { return message_of<DataError>([&] { HfDirectory(scratch.path()).check_names(toy()); }); };
  CHECK_THAT(check(),
             Contains("contains none of model.safetensors, model.safetensors.index.json, pytorch_model.bin and "
                      "pytorch_model.bin.index.json"));
  CHECK_FALSE(has_weights(scratch.path()));
  put(scratch / "pytorch_model.bin", "");
  CHECK(has_weights(scratch.path()));
  CHECK_THAT(open(scratch.path()), Contains("pytorch_model.bin: is not a file of torch.save"));
}

TEST_CASE("safetensors are preferred to pytorch_model.bin", "[hf_directory]") {
  const ScratchDirectory scratch;
  put(scratch / "config.json", "{}");
  const std::string index = R"({"weight_map":{"x":"pytorch_model-1.bin"}})";
  const ParamSpec param{.name = "x", .shape = {2}, .sources = {{.tensor = "x"}}};
  const auto value = [&] {
    auto local = at::empty({2}, at::kFloat);
    HfDirectory(scratch.path()).read(param, "x", 0, 1, local);
    return local[0].item<float>();
  };
  const auto numbers = [](float number) {
    const float two[] = {number, number};
    return std::string(reinterpret_cast<const char*>(two), sizeof two);
  };
  const auto file = [&](float number) {
    const auto storage = torch_bytes::storage("FloatStorage", "0", 2);
    return torch_bytes::archive(torch_bytes::state_dict("x", torch_bytes::tensor(storage, 0, {2}, {1})),
                                {numbers(number)});
  };
  // In the reverse order of precedence.
  put(scratch / "pytorch_model.bin.index.json", index);
  put(scratch / "pytorch_model-1.bin", file(4));
  CHECK(has_weights(scratch.path()));
  CHECK(value() == 4);
  put(scratch / "pytorch_model.bin", file(3));
  CHECK(value() == 3);
  put(scratch / "model.safetensors.index.json", R"({"weight_map":{"x":"model-1.safetensors"}})");
  put(scratch / "model-1.safetensors",
      safetensors_bytes(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", numbers(2)));
  CHECK(value() == 2);
  put(scratch / "model.safetensors",
      safetensors_bytes(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", numbers(1)));
  put(scratch / "pytorch_model.bin", "not read");
  CHECK(value() == 1);
}

TEST_CASE("an index of pytorch_model.bin may name only files in its directory", "[hf_directory]") {
  const ScratchDirectory scratch;
  fs::copy(golden("torch/sharded"), scratch.path());
  REQUIRE(open(scratch.path()).empty());
  const std::string index = scratch / "pytorch_model.bin.index.json";
  const auto with_map = [&](const std::string& map) {
    put(index, R"({"weight_map":)" + map + "}");
    return open(scratch.path());
  };
  for (const char* file : {"../other.bin", "/etc/x.bin", "sub/x.bin", "..", "", "model.safetensors", "a\\u0000.bin"})
    CHECK_THAT(with_map(std::string(R"({"wte.weight":")") + file + "\"}"),
               Contains("a .bin file in the same directory"));
  CHECK_THAT(with_map(R"({"wte.weight":"pytorch_model-00002-of-00002.bin"})"), Contains("does not contain it"));
  CHECK_THAT(with_map(R"({"h.0.c_attn.weight":"pytorch_model-00002-of-00002.bin"})"), Contains("does not assign it"));
}

TEST_CASE("a large tensor of the older format is read in pieces, wherever it begins", "[hf_directory]") {
  constexpr int64_t rows = 1500, columns = 7001;
  const auto values = counted({rows, columns});
  const std::string data(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  const std::string end = "\x80\x02]" + torch_bytes::text("0") + "a." + torch_bytes::number_bytes(rows * columns, 8);
  const auto storage = torch_bytes::storage("FloatStorage", "0", rows * columns);
  const auto tensor = torch_bytes::tensor(storage, 0, {columns, rows}, {1, columns});  // transposed in the file
  const ScratchDirectory scratch;
  put(scratch / "config.json", "{}");
  for (const std::string name : {"l", "la", "lar", "larg"}) {
    put(scratch / "pytorch_model.bin", torch_bytes::older(torch_bytes::state_dict(name, tensor), end + data));
    const HfDirectory directory(scratch.path());
    const ParamSpec param{.name = name, .shape = {columns, rows}, .split_dim = 0, .sources = {{.tensor = name}}};
    auto half = at::full(param.local_shape(1, 2), -99, at::kFloat);
    int64_t copied = 0;
    directory.read(param, name, 1, 2, half, [&](int64_t piece) {
      CHECK(piece <= static_cast<int64_t>(HfDirectory::kPieceBytes));
      copied += piece;
    });
    CHECK(copied == static_cast<int64_t>(half.nbytes()));
    const auto mine = split_range(columns, 2, 1);
    CHECK(at::equal(half, values.t().narrow(0, mine.begin, mine.length)));
  }
}

TEST_CASE("an index with wrong contents, or with paths that lead out of the directory, is refused", "[hf_directory]") {
  const ScratchDirectory scratch;
  copy_golden(scratch);
  REQUIRE(open(scratch.path()).empty());
  const std::string index = scratch / "model.safetensors.index.json";
  const auto with_map = [&](const std::string& map) {
    put(index, R"({"weight_map":)" + map + "}");
    return open(scratch.path());
  };
  for (const char* file : {"../other.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..", "", "config.json",
                           "a\\u0000.safetensors"})
    CHECK_THAT(with_map(std::string(R"({"wte.weight":")") + file + "\"}"), Contains("in the same directory"));
  CHECK_THAT(with_map(R"({"wte.weight":3})"), Contains("in the same directory"));
  CHECK_THAT(with_map("[]"), Contains("/weight_map must be an object"));
  CHECK_THAT(with_map("{}"), Contains("/weight_map must be an object"));
  CHECK_THAT(with_map(R"({"wte.weight":"model-00002-of-00002.safetensors"})"), Contains("does not contain it"));
  CHECK_THAT(with_map(R"({"h.0.c_attn.weight":"model-00002-of-00002.safetensors"})"), Contains("does not assign it"));
  CHECK_THAT(with_map(R"({"wte.weight":"gone.safetensors"})"), Contains("gone.safetensors: cannot be opened"));
  put(index, "{");
  CHECK_THAT(open(scratch.path()), Contains("not JSON"));
}

TEST_CASE("different directories have different digests", "[hf_directory]") {
  const ScratchDirectory scratch;
  copy_golden(scratch);
  const auto digest = [&] { return HfDirectory(scratch.path()).digest(); };
  const auto before = digest();
  CHECK(before == HfDirectory(golden("sharded")).digest());

  const std::string shard = scratch / "model-00001-of-00002.safetensors";
  auto bytes = contents(shard);
  bytes[bytes.find("}}") + 60] = 'x';  // a weight
  put(shard, bytes);
  const auto other_weights = digest();
  CHECK(other_weights != before);
  put(scratch / "config.json", R"({"n_head":3})");
  CHECK(digest() != other_weights);
}

TEST_CASE("tokenizer and generation files are found", "[hf_directory]") {
  const ScratchDirectory scratch;
  copy_golden(scratch);
  put(scratch / "tokenizer.json", "{}");
  put(scratch / "generation_config.json", "{}");
  put(scratch / "notes.txt", "");
  put(scratch / "sentencepiece.bpe.model", "");
  CHECK(companion_files(scratch.path()) == std::vector<std::string>{scratch / "generation_config.json",
                                                                    scratch / "tokenizer.json",
                                                                    scratch / "sentencepiece.bpe.model"});
}

}  // namespace shardline::hf_directory_test
