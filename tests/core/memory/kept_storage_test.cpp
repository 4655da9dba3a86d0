#include "core/memory/kept_storage.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include "tests/catch.h"

namespace shardline::kept_storage_test {

TEST_CASE("each storage counts once, with the part of it that is used, and tensors without memory do not count") {
  const auto a = at::randn({10, 3}), b = at::randn({4});
  CHECK(bytes_of(storages_of({a, a.detach(), a.t(), b, {}})) == (30 + 4) * 4);
  CHECK(bytes_of(storages_of({a.narrow(0, 0, 2), a.narrow(0, 1, 3)})) == 12 * 4);
  CHECK(storages_of({at::randn({0, 3}), {}}).empty());
  a.storage().set_data_ptr_noswap(at::DataPtr(nullptr, at::kCPU));
  CHECK(bytes_of(storages_of({a, b})) == 4 * 4);
}

}  // namespace shardline::kept_storage_test
