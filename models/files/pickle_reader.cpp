#include "models/files/pickle_reader.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/error.h"
#include "core/plain_text.h"
#include "models/files/little_endian.h"
#include "models/files/tensor_file.h"

namespace shardline {
namespace {

constexpr int kOldestProtocol = 2, kNewestProtocol = 5;
constexpr size_t kShownText = 80;  // bytes of a text that a message shows
constexpr PickleGlobal kOrderedDict{"collections", "OrderedDict"};

enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersistentId = 'Q',
  kReduce = 'R',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kEmptyDict = '}',
  kProtocol = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kTrue = 0x88,
  kFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

// Opcodes that are refused, with their names in Python.
constexpr std::array<std::pair<uint8_t, const char*>, 33> kRefused{{
    {'0', "POP"},
    {'1', "POP_MARK"},
    {'2', "DUP"},
    {'B', "BINBYTES"},
    {'C', "SHORT_BINBYTES"},
    {'F', "FLOAT"},
    {'G', "BINFLOAT"},
    {'I', "INT"},
    {'L', "LONG"},
    {'P', "PERSID"},
    {'S', "STRING"},
    {'T', "BINSTRING"},
    {'U', "SHORT_BINSTRING"},
    {'V', "UNICODE"},
    {'d', "DICT"},
    {'g', "GET"},
    {'i', "INST"},
    {'l', "LIST"},
    {'o', "OBJ"},
    {'p', "PUT"},
    {0x81, "NEWOBJ"},
    {0x82, "EXT1"},
    {0x83, "EXT2"},
    {0x84, "EXT4"},
    {0x8b, "LONG4"},
    {0x8e, "BINBYTES8"},
    {0x8f, "EMPTY_SET"},
    {0x90, "ADDITEMS"},
    {0x91, "FROZENSET"},
    {0x92, "NEWOBJ_EX"},
    {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"},
    {0x98, "READONLY_BUFFER"},
}};

std::string shown(std::string_view text) {
  return plain_text(std::string(text.substr(0, kShownText))) + (text.size() > kShownText ? "..." : "");
}

// Python's pickle machine: a stack of values with marks, and a memo of values that are used again.
class Machine {
 public:
  Machine(std::string_view bytes, PickleHeap& heap, std::span<const PickleGlobal> known, const std::string& file)
      : bytes_(bytes), heap_(heap), known_(known), file_(file) {}

  PickleValue run() {
    while (step()) {
    }
    const PickleValue result = pop();
    if (!stack_.empty()) fail("the pickle ends with more than one value");
    return result;
  }

  size_t position() const { return position_; }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(cat(file_, ": byte ", opcode_at_, " of a pickle: ", what, kDamagedFile));
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(cat(file_, ": byte ", opcode_at_, " of a pickle: ", what, kOnlyTensors));
  }

  // Executes an opcode; false after the last one.
  bool step() {
    opcode_at_ = position_;
    const uint8_t opcode = take(1)[0];
    switch (opcode) {
      case kStop:
        return false;
      case kProtocol:
        if (const auto version = take_number(1); version < kOldestProtocol || version > kNewestProtocol)
          refuse(cat("has protocol ", version, "; protocols ", kOldestProtocol, " to ", kNewestProtocol, " are read"));
        break;
      case kFrame:  // states how much to read at a time
        take(8);
        break;
      case kMark:
        marks_.push_back(stack_.size());
        break;
      case kNone:
        push({});
        break;
      case kTrue:
      case kFalse:
        push(opcode == kTrue);
        break;
      case kBinInt:
        push(int64_t{int32_t(uint32_t(take_number(4)))});
        break;
      case kBinInt1:
        push(int64_t(take_number(1)));
        break;
      case kBinInt2:
        push(int64_t(take_number(2)));
        break;
      case kLong1:
        push_long(take(take_number(1)));
        break;
      case kShortBinUnicode:
        push(take(take_number(1)));
        break;
      case kBinUnicode:
        push(take(take_number(4)));
        break;
      case kBinUnicode8:
        push(take(take_number(8)));
        break;
      case kEmptyTuple:
        push_tuple(0);
        break;
      case kTuple1:
      case kTuple2:
      case kTuple3:
        push_tuple(opcode - kTuple1 + 1);
        break;
      case kTuple:
        push_tuple(count_to_mark());
        break;
      case kEmptyList:
        push(&heap_.lists.emplace_back());
        break;
      case kAppend:
        append(1);
        break;
      case kAppends:
        append(count_to_mark());
        break;
      case kEmptyDict:
        push(&heap_.dicts.emplace_back());
        break;
      case kSetItem:
        set_items(2);
        break;
      case kSetItems:
        set_items(count_to_mark());
        break;
      case kBinPut:
        memo_[take_number(1)] = top();
        break;
      case kLongBinPut:
        memo_[take_number(4)] = top();
        break;
      case kMemoize:
        memo_[memo_.size()] = top();
        break;
      case kBinGet:
        recall(take_number(1));
        break;
      case kLongBinGet:
        recall(take_number(4));
        break;
      case kGlobal: {
        const auto module = take_line();
        push_global(module, take_line());
        break;
      }
      case kStackGlobal: {
        const auto name = pop_as<std::string_view>("the name of a global");
        push_global(pop_as<std::string_view>("the module of a global"), name);
        break;
      }
      case kReduce:
        call();
        break;
      case kBuild:
        drop_attributes();
        break;
      case kBinPersistentId:
        push(&heap_.references.emplace_back(PickleReference{pop()}));
        break;
      default:
        refuse_opcode(opcode);
    }
    return true;
  }

  [[noreturn]] void refuse_opcode(uint8_t opcode) const {
    const auto known = std::ranges::find(kRefused, opcode, [](const auto& refused) { return refused.first; });
    if (known == kRefused.end()) fail(cat("unknown opcode ", int{opcode}));
    refuse(cat("has the opcode ", known->second));
  }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - position_)
      fail(cat("needs ", count, " bytes after byte ", position_, ", but there are ", bytes_.size() - position_));
    position_ += count;
    return bytes_.substr(position_ - count, count);
  }

  uint64_t take_number(size_t bytes) { return little_endian(take(bytes)); }

  std::string_view take_line() {
    const size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) fail("a name must end with a line break");
    const auto line = take(end - position_);
    take(1);
    return line;
  }

  // The number of values available to opcodes: those above the last mark.
  size_t count_above_mark() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }

  size_t count_to_mark() {
    if (marks_.empty()) fail("a mark is missing");
    const size_t count = count_above_mark();
    marks_.pop_back();
    return count;
  }

  void push(PickleValue value) { stack_.push_back(value); }

  PickleValue& top() {
    if (count_above_mark() == 0) fail("a value is missing");
    return stack_.back();
  }

  PickleValue pop() {
    const PickleValue value = top();
    stack_.pop_back();
    return value;
  }

  template <class T>
  T as(const PickleValue& value, const char* what) const {
    if (const T* found = std::get_if<T>(&value)) return *found;
    fail(cat(what, " cannot be ", to_string(value)));
  }
  template <class T>
  T pop_as(const char* what) {
    return as<T>(pop(), what);
  }

  std::vector<PickleValue> pop_last(size_t count) {
    if (count > count_above_mark()) fail("a value is missing");
    const std::vector<PickleValue> last(stack_.end() - count, stack_.end());
    stack_.resize(stack_.size() - count);
    return last;
  }

  void push_tuple(size_t count) { push(&heap_.tuples.emplace_back(PickleTuple{pop_last(count)})); }

  void push_long(std::string_view bytes) {
    if (bytes.size() > sizeof(int64_t)) return push(PickleLong{bytes});
    uint64_t value = little_endian(bytes);
    const bool is_negative = !bytes.empty() && uint8_t(bytes.back()) >= 0x80;
    if (is_negative && bytes.size() < sizeof value) value |= ~uint64_t{0} << (8 * bytes.size());
    push(int64_t(value));
  }

  void push_global(std::string_view module, std::string_view name) {
    const auto is_it = [&](const PickleGlobal& global) { return global.module == module && global.name == name; };
    if (is_it(kOrderedDict)) return push(&kOrderedDict);
    const auto found = std::ranges::find_if(known_, is_it);
    if (found == known_.end()) refuse(cat("names ", shown(module), '.', shown(name)));
    push(&*found);
  }

  void recall(uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail(cat("the memo has no value ", key));
    push(found->second);
  }

  void append(size_t count) {
    const auto items = pop_last(count);
    auto& list = as<PickleList*>(top(), "what is appended to")->items;
    list.insert(list.end(), items.begin(), items.end());
  }

  void set_items(size_t count) {
    const auto items = pop_last(count);
    if (count % 2 != 0) fail("a key has no value");
    auto& dict = as<PickleDict*>(top(), "what has items")->items;
    dict.reserve(dict.size() + count / 2);
    for (size_t i = 0; i < count; i += 2) dict.emplace_back(items[i], items[i + 1]);
  }

  // An OrderedDict is created at once, because items are added to it.
  void call() {
    const auto* arguments = pop_as<const PickleTuple*>("the arguments of a call");
    const auto* function = pop_as<const PickleGlobal*>("what is called");
    if (function != &kOrderedDict) return push(&heap_.calls.emplace_back(PickleCall{function, arguments}));
    if (!arguments->items.empty()) refuse("calls collections.OrderedDict with arguments");
    push(&heap_.dicts.emplace_back(PickleDict{.is_ordered = true, .items = {}}));
  }

  void drop_attributes() {
    pop_as<PickleDict*>("attributes");
    if (!as<PickleDict*>(top(), "what has attributes")->is_ordered) fail("a dict has no attributes");
  }

  std::string_view bytes_;
  PickleHeap& heap_;
  std::span<const PickleGlobal> known_;
  const std::string& file_;
  size_t position_ = 0, opcode_at_ = 0;
  std::vector<PickleValue> stack_;
  std::vector<size_t> marks_;  // stack sizes at the marks
  std::map<uint64_t, PickleValue> memo_;
};

struct ToString {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool value) const { return value ? "True" : "False"; }
  std::string operator()(int64_t value) const { return cat(value); }
  std::string operator()(PickleLong value) const { return cat("an integer of ", value.bytes.size(), " bytes"); }
  std::string operator()(std::string_view text) const { return cat('"', shown(text), '"'); }
  std::string operator()(const PickleGlobal* global) const { return cat(global->module, '.', global->name); }
  std::string operator()(const PickleTuple*) const { return "a tuple"; }
  std::string operator()(PickleList*) const { return "a list"; }
  std::string operator()(PickleDict*) const { return "a dict"; }
  std::string operator()(const PickleCall* call) const { return "a call of " + (*this)(call->function); }
  std::string operator()(const PickleReference*) const { return "a reference"; }
};

}  // namespace

PickleValue read_pickle(std::string_view& bytes, PickleHeap& heap, std::span<const PickleGlobal> known,
                        const std::string& file) {
  Machine machine(bytes, heap, known, file);
  const PickleValue value = machine.run();
  bytes.remove_prefix(machine.position());
  return value;
}

std::string to_string(const PickleValue& value) {
  return std::visit(ToString(), value);
}

}  // namespace shardline
