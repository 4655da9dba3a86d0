#include "engine/checkpoint/checkpoint_saver.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/shared_directory.h"
#include "models/files/hf_layout.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// What a rank reports of its blocks: an error, or its pieces.
struct PieceRow {
  int64_t file, end;
  uint64_t checksum;
};

std::string report_of(const BackgroundWriter& writer, const std::vector<Block>& blocks) {
  if (!writer.error().empty()) return "!" + writer.error();
  std::vector<PieceRow> rows;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto& block = writer.blocks()[i];
    for (size_t piece = 0; piece < block.piece_ends.size(); ++piece)
      rows.push_back({static_cast<int64_t>(blocks[i].file), block.piece_ends[piece], block.checksums[piece]});
  }
  return "=" + std::string(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(PieceRow));
}

void add_pieces(const std::string& report, const CheckpointContents& contents, Manifest& manifest) {
  std::vector<PieceRow> rows((report.size() - 1) / sizeof(PieceRow));
  std::memcpy(rows.data(), report.data() + 1, rows.size() * sizeof(PieceRow));
  for (const auto& row : rows) manifest.files[contents.files()[row.file]->name].push_back({row.end, row.checksum});
}

// The ranks that see the directory of rank 0, which makes it.
std::vector<int> writers_of(const std::string& directory, Communicator& world) {
  if (world.rank() == 0) make_directories(directory);
  const auto reasons = reasons_against_sharing(directory, world, /*asks=*/true);
  std::vector<int> writers;
  for (size_t rank = 0; rank < reasons.size(); ++rank)
    if (reasons[rank].empty()) writers.push_back(rank);
  return writers;
}

// Gives the directory its name. Another checkpoint of that name, from an earlier attempt, is there until then.
void publish_directory(const std::string& unfinished, const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  std::error_code ignored;
  const bool replaces = fs::exists(path, ignored);
  replaces ? exchange_files(unfinished, path) : rename_file(unfinished, path);
  sync_directory(parent);
  if (replaces) fs::remove_all(unfinished, ignored);
}

std::string failure_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// The one that was just saved and the best stay, and earlier ones from the newest on while the limit allows it. Later
// ones are not of this run, and no concern of it.
void remove_old(const std::string& directory, int64_t keep, int64_t saved, int64_t best) {
  if (keep == 0) return;
  const auto places = checkpoints_in(directory);
  const bool has_best =
      best != saved && std::ranges::any_of(places, [&](const auto& place) { return place.step == best; });
  int64_t room = keep - 1 - (has_best ? 1 : 0);
  for (const auto& [step, path] : places)
    if (step < saved && step != best && room-- <= 0) remove_checkpoint(path);
}

}  // namespace

CheckpointSaver::CheckpointSaver(CheckpointSaverParts parts)
    : parts_(std::move(parts)),
      world_(parts_.parameters.groups().world),
      contents_(parts_.spec, parts_.parameters.trained_type(), parts_.optimizer_options),
      snapshot_(contents_, held_parts(contents_, parts_.parameters, parts_.optimizer), world_,
                writers_of(parts_.directory, *world_), parts_.block_bytes) {
  attempt_ = broadcast_string(*world_, world_->rank() == 0 ? claim_directory(parts_.directory) : "", 0);
}

// On rank 0. Returns why it failed.
std::string CheckpointSaver::make_files() const {
  return failure_of([&] {
    std::error_code error;
    fs::remove_all(started_->unfinished, error);
    fs::create_directories(started_->unfinished, error);
    if (error) throw RunError(cat(started_->unfinished, ": cannot be created: ", error.message()));
    for (const auto* file : contents_.files())
      DiskFile::create(file_in(started_->unfinished, file->name)).reserve(file->bytes);
  });
}

std::vector<BlockToWrite> CheckpointSaver::blocks_to_write() const {
  std::vector<BlockToWrite> blocks;
  for (size_t i = 0; i < snapshot_.blocks().size(); ++i) {
    const Block& block = snapshot_.blocks()[i];
    std::vector<int64_t> borders;
    for (const auto& range : ranges_of(contents_, block)) borders.push_back(range.byte_in_block);
    auto ends = piece_ends(block.length, parts_.block_bytes, borders);
    for (auto& end : ends) end += block.begin;
    blocks.push_back({file_in(started_->unfinished, contents_.files()[block.file]->name), block.begin,
                      snapshot_.bytes(i), std::move(ends)});
  }
  return blocks;
}

void CheckpointSaver::start(int64_t step, std::map<std::string, std::string> files, int64_t best) {
  finish();
  const std::string path = file_in(parts_.directory, checkpoint_name(step));
  started_ = {.step = step, .best = best, .unfinished = cat(path, ".", attempt_, kUnfinishedSuffix), .path = path};
  const bool first = world_->rank() == 0;
  const std::string failure = broadcast_string(*world_, first ? make_files() : "", 0);
  if (!failure.empty()) {
    if (first) give_up(*started_, failure);
    return started_.reset();
  }
  snapshot_.take();
  if (first) {
    Files all = parts_.files;
    files.merge(all);
    for (auto& [name, text] : contents_.indexes()) files[name] = text;
  }
  started_->small_files = std::make_shared<const Files>(std::move(files));
  writer_ = std::make_unique<BackgroundWriter>(blocks_to_write(), snapshot_.memory(), [started = *started_] {
    for (const auto& [name, text] : *started.small_files) write_file(file_in(started.unfinished, name), text);
  });
}

void CheckpointSaver::publish() {
  writer_->wait();
  const auto reports = gather_strings(*world_, report_of(*writer_, snapshot_.blocks()));
  writer_.reset();
  const auto failed = std::ranges::find_if(reports, [](const auto& report) { return report.front() == '!'; });
  if (world_->rank() == 0 && failed != reports.end()) give_up(*started_, failed->substr(1));
  if (world_->rank() != 0 || failed != reports.end()) return started_.reset();
  wait_for_publisher();
  Manifest manifest{.step = started_->step};
  for (const auto& report : reports) add_pieces(report, contents_, manifest);
  for (auto& [name, pieces] : manifest.files)
    std::ranges::sort(pieces, [](const auto& a, const auto& b) { return a.end < b.end; });
  for (const auto& [name, text] : *started_->small_files) manifest.files[name] = pieces_of(text);
  publishing_ = std::make_shared<Publishing>(*started_);
  publisher_ = std::make_unique<BackgroundWriter>(
      std::vector<BlockToWrite>{}, nullptr,
      [manifest = std::move(manifest), publishing = publishing_, directory = parts_.directory, keep = parts_.keep,
       attempt = attempt_, sync_records = parts_.sync_records] {
        const Started& started = publishing->started;
        const std::string unsynced = sync_records ? failure_of(sync_records) : "";
        write_file(file_in(started.unfinished, kManifestFile), manifest_text(manifest));
        sync_directory(started.unfinished);
        require_claim(directory, attempt);
        publish_directory(started.unfinished, started.path);
        publishing->published = true;
        write_file(file_in(directory, kNewestFile), checkpoint_name(started.step) + "\n");
        remove_old(directory, keep, started.step, started.best);
        if (!unsynced.empty()) throw RunError(unsynced);
      });
  started_.reset();
}

// On rank 0.
void CheckpointSaver::wait_for_publisher() {
  if (!publisher_) return;
  publisher_->wait();
  const Started& started = publishing_->started;
  const std::string name = checkpoint_name(started.step);
  if (publishing_->published) {
    last_saved_ = started.step;
    if (!publisher_->error().empty()) failure_ = cat(name, " was saved, but: ", publisher_->error());
  } else {
    give_up(started, publisher_->error());
  }
  publisher_.reset();
}

void CheckpointSaver::finish(const LongWork::Show& show) {
  if (!is_pending()) {  // what is being published concerns rank 0 alone
    wait_for_publisher();
    return;
  }
  LongWork work(*world_, "writing a checkpoint", show);
  writer_->wait([&](int64_t written) { work.report(written, snapshot_.total_bytes()); });
  work.finish();
  publish();
  wait_for_publisher();
}

// On rank 0.
void CheckpointSaver::give_up(const Started& started, const std::string& reason) {
  failure_ = cat(checkpoint_name(started.step), " was not saved: ", reason);
  std::error_code ignored;
  fs::remove_all(started.unfinished, ignored);
}

std::string CheckpointSaver::take_failure() {
  return std::exchange(failure_, "");
}

}  // namespace shardline
