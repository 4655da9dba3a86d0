// Reads the subset of Python's pickles (protocols 2 to 5) needed for texts, integers, containers and tensors, as inert
// values. Nothing is executed: a pickle names functions and their arguments, and such a call is only recorded, for
// functions that the caller knows. Everything else is refused, and the error names it.
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace shardline {

// A function or a class. Known ones are compared by address.
struct PickleGlobal {
  std::string_view module, name;
};

// An integer beyond 64 bits: its bytes, lowest first.
struct PickleLong {
  std::string_view bytes;
};

struct PickleTuple;
struct PickleList;
struct PickleDict;
struct PickleCall;
struct PickleReference;

// monostate is None. Texts are views of the file; pointers refer to a PickleHeap and may form cycles.
using PickleValue =
    std::variant<std::monostate, bool, int64_t, PickleLong, std::string_view, const PickleGlobal*, const PickleTuple*,
                 PickleList*, PickleDict*, const PickleCall*, const PickleReference*>;

struct PickleTuple {
  std::vector<PickleValue> items;
};
struct PickleList {
  std::vector<PickleValue> items;
};
// A dict or an OrderedDict. Keys may repeat.
struct PickleDict {
  bool is_ordered = false;
  std::vector<std::pair<PickleValue, PickleValue>> items;
};
struct PickleCall {
  const PickleGlobal* function;
  const PickleTuple* arguments;
};
// Something stored outside the pickle, by the id that its writer assigned.
struct PickleReference {
  PickleValue id;
};

// Owns what values point to. Nothing points to its owner, so deep values are freed without recursion.
struct PickleHeap {
  std::deque<PickleTuple> tuples;
  std::deque<PickleList> lists;
  std::deque<PickleDict> dicts;
  std::deque<PickleCall> calls;
  std::deque<PickleReference> references;
};

// Takes the pickle at the front of `bytes`. It may name OrderedDict and the functions in `known`. Attributes of an
// OrderedDict are dropped: in a module's state dict they are versions. Throws a DataError that begins with `file`.
PickleValue read_pickle(std::string_view& bytes, PickleHeap& heap, std::span<const PickleGlobal> known,
                        const std::string& file);

// For messages: "None", "3", "\"wte.weight\"", "a list", "torch.FloatStorage", "a call of
// torch._utils._rebuild_tensor_v2".
std::string to_string(const PickleValue& value);

// For messages about values that are not tensors.
inline constexpr const char* kOnlyTensors =
    "; only tensors are read, and no code of the file is run: if you trust it, load it with transformers and save it "
    "again, as safetensors";

}  // namespace shardline
