#include "engine/checkpoint/manifest.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/files/json_data.h"
#include "engine/checkpoint/piece_files.h"
#include "models/files/hf_layout.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFormat = "shardline checkpoint";
constexpr int kVersion = 1;
constexpr size_t kLargestManifest = 256 << 20;  // bytes: enough for more than 30 TB of files
constexpr size_t kSmallManifest = 1 << 20;
constexpr double kMostParts = 1 << 20;
constexpr int64_t kMostCounted = (1LL << 53) - 1;  // steps, and bytes of all files: what a double counts exactly

std::string hex(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

uint64_t from_hex(const JsonValue& value) {
  const std::string text = value.text();
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    value.fail("must be a checksum of 16 hexadecimal digits");
  return std::stoull(text, nullptr, 16);
}

json part_json(const ManifestPart& part) {
  json pieces = json::object();
  for (const auto& [name, ranges] : part.pieces)
    for (const auto& range : ranges) pieces[name].push_back({range.begin, range.end});
  return {
      {"number", part.part.number}, {"count", part.part.count}, {"hosts", part.hosts}, {"pieces", std::move(pieces)}};
}

json body_of(const Manifest& manifest) {
  json files = json::object();
  for (const auto& [name, pieces] : manifest.files) {
    json& list = files[name] = json::array();
    for (const auto& piece : pieces) list.push_back({piece.end, hex(piece.checksum)});
  }
  json body = {{"format", kFormat}, {"version", kVersion}, {"step", manifest.step}, {"files", std::move(files)}};
  if (manifest.part) body["part"] = part_json(*manifest.part);
  return body;
}

// A name within the directory, never a path.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." && name != kManifestFile &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

std::vector<FilePiece> read_pieces(const JsonValue& list) {
  list.require(json_array());
  std::vector<FilePiece> pieces;
  for (const auto& item : list.items()) {
    item.require(json_array());
    const auto values = item.items();
    if (values.size() != 2) item.fail("must be [end, checksum]");
    const double least = pieces.empty() ? 0 : pieces.back().end + 1.0;
    pieces.push_back({values[0].require(json_integer(least, kMostCounted)).get<int64_t>(), from_hex(values[1])});
  }
  if (pieces.empty()) list.fail("must have a piece");
  return pieces;
}

// The total size of the other files in the manifest's directory. A manifest that is longer than the files that it
// describes is refused, unless it is small.
size_t bytes_beside(const fs::path& manifest) {
  size_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(manifest.parent_path(), error), end; !error && entry != end; entry.increment(error))
    if (std::error_code ignored; entry->path() != manifest && entry->is_regular_file(ignored))
      bytes += entry->file_size(ignored);
  return bytes;
}

// The checksum of a newer manifest, which covers everything else, distinguishes it from a damaged one.
void refuse_newer(const json& parsed, const std::string& path) {
  const auto text_of = [&](const char* key) { return parsed.is_object() ? parsed.value(key, json()) : json(); };
  const json format = text_of("format"), version = text_of("version");
  if (format != kFormat || !version.is_number_integer() || version <= kVersion) return;
  json body = parsed;
  body.erase("checksum");
  if (text_of("checksum") != hex(checksum(body.dump()))) return;
  throw NewerManifest(cat(path, ": was saved by a newer version of shardline: its format has version ", version.dump(),
                          ", and this program reads version ", kVersion,
                          "; use the program that saved it, or move the checkpoint away to continue from the "
                          "previous one"));
}

// Checkpoints are found, counted and removed by their names. A directory with any other name belongs to the user.
void check_name(const std::string& directory, const Manifest& manifest) {
  const std::string path = fs::path(directory).has_filename() ? directory : fs::path(directory).parent_path().string();
  const auto step = step_of_checkpoint(fs::path(checkpoint_of_part(path).value_or(path)).filename());
  if (step && *step != manifest.step)
    throw DataError(cat(directory, ": holds the checkpoint of step ", manifest.step, "; rename it to ",
                        checkpoint_name(manifest.step)));
}

// Tensors and their indexes are read from a directory by the names of the files, so a file that was added would be read
// with the others, or instead of them.
void refuse_added_tensors(const std::string& directory, const Manifest& manifest) {
  for (const auto& name : added_files(directory, manifest))
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"))
      throw DataError(cat(file_in(directory, name), ": was added to the checkpoint: ", kManifestFile,
                          " does not list it; remove it"));
}

std::vector<PieceRange> read_ranges(const JsonValue& list, int64_t pieces) {
  list.require(json_array());
  std::vector<PieceRange> ranges;
  for (const auto& item : list.items()) {
    item.require(json_array());
    const auto values = item.items();
    if (values.size() != 2) item.fail("must be [begin, end]");
    const double least = ranges.empty() ? 0 : ranges.back().end + 1.0;
    const auto begin = values[0].require(json_integer(least, pieces - 1.0)).get<int64_t>();
    ranges.push_back({begin, values[1].require(json_integer(begin + 1.0, pieces)).get<int64_t>()});
  }
  if (ranges.empty()) list.fail("must have a range");
  return ranges;
}

ManifestPart read_part(const JsonValue& value, const Manifest& manifest) {
  value.require(json_object());
  value.require_keys_among({"number", "count", "hosts", "pieces"});
  for (const char* key : {"number", "count", "hosts", "pieces"})
    if (!value.has(key)) value.fail(cat("must have \"", key, '"'), "use another checkpoint");
  ManifestPart part;
  part.part.count = value.at("count").require(json_integer(1, kMostParts)).get<int>();
  part.part.number = value.at("number").require(json_integer(1, part.part.count)).get<int>();
  value.at("hosts").require(json_texts());
  for (const auto& host : value.at("hosts").items()) part.hosts.push_back(host.text());
  if (std::ssize(part.hosts) != part.part.count) value.at("hosts").fail("must name a host for each part");
  value.at("pieces").require(json_object());
  for (const auto& [name, list] : value.at("pieces").members()) {
    const auto file = manifest.files.find(name);
    if (file == manifest.files.end()) list.fail("must belong to a file of the checkpoint");
    part.pieces[name] = read_ranges(list, file->second.size());
  }
  return part;
}

}  // namespace

uint64_t checksum(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Manifest whole_manifest(Manifest manifest) {
  manifest.part.reset();
  return manifest;
}

void add_piece(ManifestPart& part, const std::string& file, int64_t piece) {
  auto& ranges = part.pieces[file];
  if (!ranges.empty() && ranges.back().end == piece)
    ++ranges.back().end;
  else
    ranges.push_back({piece, piece + 1});
}

std::string manifest_text(const Manifest& manifest) {
  json text = body_of(manifest);
  text["checksum"] = hex(checksum(text.dump()));
  return text.dump() + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  const json parsed = parse_data_json(text, path);
  refuse_newer(parsed, path);
  const JsonValue root(parsed, path);
  root.require_keys_among({"format", "version", "step", "files", "part", "checksum"});
  for (const char* key : {"format", "version", "step", "files", "checksum"})
    if (!root.has(key)) root.fail(cat("must have \"", key, '"'), "use another checkpoint");
  if (root.at("format").text() != kFormat) root.at("format").fail(cat("must be \"", kFormat, '"'));
  if (root.at("version").integer(1) != kVersion)
    root.at("version").fail(cat("must be ", kVersion), "read it with the version of shardline that wrote it");
  Manifest manifest;
  manifest.step = root.at("step").require(json_integer(0, kMostCounted)).get<int64_t>();
  root.at("files").require(json_object());
  int64_t bytes = 0;
  for (const auto& [name, list] : root.at("files").members()) {
    if (!is_plain_name(name)) list.fail("must be the list of a file in the same directory");
    bytes += manifest.files.emplace(name, read_pieces(list)).first->second.back().end;
    if (bytes > kMostCounted)
      list.fail(cat("must not increase the total size of the files above ", kMostCounted, " bytes"));
  }
  if (root.has("part")) manifest.part = read_part(root.at("part"), manifest);
  // Any other text with the same contents, and any other contents with this checksum, is damage.
  if (manifest_text(manifest) != text)
    root.fail("does not match its checksum", "it is damaged; use another checkpoint");
  return manifest;
}

Manifest read_manifest(const std::string& directory) {
  const std::string path = file_in(directory, kManifestFile);
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error)
    throw DataError(cat(path, ": cannot be read: ", error.message(), "; without it, a checkpoint is incomplete"));
  const size_t most = std::min(kLargestManifest, std::max(kSmallManifest, bytes_beside(path)));
  if (bytes > most)
    throw DataError(cat(path, ": has ", bytes, " bytes, but the files here allow at most ", most, "; it is damaged"));
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw DataError(cat(path, ": cannot be read"));
  Manifest manifest = parse_manifest(text, path);
  check_name(directory, manifest);
  refuse_added_tensors(directory, manifest);
  return manifest;
}

std::vector<std::string> added_files(const std::string& directory, const Manifest& manifest) {
  std::set<std::string> known = {kManifestFile};
  for (const auto& [name, pieces] : manifest.files) known.insert(stored_name(name, !!manifest.part));
  std::vector<std::string> added;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (std::string name = entry->path().filename(); !known.contains(name)) added.push_back(std::move(name));
  std::ranges::sort(added);
  return added;
}

std::vector<int64_t> piece_ends(int64_t bytes, int64_t block_bytes, const std::vector<int64_t>& borders) {
  std::vector<int64_t> ends = {bytes};
  for (int64_t end = block_bytes; end < bytes; end += block_bytes) ends.push_back(end);
  for (const int64_t border : borders)
    if (border > 0 && border < bytes) ends.push_back(border);
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

std::vector<FilePiece> pieces_of(std::string_view text) {
  return {{static_cast<int64_t>(text.size()), checksum(text)}};
}

bool matches(const std::vector<FilePiece>& pieces, std::string_view text) {
  size_t begin = 0;
  for (const auto& piece : pieces) {
    const size_t end = piece.end;
    if (end > text.size() || checksum(text.substr(begin, end - begin)) != piece.checksum) return false;
    begin = end;
  }
  return begin == text.size();
}

}  // namespace shardline
