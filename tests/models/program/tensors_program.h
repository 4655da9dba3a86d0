// The small exported programs of golden/make_program.py whose samples are tensors, and what PyTorch computes with them.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/model/microbatch.h"
#include "models/program/program.h"
#include "models/program/pt2_archive.h"
#include "tests/models/files/files.h"
#include "tests/models/golden.h"

namespace shardline::tensors_program {

inline nlohmann::json expected(const std::string& name) {
  return nlohmann::json::parse(contents(golden("program/" + name + ".json")));
}

inline std::shared_ptr<const Program> pictures() {
  return cut_program(
      read_pt2(golden("program/pictures.pt2")),
      {.predicts = ProgramUse::Predicts::segment, .inputs = {{"pixel_values", "image"}, {"labels", "labels"}}});
}

inline std::shared_ptr<const Program> sounds() {
  return cut_program(read_pt2(golden("program/sounds.pt2")),
                     {.predicts = ProgramUse::Predicts::target_row, .inputs = {{"input_features", "sound"}}});
}

inline at::Tensor values_of(const nlohmann::json& flat, std::vector<int64_t> sizes) {
  return at::tensor(flat.get<std::vector<double>>(), at::kDouble).view(sizes).to(at::kFloat);
}

// All samples of the golden file.
inline Microbatch batch_of_pictures() {
  const auto wanted = expected("pictures");
  const std::vector<int64_t> classes = wanted["labels"];
  const int64_t count = std::ssize(classes), rows = pictures()->source_rows();
  Microbatch batch = causal_microbatch(at::zeros({count, rows}, at::kLong), at::Tensor(), at::arange(count, at::kLong));
  batch.targets = at::tensor(classes);
  batch.columns = {{"image", values_of(wanted["values"], {count, 2, 4, 4})}};
  return batch;
}

inline Microbatch batch_of_sounds() {
  const auto wanted = expected("sounds");
  const int64_t rows_of_source = sounds()->source_rows();
  Microbatch batch;
  std::vector<int64_t> ids, labels, positions, samples;
  for (const std::vector<int64_t> padded : wanted["labels"]) {
    const int64_t sample = batch.segments(), begin = std::ssize(ids);
    for (int64_t i = 0; i < rows_of_source; ++i) {
      ids.push_back(0);
      labels.push_back(kNoLabel);
    }
    batch.target_begins.push_back(std::ssize(ids));
    for (const int64_t id : padded)
      if (id != kNoLabel) {
        ids.push_back(id);
        labels.push_back(id);
      }
    for (int64_t row = begin; row < std::ssize(ids); ++row) {
      positions.push_back(row - begin);
      samples.push_back(sample);
    }
    batch.ends.push_back(std::ssize(ids));
    batch.position_count = std::max<int64_t>(batch.position_count, std::ssize(ids) - begin);
  }
  batch.ids = at::tensor(ids);
  batch.labels = at::tensor(labels);
  batch.positions = batch.places = at::tensor(positions);
  batch.samples = at::tensor(samples);
  batch.segment_samples = at::arange(batch.segments(), at::kLong);
  batch.segment_places = at::zeros({batch.segments()}, at::kLong);
  batch.columns = {{"sound", values_of(wanted["values"], {batch.segments(), 3, 9})}};
  return batch;
}

}  // namespace shardline::tensors_program
