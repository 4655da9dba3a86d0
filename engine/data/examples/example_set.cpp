#include "engine/data/examples/example_set.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "engine/data/cache/partial_file.h"
#include "engine/data/examples/microbatch_rows.h"

namespace shardline {
namespace {

// The first bytes of the file. The arrays follow, each aligned to its elements: ends of parts (i64), ends, rows (i64
// per example), tensors (2 x i64 per column of an example), ends of the names of their files (i64), weights (i32),
// targets (f32), ids, labels (i32 per token), types, continues (u8 per token), the names.
struct Header {
  static constexpr char kMagic[8] = {'S', 'L', 'E', 'X', 'A', 'M', 'P', 'L'};
  static constexpr uint32_t kVersion = 6;

  char magic[8] = {};
  uint32_t version = 0;
  uint32_t flags = 0;  // 1: types, 2: labels, 4: words, 8: sequences
  uint32_t target_kind = 0, target_width = 0;
  uint64_t examples = 0, tokens = 0, data_rows = 0, shortened = 0, left_out = 0, left_over = 0, parts = 0;
  uint64_t tensors = 0, tensor_files = 0, name_bytes = 0;  // tensors: number per example
  char digest[32] = {};
  uint64_t content_checksum = 0;
  uint64_t checksum = 0;  // covers everything above

  uint64_t expected_checksum() const { return XXH3_64bits(this, offsetof(Header, checksum)); }
};
static_assert(sizeof(Header) == 152);

constexpr uint64_t kMostTokens = uint64_t{1} << 40;
constexpr uint64_t kMostColumns = 1000;  // maximum number of columns of tensors

int32_t weight_of(const ExampleShape& shape, std::span<const int32_t> labels, std::span<const float> targets) {
  if (shape.labels) return std::ranges::count_if(labels, [](int32_t label) { return label != kNoLabel; });
  if (shape.targets == TargetKind::numbers) return 1;  // any number may be a target
  const auto known = [](float target) { return target != kNoLabel; };
  return shape.targets != TargetKind::none && std::ranges::all_of(targets, known);
}

template <class T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Takes the next array off the bytes.
template <class T>
std::span<const T> take(std::string_view& bytes, uint64_t count) {
  const std::span<const T> values(reinterpret_cast<const T*>(bytes.data()), count);
  bytes.remove_prefix(count * sizeof(T));
  return values;
}

}  // namespace

ExampleSet::ExampleSet(const std::filesystem::path& path, std::shared_ptr<const TensorColumns> tensors)
    : file_(path), reader_(std::move(tensors)) {
  const auto refuse = [&](const char* why) {
    throw DataError(cat(path.string(), ": is not a set of examples: ", why, "; remove it"));
  };
  Header header;
  if (file_.size() < sizeof header) refuse("it is too short");
  std::memcpy(&header, file_.bytes().data(), sizeof header);
  if (std::memcmp(header.magic, Header::kMagic, sizeof header.magic) != 0)
    refuse("it does not begin with the format's name");
  if (header.version != Header::kVersion) refuse("it has another version");
  if (header.checksum != header.expected_checksum()) refuse("its header is damaged");
  shape_ = {.types = (header.flags & 1) != 0,
            .labels = (header.flags & 2) != 0,
            .words = (header.flags & 4) != 0,
            .sequences = (header.flags & 8) != 0,
            .targets = static_cast<TargetKind>(header.target_kind),
            .width = header.target_width,
            .tensors = static_cast<int64_t>(header.tensors)};
  if (header.tensors > kMostColumns || header.tensor_files > kMostTokens || header.name_bytes > kMostTokens)
    refuse("its size does not match its examples");
  const uint64_t per_example = 2 * sizeof(int64_t) + sizeof(int32_t) + header.target_width * sizeof(float) +
                               header.tensors * sizeof(FiledTensor);
  const uint64_t per_token = sizeof(int32_t) * (1 + shape_.labels) + shape_.types + shape_.words;
  if (header.examples > kMostTokens || header.tokens > kMostTokens || header.parts > kMostTokens ||
      file_.size() != sizeof header + (header.parts + header.tensor_files) * sizeof(int64_t) + header.name_bytes +
                          header.examples * per_example + header.tokens * per_token)
    refuse("its size does not match its examples");
  if (shape_.sequences && !shape_.types) refuse("its sequences have no types");
  digest_.assign(header.digest, sizeof header.digest);
  checksum_ = header.content_checksum;
  counts_.rows = header.data_rows;
  counts_.shortened = header.shortened;
  counts_.left_out = header.left_out;
  counts_.left_over = header.left_over;
  std::string_view rest = file_.bytes().substr(sizeof header);
  const auto part_ends = take<int64_t>(rest, header.parts);
  counts_.part_ends.assign(part_ends.begin(), part_ends.end());
  ends_ = take<int64_t>(rest, header.examples);
  row_of_ = take<int64_t>(rest, header.examples);
  tensors_ = take<FiledTensor>(rest, header.examples * header.tensors);
  const auto name_ends = take<int64_t>(rest, header.tensor_files);
  weights_ = take<int32_t>(rest, header.examples);
  targets_ = take<float>(rest, header.examples * header.target_width);
  ids_ = take<int32_t>(rest, header.tokens);
  if (shape_.labels) labels_ = take<int32_t>(rest, header.tokens);
  if (shape_.types) types_ = take<uint8_t>(rest, header.tokens);
  if (shape_.words) continues_ = take<uint8_t>(rest, header.tokens);
  for (int64_t begin = 0; const int64_t end : name_ends) {
    if (end < begin || std::cmp_greater(end, rest.size())) refuse("its file names are damaged");
    tensor_files_.emplace_back(rest.substr(begin, end - begin));
    begin = end;
  }
}

bool ExampleSet::is_intact() const {
  const std::string_view content = file_.bytes().substr(sizeof(Header));
  return XXH3_64bits(content.data(), content.size()) == checksum_;
}

int64_t ExampleSet::first_of_row(int64_t row) const {
  return std::ranges::lower_bound(row_of_, row) - row_of_.begin();
}

int64_t ExampleSet::source_tokens(int64_t example) const {
  SL_ASSERT(shape_.sequences, "examples without targets");
  return std::ranges::count(types_.subspan(begin_of(example), tokens(example)), 0);
}

std::span<const int32_t> ExampleSet::ids(int64_t example) const {
  return ids_.subspan(begin_of(example), tokens(example));
}

std::span<const int32_t> ExampleSet::labels(int64_t example) const {
  return shape_.labels ? labels_.subspan(begin_of(example), tokens(example)) : labels_;
}

std::span<const uint8_t> ExampleSet::continues(int64_t example) const {
  return shape_.words ? continues_.subspan(begin_of(example), tokens(example)) : continues_;
}

std::span<const float> ExampleSet::targets(int64_t example) const {
  return targets_.subspan(example * shape_.width, shape_.width);
}

std::string ExampleSet::columns_text() const {
  return reader_ ? reader_->describe() : "";
}

std::map<std::string, at::Tensor> ExampleSet::columns(std::span<const int64_t> examples) const {
  std::map<std::string, at::Tensor> columns;
  if (shape_.tensors == 0 || examples.empty()) return columns;
  SL_ASSERT(reader_ && reader_->size() == shape_.tensors, "nothing reads the tensors");
  for (int64_t column = 0; column < shape_.tensors; ++column) {
    std::vector<TensorPlace> places;
    for (const int64_t example : examples) {
      const auto& [file, row] = tensors_[example * shape_.tensors + column];
      places.push_back({tensor_files_.at(file), row});
    }
    columns.emplace(reader_->name(column), reader_->read(column, places));
  }
  return columns;
}

Microbatch ExampleSet::microbatch(std::span<const int64_t> examples, int64_t first_sample,
                                  const std::vector<int64_t>& sample_ends) const {
  std::vector<int64_t> ends;
  for (const int64_t example : examples) ends.push_back((ends.empty() ? 0 : ends.back()) + tokens(example));
  Microbatch made = rows_of_segments(std::move(ends), first_sample, sample_ends);
  made.columns = columns(examples);
  const int64_t count = std::ssize(examples);
  if (shape_.types && !shape_.sequences) made.types = at::empty_like(made.ids);
  if (shape_.labels) made.labels = at::empty_like(made.ids);
  const auto at_row = [](at::Tensor& tensor, int64_t row) { return tensor.mutable_data_ptr<int64_t>() + row; };
  for (int64_t i = 0, row = 0; i < count; row = made.ends[i++]) {
    const int64_t begin = begin_of(examples[i]), length = tokens(examples[i]);
    std::copy_n(ids_.begin() + begin, length, at_row(made.ids, row));
    const auto types = types_.begin() + begin;
    if (shape_.sequences) made.target_begins.push_back(row + source_tokens(examples[i]));
    if (made.types.defined()) std::copy_n(types, length, at_row(made.types, row));
    if (shape_.labels) std::copy_n(labels_.begin() + begin, length, at_row(made.labels, row));
  }
  if (shape_.targets == TargetKind::none) return made;
  const bool is_number = shape_.targets == TargetKind::numbers;
  std::vector<int64_t> sizes = {count};
  if (shape_.width != 1) sizes.push_back(shape_.width);
  made.targets = at::empty(sizes, is_number ? at::kFloat : at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const auto from = targets(examples[i]);
    const int64_t to = i * shape_.width;
    if (is_number)
      std::ranges::copy(from, made.targets.mutable_data_ptr<float>() + to);
    else
      std::ranges::copy(from, at_row(made.targets, to));
  }
  return made;
}

void ExampleWriter::add(const Example& example) {
  const size_t length = example.ids.size();
  SL_ASSERT(length > 0 && std::cmp_equal(example.targets.size(), shape_.width), "an example of ", length, " tokens");
  SL_ASSERT(example.labels.size() == (shape_.labels ? length : 0), example.labels.size(), " labels");
  ids_.insert(ids_.end(), example.ids.begin(), example.ids.end());
  labels_.insert(labels_.end(), example.labels.begin(), example.labels.end());
  targets_.insert(targets_.end(), example.targets.begin(), example.targets.end());
  const auto add_bytes = [&](std::vector<uint8_t>& all, const std::vector<uint8_t>& more) {
    all.insert(all.end(), more.begin(), more.end());
    all.resize(ids_.size());
  };
  if (shape_.types) add_bytes(types_, example.types);
  if (shape_.words) add_bytes(continues_, example.continues);
  SL_ASSERT(std::cmp_equal(example.tensors.size(), shape_.tensors), example.tensors.size(), " tensors");
  for (const auto& [file, row] : example.tensors)
    tensors_.push_back({tensor_files_.emplace(file, std::ssize(tensor_files_)).first->second, row});
  ends_.push_back(std::ssize(ids_));
  row_of_.push_back(example.row);
  weights_.push_back(weight_of(shape_, example.labels, example.targets));
}

void ExampleWriter::write(const std::filesystem::path& path, const std::string& digest,
                          const ExampleCounts& counts) const {
  Header header;
  std::memcpy(header.magic, Header::kMagic, sizeof header.magic);
  header.version = Header::kVersion;
  header.flags = (shape_.types ? 1 : 0) | (shape_.labels ? 2 : 0) | (shape_.words ? 4 : 0) | (shape_.sequences ? 8 : 0);
  header.target_kind = static_cast<uint32_t>(shape_.targets);
  header.target_width = shape_.width;
  header.examples = ends_.size();
  header.tokens = ids_.size();
  header.data_rows = counts.rows;
  header.shortened = counts.shortened;
  header.left_out = counts.left_out;
  header.left_over = counts.left_over;
  header.parts = counts.part_ends.size();
  std::vector<std::string_view> files(tensor_files_.size());
  for (const auto& [name, number] : tensor_files_) files[number] = name;
  std::string names;
  std::vector<int64_t> name_ends;
  for (const auto& name : files) {
    names += name;
    name_ends.push_back(std::ssize(names));
  }
  header.tensors = shape_.tensors;
  header.tensor_files = name_ends.size();
  header.name_bytes = names.size();
  SL_ASSERT(digest.size() == sizeof header.digest, "a digest of ", digest.size(), " characters");
  std::memcpy(header.digest, digest.data(), digest.size());
  const std::string_view content[] = {bytes_of(counts.part_ends), bytes_of(ends_),      bytes_of(row_of_),
                                      bytes_of(tensors_),         bytes_of(name_ends),  bytes_of(weights_),
                                      bytes_of(targets_),         bytes_of(ids_),       bytes_of(labels_),
                                      bytes_of(types_),           bytes_of(continues_), names};
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> checksum(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(checksum.get());
  for (const auto& part : content) XXH3_64bits_update(checksum.get(), part.data(), part.size());
  header.content_checksum = XXH3_64bits_digest(checksum.get());
  header.checksum = header.expected_checksum();

  PartialFile file(path);
  file.clear();
  try {
    file.append({reinterpret_cast<const char*>(&header), sizeof header});
    for (const auto& part : content) file.append(part);
    file.commit();
  } catch (const RunError&) {  // in particular a full disk, which must not be left full
    file.discard();
    throw;
  }
}

}  // namespace shardline
