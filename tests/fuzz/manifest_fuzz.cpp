// manifest.json of a checkpoint, unchanged and with its checksum repaired, and the files that it is compared with. An
// accepted manifest names only files in its directory, in ascending pieces, and writing it gives the same text.
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/checkpoint/piece_files.h"
#include "tests/fuzz/fuzz.h"

namespace shardline::manifest_fuzz {
namespace {

using nlohmann::json;

// The text with its correct checksum; the text itself if it is not even an object.
std::string repaired(const std::string& text) {
  json manifest = json::parse(text, nullptr, false);
  if (!manifest.is_object()) return text;
  manifest.erase("checksum");
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(checksum(manifest.dump())));
  manifest["checksum"] = hex;
  return manifest.dump() + "\n";
}

// Compares the folder's files with the manifest, and reads the pieces that are there.
void compare_files(const Manifest& manifest) {
  const PieceFiles files(fuzz::folder().string(), manifest);
  size_t differ = files.wrong_files().size();
  for (size_t piece = 0; piece < files.pieces().size(); ++piece) {
    const auto& [name, begin, end, wanted] = files.pieces()[piece];
    FUZZ_REQUIRE(files.describe(piece).starts_with(name + ": "), files.describe(piece));
    FUZZ_REQUIRE(!files.has(piece) || files.lists(piece), name, " has a piece that is not listed");
    if (!files.has(piece)) continue;
    const std::string bytes = files.read(piece);
    FUZZ_REQUIRE(std::ssize(bytes) == end - begin, name, ": ", bytes.size(), " bytes from ", begin, " to ", end);
    FUZZ_REQUIRE(files.damage_of(piece).empty() == (checksum(bytes) == wanted), files.describe(piece));
    differ += checksum(bytes) != wanted;
  }
  FUZZ_REQUIRE(find_damage(fuzz::folder().string(), manifest).size() == differ, differ, " differences");
}

// Writing the same pieces again reproduces the manifest that was read.
void write_pieces(const Manifest& manifest) {
  FUZZ_REQUIRE(parse_manifest(manifest_text(whole_manifest(manifest)), "whole").files == manifest.files, "the files");
  for (const auto& [name, pieces] : manifest.files) {
    std::vector<int64_t> ends;
    for (const auto& piece : pieces)
      if (piece.end > 0 || pieces.size() == 1) ends.push_back(piece.end);
    FUZZ_REQUIRE(piece_ends(ends.back(), ends.back() + 1, ends) == ends, name, " has other pieces");
  }
  if (!manifest.part) return;
  ManifestPart part;
  for (const auto& [name, ranges] : manifest.part->pieces)
    for (const auto& range : ranges)
      for (int64_t piece = range.begin; piece < range.end; ++piece) add_piece(part, name, piece);
  FUZZ_REQUIRE(part.pieces == manifest.part->pieces, "the part has other pieces");
}

bool read_text(const std::string& text, size_t size) {
  std::optional<Manifest> manifest;
  if (!fuzz::accepts(size + text.size(), [&] { manifest = parse_manifest(text, "manifest.json"); })) return false;
  FUZZ_REQUIRE(manifest_text(*manifest) == text, "the manifest changes when it is written");
  FUZZ_REQUIRE(manifest->step >= 0, manifest->step);
  for (const auto& [name, pieces] : manifest->files) {
    FUZZ_REQUIRE(!name.empty() && name.find('/') == std::string::npos && name != ".." && name != ".", name);
    FUZZ_REQUIRE(name.find('\0') == std::string::npos && name != kManifestFile, name);
    int64_t end = -1;
    for (const auto& piece : pieces) {
      FUZZ_REQUIRE(piece.end > end, name, " has a piece that ends at ", piece.end, " after ", end);
      end = piece.end;
    }
    FUZZ_REQUIRE(end >= 0, name, " has no piece");
  }
  FUZZ_REQUIRE(fuzz::accepts(text.size() + size, [&] { write_pieces(*manifest); }), "an accepted manifest is refused");
  constexpr fuzz::Allowance for_lines{.per_byte = 1024};  // lines about damage, one for each piece
  FUZZ_REQUIRE(fuzz::accepts(
                   text.size() + size, [&] { compare_files(*manifest); }, for_lines),
               "files cannot be compared with an accepted manifest");
  return true;
}

// Whether the folder has a file of tensors that an accepted manifest does not list.
bool has_added_tensors(const std::string& text) {
  for (const auto& name : added_files(fuzz::folder().string(), parse_manifest(text, "manifest.json")))
    if (name.ends_with(".safetensors")) return true;
  return false;
}

}  // namespace

FUZZ_TARGET(manifest) {
  auto files = fuzz::files_of(data, size,
                              {"manifest.json", "model.safetensors", "trainer_state.json", "model.safetensors.part",
                               "trainer_state.json.part"});
  const std::string text = files["manifest.json"];
  FUZZ_REQUIRE(pieces_of(text).back().end == std::ssize(text), "the pieces of a text");
  fuzz::fill_folder(files);
  bool accepted = false;
  for (const std::string& written : {text, repaired(text)}) {
    fuzz::file_with("manifest.json", written);
    const bool is_read = fuzz::accepts(size + written.size(), [&] { read_manifest(fuzz::folder().string()); });
    const bool is_right = read_text(written, size) && !has_added_tensors(written);
    FUZZ_REQUIRE(is_right == is_read, "the file and its text differ");
    accepted |= is_read;
  }
  return accepted;
}

}  // namespace shardline::manifest_fuzz
