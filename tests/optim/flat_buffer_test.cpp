#include "optim/flat_buffer.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>

#include "tests/catch.h"

namespace shardline {
namespace {

struct Specs {
  ParamSpec norm{.name = "norm", .shape = {5}, .decays = false, .partial_over_t = true};
  ParamSpec weight{.name = "weight", .shape = {5, 3, 4}, .split_dim = 0};
  ParamSpec bias{.name = "bias", .shape = {5, 3}, .split_dim = 0, .decays = false};
  ParamSpec table{.name = "table", .shape = {7, 3}};
  ParamSpec frozen{.name = "frozen", .shape = {4}, .split_dim = 0, .trainable = false};

  std::vector<NamedParam> named() const {
    return {{"l.frozen", &frozen}, {"l.norm", &norm}, {"l.weight", &weight}, {"l.bias", &bias}, {"l.table", &table}};
  }
};

}  // namespace

TEST_CASE("how ranks stand to a gradient") {
  const Specs s;
  CHECK(sharing_of(s.weight, 2) == Sharing::split);
  CHECK(sharing_of(s.norm, 2) == Sharing::partial);
  CHECK(sharing_of(s.table, 2) == Sharing::complete);
  for (const auto* spec : {&s.weight, &s.norm, &s.table}) CHECK(sharing_of(*spec, 1) == Sharing::complete);
}

TEST_CASE("segments cover the buffer, aligned, one for each kind, trainable ones first") {
  const Specs s;
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (int ranks : {1, 2, 3, 8})
      for (int t = 0; t < ranks; ++t) {
        CAPTURE(ranks, t);
        const auto named = s.named();
        const FlatBuffer buffer(named, t, ranks, dtype, at::kCPU);
        const auto gradients = buffer.make_gradients();
        const int64_t alignment = 64 / static_cast<int64_t>(buffer.values().element_size());
        int64_t end = 0;
        bool trainable = true;
        for (const auto& segment : buffer.segments()) {
          CHECK(segment.begin == end);
          CHECK(segment.begin % alignment == 0);
          CHECK((trainable || !segment.trainable));
          trainable = segment.trainable;
          end += segment.length;
        }
        CHECK(end == buffer.values().numel());
        CHECK(gradients.numel() == buffer.trainable_elements());
        CHECK(buffer.segments().size() == (ranks == 1 ? 3 : 5));  // without splits: decays or not, and frozen

        const auto views = buffer.views(gradients);
        for (size_t i = 0; i < views.size(); ++i) {
          const auto& [name, spec] = named[i];
          CHECK(views[i].name == name);  // in the order given
          CHECK(views[i].value.sizes() == at::IntArrayRef(spec->local_shape(t, ranks)));
          CHECK(views[i].grad.defined() == spec->trainable);
          if (views[i].value.numel() == 0) continue;
          CHECK(views[i].value.storage_offset() % alignment == 0);
          for (const auto& segment : buffer.segments()) {
            const int64_t at = views[i].value.storage_offset();
            if (at < segment.begin || at >= segment.begin + segment.length) continue;
            CHECK(segment.sharing == sharing_of(*spec, ranks));
            CHECK(segment.decays == spec->decays);
            CHECK(segment.trainable == spec->trainable);
          }
        }
      }
}

TEST_CASE("views are the buffer, and never each other") {
  const Specs s;
  const FlatBuffer buffer(s.named(), 1, 3, at::kFloat, at::kCPU);
  const auto gradients = buffer.make_gradients();
  const auto views = buffer.views(gradients);
  int64_t elements = 0, trained = 0;
  for (const auto& view : views) {
    view.value.add_(1);
    elements += view.value.numel();
    if (!view.grad.defined()) continue;
    view.grad.add_(1);
    trained += view.grad.numel();
  }
  CHECK(buffer.values().sum().item<double>() == static_cast<double>(elements));  // padding stayed zero, nothing twice
  CHECK(gradients.sum().item<double>() == static_cast<double>(trained));
  CHECK(buffer.values().max().item<double>() == 1);
  CHECK(gradients.max().item<double>() == 1);
}

TEST_CASE("gradients of half precision are kept in single precision") {
  const Specs s;
  CHECK(FlatBuffer(s.named(), 0, 1, at::kBFloat16, at::kCPU).make_gradients().scalar_type() == at::kFloat);
  CHECK(FlatBuffer(s.named(), 0, 1, at::kDouble, at::kCPU).make_gradients().scalar_type() == at::kDouble);
}

TEST_CASE("a buffer of nothing") {
  const FlatBuffer buffer({}, 0, 1, at::kFloat, at::kCPU);
  CHECK(buffer.values().numel() == 0);
  CHECK(buffer.segments().empty());
  CHECK(buffer.views(buffer.make_gradients()).empty());
}

}  // namespace shardline
