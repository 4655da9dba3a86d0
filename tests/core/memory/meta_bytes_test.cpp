#include "core/memory/meta_bytes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "tests/catch.h"

namespace shardline::meta_bytes_test {

TEST_CASE("meta tensors are counted by storage, as long as they exist and counting is on") {
  const at::TensorOptions meta = at::TensorOptions(at::kMeta).dtype(at::kFloat);
  const auto before = at::empty({10}, meta);
  {
    MetaBytes bytes;
    auto a = at::empty({10, 3}, meta);
    const auto view = a.t();
    CHECK(bytes.live() == 120);
    CHECK(a.storage().data() != nullptr);
    { const auto b = at::empty({5}, meta.dtype(at::kDouble)), none = at::empty({0}, meta); }
    CHECK(bytes.live() == 120);
    CHECK(bytes.peak() == 160);
    bytes.restart_peak();
    CHECK(bytes.peak() == 120);
    const auto sum = a + a;
    CHECK(bytes.live() == 240);
    view.storage().set_data_ptr_noswap(at::DataPtr(nullptr, at::kMeta));
    CHECK(bytes.live() == 120);
    CHECK_THROWS(MetaBytes());
  }
  const auto after = at::empty({10}, meta);
  CHECK(after.storage().data() == nullptr);
}

}  // namespace shardline::meta_bytes_test
