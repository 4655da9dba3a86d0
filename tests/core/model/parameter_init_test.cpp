#include "core/model/parameter_init.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include "tests/catch.h"

namespace shardline::parameter_init_test {
namespace {

at::Tensor initial(const ParamSpec& spec, int t, int t_degree, int number = 3, uint64_t seed = 42,
                   at::ScalarType dtype = at::kDouble) {
  Parameter parameter{spec.name, &spec, at::full(spec.local_shape(t, t_degree), 7.0, dtype), {}};
  init_parameter(parameter, number, seed, t, t_degree);
  return parameter.value;
}

ParamSpec normal(std::vector<int64_t> shape, int split_dim) {
  return {.name = "w", .shape = std::move(shape), .split_dim = split_dim, .init = {Init::Kind::normal, 0.5}};
}

}  // namespace

TEST_CASE("every rank generates its own slice of the same initial values") {
  for (int split_dim : {0, 1, 2, 3}) {
    const ParamSpec spec = normal({3, 5, 2, 7}, split_dim);
    const auto whole = initial(spec, 0, 1);
    for (int ranks : {2, 3, 4, 8})  // uneven, and more ranks than units
      for (int t = 0; t < ranks; ++t) {
        CAPTURE(split_dim, ranks, t);
        const Range range = spec.split(t, ranks);
        CHECK(at::equal(initial(spec, t, ranks), whole.narrow(split_dim, range.begin, range.length)));
      }
  }
  const ParamSpec replicated = normal({40, 3}, -1);
  CHECK(at::equal(initial(replicated, 1, 2), initial(replicated, 0, 1)));
}

TEST_CASE("initial values in single precision are the rounded values of double precision") {
  const ParamSpec spec = normal({4, 300}, 0);
  CHECK(at::equal(initial(spec, 0, 1, 3, 42, at::kFloat), initial(spec, 0, 1).to(at::kFloat)));
}

TEST_CASE("initial values have the spec's deviation and differ by parameter and seed") {
  const ParamSpec spec = normal({200, 100}, -1);
  const auto values = initial(spec, 0, 1);
  CHECK(values.mean().item<double>() == Approx(0).margin(0.02));
  CHECK(values.std().item<double>() == Approx(0.5).epsilon(0.02));
  CHECK_FALSE(at::equal(values, initial(spec, 0, 1, 4)));
  CHECK_FALSE(at::equal(values, initial(spec, 0, 1, 3, 43)));
  const auto correlation = (values * initial(spec, 0, 1, 4)).mean().item<double>() / 0.25;
  CHECK(correlation == Approx(0).margin(0.03));
}

TEST_CASE("constant parameters start with zeros or ones") {
  ParamSpec spec{.name = "b", .shape = {5}, .split_dim = 0, .init = {Init::Kind::ones}};
  CHECK(at::equal(initial(spec, 1, 3), at::full({2}, 1.0, at::kDouble)));
  spec.init.kind = Init::Kind::zeros;
  CHECK(at::equal(initial(spec, 2, 3), at::full({1}, 0.0, at::kDouble)));
}

}  // namespace shardline::parameter_init_test
