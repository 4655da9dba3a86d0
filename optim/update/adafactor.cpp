#include "optim/update/adafactor.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "core/device/accelerator.h"
#include "core/error.h"
#include "core/memory/caching_allocator.h"
#include "optim/update/tensor_runs.h"

namespace shardline {
namespace {

// Values that transformers' Trainer leaves at Adafactor's defaults.
constexpr double kSquareFloor = 1e-30, kDecayPower = -0.8, kLargestUpdate = 1;

constexpr int64_t kBlocks = 16;  // blocks of runs, for any number of threads: they define the order of addition

using Vectors = Adafactor::Vectors;

// Calls work(block, run number, run) for all runs, in parallel over blocks.
template <class Work>
void for_runs(const TensorRuns& runs, const Work& work) {
  const int64_t blocks = std::min(kBlocks, runs.count());
  at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block)
      for (int64_t i = runs.count() * block / blocks; i < runs.count() * (block + 1) / blocks; ++i)
        if (const auto run = runs[i]; run.length > 0) work(block, i, run);
  });
}

// The sum of the squares of value(i). Each square is also passed to take(i, square).
template <class Value, class Take>
double sum_squares(int64_t length, const Value& value, const Take& take) {
  constexpr int64_t kLanes = 8;
  double lanes[kLanes] = {};
  int64_t i = 0;
  const auto add = [&](int64_t place, int64_t lane) {
    const double square = value(place) * value(place);
    lanes[lane] += square;
    take(place, square);
  };
  for (; i + kLanes <= length; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  for (; i < length; ++i) add(i, 0);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Whether a run moves along the columns' vector and stays in one row; otherwise it moves along the rows' vector.
bool goes_along_columns(const TensorRuns& runs) {
  return runs.row_step() == 0;
}

template <class T>
void add_squares(const T* gradients, const TensorRuns& runs, const TensorFactors& tensor, const Vectors& sums) {
  const bool along_columns = goes_along_columns(runs);
  const int64_t step = along_columns ? runs.column_step() : runs.row_step();
  const int64_t places = along_columns ? tensor.column_places() : tensor.row_places();
  std::vector<double> of_runs(runs.count());
  std::vector<double> of_blocks(std::min(kBlocks, runs.count()) * places);
  for_runs(runs, [&](int64_t block, int64_t i, const TensorRuns::Run& run) {
    double* vector = of_blocks.data() + block * places + (along_columns ? run.column : run.row);
    const T* gradient = gradients + run.begin;
    of_runs[i] = sum_squares(
        run.length, [&](int64_t place) { return double(gradient[place]); },
        [&](int64_t place, double square) { vector[place * step] += square; });
  });
  for (int64_t i = 0; i < runs.count(); ++i) {
    const auto run = runs[i];
    (along_columns ? sums.rows[run.row] : sums.columns[run.column]) += of_runs[i];
  }
  double* vector = along_columns ? sums.columns : sums.rows;
  for (const double* block = of_blocks.data(); block != of_blocks.data() + of_blocks.size(); block += places)
    for (int64_t i = 0; i < places; ++i) vector[i] += block[i];
}

// The sum of squares of gradient x row factor x column factor.
template <class T>
double squared_update(const T* gradients, const TensorRuns& runs, const Vectors& factors) {
  const bool along_columns = goes_along_columns(runs);
  const int64_t step = along_columns ? runs.column_step() : runs.row_step();
  std::vector<double> of_runs(runs.count());
  for_runs(runs, [&](int64_t, int64_t i, const TensorRuns::Run& run) {
    const double* vector = along_columns ? factors.columns + run.column : factors.rows + run.row;
    const double other = along_columns ? factors.rows[run.row] : factors.columns[run.column];
    const T* gradient = gradients + run.begin;
    of_runs[i] = sum_squares(
        run.length, [&](int64_t place) { return double(gradient[place]) * vector[place * step] * other; },
        [](int64_t, double) {});
  });
  double sum = 0;
  for (const double of_run : of_runs) sum += of_run;
  return sum;
}

template <class T>
void update_matrix(T* values, const T* gradients, const TensorRuns& runs, const Vectors& factors, double keep,
                   double rate) {
  const bool along_columns = goes_along_columns(runs);
  const int64_t step = along_columns ? runs.column_step() : runs.row_step();
  for_runs(runs, [&](int64_t, int64_t, const TensorRuns::Run& run) {
    const double* vector = along_columns ? factors.columns + run.column : factors.rows + run.row;
    const double other = rate * (along_columns ? factors.rows[run.row] : factors.columns[run.column]);
    T* value = values + run.begin;
    const T* gradient = gradients + run.begin;
    for (int64_t i = 0; i < run.length; ++i)
      value[i] = T(double(value[i]) * keep - double(gradient[i]) * vector[i * step] * other);
  });
}

// Calls work(index in the range) for a tensor's elements, in order.
template <class Work>
void for_elements(const TensorRuns& runs, const Work& work) {
  for (int64_t i = 0; i < runs.count(); ++i)
    for (int64_t j = 0, begin = runs[i].begin, length = runs[i].length; j < length; ++j) work(begin + j);
}

// The range from the first to the last element of a tensor.
Range span_of(const TensorRuns& runs) {
  Range span;
  for (int64_t i = 0; i < runs.count(); ++i) {
    const auto run = runs[i];
    if (run.length == 0) continue;
    if (span.length == 0) span.begin = run.begin;
    span.length = run.begin + run.length - span.begin;
  }
  return span;
}

}  // namespace

Adafactor::Adafactor(std::vector<TrainedRange> ranges, const std::vector<TrainedParameter>& parameters,
                     PartHolders holders, const OptimizerOptions& options)
    : ranges_(std::move(ranges)), holders_(std::move(holders)), options_(options) {
  int64_t places = 0;
  for (const auto& parameter : parameters)
    for (auto& factors : tensor_factors(*parameter.spec)) {
      const size_t source =
          tensors_.empty() || tensors_.back().number != parameter.number ? 0 : tensors_.back().source + 1;
      tensors_.push_back({factors, parameter.spec, parameter.number, source, places, places + factors.row_places()});
      places += factors.row_places() + factors.column_places();
    }
  const MemoryScope scope(MemoryClass::optimizer);
  means_ = at::zeros({places}, at::kDouble);
  for (size_t r = 0; r < ranges_.size(); ++r) {
    const TrainedRange& range = ranges_[r];
    if (is_accelerator(range.values))
      throw ConfigError(
          "/training/optim: adafactor runs on CPUs only; set smp_options.offload_optimizer_states, or runtime.device "
          "to \"cpu\", or use \"adamw_torch_fused\", \"adam\" or \"sgd\"");
    SL_ASSERT(range.values.scalar_type() == range.gradients.scalar_type(), "values and gradients of different types");
    for (const auto& piece : range.pieces)
      for (size_t t = 0; t < tensors_.size(); ++t) {
        if (tensors_[t].number != piece.number) continue;
        TensorRuns runs(tensors_[t].factors, piece, holders_.t, holders_.t_degree);
        const Range span = span_of(runs);
        if (span.length == 0) continue;
        parts_.push_back({r, t, piece, std::move(runs), span.begin, {}});
        if (!tensors_[t].factors.factored) parts_.back().squares = at::zeros({span.length}, range.values.options());
      }
  }
}

void Adafactor::step(double learning_rate, const GradientFactor& gradient_factor) {
  ++updates_;
  for (const auto& range : ranges_) take_gradients(range, gradient_factor, options_.max_gradient_value);
  const double decay = 1 - std::pow(updates_, kDecayPower);
  update_means(decay);
  update_squares(decay);
  auto factors = update_factors();
  const auto squared_updates = sum_squared_updates(factors);
  auto part = parts_.begin();  // in range order
  for (size_t r = 0; r < ranges_.size(); ++r) {
    for (; part != parts_.end() && part->range == r; ++part)
      update(*part, factors, squared_updates[part->tensor], learning_rate);
    hand_on(ranges_[r]);
  }
}

void Adafactor::update(const Part& part, const at::Tensor& factors, double squared_update, double learning_rate) {
  const Tensor& tensor = tensors_[part.tensor];
  const TrainedRange& range = ranges_[part.range];
  const double root_mean_square = std::sqrt(squared_update / tensor.factors.elements);
  const double rate = learning_rate / std::max(1.0, root_mean_square / kLargestUpdate);
  const double keep = 1 - (range.decays ? options_.weight_decay * learning_rate : 0);
  AT_DISPATCH_FLOATING_TYPES(range.values.scalar_type(), "adafactor", [&] {
    auto* values = range.values.data_ptr<scalar_t>();
    const auto* gradients = range.gradients.const_data_ptr<scalar_t>();
    if (tensor.factors.factored)
      return update_matrix(values, gradients, part.runs, vectors(tensor, factors), keep, rate);
    const auto* squares = part.squares.const_data_ptr<scalar_t>();
    for_elements(part.runs, [&](int64_t i) {
      const double square = squares[i - part.begin];
      values[i] = scalar_t(double(values[i]) * keep - rate * double(gradients[i]) / std::sqrt(square));
    });
  });
}

void Adafactor::update_means(double decay) {
  auto sums = at::zeros_like(means_);
  for (const auto& part : parts_) {
    const Tensor& tensor = tensors_[part.tensor];
    if (!tensor.factors.factored || !part.piece.counted) continue;
    const at::Tensor& gradients = ranges_[part.range].gradients;
    AT_DISPATCH_FLOATING_TYPES(gradients.scalar_type(), "adafactor", [&] {
      add_squares(gradients.const_data_ptr<scalar_t>(), part.runs, tensor.factors, vectors(tensor, sums));
    });
  }
  add_over_holders(sums);
  auto* means = means_.data_ptr<double>();
  const auto* sum = sums.const_data_ptr<double>();
  for (const auto& tensor : tensors_) {
    const auto add = [&](int64_t begin, int64_t places, int64_t elements) {
      for (int64_t i = begin; i < begin + places; ++i)
        means[i] = decay * means[i] + (1 - decay) * (sum[i] / elements + kSquareFloor);
    };
    add(tensor.row_begin, tensor.factors.row_places(), tensor.factors.columns);
    add(tensor.column_begin, tensor.factors.column_places(), tensor.factors.rows);
  }
}

void Adafactor::update_squares(double decay) {
  for (auto& part : parts_) {
    if (tensors_[part.tensor].factors.factored) continue;
    AT_DISPATCH_FLOATING_TYPES(part.squares.scalar_type(), "adafactor", [&] {
      auto* squares = part.squares.data_ptr<scalar_t>();
      const auto* gradients = ranges_[part.range].gradients.const_data_ptr<scalar_t>();
      for_elements(part.runs, [&](int64_t i) {
        const double square = double(gradients[i]) * double(gradients[i]) + kSquareFloor;
        squares[i - part.begin] = scalar_t(decay * double(squares[i - part.begin]) + (1 - decay) * square);
      });
    });
  }
}

at::Tensor Adafactor::update_factors() const {
  auto factors = means_.clone();
  auto* factor = factors.data_ptr<double>();
  for (const auto& tensor : tensors_) {
    for (int64_t matrix = 0; matrix < tensor.factors.matrices; ++matrix) {
      double* rows = factor + tensor.row_begin + matrix * tensor.factors.rows;
      double sum = 0;
      for (int64_t i = 0; i < tensor.factors.rows; ++i) sum += rows[i];
      for (int64_t i = 0; i < tensor.factors.rows; ++i) rows[i] = std::sqrt(sum / tensor.factors.rows / rows[i]);
    }
    for (int64_t i = 0; i < tensor.factors.column_places(); ++i)
      factor[tensor.column_begin + i] = 1 / std::sqrt(factor[tensor.column_begin + i]);
  }
  return factors;
}

std::vector<double> Adafactor::sum_squared_updates(const at::Tensor& factors) const {
  auto sums = at::zeros({std::ssize(tensors_)}, at::kDouble);
  auto* sum = sums.data_ptr<double>();
  for (const auto& part : parts_) {
    if (!part.piece.counted) continue;
    const Tensor& tensor = tensors_[part.tensor];
    const at::Tensor& gradients = ranges_[part.range].gradients;
    AT_DISPATCH_FLOATING_TYPES(gradients.scalar_type(), "adafactor", [&] {
      const auto* gradient = gradients.const_data_ptr<scalar_t>();
      if (tensor.factors.factored) {
        sum[part.tensor] += squared_update(gradient, part.runs, vectors(tensor, factors));
        return;
      }
      const auto* squares = part.squares.const_data_ptr<scalar_t>();
      for_elements(part.runs, [&](int64_t i) {
        sum[part.tensor] += double(gradient[i]) * double(gradient[i]) / double(squares[i - part.begin]);
      });
    });
  }
  add_over_holders(sums);
  return {sum, sum + sums.numel()};
}

void Adafactor::add_over_holders(const at::Tensor& sums) const {
  if (holders_.communicator->size() == 1 || sums.numel() == 0) return;
  const at::Tensor carried = sums.to(holders_.device);
  holders_.communicator->all_reduce(carried, {.what = "sums of Adafactor"})->wait();
  if (!carried.is_same(sums)) sums.copy_(carried);
}

Adafactor::Vectors Adafactor::vectors(const Tensor& tensor, const at::Tensor& of_all) {
  auto* begin = of_all.data_ptr<double>();
  return {begin + tensor.row_begin, begin + tensor.column_begin};
}

std::vector<StatePart> Adafactor::state() {
  std::vector<StatePart> parts;
  const auto add = [&](const Tensor& tensor, size_t which) -> StatePart& {
    auto tensors = adafactor_state_tensors(*tensor.spec);
    std::erase_if(tensors, [&](const StateTensor& of) { return of.source != tensor.source; });
    return parts.emplace_back(
        StatePart{.tensor = std::move(tensors.at(which)), .spec = tensor.spec, .number = tensor.number});
  };
  for (const auto& tensor : tensors_) {
    if (!tensor.factors.factored) continue;
    add(tensor, 0).values = means_.narrow(0, tensor.row_begin, tensor.factors.row_places());
    add(tensor, 1).values = means_.narrow(0, tensor.column_begin, tensor.factors.column_places());
  }
  for (const auto& part : parts_) {
    if (tensors_[part.tensor].factors.factored) continue;
    StatePart& squares = add(tensors_[part.tensor], 0);
    squares.offset = part.piece.offset + part.begin - part.piece.begin;
    squares.length = part.squares.numel();
    squares.values = part.squares;
  }
  return parts;
}

std::vector<StateTensor> adafactor_state_tensors(const ParamSpec& spec) {
  std::vector<StateTensor> tensors;
  const auto factors = tensor_factors(spec);
  for (size_t source = 0; source < spec.sources.size(); ++source) {
    const TensorFactors& tensor = factors[source];
    if (!tensor.factored) {
      tensors.push_back({"exp_avg_sq", source});
      continue;
    }
    const auto vector = [&](const char* name, int64_t places) {
      std::vector<int64_t> shape = {places};
      if (tensor.matrices > 1) shape.insert(shape.begin(), tensor.matrices);
      tensors.push_back({name, source, /*by_element=*/false, std::move(shape), /*is_double=*/true});
    };
    vector("exp_avg_sq_row", tensor.rows);
    vector("exp_avg_sq_col", tensor.columns);
  }
  return tensors;
}

int64_t adafactor_state_bytes(const ParamSpec& spec, int64_t elements, int64_t element_bytes) {
  int64_t places = 0, whole = 0;
  for (const auto& tensor : tensor_factors(spec)) {
    places += tensor.row_places() + tensor.column_places();
    if (!tensor.factored) whole += tensor.elements;
  }
  return places * int64_t{sizeof(double)} + elements * whole / spec.numel() * element_bytes;
}

}  // namespace shardline
