#include "engine/data/cache/partial_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/comm/communicator_base.h"
#include "core/error.h"
#include "core/files/disk_file.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNoteSuffix = ".note";
// Time since the last write after which a file is abandoned if its process cannot be checked, as on another host.
constexpr auto kAbandonedAfter = std::chrono::hours(24);

std::string partial_prefix(const fs::path& path) {
  return path.filename().string() + ".partial.";
}

// All partial files of `path` and their notes.
std::vector<fs::path> partial_files(const fs::path& path) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::directory_iterator entry(path.parent_path(), error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(partial_prefix(path))) files.push_back(entry->path());
  }
  return files;
}

bool process_is_gone(pid_t process) {
  return ::kill(process, 0) != 0 && errno == ESRCH;
}

// Whether NAME.partial.HOST.PID, or its note, belongs to a process of this host that has ended.
bool is_abandoned(const fs::path& file, const std::string& start) {
  std::string_view rest = file.native();
  if (!rest.starts_with(start)) return false;
  rest.remove_prefix(start.size());
  pid_t process = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), process);
  rest.remove_prefix(end - rest.data());
  return error == std::errc() && process > 0 && (rest.empty() || rest.starts_with(kNoteSuffix)) &&
         process_is_gone(process);
}

// Hosts may share a name, and containers of one host have separate process ids.
std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  in >> id;
  return id;
}

std::string process_namespace() {
  struct stat inode {};
  return ::stat("/proc/self/ns/pid", &inode) == 0 ? std::to_string(inode.st_ino) : "";
}

void remove_with_note(const fs::path& partial) {
  std::error_code ignored;
  fs::remove(partial, ignored);
  fs::remove(partial.string() + std::string(kNoteSuffix), ignored);
}

}  // namespace

// "BYTES\nNOTE"
struct PartialFile::Left {
  fs::path file;
  size_t bytes = 0;
  std::string note;

  static Left of(const fs::path& file) {
    Left left{file};
    std::ifstream in(file.string() + std::string(kNoteSuffix), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t line = text.find('\n');
    std::error_code error;
    const auto size = fs::file_size(file, error);
    if (line == std::string::npos || error) return left;
    std::from_chars(text.data(), text.data() + line, left.bytes);
    if (left.bytes > size) left.bytes = 0;
    if (left.bytes > 0) left.note = text.substr(line + 1);
    return left;
  }
};

PartialFile::PartialFile(const fs::path& path, const std::string& host)
    : path_(path), temporary_(cat(path.string(), ".partial.", host, ".", ::getpid())) {
  Left best = Left::of(temporary_);  // what an earlier attempt of this very process left
  std::vector<fs::path> abandoned, others;
  for (const fs::path& file : partial_files(path)) {
    const bool is_own = file == temporary_ || file == note_path() || file == unfinished_note_path();
    if (!is_own) (is_abandoned(file, cat(path.string(), ".partial.", host, ".")) ? abandoned : others).push_back(file);
  }
  for (const fs::path& file : abandoned) {
    if (Left left = Left::of(file); left.bytes > best.bytes) best = std::move(left);
  }
  if (best.bytes > 0) take_over(best);
  std::error_code error;
  for (const fs::path& file : abandoned) fs::remove(file, error);

  fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("created");
  if (::ftruncate(fd_, written_) != 0 || ::futimens(fd_, nullptr) != 0) fail("begun");
  // The current time by the file system's clock, which also set the times of the other files.
  const auto now = fs::last_write_time(temporary_);
  for (const fs::path& file : others) {
    const auto written = fs::last_write_time(file, error);
    if (!error && now - written > kAbandonedAfter) fs::remove(file, error);
  }
}

void PartialFile::take_over(const Left& left) {
  if (left.file != temporary_) {
    std::error_code error;
    fs::rename(left.file, temporary_, error);
    if (!error) fs::rename(left.file.string() + std::string(kNoteSuffix), note_path(), error);
    if (error) return;
  }
  note_ = left.note;
  written_ = left.bytes;
}

PartialFile::~PartialFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::string PartialFile::read(size_t offset, size_t count) const {
  std::string bytes(count, '\0');
  size_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(fd_, bytes.data() + done, count - done, offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail("read");
    done += got;
  }
  return bytes;
}

void PartialFile::append(std::string_view bytes) {
  write_at(written_, bytes);
  written_ += bytes.size();
}

void PartialFile::overwrite(size_t offset, std::string_view bytes) {
  SL_ASSERT(offset + bytes.size() <= written_, "overwrite at ", offset, " of ", written_);
  write_at(offset, bytes);
}

void PartialFile::save(const std::string& note) {
  if (::fdatasync(fd_) != 0) fail("written to disk");
  write_file(note_path().string(), cat(written_, '\n', note));
  note_ = note;
}

void PartialFile::clear() {
  std::error_code ignored;
  fs::remove(note_path(), ignored);
  if (::ftruncate(fd_, 0) != 0) fail("cleared");
  written_ = 0;
  note_.clear();
}

void PartialFile::commit() {
  if (::fsync(fd_) != 0) fail("written to disk");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("renamed");
  discard();
}

void PartialFile::discard() {
  remove_with_note(temporary_);
  ::close(fd_);
  fd_ = -1;
}

const std::string& PartialFile::this_host() {
  static const std::string name = cat(host_name(), "-", boot_id(), "-", process_namespace());
  return name;
}

int64_t PartialFile::bytes_in_progress(const fs::path& path) {
  int64_t bytes = 0;
  for (const fs::path& file : partial_files(path)) {
    std::error_code error;
    const auto size = fs::file_size(file, error);
    if (!error) bytes += size;
  }
  return bytes;
}

void PartialFile::write_at(size_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("written");
    offset += count;
    bytes.remove_prefix(count);
  }
}

void PartialFile::fail(const char* action) const {
  throw RunError(cat(path_.string(), ": cannot be ", action, " after ", written_, " bytes: ", std::strerror(errno)));
}

}  // namespace shardline
