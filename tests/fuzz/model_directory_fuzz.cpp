// A model directory: config.json, and one file of weights or an index and two shards; the input contains their headers.
// If the directory fits a small model, every parameter of the model can be read.
#include <ATen/ops/empty.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "models/files/hf_directory.h"
#include "tests/fuzz/safetensors_input.h"

namespace shardline::model_directory_fuzz {
namespace {

// "wte" unchanged, split over two ranks, in files that may have fewer words; "h.0.w" transposed in the file; "h.0.bias"
// is optional.
const ModelSpec& small_model() {
  static const ModelSpec model = [] {
    ModelSpec spec{.family = "small"};
    spec.layers = {
        {.name = "wte", .params = {{.name = "weight", .shape = {4, 3}, .split_dim = 0, .row_is_word = true}}},
        {.name = "h.0",
         .params = {{.name = "w", .shape = {2, 3}}, {.name = "bias", .shape = {2}, .may_be_missing = true}},
         .ignored_tensors = {"h.0.mask"}}};
    spec.layers[0].params[0].sources = {{.tensor = "transformer.wte.weight", .aliases = {"wte.weight"}}};
    spec.layers[1].params[0].sources = {
        {.tensor = "transformer.h.0.w", .view = {3, 2}, .permute = {1, 0}, .aliases = {"h.0.w"}}};
    spec.layers[1].params[1].sources = {{.tensor = "h.0.bias"}};
    return spec;
  }();
  return model;
}

// Every file that an index names is in its directory.
void check_index(const std::string& text) {
  const auto index = nlohmann::json::parse(text, nullptr, false);
  if (!index.is_object() || !index.contains("weight_map")) return;
  for (const auto& [tensor, file] : index["weight_map"].items())
    FUZZ_REQUIRE(file.get<std::string>().find('/') == std::string::npos, tensor, " is in ", file);
}

void read_model(const HfDirectory& directory) {
  for (const auto& layer : small_model().layers)
    for (const auto& param : layer.params)
      for (int t = 0; t < 2; ++t) {
        if (param.may_be_missing && !directory.holds(param)) continue;
        int64_t copied = 0;
        const at::Tensor values = at::empty(param.local_shape(t, 2), at::kFloat);
        directory.read(param, layer.full_name(param), t, 2, values, [&](int64_t bytes) { copied += bytes; });
        const auto whole = static_cast<int64_t>(values.nbytes());
        const bool is_grown = directory.rows_of(param) < param.shape[0];
        FUZZ_REQUIRE(copied == whole || (is_grown && copied < whole), layer.full_name(param), ": ", copied, " bytes");
      }
}

}  // namespace

FUZZ_TARGET(model_directory) {
  auto files = fuzz::files_of(
      data, size,
      {"config.json", "model.safetensors", "model.safetensors.index.json", "model-00001-of-00002.safetensors",
       "model-00002-of-00002.safetensors", "pytorch_model.bin", "tokenizer.json"});
  for (auto& [name, text] : files)
    if (name.ends_with(".safetensors")) text = fuzz::safetensors_of(text);
  fuzz::fill_folder(files);
  constexpr fuzz::Allowance for_tensors{.fixed = 4 << 20};
  std::unique_ptr<const HfDirectory> directory;
  const std::string path = fuzz::folder().string();
  FUZZ_REQUIRE(!fuzz::accepts(size, [&] { HfDirectory(fuzz::file_with("file", "")); }), "a file is a directory");
  FUZZ_REQUIRE(companion_files(path).size() == files.count("tokenizer.json"), "the files beside the weights");
  if (!fuzz::accepts(
          size, [&] { directory = std::make_unique<HfDirectory>(path); }, for_tensors))
    return false;
  FUZZ_REQUIRE(directory->config().is_object(), "config.json");
  if (!files.contains("model.safetensors")) check_index(files["model.safetensors.index.json"]);
  FUZZ_REQUIRE(!directory->digest().empty(), "no digest");
  const bool fits = fuzz::accepts(
      size,
      [&] {
        for (const auto& note : directory->check_names(small_model()).notes(small_model()))
          FUZZ_REQUIRE(!note.empty(), "an empty note");
      },
      for_tensors);
  const bool is_read = fuzz::accepts(
      size, [&] { read_model(*directory); }, for_tensors);
  FUZZ_REQUIRE(is_read || !fits, "a model that fits is not read");
  return fits;
}

}  // namespace shardline::model_directory_fuzz
