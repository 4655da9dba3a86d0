#include "pipeline/activations/kept_storages.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>

#include <filesystem>

#include "tests/catch.h"

namespace shardline::kept_storages_test {

TEST_CASE("each storage counts once, by the part of it that is seen, and what has no memory does not count") {
  const auto a = at::randn({10, 3}), b = at::randn({4});
  CHECK(bytes_of(storages_of({a, a.detach(), a.t(), b, {}})) == (30 + 4) * 4);
  CHECK(bytes_of(storages_of({a.narrow(0, 0, 2), a.narrow(0, 1, 3)})) == 12 * 4);
  CHECK(storages_of({at::randn({0, 3}), {}}).empty());
  a.storage().set_data_ptr_noswap(at::DataPtr(nullptr, at::kCPU));
  CHECK(bytes_of(storages_of({a, b})) == 4 * 4);
}

TEST_CASE("tensors that moved out hold no memory, and share theirs again when they are back") {
  const auto space = offload_to_file(std::filesystem::temp_directory_path());
  auto owner = at::randn({6, 5});
  const auto whole = owner.detach(), part = owner.narrow(0, 2, 3), turned = owner.t(),
             other = at::randn({7}, at::kDouble);
  const auto values = owner.clone(), others = other.clone();
  auto storages = storages_of({whole, part, turned, other});
  REQUIRE(storages.size() == 2);
  MovedOut away(std::move(storages), *space);
  CHECK(storages_of({whole, part, turned, other}).empty());
  CHECK(owner.storage().use_count() == 1);  // nobody of them holds it
  CHECK(at::equal(owner, values));          // who else held it, still does
  CHECK(away.fetch() == 30 * 4 + 7 * 8);
  away.take();
  CHECK(at::equal(whole, values));
  CHECK(at::equal(part, values.narrow(0, 2, 3)));
  CHECK(at::equal(turned, values.t()));
  CHECK(at::equal(other, others));
  CHECK(part.is_alias_of(whole));
  CHECK_FALSE(whole.is_alias_of(owner));
}

}  // namespace shardline::kept_storages_test
