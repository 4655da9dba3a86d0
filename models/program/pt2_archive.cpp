#include "models/program/pt2_archive.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/files/json_data.h"
#include "models/files/stored_zip.h"
#include "models/program/graph_reader.h"

namespace shardline {
namespace {

constexpr std::string_view kFormatEntry = "archive_format", kPt2 = "pt2";

// The entries of the archive, without the name of its folder.
class Records {
 public:
  Records(std::string_view archive, const std::string& path) : path_(path) {
    if (!is_zip(archive)) throw DataError(cat(path_, ": is not an archive of torch.export.save; give one"));
    entries_ = zip_entries(archive, path_);
    for (const auto& [name, bytes] : entries_) {
      const size_t slash = name.find('/');
      if (slash == std::string::npos || name.substr(slash + 1) != kFormatEntry) continue;
      if (!prefix_.empty()) fail(cat("has two entries NAME/", kFormatEntry));
      prefix_ = name.substr(0, slash + 1);
      if (bytes != kPt2) fail(cat(name, " must be \"", kPt2, '"'));
    }
    if (prefix_.empty())
      throw DataError(cat(path_, ": has no entry NAME/", kFormatEntry,
                          ", so it is not an archive of torch.export.save or an older one; ", kExportAgain));
    const auto order = find("byteorder");
    if (order && *order != "little")
      throw DataError(cat(path_, ": must have the byte order \"little\"; ", kExportAgain, " on such a machine"));
  }

  std::optional<std::string_view> find(const std::string& name) const {
    const auto found = entries_.find(prefix_ + name);
    return found == entries_.end() ? std::nullopt : std::optional(found->second);
  }
  std::string_view at(const std::string& name) const {
    const auto found = find(name);
    if (!found) fail(cat("has no entry ", prefix_, name));
    return *found;
  }
  // MODEL, from the only entry models/MODEL.json.
  std::string model() const {
    const std::string begin = prefix_ + "models/", end = ".json";
    std::string model;
    for (const auto& [name, bytes] : entries_) {
      if (!name.starts_with(begin) || !name.ends_with(end)) continue;
      if (!model.empty()) throw DataError(cat(path_, ": contains several programs; export each to its own file"));
      model = name.substr(begin.size(), name.size() - begin.size() - end.size());
    }
    if (model.empty()) fail("holds no program");
    return model;
  }
  std::string place(const std::string& name) const { return cat(path_, ": ", prefix_, name); }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DataError(cat(path_, ": ", what, kDamagedFile)); }

  const std::string& path_;
  ZipEntries entries_;
  std::string prefix_;
};

int64_t count_of(const JsonValue& value) {
  const auto& json = value.json();
  if (!json.is_number_integer() || json.get<int64_t>() < 0) value.fail("must be an integer >= 0");
  return json.get<int64_t>();
}

std::vector<int64_t> counts_of(const JsonValue& list) {
  std::vector<int64_t> counts;
  for (const auto& item : list.items()) counts.push_back(count_of(item.at("as_int")));
  return counts;
}

// One tensor listed in a configuration file.
struct Payload {
  std::string name;
  std::string record;  // "data/weights/weight_0"
  bool is_parameter = false, requires_grad = false;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;

  // Payloads at the same place are one tensor.
  auto place() const { return std::tuple(record, dtype, sizes, strides, offset); }
};

constexpr std::string_view kWeightsFolder = "weights", kConstantsFolder = "constants";  // folders

std::vector<Payload> payloads(const Records& records, const std::string& model, std::string_view folder) {
  const std::string data = cat("data/", folder, '/'), config = cat(data, model, '_', folder, "_config.json");
  if (!records.find(config)) {
    if (folder == kConstantsFolder) return {};
    throw DataError(cat(records.place(config), ": is missing, as in archives before torch 2.9; ", kExportAgain));
  }
  const auto json = parse_data_json(records.at(config), records.place(config));
  std::vector<Payload> payloads;
  const JsonValue whole(json, records.place(config));
  for (const auto& [name, item] : whole.at("config").members()) {
    if (name.size() > kLongestTensorName) item.fail("has a name that is too long");
    if (item.flag("use_pickle", false)) item.fail("is a pickle, which is not read", kExportAgain);
    const JsonValue meta = item.at("tensor_meta"), dtype = meta.at("dtype");
    payloads.push_back({.name = name,
                        .record = data + item.at("path_name").text(),
                        .is_parameter = item.flag("is_param", false),
                        .requires_grad = meta.flag("requires_grad", false),
                        .dtype = dtype_of_number(count_of(dtype), dtype.where()),
                        .sizes = counts_of(meta.at("sizes")),
                        .strides = counts_of(meta.at("strides")),
                        .offset = count_of(meta.at("storage_offset").at("as_int"))});
    const Payload& payload = payloads.back();
    if (payload.sizes.size() != payload.strides.size()) meta.fail("must have as many strides as sizes");
    records.at(payload.record);
  }
  return payloads;
}

class Pt2Tensors : public TensorFile {
 public:
  explicit Pt2Tensors(const std::string& path) : TensorFile(path) { data_ = bytes_; }

  std::string_view bytes() const { return bytes_; }
  void set_header(std::string_view header) { header_ = header; }
  void add(const Payload& payload, const Records& records) {
    tensors_.emplace(payload.name, entry_in(records.at(payload.record), payload.name, payload.dtype, payload.sizes,
                                            payload.strides, payload.offset));
  }
};

// Checks that every input of the graph that is not an argument is a tensor as the graph describes it.
void check_inputs(const Pt2Archive& archive) {
  for (const auto& input : archive.graph.inputs) {
    if (input.kind == GraphInput::Kind::user) continue;
    const GraphValue& value = archive.graph.values[input.value];
    const auto fail = [&](const std::string& what) {
      throw DataError(cat(archive.path, ": tensor ", input.name, ": ", what, kDamagedFile));
    };
    const auto check = [&](at::ScalarType dtype, at::IntArrayRef sizes) {
      bool is_equal = value.dtype == dtype && value.sizes.size() == sizes.size();
      for (size_t i = 0; is_equal && i < sizes.size(); ++i) is_equal = value.sizes[i] == GraphSize{sizes[i], ""};
      if (!is_equal) fail("the graph describes it with another dtype or other sizes");
    };
    if (input.kind == GraphInput::Kind::parameter) {
      const auto found = archive.weights->tensors().find(input.name);
      if (found == archive.weights->tensors().end()) fail("the archive has no such parameter");
      check(found->second.dtype, found->second.shape);
    } else {
      const auto found = archive.constants.find(input.name);
      if (found == archive.constants.end()) fail("the archive has no such buffer or constant");
      check(found->second.scalar_type(), found->second.sizes());
    }
  }
}

}  // namespace

Pt2Archive read_pt2(const std::string& path) {
  const auto weights = std::make_shared<Pt2Tensors>(path);
  const Records records(weights->bytes(), path);
  const std::string model = records.model(), program = cat("models/", model, ".json");
  Pt2Archive archive{.path = path};
  archive.graph = read_graph(parse_data_json(records.at(program), records.place(program)), records.place(program));

  Pt2Tensors constants = *weights;  // from the same mapping
  std::map<std::string, Payload> parameters, buffers;
  std::set<std::string> kept;  // names that the module's state_dict() has
  for (const std::string_view folder : {kWeightsFolder, kConstantsFolder})
    for (auto& payload : payloads(records, model, folder)) {
      if (!payload.is_parameter) {
        constants.add(payload, records);
        archive.constants.emplace(payload.name, constants.tensor(payload.name));
        if (folder == kWeightsFolder) kept.insert(payload.name);
      }
      auto& known = payload.is_parameter ? parameters : buffers;
      known.emplace(payload.name, std::move(payload));
    }
  for (const auto& [name, payload] : parameters)
    if (buffers.contains(name)) throw DataError(cat(path, ": ", name, " is stored twice", kDamagedFile));
  // In graph order, followed by those that the graph does not use.
  std::map<decltype(Payload().place()), std::string> first_in;  // by place: the name of its first tensor
  const auto add = [&](const Payload& payload) -> const std::string& {
    const auto [first, is_new] = first_in.emplace(payload.place(), payload.name);
    if (is_new) {
      weights->add(payload, records);
      archive.trainable[payload.name] = payload.requires_grad;
    } else {
      archive.names[first->second].push_back(payload.name);
    }
    return first->second;
  };
  for (auto& input : archive.graph.inputs) {
    const auto found = input.kind == GraphInput::Kind::parameter ? parameters.find(input.name) : parameters.end();
    if (found == parameters.end()) continue;
    input.name = add(found->second);
    parameters.erase(found);
  }
  for (const auto& [name, payload] : parameters) add(payload);
  const auto add_buffer = [&](const std::string& name) {
    const auto found = buffers.find(name);
    if (found == buffers.end()) return;
    const auto [first, is_new] = first_in.emplace(found->second.place(), name);
    if (is_new)
      archive.buffers.push_back(name);
    else
      archive.names[first->second].push_back(name);
    buffers.erase(found);
  };
  for (const auto& input : archive.graph.inputs)
    if (input.kind == GraphInput::Kind::buffer) {
      if (input.is_persistent) add_buffer(input.name);
      kept.erase(input.name);
    }
  for (const auto& name : kept) add_buffer(name);
  weights->set_header(records.at(program));
  archive.weights = weights;
  archive.constant_file = std::make_shared<Pt2Tensors>(constants);
  check_inputs(archive);
  return archive;
}

}  // namespace shardline
