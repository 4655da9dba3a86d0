// A large file that takes long to write: it appears under its name only when it is complete, and what was written
// before an interruption is kept for the next attempt.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace shardline {

// Writes to PATH.partial.HOST.PID and records its progress in a file next to it. Only one process of a host may write
// the same PATH at a time (file_lock.h); processes of other hosts that share the folder may write theirs. Every failure
// (full disk, no permission) is a RunError with path, bytes written and the system's reason.
class PartialFile {
 public:
  // Continues the file that a dead process of this host left at its last save(), otherwise starts an empty file.
  // Removes the other files of dead processes of this host, and any other partial file that was not written to for a
  // day.
  explicit PartialFile(const std::filesystem::path& path, const std::string& host = this_host());
  ~PartialFile();  // leaves the partial file
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  // The state of the last save(): the note, which is empty for a new file, and the bytes before it.
  const std::string& note() const { return note_; }
  size_t size() const { return written_; }
  std::string read(size_t offset, size_t count) const;  // reads bytes that were appended

  void append(std::string_view bytes);
  void overwrite(size_t offset, std::string_view bytes);  // only what was appended
  // After this, an interruption loses nothing that was appended before. `note` is for a process that continues the
  // file.
  void save(const std::string& note);
  void clear();    // begins an empty file instead
  void commit();   // makes the file durable and gives it its name
  void discard();  // removes the partial file

  // Names the processes whose ids can be compared with this one's: those of this host since it was started, within this
  // process id namespace.
  static const std::string& this_host();
  // Total bytes of all partial files of `path`, whichever process writes them; 0 if there are none.
  static int64_t bytes_in_progress(const std::filesystem::path& path);

 private:
  struct Left;
  void take_over(const Left& left);
  [[noreturn]] void fail(const char* action) const;
  void write_at(size_t offset, std::string_view bytes);
  std::filesystem::path note_path() const { return temporary_.string() + ".note"; }
  std::filesystem::path unfinished_note_path() const { return temporary_.string() + ".note.incomplete"; }

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::string note_;
  int fd_ = -1;
  size_t written_ = 0;
};

}  // namespace shardline
