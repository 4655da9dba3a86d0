#include "models/program/ops/number_functions.h"

#include <limits>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::number_functions_test {
namespace {

int64_t whole(const std::string& name, const std::vector<c10::IValue>& arguments) {
  return number_function(name)(arguments).toInt();
}
double real(const std::string& name, const std::vector<c10::IValue>& arguments) {
  return number_function(name)(arguments).toDouble();
}
bool truth(const std::string& name, const std::vector<c10::IValue>& arguments) {
  return number_function(name)(arguments).toBool();
}

constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();

}  // namespace

TEST_CASE("sizes are computed as Python computes them", "[number_functions]") {
  CHECK(whole("_operator.add", {3, 4}) == 7);
  CHECK(whole("_operator.sub", {3, 4}) == -1);
  CHECK(whole("_operator.mul", {3, true}) == 3);
  CHECK(whole("_operator.floordiv", {7, 2}) == 3);
  CHECK(whole("_operator.floordiv", {-7, 2}) == -4);
  CHECK(whole("_operator.floordiv", {7, -2}) == -4);
  CHECK(whole("_operator.mod", {-7, 2}) == 1);
  CHECK(whole("_operator.mod", {7, -2}) == -1);
  CHECK(whole("_operator.mod", {kLeast, -1}) == 0);
  CHECK(real("_operator.floordiv", {-7.0, 2}) == -4);
  CHECK(real("_operator.mod", {-7.0, 2}) == 1);
  CHECK(real("_operator.truediv", {7, 2}) == 3.5);
  CHECK(real("_operator.mul", {7, 0.5}) == 3.5);
  CHECK(whole("_operator.neg", {5}) == -5);
  CHECK(real("_operator.neg", {0.5}) == -0.5);
  CHECK(whole("math.trunc", {-2.7}) == -2);
  CHECK(whole("torch.sym_int", {2.7}) == 2);
  CHECK(real("torch.sym_float", {2}) == 2);
  CHECK(whole("torch.sym_max", {2, 3}) == 3);
  CHECK(whole("torch.sym_min", {2, 3}) == 2);
  CHECK(truth("_operator.lt", {2, 3}));
  CHECK(!truth("_operator.ge", {2, 3}));
  CHECK(truth("_operator.eq", {2, 2.0}));
  CHECK(truth("_operator.ne", {kMost, kMost - 1}));  // equal as doubles
  CHECK(truth("_operator.or_", {false, true}));
  CHECK(!truth("_operator.and_", {false, true}));
  CHECK(truth("torch.sym_not", {false}));
  CHECK(whole("torch.sym_ite", {false, 1, 2}) == 2);
}

TEST_CASE("a computation without a result is an error", "[number_functions]") {
  CHECK(!is_number_function("os.system"));
  CHECK_THROWS_AS(number_function("_operator.floordiv")({1, 0}), RunError);
  CHECK_THROWS_AS(number_function("_operator.mod")({1, 0}), RunError);
  CHECK_THROWS_AS(number_function("_operator.truediv")({1, 0}), RunError);
  CHECK_THROWS_AS(number_function("_operator.mul")({kMost, 2}), RunError);
  CHECK_THROWS_AS(number_function("_operator.floordiv")({kLeast, -1}), RunError);
  CHECK_THROWS_AS(number_function("_operator.neg")({kLeast}), RunError);
  CHECK_THROWS_AS(number_function("math.trunc")({1e300}), RunError);
  CHECK_THROWS_AS(number_function("_operator.add")({1}), RunError);
  CHECK_THROWS_AS(number_function("_operator.add")({1, c10::IValue()}), RunError);
}

}  // namespace shardline::number_functions_test
