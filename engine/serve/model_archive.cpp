#include "engine/serve/model_archive.h"

#ifdef SHARDLINE_SERVE
#include <archive.h>
#include <archive_entry.h>
#endif

#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/files/mapped_file.h"
#include "engine/run/model_source.h"
#include "engine/run/output_dir.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = int64_t{1} << 42;

}  // namespace

bool is_model_archive(const fs::path& path) {
  return path.string().ends_with(".tar.gz") || path.string().ends_with(".tgz");
}

#ifdef SHARDLINE_SERVE
namespace {

constexpr size_t kPiece = 1 << 20;

// Archives have names in UTF-8. libarchive converts them to the characters of the thread's locale, and the program's
// own one has only those of ASCII.
class NamesInUtf8 {
 public:
  NamesInUtf8() : locale_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)), before_(::uselocale(locale_)) {}
  ~NamesInUtf8() {
    ::uselocale(before_);
    if (locale_ != nullptr) ::freelocale(locale_);
  }
  NamesInUtf8(const NamesInUtf8&) = delete;
  NamesInUtf8& operator=(const NamesInUtf8&) = delete;

 private:
  locale_t locale_, before_;  // null: the system does not have it
};

struct FreeReader {
  void operator()(archive* reader) const { archive_read_free(reader); }
};
struct FreeWriter {
  void operator()(archive* writer) const { archive_write_free(writer); }
};

// The place of an entry below the folder.
fs::path place_of(const fs::path& archive_path, const std::string& name) {
  const fs::path path = fs::path(name).lexically_normal();
  const bool leaves = path.empty() || path.is_absolute() || *path.begin() == "..";
  if (leaves || name.find('\0') != std::string::npos)
    throw DataError(
        cat(archive_path.string(), ": has a file \"", name,
            "\", which would be outside of the model's directory; the files of an archive must be below its root"));
  return path;
}

class Unpacking {
 public:
  Unpacking(const fs::path& path, const fs::path& folder, int64_t most_bytes)
      : path_(path), folder_(folder), left_(most_bytes), reader_(archive_read_new()) {
    archive_read_support_format_tar(reader_.get());
    archive_read_support_filter_gzip(reader_.get());
    check(archive_read_open_filename(reader_.get(), path.c_str(), kPiece));
  }

  void run() {
    archive_entry* entry = nullptr;
    while (true) {
      const int result = archive_read_next_header(reader_.get(), &entry);
      if (result == ARCHIVE_EOF) return;
      check(result);
      const char* name = archive_entry_pathname(entry);
      const fs::path place = folder_ / place_of(path_, name ? name : "");
      const auto kind = archive_entry_filetype(entry);
      if (archive_entry_hardlink(entry) || (kind != AE_IFREG && kind != AE_IFDIR))
        throw DataError(
            cat(path_.string(), ": \"", name ? name : "",
                "\" is neither a plain file nor a directory; archives of models must not contain anything else"));
      make_directories((kind == AE_IFDIR ? place : place.parent_path()).string());
      if (kind == AE_IFREG) write(place);
    }
  }

 private:
  void check(int result) const {
    if (result == ARCHIVE_OK) return;
    const char* reason = archive_error_string(reader_.get());
    throw DataError(cat(path_.string(), ": cannot be read as tar.gz: ", reason ? reason : "damaged"));
  }

  void write(const fs::path& place) {
    fs::remove(place);  // an earlier entry of the same name
    DiskFile file = DiskFile::create(place.string());
    int64_t written = 0;
    std::vector<char> piece(kPiece);
    while (true) {
      const auto bytes = archive_read_data(reader_.get(), piece.data(), piece.size());
      if (bytes < 0) check(ARCHIVE_FATAL);
      if (bytes == 0) break;
      left_ -= bytes;
      if (left_ < 0) throw DataError(cat(path_.string(), ": is larger than a model may be"));
      file.write_at(written, {piece.data(), static_cast<size_t>(bytes)});
      written += bytes;
    }
  }

  fs::path path_, folder_;
  int64_t left_;
  std::unique_ptr<archive, FreeReader> reader_;
};

// Whether an entry of a model's directory exists only because the model was trained or packed there.
bool is_left_by_run(const std::string& name) {
  constexpr std::array kOthers = {"newest", "config.resolved.json", "trainer_state.json", kProfileFile,
                                  "flight", "flight.previous",      "report.html"};
  return is_record(name) || name.starts_with("previous-model") || name.ends_with(".incomplete") ||
         std::ranges::find(kOthers, name) != kOthers.end();
}

// The files of a model's directory, relative to it. A link to a file stands for this file.
std::vector<fs::path> files_of(const fs::path& directory, const fs::path& archive_path) {
  std::vector<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(directory); entry != fs::recursive_directory_iterator(); ++entry) {
    std::error_code ignored;
    const std::string name = entry->path().filename();
    const bool is_left_out = name.starts_with('.') || name.starts_with("checkpoint-") ||
                             (entry.depth() == 0 && is_left_by_run(name)) ||
                             fs::equivalent(entry->path(), archive_path, ignored);
    if (entry->is_directory() && is_left_out)
      entry.disable_recursion_pending();
    else if (entry->is_regular_file() && !is_left_out)
      files.push_back(entry->path().lexically_relative(directory));
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

void unpack_model(const fs::path& archive_path, const fs::path& folder, int64_t most_bytes) {
  const NamesInUtf8 names;
  Unpacking(archive_path, folder, most_bytes).run();
}

void pack_model(const fs::path& directory, const fs::path& archive_path) {
  if (!holds_model(directory.string()))
    throw ConfigError(
        cat(directory.string(), ": holds no model (a config.json and weights); name a model's directory"));
  const NamesInUtf8 names;
  const std::string partial = archive_path.string() + ".incomplete";
  const std::unique_ptr<archive, FreeWriter> writer(archive_write_new());
  const auto check = [&](int result) {
    if (result == ARCHIVE_OK) return;
    std::error_code ignored;
    fs::remove(partial, ignored);
    throw file_error(partial, "cannot be written", archive_errno(writer.get()));
  };
  archive_write_add_filter_gzip(writer.get());
  archive_write_set_format_pax_restricted(writer.get());
  const std::vector<fs::path> files = files_of(directory, archive_path);
  check(archive_write_open_filename(writer.get(), partial.c_str()));
  for (const fs::path& name : files) {
    const MappedFile file(directory / name);
    const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new(), archive_entry_free);
    archive_entry_set_pathname(entry.get(), name.c_str());
    archive_entry_set_size(entry.get(), file.size());
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    check(archive_write_header(writer.get(), entry.get()));
    for (size_t begin = 0; begin < file.size(); begin += kPiece) {
      const std::string_view piece = file.bytes().substr(begin, kPiece);
      if (std::cmp_not_equal(archive_write_data(writer.get(), piece.data(), piece.size()), piece.size()))
        check(ARCHIVE_FATAL);
      file.release(piece);
    }
  }
  check(archive_write_close(writer.get()));
  sync_file(partial);
  rename_file(partial, archive_path.string());
}

#else

void unpack_model(const fs::path&, const fs::path&, int64_t) {
  throw ConfigError(
      "this build of shardline has no libarchive; unpack the model yourself, or install libarchive-dev and "
      "libboost-dev, and rebuild shardline");
}
void pack_model(const fs::path&, const fs::path&) {
  throw ConfigError(
      "this build of shardline has no libarchive; install libarchive-dev and libboost-dev, and rebuild shardline");
}

#endif

namespace {

// Throws ConfigError for an archive whose files are in a folder, as `tar czf model.tar.gz model` packs them.
void require_config_at_root(const fs::path& folder, const fs::path& archive_path) {
  if (fs::exists(folder / "config.json")) return;
  for (const auto& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename();
        entry.is_directory() && fs::exists(entry.path() / "config.json"))
      throw ConfigError(cat(archive_path.string(), ": has config.json in the folder ", name,
                            ", not at its root; unpack it, and pack the folder: shardline pack ", name,
                            " model.tar.gz"));
  throw ConfigError(cat(archive_path.string(), ": has no config.json at its root; name a model's archive"));
}

}  // namespace

UnpackedModel::UnpackedModel(const fs::path& path) : path_(path) {
  fs::path archive_path = path;
  if (fs::is_directory(path) && !fs::exists(path / "config.json")) archive_path = path / "model.tar.gz";
  if (!is_model_archive(archive_path) || !fs::is_regular_file(archive_path)) return;
  std::string name = (fs::temp_directory_path() / "shardline-model-XXXXXX").string();
  if (!::mkdtemp(name.data())) throw file_error(name, "cannot be created", errno);
  path_ = temporary_ = name;
  try {
    unpack_model(archive_path, temporary_, kMostBytes);
    require_config_at_root(temporary_, archive_path);
  } catch (...) {
    fs::remove_all(temporary_);
    throw;
  }
}

UnpackedModel::~UnpackedModel() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

}  // namespace shardline
