#include "tensor_parallel/ops/embedding.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "core/comm/local_communicator.h"
#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::embedding_test {
namespace {

constexpr int64_t kWords = 11, kPositions = 9, kHidden = 4;

void check_embedding(int ranks, bool sequence_parallel, bool split, int64_t samples, int64_t length,
                     int64_t first_position) {
  CAPTURE(ranks, sequence_parallel, split, samples, length, first_position);
  const ParamSpec words{.name = "wte", .shape = {kWords, kHidden}, .split_dim = split ? 0 : -1};
  const ParamSpec positions{.name = "wpe", .shape = {kPositions, kHidden}, .partial_over_t = sequence_parallel};
  const auto wte = at::randn(words.shape, at::kDouble).requires_grad_(true);
  const auto wpe = at::randn(positions.shape, at::kDouble).requires_grad_(true);
  const at::Tensor ids = at::randint(kWords, {samples, length}, at::kLong);
  const Microbatch batch = causal_microbatch(ids, {}, {}, first_position);
  const auto where = at::arange(first_position, first_position + length, at::kLong);
  const auto y = (at::embedding(wte, ids) + at::embedding(wpe, where)).view({-1, kHidden});
  const auto dy = at::randn(y.sizes(), at::kDouble);
  torch::autograd::backward({y}, {dy});

  const double worst = worst_over_ranks(ranks, [&](Communicator& comm) {
    const TensorParallel tp{&comm, sequence_parallel};
    Parameter w = parameter_of(words, wte, tp.rank(), ranks), p = parameter_of(positions, wpe, tp.rank(), ranks);
    const auto mine = embedding(tp, batch, w, words.split(tp.rank(), ranks).begin, {{.table = &p}});
    torch::autograd::backward({mine}, {slice_rows(tp, dy)});
    if (sequence_parallel) comm.all_reduce(p.grad)->wait();  // each rank has its rows' part
    if (sequence_parallel && !split) comm.all_reduce(w.grad)->wait();
    return std::vector{difference(mine, slice_rows(tp, y.detach())),
                       difference(w.grad, part_of(words, wte.grad(), tp.rank(), ranks)),
                       difference(p.grad, wpe.grad())};
  });
  CHECK(worst <= 1e-14);
}

}  // namespace

TEST_CASE("split and whole embeddings equal that of one process, for sizes that T does not divide") {
  for (int ranks : {1, 2, 3, 4})
    for (bool sequence_parallel : {false, true})
      for (bool split : {true, false}) {
        check_embedding(ranks, sequence_parallel, split, 3, 7, 0);
        check_embedding(ranks, sequence_parallel, split, 1, 1, 8);  // fewer tokens than ranks, at the last position
        check_embedding(ranks, sequence_parallel, split, 2, 4, 5);
        check_embedding(ranks, sequence_parallel, split, 0, 4, 0);
      }
}

TEST_CASE("without a table of positions, an embedding consists of the words only") {
  const at::Tensor ids = at::randint(kWords, {2, 5}, at::kLong);
  const Microbatch batch = causal_microbatch(ids, {}, {}, 3);
  const ParamSpec words{.name = "wte", .shape = {kWords, kHidden}, .split_dim = 0};
  const auto wte = at::randn(words.shape, at::kDouble).requires_grad_(true);
  const auto y = at::embedding(wte, ids).view({-1, kHidden});
  const auto dy = at::randn(y.sizes(), at::kDouble);
  torch::autograd::backward({y}, {dy});
  for (int ranks : {1, 3})
    for (bool sequence_parallel : {false, true})
      CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
              const TensorParallel tp{&comm, sequence_parallel};
              Parameter w = parameter_of(words, wte, tp.rank(), ranks);
              const auto mine = embedding(tp, batch, w, words.split(tp.rank(), ranks).begin, {});
              torch::autograd::backward({mine}, {slice_rows(tp, dy)});
              return std::vector{difference(mine, slice_rows(tp, y.detach())),
                                 difference(w.grad, part_of(words, wte.grad(), tp.rank(), ranks))};
            }) <= 1e-14);
}

TEST_CASE("token types are added, and positions may start at a later entry") {
  constexpr int64_t kFirst = 2, kTypes = 3, kTokens = 7;
  Microbatch batch{.ids = at::randint(kWords, {kTokens}, at::kLong), .ends = {4, kTokens}};
  batch.positions = at::cat({at::arange(4, at::kLong), at::arange(3, at::kLong)});
  const ParamSpec words{.name = "words", .shape = {kWords, kHidden}, .split_dim = 0};
  const ParamSpec positions{.name = "positions", .shape = {kPositions, kHidden}};
  const ParamSpec types{.name = "types", .shape = {kTypes, kHidden}};
  const auto w = at::randn(words.shape, at::kDouble).requires_grad_(true);
  const auto p = at::randn(positions.shape, at::kDouble).requires_grad_(true);
  const auto t = at::randn(types.shape, at::kDouble).requires_grad_(true);
  const auto dy = at::randn({kTokens, kHidden}, at::kDouble);
  for (const bool has_types : {true, false}) {
    if (has_types) batch.types = at::randint(kTypes, {kTokens}, at::kLong);
    const auto of_rows = has_types ? batch.types : at::zeros({kTokens}, at::kLong);
    for (const auto& table : {w, p, t}) table.mutable_grad() = at::Tensor();
    const auto y = at::embedding(w, batch.ids) + at::embedding(p, batch.positions + kFirst) + at::embedding(t, of_rows);
    torch::autograd::backward({y}, {dy});
    for (int ranks : {1, 2, 4})
      for (bool sequence_parallel : {false, true}) {
        CAPTURE(has_types, ranks, sequence_parallel);
        CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
                const TensorParallel tp{&comm, sequence_parallel};
                Parameter mine = parameter_of(words, w, tp.rank(), ranks), place = parameter_of(positions, p, 0, 1),
                          type = parameter_of(types, t, 0, 1);
                const auto sum = embedding(tp, batch, mine, words.split(tp.rank(), ranks).begin,
                                           {{&place, AddedTable::By::position, kFirst}, {&type, AddedTable::By::type}});
                torch::autograd::backward({sum}, {slice_rows(tp, dy)});
                if (sequence_parallel)
                  for (const auto* table : {&place, &type}) comm.all_reduce(table->grad)->wait();
                return std::vector{difference(sum, slice_rows(tp, y.detach())),
                                   difference(mine.grad, part_of(words, w.grad(), tp.rank(), ranks)),
                                   difference(place.grad, p.grad()), difference(type.grad, t.grad())};
              }) <= 1e-14);
      }
    batch.types = at::Tensor();
  }
}

TEST_CASE("an embedding can have more ranks than words") {
  const ParamSpec words{.name = "wte", .shape = {2, kHidden}, .split_dim = 0};
  const ParamSpec positions{.name = "wpe", .shape = {kPositions, kHidden}};
  const auto wte = at::randn(words.shape, at::kDouble), wpe = at::randn(positions.shape, at::kDouble);
  const at::Tensor ids = at::randint(2, {2, 3}, at::kLong);
  const Microbatch batch = causal_microbatch(ids);
  const auto y = (at::embedding(wte, ids) + wpe.narrow(0, 0, 3)).view({-1, kHidden});
  CHECK(worst_over_ranks(3, [&](Communicator& comm) {
          const TensorParallel tp{&comm, false};
          Parameter w = parameter_of(words, wte, tp.rank(), 3), p = parameter_of(positions, wpe, tp.rank(), 3);
          return std::vector{difference(embedding(tp, batch, w, words.split(tp.rank(), 3).begin, {{.table = &p}}), y)};
        }) == 0);
}

TEST_CASE("noise on embeddings is that of NEFTune, and that of an element does not depend on the rank") {
  constexpr int64_t kWide = 30, kTokens = 2 + 5 + 90;
  constexpr double kAlpha = 5;
  Microbatch batch = causal_microbatch(at::zeros({1, kTokens}, at::kLong), {}, at::full({1}, 7, at::kLong));
  batch.ends = {2, 7, kTokens};
  MicrobatchContext context{.batch = &batch, .seed = 3, .step = 4, .embedding_noise = kAlpha};
  const auto noise_on = [&](const MicrobatchContext& one, const TensorParallel& tp) {
    auto rows = at::zeros({border_rows(kTokens, tp.size(), tp.sequence_parallel), kWide}, at::kDouble);
    add_embedding_noise(tp, one, 0, rows);
    return rows;
  };
  const auto alone = make_local_world();
  const auto whole = noise_on(context, {alone.get(), false});
  int64_t begin = 0;
  for (const int64_t end : batch.ends) {
    const double bound = kAlpha / std::sqrt(double((end - begin) * kWide));
    const auto part = whole.narrow(0, begin, end - begin) / bound;
    CHECK(part.abs().max().item<double>() <= 1);
    CHECK(part.abs().max().item<double>() > 0.9);
    CHECK(std::abs(part.mean().item<double>()) < 4 / std::sqrt(3.0 * double(part.numel())));
    begin = end;
  }
  const auto last = whole.narrow(0, 7, 90) * std::sqrt(90.0 * kWide) / kAlpha;
  CHECK(last.square().mean().item<double>() == Approx(1.0 / 3).epsilon(0.05));
  for (const int ranks : {2, 3})
    CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
            const TensorParallel tp{&comm, true};
            return std::vector{difference(noise_on(context, tp), slice_rows(tp, whole))};
          }) == 0);
  MicrobatchContext next = context;
  next.step += 1;
  CHECK_FALSE(at::equal(noise_on(next, {alone.get(), false}), whole));
  context.mode = Mode::evaluate;
  CHECK(noise_on(context, {alone.get(), false}).count_nonzero().item<int64_t>() == 0);
}

}  // namespace shardline::embedding_test
