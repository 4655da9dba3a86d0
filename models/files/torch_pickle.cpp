#include "models/files/torch_pickle.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "models/files/pickle_reader.h"
#include "models/files/tensor_file.h"

namespace shardline {
namespace {

constexpr size_t kMostTorchDimensions = 8;

// The first two are functions that make tensors and parameters; the others are types of storages.
constexpr std::array<PickleGlobal, 12> kKnown{{{"torch._utils", "_rebuild_tensor_v2"},
                                               {"torch._utils", "_rebuild_parameter"},
                                               {"torch", "DoubleStorage"},
                                               {"torch", "FloatStorage"},
                                               {"torch", "HalfStorage"},
                                               {"torch", "BFloat16Storage"},
                                               {"torch", "LongStorage"},
                                               {"torch", "IntStorage"},
                                               {"torch", "ShortStorage"},
                                               {"torch", "CharStorage"},
                                               {"torch", "ByteStorage"},
                                               {"torch", "BoolStorage"}}};
constexpr const PickleGlobal *kMakeTensor = &kKnown[0], *kMakeParameter = &kKnown[1];
constexpr std::array<std::pair<const PickleGlobal*, at::ScalarType>, 10> kStorageTypes{{{&kKnown[2], at::kDouble},
                                                                                        {&kKnown[3], at::kFloat},
                                                                                        {&kKnown[4], at::kHalf},
                                                                                        {&kKnown[5], at::kBFloat16},
                                                                                        {&kKnown[6], at::kLong},
                                                                                        {&kKnown[7], at::kInt},
                                                                                        {&kKnown[8], at::kShort},
                                                                                        {&kKnown[9], at::kChar},
                                                                                        {&kKnown[10], at::kByte},
                                                                                        {&kKnown[11], at::kBool}}};

// Reads the call that makes a tensor.
class TensorReader {
 public:
  TensorReader(TorchStateDict& dict, const std::string& file, const std::string& name)
      : dict_(dict), file_(file), name_(name) {}

  TorchTensor read(const PickleValue& value) {
    const auto* call = as<const PickleCall*>(value, "a tensor");
    if (call->function == kMakeParameter) {  // (tensor, requires_grad, backward_hooks)
      check_count("arguments of a parameter", call->arguments->items.size(), 3, 3);
      call = as<const PickleCall*>(call->arguments->items[0], "the tensor of a parameter");
    }
    if (call->function != kMakeTensor) refuse(cat("a tensor cannot be ", to_string(call)));
    // (storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata)
    const auto& arguments = call->arguments->items;
    check_count("arguments of a tensor", arguments.size(), 6, 7);
    if (arguments.size() == 7) check_metadata(arguments[6]);
    TorchTensor tensor{storage(arguments[0]), count(arguments[1], "an offset"), counts(arguments[2], "sizes"),
                       counts(arguments[3], "strides")};
    check_count("strides", tensor.strides.size(), tensor.shape.size(), tensor.shape.size());
    return tensor;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(cat(file_, ": tensor ", name_, ": ", what, kOnlyTensors));
  }

  template <class T>
  T as(const PickleValue& value, const char* what) const {
    if (const T* found = std::get_if<T>(&value)) return *found;
    refuse(cat(what, " cannot be ", to_string(value)));
  }

  void check_count(const char* what, size_t count, size_t least, size_t most) const {
    if (count < least || count > most) refuse(cat("there cannot be ", count, ' ', what));
  }

  // The metadata states whether values are to be negated or conjugated.
  void check_metadata(const PickleValue& value) const {
    if (std::holds_alternative<std::monostate>(value)) return;
    if (!as<PickleDict*>(value, "metadata")->items.empty()) refuse("has metadata that changes its values");
  }

  int64_t count(const PickleValue& value, const char* what) const {
    const auto number = as<int64_t>(value, what);
    if (number < 0) refuse(cat(what, " cannot be ", number));
    return number;
  }

  std::vector<int64_t> counts(const PickleValue& value, const char* what) const {
    const auto& items = as<const PickleTuple*>(value, what)->items;
    check_count(what, items.size(), 0, kMostTorchDimensions);
    std::vector<int64_t> numbers;
    for (const auto& item : items) numbers.push_back(count(item, what));
    return numbers;
  }

  // A reference to ("storage", type, key, location, elements). Files of the older format have a sixth item, which is
  // None unless the storage is a part of another one, as before PyTorch 0.4.
  std::string_view storage(const PickleValue& value) {
    const auto* reference = as<const PickleReference*>(value, "a storage");
    const auto& id = as<const PickleTuple*>(reference->id, "a reference")->items;
    check_count("items in a reference to a storage", id.size(), 5, 6);
    if (as<std::string_view>(id[0], "a reference") != "storage")
      refuse(cat("there is a reference to ", to_string(id[0])));
    if (id.size() == 6 && !std::holds_alternative<std::monostate>(id[5])) refuse("is in a part of a storage");
    const auto* global = as<const PickleGlobal*>(id[1], "the type of a storage");
    const auto type = std::ranges::find(kStorageTypes, global, [](const auto& known) { return known.first; });
    if (type == kStorageTypes.end()) refuse(cat("the type of a storage cannot be ", to_string(global)));
    const auto key = as<std::string_view>(id[2], "the key of a storage");
    const TorchStorage storage{type->second, static_cast<uint64_t>(count(id[4], "the elements of a storage"))};
    const auto& known = dict_.storages.emplace(key, storage).first->second;
    if (known.dtype != storage.dtype || known.elements != storage.elements)
      refuse("another tensor has another type or size for the same storage");
    return key;
  }

  TorchStateDict& dict_;
  const std::string& file_;
  const std::string& name_;
};

std::string tensor_name(const PickleValue& key, const std::string& file) {
  const auto* text = std::get_if<std::string_view>(&key);
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~'; };
  if (!text || text->empty() || text->size() > kLongestTensorName || !std::ranges::all_of(*text, is_plain))
    throw DataError(cat(file, ": names of tensors must be strings of 1 to ", kLongestTensorName,
                        " plain characters; got ", to_string(key), kOnlyTensors));
  return std::string(*text);
}

}  // namespace

TorchStateDict read_state_dict(std::string_view& bytes, const std::string& file) {
  PickleHeap heap;
  const PickleValue value = read_pickle(bytes, heap, kKnown, file);
  const auto* items = std::get_if<PickleDict*>(&value);
  if (!items) throw DataError(cat(file, ": must hold a dict of tensors; got ", to_string(value), kOnlyTensors));
  TorchStateDict dict;
  for (const auto& [key, tensor] : (*items)->items) {
    const auto name = tensor_name(key, file);
    if (!dict.tensors.emplace(name, TensorReader(dict, file, name).read(tensor)).second)
      throw DataError(cat(file, ": tensor ", name, ": occurs twice", kDamagedFile));
  }
  return dict;
}

}  // namespace shardline
