#include "models/program/layers/part_run.h"

#include <ATen/ops/tensor.h>

#include <utility>

#include "core/error.h"
#include "models/program/layers/row_calls.h"
#include "tensor_parallel/ops/rank_sums.h"

namespace shardline {
namespace {

std::unique_ptr<const DividedPart> divided_part(const Graph& graph, const GraphPart& part, const ProgramSplit* split,
                                                const TensorParallel& tp) {
  return split ? std::make_unique<const DividedPart>(split->divide(graph, part, tp.rank(), tp.sequence_parallel))
               : nullptr;
}

}  // namespace

at::Tensor own_places(const TensorParallel& tp, const DividedDimension& of, const at::Tensor& like) {
  return at::tensor(of.places(tp.size(), tp.rank()), at::kLong).to(like.device());
}

PartRun::PartRun(const Graph& graph, const GraphPart& part, const ProgramSplit* split, const TensorParallel& tp,
                 at::ScalarType floating, at::Device device)
    : whole_(part),
      tp_{tp.comm, false},
      divided_(divided_part(graph, part, split, tp)),
      calls_(divided_ ? divided_->graph : graph, divided_ ? divided_->part : part, floating, device,
             divided_ ? calls_over(tp_) : OwnCalls()) {}

std::vector<c10::IValue> PartRun::run(std::vector<c10::IValue> inputs, const RandomCalls* random,
                                      const ProgramBatch& batch) const {
  auto made = calls_.run(std::move(inputs), random, &batch);
  for (size_t i = 0; i < made.size(); ++i)
    if (const auto* of = output(i))
      SL_ASSERT(of->dimension + 1 == made[i].toTensor().dim(), "only the last dimension of an output may be divided");
  return made;
}

const DividedDimension* PartRun::dropped_at(int site) const {
  return divided_ && divided_->dropped.contains(site) ? &divided_->dropped.at(site) : nullptr;
}

const DividedDimension* PartRun::output(int number) const {
  return divided_ && divided_->outputs[number] ? &*divided_->outputs[number] : nullptr;
}

at::Tensor PartRun::gathered(int number, const at::Tensor& x) const {
  const auto* of = output(number);
  return of ? gathered_dimension(tp_, x, x.dim() - 1, of->size(), own_places(tp_, *of, x)) : x;
}

}  // namespace shardline
