#include "tensor_parallel/ops/cross_entropy.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>

#include "core/comm/local_communicator.h"
#include "tensor_parallel/ops/picked_rows.h"
#include "tests/tensor_parallel/ranks.h"

#include "tests/catch.h"

namespace shardline::cross_entropy_test {
namespace {

constexpr int64_t kHidden = 5;

// The largest allocation of this thread during the object's lifetime, in bytes.
class LargestAllocation : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    largest = std::max(largest, bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t largest = 0;
};

struct Problem {
  at::Tensor labels;  // [samples, length], of the same positions as the ids
  ParamSpec words, bias;
  at::Tensor x, w, b;  // [tokens, hidden], [vocabulary, hidden], [vocabulary] or undefined
  Microbatch batch() const { return causal_microbatch(labels, labels); }
};

Problem problem(int64_t samples, int64_t length, int64_t vocabulary, bool split = true) {
  return Problem{.labels = at::randint(vocabulary, {samples, length}, at::kLong),
                 .words = {.name = "w", .shape = {vocabulary, kHidden}, .split_dim = split ? 0 : -1},
                 .bias = {.name = "b", .shape = {vocabulary}, .split_dim = split ? 0 : -1},
                 .x = at::randn({samples * length, kHidden}, at::kDouble) * 3,
                 .w = at::randn({vocabulary, kHidden}, at::kDouble) * 3};
}

Problem with_bias(Problem p) {
  p.b = at::randn(p.bias.shape, at::kDouble) * 3;
  return p;
}

// Compares with at::cross_entropy on whole logits: loss, weight, gradients, and the loss of an evaluation.
void check(const Problem& p, int ranks, bool sequence_parallel, double smoothing = 0) {
  CAPTURE(ranks, sequence_parallel, smoothing, p.labels.size(0), p.labels.size(1), p.words.shape[0], p.words.split_dim,
          p.b.defined());
  const auto x = p.x.detach().clone().requires_grad_(true), w = p.w.detach().clone().requires_grad_(true);
  const auto b = (p.b.defined() ? p.b : at::zeros(p.bias.shape, at::kDouble)).detach().clone().requires_grad_(true);
  const auto logits = (at::matmul(x, w.t()) + b).view({p.labels.size(0), p.labels.size(1), -1});
  const auto label = p.labels.narrow(1, 1, p.labels.size(1) - 1).reshape({-1});
  const auto sum = at::cross_entropy_loss(logits.narrow(1, 0, p.labels.size(1) - 1).reshape({-1, p.words.shape[0]}),
                                          label, {}, at::Reduction::Sum, kNoLabel, smoothing);
  constexpr double kScale = 0.25;
  torch::autograd::backward({sum * kScale});

  const double worst = worst_over_ranks(ranks, [&](Communicator& comm) {
    const TensorParallel tp{&comm, sequence_parallel};
    Parameter mine = parameter_of(p.words, p.w, tp.rank(), ranks), bias;
    if (p.b.defined()) bias = parameter_of(p.bias, p.b, tp.rank(), ranks);
    Parameter* const added = p.b.defined() ? &bias : nullptr;
    const int64_t first = p.words.split(tp.rank(), ranks).begin;
    const auto local = slice_rows(tp, p.x).detach().requires_grad_(true);
    const Microbatch batch = p.batch();
    MicrobatchContext train{.batch = &batch, .mode = Mode::train, .loss_scale = kScale, .label_smoothing = smoothing};
    const auto loss = head_cross_entropy(tp, local, mine, added, first, train);
    torch::autograd::backward({loss});
    MicrobatchContext evaluate{.batch = &batch, .mode = Mode::evaluate, .label_smoothing = smoothing};
    if (sequence_parallel && p.words.split_dim < 0) {  // each rank has its rows' part
      comm.all_reduce(mine.grad)->wait();
      if (added) comm.all_reduce(bias.grad)->wait();
    }
    const auto none = head_cross_entropy(tp, local.detach(), mine, added, first, evaluate);
    const double exact = sum.item<double>(), limit = std::max(1.0, exact);
    return std::vector{difference(loss, sum.detach() * kScale) / limit,
                       std::abs(train.loss.sum - exact) / limit,
                       std::abs(evaluate.loss.sum - exact) / limit,
                       unless(!none.defined()),
                       unless(train.loss.weight == (label != -100).sum().item<double>()),
                       unless(evaluate.loss.weight == train.loss.weight),
                       difference(local.grad(), slice_rows(tp, x.grad())),
                       difference(mine.grad, part_of(p.words, w.grad(), tp.rank(), ranks)),
                       added ? difference(bias.grad, part_of(p.bias, b.grad(), tp.rank(), ranks)) : 0};
  });
  CHECK(worst <= 1e-12);
}

}  // namespace

TEST_CASE("the head and loss, split or whole, equal at::cross_entropy over several blocks of tokens") {
  for (int ranks : {1, 2, 3, 4})
    for (bool sequence_parallel : {false, true})
      for (bool split : {true, false}) {
        check(problem(3, 121, 13, split), ranks, sequence_parallel);  // 363 tokens: a whole block and a part
        check(with_bias(problem(3, 121, 13, split)), ranks, sequence_parallel);
        check(with_bias(problem(1, 3, 3, split)), ranks, sequence_parallel);
        check(problem(2, 128, 13, split), ranks, sequence_parallel);  // exactly one
        check(problem(1, 3, 3, split), ranks, sequence_parallel);     // a rank without words, fewer tokens than ranks
        check(problem(1, 5, 3, split), ranks, sequence_parallel);  // the last of 4 ranks has rows, none of them valid
      }
}

TEST_CASE("labels of -100 do not count") {
  for (bool split : {true, false}) {
    Problem p = problem(4, 9, 7, split);
    p.labels[0].fill_(-100);
    p.labels[2][8] = -100;
    p.labels[3].narrow(0, 0, 5).fill_(-100);
    for (int ranks : {1, 3}) check(p, ranks, true);
  }
}

TEST_CASE("the head of selected rows equals that of all rows if the others have no label") {
  constexpr int64_t kTokens = 300;
  const auto rows = at::tensor({0, 3, 4, 150, 151, 152, 299}, at::kLong);
  Problem p = with_bias(problem(1, kTokens, 13));
  const auto all = at::full({kTokens}, kNoLabel, at::kLong);
  all.index_copy_(0, rows, at::randint(13, {rows.numel()}, at::kLong));
  const Microbatch batch{.ids = all, .labels = all};
  for (int ranks : {1, 2, 3})
    for (bool sequence_parallel : {false, true})
      for (bool split : {true, false}) {
        CAPTURE(ranks, sequence_parallel, split);
        p.words.split_dim = p.bias.split_dim = split ? 0 : -1;
        const double worst = worst_over_ranks(ranks, [&](Communicator& comm) {
          const TensorParallel tp{&comm, sequence_parallel};
          std::vector<at::Tensor> found;
          for (const bool picks : {false, true}) {
            Parameter w = parameter_of(p.words, p.w, tp.rank(), ranks), b = parameter_of(p.bias, p.b, tp.rank(), ranks);
            const auto x = slice_rows(tp, p.x).detach().requires_grad_(true);
            MicrobatchContext context{.batch = &batch, .loss_scale = 0.5};
            const at::Tensor chosen = picks ? rows : at::Tensor();
            const auto loss = head_cross_entropy(tp, picked_rows(tp, x, kTokens, chosen), w, &b,
                                                 p.words.split(tp.rank(), ranks).begin, context, chosen);
            torch::autograd::backward({loss});
            if (sequence_parallel && !split)
              for (const auto* part : {&w, &b}) comm.all_reduce(part->grad)->wait();
            const auto sums = at::tensor({context.loss.sum, context.loss.weight}, at::kDouble);
            for (const at::Tensor& result : {loss.detach(), sums, x.grad(), w.grad, b.grad}) found.push_back(result);
          }
          std::vector<double> apart;
          for (size_t i = 0; i < found.size() / 2; ++i)
            apart.push_back(difference(found[i], found[i + found.size() / 2]));
          return apart;
        });
        CHECK(worst <= 1e-12);
      }
}

TEST_CASE("label smoothing equals that of at::cross_entropy") {
  for (int ranks : {1, 2, 4})
    for (bool split : {true, false}) {
      Problem p = with_bias(problem(3, 121, 13, split));
      p.labels[1].narrow(0, 7, 5).fill_(-100);
      check(p, ranks, true, 0.1);
      check(problem(1, 3, 3, split), ranks, false, 0.3);  // a rank without words
      check(problem(2, 9, 7, split), ranks, true, 1);
    }
}

TEST_CASE("without a label, the loss and its weight are zero, and there is no gradient") {
  Problem one = problem(3, 1, 7), ignored = problem(2, 5, 7);
  ignored.labels.fill_(-100);
  for (const Problem* p : {&one, &ignored}) {
    const auto world = make_local_world();
    const TensorParallel tp{world.get(), false};
    Parameter w = parameter_of(p->words, p->w, 0, 1);
    const auto x = p->x.detach().clone().requires_grad_(true);
    const Microbatch batch = p->batch();
    MicrobatchContext context{.batch = &batch};
    const auto loss = head_cross_entropy(tp, x, w, nullptr, 0, context);
    torch::autograd::backward({loss});
    CHECK(loss.item<double>() == 0);
    CHECK(context.loss.sum == 0);
    CHECK(context.loss.weight == 0);
    CHECK(x.grad().abs().max().item<double>() == 0);
    CHECK(w.grad.abs().max().item<double>() == 0);
  }
}

TEST_CASE("an empty microbatch passes through the head") {
  for (bool split : {true, false}) {
    Problem p = problem(0, 6, 7, split);
    CHECK(worst_over_ranks(2, [&](Communicator& comm) {
            const TensorParallel tp{&comm, true};
            Parameter w = parameter_of(p.words, p.w, tp.rank(), 2);
            const auto x = slice_rows(tp, p.x).detach().requires_grad_(true);
            const Microbatch batch = p.batch();
            MicrobatchContext context{.batch = &batch};
            const auto loss = head_cross_entropy(tp, x, w, nullptr, p.words.split(tp.rank(), 2).begin, context);
            torch::autograd::backward({loss});
            return std::vector{loss.item<double>(), context.loss.weight, w.grad.abs().max().item<double>()};
          }) == 0);
  }
}

TEST_CASE("the logits of all tokens are never held at the same time") {
  const Problem p = problem(8, 128, 1000);
  const auto world = make_local_world();
  const TensorParallel tp{world.get(), false};
  Parameter w = parameter_of(p.words, p.w, 0, 1);
  const auto x = p.x.detach().clone().requires_grad_(true);
  const Microbatch batch = p.batch();
  MicrobatchContext context{.batch = &batch};
  const auto seen = std::make_shared<LargestAllocation>();
  {
    c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, seen);
    torch::autograd::backward({head_cross_entropy(tp, x, w, nullptr, 0, context)});
  }
  CHECK(seen->largest == 256 * 1000 * 8);  // a block's, in double
}

TEST_CASE("the logits of the last positions are whole on every rank") {
  for (bool split : {true, false}) {
    const Problem p = with_bias(problem(3, 4, 7, split));
    const auto last = p.x.view({3, 4, kHidden}).select(1, 3);
    const auto logits = at::matmul(last, p.w.t());
    for (int ranks : {1, 2, 3, 4})
      CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
              const TensorParallel tp{&comm, true};
              const Parameter w = parameter_of(p.words, p.w, tp.rank(), ranks);
              const Parameter b = parameter_of(p.bias, p.b, tp.rank(), ranks);
              const auto rows = slice_rows(tp, p.x);
              return std::vector{difference(head_last_logits(tp, rows, w, nullptr, p.batch()), logits),
                                 difference(head_last_logits(tp, rows, w, &b, p.batch()), logits + p.b)};
            }) <= 1e-13);
  }
}

TEST_CASE("the best words of a row equal those found in whole logits, on every rank") {
  for (const int64_t vocabulary : {3, 7, 600})
    for (const bool split : {true, false}) {
      const Problem p = with_bias(problem(1, vocabulary == 600 ? 300 : 9, vocabulary, split));
      const int64_t count = p.x.size(0), known = std::min(kBestWords, vocabulary);
      const auto [scores, ids] = (at::matmul(p.x, p.w.t()) + p.b).log_softmax(1).topk(known, 1);
      for (const int ranks : {1, 2, 4})
        for (const bool sequence_parallel : {false, true}) {
          CAPTURE(vocabulary, split, ranks, sequence_parallel);
          CHECK(worst_over_ranks(ranks, [&, scores = scores, ids = ids](Communicator& comm) {
                  const TensorParallel tp{&comm, sequence_parallel};
                  const Parameter w = parameter_of(p.words, p.w, tp.rank(), ranks);
                  const Parameter b = parameter_of(p.bias, p.b, tp.rank(), ranks);
                  const auto best =
                      head_best_words(tp, slice_rows(tp, p.x), w, &b, p.words.split(tp.rank(), ranks).begin, count);
                  const auto rest = best.narrow(1, kBestWords + known, kBestWords - known);
                  return std::vector{difference(best.narrow(1, 0, known), ids.to(at::kDouble)),
                                     difference(best.narrow(1, kBestWords, known), scores),
                                     unless(rest.isinf().all().item<bool>())};
                }) <= 1e-12);
        }
    }
}

TEST_CASE("rows get the requested number of words, and only those that are allowed") {
  const bool split = GENERATE(true, false);
  const Problem p = with_bias(problem(1, 9, 40, split));
  const int64_t count = p.x.size(0);
  // Rows 0, 3, 6 may get any word, the others one or two.
  auto only = at::full({count, 2}, -1, at::kLong);
  for (int64_t row = 0; row < count; ++row)
    if (row % 3 != 0) only[row][0] = 7 + row;
  for (int64_t row = 2; row < count; row += 3) only[row][1] = 39;
  const auto scores = (at::matmul(p.x, p.w.t()) + p.b).log_softmax(1);
  for (const int ranks : {1, 2, 4})
    for (const bool sequence_parallel : {false, true}) {
      CAPTURE(split, ranks, sequence_parallel);
      CHECK(worst_over_ranks(ranks, [&](Communicator& comm) {
              const TensorParallel tp{&comm, sequence_parallel};
              const Parameter w = parameter_of(p.words, p.w, tp.rank(), ranks);
              const Parameter b = parameter_of(p.bias, p.b, tp.rank(), ranks);
              const auto first = p.words.split(tp.rank(), ranks).begin;
              const auto best = head_best_words(tp, slice_rows(tp, p.x), w, &b, first, count, {12, only});
              double worst = 0;
              for (int64_t row = 0; row < count; ++row) {
                const int64_t known = row % 3 == 0 ? 12 : row % 3 == 1 ? 1 : 2;
                const auto ids = best[row].narrow(0, 0, known).to(at::kLong);
                const auto of_row = best[row].narrow(0, 12, 12);
                const auto wanted = row % 3 == 0 ? std::get<1>(scores[row].topk(12)) : only[row].narrow(0, 0, known);
                const double found = difference(of_row.narrow(0, 0, known), scores[row].index_select(0, ids));
                const bool is_right = std::get<0>(ids.sort()).equal(std::get<0>(wanted.sort())) &&
                                      of_row.narrow(0, known, 12 - known).isinf().all().item<bool>();
                worst = std::max({worst, found, unless(is_right)});
              }
              return std::vector{worst};
            }) <= 1e-12);
    }
}

TEST_CASE("the words that are allowed for a row are those of its segment") {
  Microbatch batch{.ids = at::zeros({7}, at::kLong), .ends = {2, 3, 7}};
  const auto rows = at::tensor({0, 1, 2, 5}, at::kLong);
  CHECK(word_search(batch, rows).most == kBestWords);
  CHECK_FALSE(word_search(batch, rows).only.defined());
  batch.targets = at::tensor({3, 4, 9, -1, 3, 8}, at::kLong).view({3, 2});
  const WordSearch search = word_search(batch, rows);
  CHECK(search.most == 9);
  CHECK(search.only.equal(at::tensor({4, 4, -1, 8}, at::kLong).view({4, 1})));
  const WordSearch end = word_search(part_of(batch, {1, 2}), at::tensor({0, 3}, at::kLong));
  CHECK(end.most == 9);
  CHECK(end.only.equal(at::tensor({-1, 8}, at::kLong).view({2, 1})));
}

}  // namespace shardline::cross_entropy_test
