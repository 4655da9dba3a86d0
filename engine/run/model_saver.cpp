#include "engine/run/model_saver.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/files/regular_file.h"
#include "engine/checkpoint/shared_directory.h"
#include "engine/data/tokenizer/byte_tokenizer.h"
#include "models/files/hf_layout.h"
#include "models/files/safetensors.h"
#include "models/program/program_file.h"
#include "models/program/pt2_writer.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

std::string contents(const std::string& path) try { return read_regular_file(path); } catch (const DataError& error) {
  throw DataError(cat(error.what(), "; the model is saved together with this file"));
}

// The contents of config.json. If the file states no ids for the two ends of a text, the GPT families of transformers
// use a default id; null prevents this for models that do not have this id.
nlohmann::json saved_config(const ModelSource& source) {
  constexpr int64_t kDefaultEnd = 50256;
  nlohmann::json config = source.hf_config;
  const bool has_default = std::ranges::any_of(std::array{"gpt2", "gpt_neo", "gptj"}, [&](const char* type) {
    return config.contains("model_type") && config["model_type"] == type;
  });
  if (!has_default || source.spec.vocab_size > kDefaultEnd) return config;
  for (const char* key : {"bos_token_id", "eos_token_id"})
    if (!config.contains(key)) config[key] = nullptr;
  return config;
}

}  // namespace

std::map<std::string, std::string> companions_of(const ModelSource& source, const std::string& tokenizer) {
  std::map<std::string, std::string> paths;  // by file name; the tokenizer's files take precedence
  if (source.directory)
    for (const auto& file : source.directory->companion_files()) paths[fs::path(file).filename()] = file;
  if (fs::is_directory(tokenizer))
    for (const auto& file : companion_files(tokenizer)) paths[fs::path(file).filename()] = file;
  else if (fs::is_regular_file(tokenizer))
    paths["tokenizer.json"] = tokenizer;
  std::map<std::string, std::string> files;
  for (const auto& [name, path] : paths) files[name] = contents(path);
  if (tokenizer == "bytes") files.merge(byte_tokenizer_files());
  return files;
}

ModelSaver::ModelSaver(const std::string& directory, const ModelSource& source, at::ScalarType dtype,
                       const std::string& tokenizer, const RankGroups& groups)
    : directory_(directory),
      writer_(directory, source.spec, dtype),
      config_(saved_config(source)),
      exported_(source.exported && !source.exported->program->archive.is_traced ? source.exported : nullptr),
      buffers_(source.spec.buffers),
      values_of_buffers_(buffers_of(source)),
      removes_files_(groups.rank == 0) {
  if (groups.rank == 0) {
    companions_ = companions_of(source, tokenizer);
    create();
  }
  try {
    require_shared_directory(directory, *groups.world, groups.coordinates.d == 0);
  } catch (...) {
    if (removes_files_) discard();
    throw;
  }
}

ModelSaver::~ModelSaver() {
  if (removes_files_) discard();
}

std::string ModelSaver::unfinished_program() const {
  return file_in(directory_, cat(kProgramFile, ".incomplete"));
}

// Makes the files and reserves their disk space. When called again, restores files that were removed in the meantime.
void ModelSaver::create() {
  writer_.create(config_, companions_);
  if (!exported_) return;
  try {
    reserve_pt2(exported_->program->archive, unfinished_program());
  } catch (const RunError&) {
    if (removes_files_) discard();
    throw;
  }
}

void ModelSaver::discard() const {
  writer_.discard();
  std::error_code ignored;
  fs::remove(unfinished_program(), ignored);
}

// The file with which the model was opened, with the weights that have just been written.
void ModelSaver::write_program(int64_t steps) const {
  std::vector<SafetensorsFile> files;
  for (const auto& path : writer_.unfinished_weights()) files.emplace_back(path);
  const Program& program = *exported_->program;
  std::map<std::string, at::Tensor> buffers;  // includes those that are not in the files
  if (program.buffers)
    for (const auto& [value, tensor] : program.buffers->before(steps + 1))
      buffers.emplace(program.input_of(value)->name, tensor);
  write_pt2(
      program.archive,
      [&](const std::string& name) {
        if (const auto buffer = buffers.find(name); buffer != buffers.end()) return buffer->second;
        for (const auto& file : files)
          if (file.tensors().contains(name)) return file.tensor(name);
        return at::Tensor();
      },
      unfinished_program());
}

// Gives the files their names. An earlier program is removed first: it must not be next to weights that are not its
// own.
void ModelSaver::finish(int64_t steps) {
  const std::string program = file_in(directory_, kProgramFile);
  if (exported_) {
    write_program(steps);
    std::error_code ignored;
    fs::remove(program, ignored);
  }
  writer_.finish();
  if (exported_) rename_file(unfinished_program(), program);
}

void ModelSaver::save(StageParameters& parameters, const LongWork::Show& show, int64_t steps) {
  const RankGroups& groups = parameters.groups();
  const int64_t element_bytes = c10::elementSize(parameters.trained_type());
  int64_t done = 0, total = 0;
  for (const auto* parameter : parameters.stored())
    if (parameters.writes(*parameter)) total += parameter->value.numel() * element_bytes;
  const auto buffers = groups.rank == 0 ? values_of_buffers_(steps) : BufferValues();
  for (const auto& [name, value] : buffers) total += value.nbytes();

  removes_files_ = false;
  if (groups.rank == 0) create();
  groups.world->barrier({.what = "model files made"});
  LongWork work(*groups.world, "writing the model", show);
  work.report(0, total);
  parameters.visit_values(
      [&](const Parameter& parameter) {
        if (!parameters.writes(parameter)) return;
        writer_.write(*parameter.spec, parameter.name, groups.coordinates.t, groups.mesh.t(), parameter.value,
                      [&](int64_t bytes) { work.report(done += bytes, total); });
      },
      [&](Work& gathered) { work.await(gathered); });
  if (groups.rank == 0)
    for (const auto& buffer : buffers_)
      writer_.write(buffer, buffers.at(buffer.name), [&](int64_t bytes) { work.report(done += bytes, total); });
  writer_.flush();
  work.finish();
  if (groups.rank == 0) finish(steps);
  groups.world->barrier({.what = "model saved"});
}

}  // namespace shardline
