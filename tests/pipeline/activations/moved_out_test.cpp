#include "pipeline/activations/moved_out.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>

#include <filesystem>

#include "tests/catch.h"

namespace shardline::moved_out_test {

TEST_CASE("offloaded tensors hold no memory, and share theirs again when they are back") {
  const auto space = offload_to_file(std::filesystem::temp_directory_path());
  auto owner = at::randn({6, 5});
  const auto whole = owner.detach(), part = owner.narrow(0, 2, 3), turned = owner.t(),
             other = at::randn({7}, at::kDouble);
  const auto values = owner.clone(), others = other.clone();
  auto storages = storages_of({whole, part, turned, other});
  REQUIRE(storages.size() == 2);
  MovedOut away(std::move(storages), *space);
  CHECK(storages_of({whole, part, turned, other}).empty());
  CHECK(owner.storage().use_count() == 1);  // none of them holds it
  CHECK(at::equal(owner, values));          // other holders of the storage still have the values
  CHECK(away.fetch() == 30 * 4 + 7 * 8);
  away.take();
  CHECK(at::equal(whole, values));
  CHECK(at::equal(part, values.narrow(0, 2, 3)));
  CHECK(at::equal(turned, values.t()));
  CHECK(at::equal(other, others));
  CHECK(part.is_alias_of(whole));
  CHECK_FALSE(whole.is_alias_of(owner));
}

}  // namespace shardline::moved_out_test
