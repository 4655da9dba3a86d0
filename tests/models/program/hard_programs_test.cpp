// Programs of golden/make_hard_programs.py: what has gone wrong once, or must be refused.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>

#include "core/error.h"
#include "models/program/program_inputs.h"
#include "tests/models/files/files.h"
#include "tests/models/golden.h"
#include "tests/models/program/program_run.h"

#include "tests/catch.h"

namespace shardline::hard_programs_test {
namespace {

using Catch::Matchers::Contains;
using Predicts = ProgramUse::Predicts;

std::shared_ptr<const Program> program_of(const std::string& name,
                                          const ProgramUse& use = {.predicts = Predicts::row}) {
  return cut_program(read_pt2(golden("program/" + name + ".pt2")), use);
}

Microbatch batch_of(const Program& program, int64_t samples, int64_t length) {
  const at::Tensor ids = at::arange(samples * length).remainder(9).add(3).view({samples, length});
  return sample_batch(program, ids, 0);
}

}  // namespace

TEST_CASE("the padding id is that of the embedding table, or else the only id with which ids are compared",
          "[program]") {
  CHECK(program_of("padded")->pad_id == 1);
  CHECK_THAT(message_of<ConfigError>([] { program_of("two_ids"); }), Contains("(1, 2)") && Contains("pad_token_id"));
  CHECK(program_of("two_ids", {.predicts = Predicts::row, .pad_id = 1})->pad_id == 1);
}

TEST_CASE("a hidden state and a view of it, which later calls change, do not pass to the next layer", "[program]") {
  CHECK_THAT(message_of<ConfigError>([] { program_of("two_views"); }),
             Contains("share memory") && Contains("in place"));
}

TEST_CASE("a program that does not shift its labels gets the next tokens", "[program]") {
  const auto program = program_of("padded", {.predicts = Predicts::next_row});
  const at::Tensor ids = at::arange(12).remainder(9).add(3).view({2, 6});
  const Microbatch batch = causal_microbatch(ids, ids, at::arange(2));
  ProgramRun causal(program, at::kDouble), by_row(program_of("padded"), at::kDouble);  // the latter is given `labels`
  CHECK(causal.train(batch).sum == Approx(by_row.train(batch).sum).epsilon(1e-14));
}

TEST_CASE("means over tokens and over labels are combined to one loss only if every token has a label", "[program]") {
  const auto program = program_of("two_means");
  ProgramRun run(program, at::kDouble);
  Microbatch all = batch_of(*program, 2, 6);
  const double of_both = run.train(all).sum;
  const double of_each = run.train(batch_of(*program, 1, 6)).sum;
  CHECK(std::isfinite(of_both));
  CHECK(std::isfinite(of_each));
  Microbatch some = batch_of(*program, 2, 6);
  some.labels = some.labels.clone();
  some.labels.narrow(0, 0, 3).fill_(kNoLabel);
  CHECK_THAT(message_of<RunError>([&] { run.train(some); }), Contains("only 9 of the 12 tokens have a label"));
}

}  // namespace shardline::hard_programs_test
