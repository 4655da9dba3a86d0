// Rows for tokens that a model's files do not have.
#include "models/files/new_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cov.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "tests/models/files/files.h"

#include "tests/catch.h"

namespace shardline::new_rows_test {
namespace {

using Catch::Contains;

constexpr int64_t kOld = 7, kWidth = 3;

// Table [7, 3] and bias [7] of a file.
struct Files {
  Files() {
    values.resize(kOld * kWidth + kOld);
    for (size_t i = 0; i < values.size(); ++i) values[i] = float((i * i) % 11) - 4;
    put(scratch / "config.json", "{}");
    put(scratch / "model.safetensors",
        safetensors_bytes(R"({"table":{"dtype":"F32","shape":[7,3],"data_offsets":[0,84]},)"
                          R"("bias":{"dtype":"F32","shape":[7],"data_offsets":[84,112]}})",
                          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))));
  }
  at::Tensor table() { return at::from_blob(values.data(), {kOld, kWidth}, at::kFloat).clone(); }
  at::Tensor bias() { return at::from_blob(values.data() + kOld * kWidth, {kOld}, at::kFloat).clone(); }

  std::vector<float> values;
  ScratchDirectory scratch;
};

ModelSpec model(int64_t words) {
  ModelSpec spec{.family = "toy"};
  spec.layers = {{.name = "ends",
                  .params = {{.name = "table",
                              .shape = {words, kWidth},
                              .split_dim = 0,
                              .row_is_word = true,
                              .sources = {{.tensor = "table"}}},
                             {.name = "bias",
                              .shape = {words},
                              .split_dim = 0,
                              .row_is_word = true,
                              .sources = {{.tensor = "bias", .shape = {words}}}}}}};
  return spec;
}

// The whole parameter, read and drawn by T ranks.
at::Tensor filled(const HfDirectory& files, const ParamSpec& param, int t_degree, uint64_t seed = 5) {
  std::vector<at::Tensor> parts;
  for (int t = 0; t < t_degree; ++t) {
    parts.push_back(at::empty(param.local_shape(t, t_degree), at::kFloat).fill_(1e30));
    int64_t bytes = 0;
    const auto count = [&](int64_t more) { bytes += more; };
    files.read(param, "toy", t, t_degree, parts.back(), count);
    draw_new_rows(files, param, "toy", 3, seed, t, t_degree, parts.back(), count);
    CHECK(bytes == std::int64_t(parts.back().nbytes()));
  }
  return at::cat(parts);
}

}  // namespace

TEST_CASE("new rows are close to the mean of the others and the same on every layout") {
  Files own;
  const HfDirectory files(own.scratch.path());
  const ModelSpec spec = model(12);
  const ParamSpec &table = spec.layers[0].params[0], &bias = spec.layers[0].params[1];
  CHECK(files.rows_of(table) == kOld);
  const auto whole = filled(files, table, 1);
  CHECK(at::equal(whole.narrow(0, 0, kOld), own.table()));
  const auto fresh = whole.narrow(0, kOld, 5);
  CHECK(at::allclose(fresh, own.table().mean(0, true).expand({5, kWidth}), 0, 1e-3));
  CHECK_FALSE(at::equal(fresh[0], fresh[1]));
  for (const int t : {2, 3, 5, 12}) CHECK(at::equal(filled(files, table, t), whole));  // some ranks have only new rows
  CHECK_FALSE(at::equal(filled(files, table, 1, /*seed=*/6), whole));

  const auto words_bias = filled(files, bias, 1);
  CHECK(at::equal(words_bias.narrow(0, 0, kOld), own.bias()));
  CHECK(at::allclose(words_bias.narrow(0, kOld, 5), own.bias().mean().expand({5}), 0, 1e-3));
  CHECK(at::equal(filled(files, bias, 3), words_bias));
}

TEST_CASE("new rows have 1e-9 of the covariance of the others") {
  Files own;
  const HfDirectory files(own.scratch.path());
  ParamSpec table = model(kOld + 40000).layers[0].params[0];
  const auto values = at::empty(table.shape, at::kDouble);
  files.read(table, "toy", 0, 1, values);
  draw_new_rows(files, table, "toy", 0, 1, 0, 1, values);
  const auto fresh = values.narrow(0, kOld, 40000), old = own.table().to(at::kDouble);
  const auto expected = at::cov(old.t(), /*correction=*/0) * 1e-9;
  CHECK(at::allclose(at::cov(fresh.t()), expected, 0, 0.03 * expected.abs().max().item<double>()));
  CHECK(at::allclose(fresh.mean(0), old.mean(0), 0, 4e-6));
}

TEST_CASE("a model may have more, but not fewer, words than its files") {
  Files own;
  const HfDirectory files(own.scratch.path());
  CHECK(files.check_names(model(kOld)).grown.empty());
  const NameReport report = files.check_names(model(9));
  CHECK(report.grown == std::vector<std::string>{"table (7 -> 9)", "bias (7 -> 9)"});
  REQUIRE(report.notes(model(9)).size() == 1);
  CHECK_THAT(report.notes(model(9))[0], Contains("table (7 -> 9), bias (7 -> 9)") && Contains("around the mean"));
  CHECK_THAT(message_of<DataError>([&] { files.check_names(model(6)); }), Contains("the shape [7, 3]"));
  ModelSpec other = model(9);
  other.layers[0].params[0].row_is_word = false;
  CHECK_THAT(message_of<DataError>([&] { files.check_names(other); }), Contains("the model needs [9, 3]"));
}

}  // namespace shardline::new_rows_test
