// Rules of calls that take parts of a dimension.
#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"
#include "models/program/operators.h"
#include "models/program/split/dimension_rules.h"

namespace shardline {

bool cuts_sections(const GraphNode& node) {
  if (node.name == "aten::slice") {  // every n-th place is in all sections
    const GraphArgument& step = node.arguments[place_of_argument(node, "step")];
    return step.value < 0 && step.constant.isInt() && step.constant.toInt() == 1;
  }
  return node.name == "aten::split" || node.name == "aten::split_with_sizes" || node.name == "aten::chunk" ||
         node.name == "aten::index";
}

std::optional<int64_t> picked_place(const Program& program, int value, int64_t size) {
  for (int producer = program.flow.producer[value]; producer >= 0; producer = program.flow.producer[value]) {
    const GraphNode& node = program.graph().nodes[producer];
    if (node.name != "aten::lift_fresh_copy" && node.name != "aten::alias") return {};
    value = node.arguments[0].value;
  }
  const at::Tensor constant = program.constant(value);
  if (program.is_changed(value)) return {};  // steps select different places
  if (!constant.defined() || constant.scalar_type() != at::kLong || constant.numel() != 1) return {};
  const int64_t place = constant.reshape({}).item<int64_t>();
  return place < 0 ? place + size : place;
}

std::vector<int64_t> lengths_of_split(const GraphNode& node, int64_t size) {
  const bool is_chunk = node.name == "aten::chunk";
  const bool has_lengths = node.name == "aten::split_with_sizes" || node.overload == "sizes";
  const char* name = is_chunk ? "chunks" : node.name == "aten::split" ? "split_size" : "split_sizes";
  const c10::IValue& given = node.arguments[place_of_argument(node, name)].constant;
  if (has_lengths) return given.isIntList() ? given.toIntVector() : std::vector<int64_t>();
  if (!given.isInt() || given.toInt() < 1) return {};
  const int64_t each = is_chunk ? (size + given.toInt() - 1) / given.toInt() : given.toInt();
  std::vector<int64_t> lengths;
  for (int64_t begin = 0; begin < size; begin += each) lengths.push_back(std::min(each, size - begin));
  return lengths;
}

void DimensionRules::split() {
  Dimensions self = read("self");
  const int64_t along = counted(integer("dim"), self.size());
  if (along < 0 || along >= std::ssize(self) || call().results.empty()) return unknown();
  if (call().name != "aten::chunk") {
    const GraphArgument& lengths = argument(call().name == "aten::split" ? "split_size" : "split_sizes");
    if (lengths.value >= 0 || lengths.is_list) return unknown();
  }
  const int64_t size = size_of(self[along]);
  // Items that are never read are not in the graph, so the first item gives their length.
  const int64_t length = result_sizes()[along];
  bool are_equal = length > 0 && size % length == 0;
  for (const auto& result : call().results)
    are_equal = are_equal && sizes_[result.value] && (*sizes_[result.value])[along] == length;
  const std::vector<int64_t> lengths = lengths_of_split(call(), size);
  for (const int64_t given : lengths) are_equal = are_equal && given == length;
  if (const auto parts = are_equal ? atoms_.cut(self[along], {size / length, length}) : std::nullopt) {
    atoms_.forbid((*parts)[0], cat(here(), " takes them apart"));
    self[along] = (*parts)[1];
    return make(self);
  }
  std::map<int, Dimensions> made;
  for (const auto& result : call().results) {
    if (result.item < 0 || std::cmp_greater_equal(result.item, lengths.size())) break;
    const int64_t begin = std::accumulate(lengths.begin(), lengths.begin() + result.item, int64_t{0});
    const auto section = section_of(self, along, begin, lengths[result.item]);
    if (!section) break;
    made[result.value] = self;
    made[result.value][along] = *section;
  }
  if (made.size() != call().results.size()) return forbid_all(cat(here(), " cuts them unequally"));
  for (const auto& [value, dimensions] : made) found_.of_value[value] = dimensions;
}

void DimensionRules::take() {
  Dimensions self = read("self");
  const int64_t along = counted(integer("dim"), self.size());
  if (along < 0 || along >= std::ssize(self)) return unknown();
  atoms_.forbid(self[along], cat(here(), " takes them apart"));
  self.erase(self.begin() + along);
  make(self);
}

// Selects entries of one dimension by a list of places.
void DimensionRules::pick() {
  Dimensions self = read("self");
  const auto& items = argument("indices").items;
  int along = -1;
  for (int i = 0; i < std::ssize(items); ++i) {
    if (items[i].value < 0) continue;
    const auto& sizes = sizes_[items[i].value];
    if (along >= 0 || !sizes || sizes->size() != 1 || i >= std::ssize(self)) return unknown();
    along = i;
  }
  if (along < 0) return unknown();
  // A product with what is selected from a weight is one with this weight.
  weight_[call().results[0].value] = weight_[argument("self").value];
  if (const auto place = picked_place(program_, items[along].value, size_of(self[along])))
    if (const auto section = section_of(self, along, *place, 1)) {
      self[along] = *section;
      found_.picked[node_] = *place;
      return make(self);
    }
  const std::string why = cat(here(), " picks some of them");
  atoms_.forbid(self[along], why);
  self[along] = atoms_.make(result_sizes()[along]);
  atoms_.forbid(self[along], why);
  make(self);
}

// self [..., n, ...], index [..., m, ...] -> [..., m, ...]
void DimensionRules::gather() {
  const Dimensions self = read("self"), index = read("index");
  const int64_t along = counted(integer("dim"), self.size());
  if (along < 0 || along >= std::ssize(self) || index.size() != self.size()) return unknown();
  const auto& values = program_.graph().values;
  const auto &of_self = values[argument("self").value].sizes, &of_index = values[argument("index").value].sizes;
  for (int64_t i = 0; i < std::ssize(self); ++i) {
    if (i != along && of_self.at(i) == of_index.at(i)) {
      atoms_.unite(self[i], index[i]);
      continue;
    }
    const std::string why = cat(here(), i == along ? " needs all of them" : " leaves out some of them");
    for (const auto& dimension : {self[i], index[i]}) atoms_.forbid(dimension, why);
  }
  make(index);
}

// Also narrow, which modules of C++ programs call to select, for example, the rows that have a next row.
void DimensionRules::select() {
  Dimensions self = read("self");
  const int64_t along = counted(integer("dim"), self.size());
  if (along < 0 || along >= std::ssize(self)) return unknown();
  const std::string why = cat(here(), " takes some of them");
  atoms_.forbid(self[along], why);
  self[along] = atoms_.make(result_sizes()[along]);
  atoms_.forbid(self[along], why);
  make(self);
}

void DimensionRules::slice() {
  const Dimensions self = read("self");
  const int64_t along = counted(integer("dim"), self.size());
  if (along < 0 || along >= std::ssize(self)) return unknown();
  const int64_t size = size_of(self[along]), length = result_sizes()[along];
  if (length == size) return make(self);
  const int64_t start = counted(integer("start"), size), step = integer("step");
  const bool is_computed = argument("start").value >= 0 || argument("end").value >= 0 || argument("step").value >= 0;
  const bool is_run = !is_computed && step == 1 && length > 0;
  const bool is_every_nth = !is_computed && step > 1 && size % step == 0 && length == size / step;
  const bool is_part = is_run && size % length == 0 && start % length == 0 && has_equal_slices(along, length);
  const auto parts = is_part ? atoms_.cut(self[along], {size / length, length}) : std::nullopt;
  const auto places = is_every_nth ? atoms_.cut(self[along], {length, step}) : std::nullopt;
  const auto section = !parts && is_run ? section_of(self, along, start, length) : std::nullopt;
  Dimensions result = self;
  if (parts) {
    atoms_.forbid((*parts)[0], cat(here(), " takes them apart"));
    result[along] = (*parts)[1];
  } else if (places) {
    atoms_.forbid((*places)[1], cat(here(), " takes them apart"));
    result[along] = (*places)[0];
  } else if (section) {
    result[along] = *section;
  } else {
    atoms_.forbid(self[along], cat(here(), " cuts them unequally"));
    result[along] = atoms_.make(length);
    atoms_.forbid(result[along], cat(here(), " cuts them unequally"));
  }
  make(result);
}

// Whether everything sliced from this dimension of the value has this length.
bool DimensionRules::has_equal_slices(int64_t along, int64_t length) const {
  const int value = argument("self").value;
  return std::ranges::all_of(program_.graph().nodes, [&](const GraphNode& node) {
    if (node.name != call().name || node.overload != call().overload || node.arguments[0].value != value) return true;
    const auto& sizes = sizes_[node.results[0].value];
    const auto& dimension = node.arguments[place_of_argument(node, "dim")].constant;
    if (!sizes || !dimension.isInt() || counted(dimension.toInt(), sizes->size()) != along) return true;
    const int64_t other = (*sizes)[along];
    return other == length || other == 0 || other == (*sizes_[value])[along];
  });
}

// A dimension that varies with the batch has no sections.
std::optional<Dimension> DimensionRules::section_of(const Dimensions& self, int64_t along, int64_t begin,
                                                    int64_t length) {
  const auto& sizes = program_.graph().values[argument("self").value].sizes;
  if (std::cmp_greater_equal(along, sizes.size()) || !sizes[along].expression.empty()) return {};
  return atoms_.section(self[along], begin, length);
}

void DimensionRules::pad() {
  Dimensions self = read("self");
  const auto added = integers("pad");
  if (argument("pad").is_list || added.size() > 2 * self.size()) return unknown();
  for (size_t i = 0; i + 1 < added.size(); i += 2) {
    const size_t along = self.size() - 1 - i / 2;
    if (added[i] == 0 && added[i + 1] == 0) continue;
    atoms_.forbid(self[along], cat(here(), " pads them"));
    self[along] = atoms_.make(result_sizes()[along]);
    atoms_.forbid(self[along], cat(here(), " pads them"));
  }
  make(self);
}

}  // namespace shardline
