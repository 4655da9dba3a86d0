#include "engine/checkpoint/checkpoint_saver.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/hex.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/piece_files.h"
#include "models/files/hf_layout.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// A piece that a rank has written, as the rank reports it.
struct PieceRow {
  int64_t file, end;
  uint64_t checksum;
};

std::vector<PieceRow> rows_of(const std::string& report) {
  std::vector<PieceRow> rows((report.size() - 1) / sizeof(PieceRow));
  std::memcpy(rows.data(), report.data() + 1, rows.size() * sizeof(PieceRow));
  return rows;
}

// A report is "=" followed by a result, or "!" followed by an error. Returns the first error, or "" if there is none.
std::string first_failure(const std::vector<std::string>& reports) {
  for (const auto& report : reports)
    if (report.front() == '!') return report.substr(1);
  return "";
}

std::vector<WriterGroup> writers_of(const CheckpointSaverParts& parts) {
  std::vector<WriterGroup> groups;
  for (const size_t store : parts.stores.writable()) {
    if (groups.empty() || parts.on_each_store) groups.emplace_back();
    groups.back().directories.push_back(parts.stores.all[store].writers);
  }
  std::string obstacles;
  for (const auto& store : parts.stores.all) obstacles += cat("\n  host ", store.host, ": ", store.obstacle);
  if (groups.empty()) throw AllRanks<RunError>(cat("no checkpoints can be saved in ", parts.directory, ":", obstacles));
  return groups;
}

// The part of a checkpoint that this rank's store receives; unset if it receives all of it.
std::optional<ManifestPart> part_of(const CheckpointSaverParts& parts) {
  const auto writable = parts.stores.writable();
  if (parts.on_each_store || writable.size() < 2) return {};
  ManifestPart part{.part = {.count = static_cast<int>(writable.size())}};
  for (size_t i = 0; i < writable.size(); ++i) {
    part.hosts.push_back(parts.stores.all[writable[i]].host);
    if (writable[i] == parts.stores.mine) part.part.number = i + 1;
  }
  return part;
}

// Gives all ranks the files of rank 0.
void broadcast_files(std::map<std::string, std::string>& files, Communicator& world) {
  const auto bytes = nlohmann::json::to_msgpack(files);
  const std::string text = broadcast_string(world, {bytes.begin(), bytes.end()}, 0);
  files = nlohmann::json::from_msgpack(text).get<std::map<std::string, std::string>>();
}

std::string failure_of(const std::function<void()>& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Keeps the checkpoint that was just saved, the best one, and the newest of the earlier ones up to the limit. Later
// checkpoints belong to other runs and stay.
void remove_old(const std::string& directory, int64_t keep, int64_t saved, int64_t best) {
  if (keep == 0) return;
  const auto places = checkpoints_in(directory);
  const bool has_best =
      best != saved && std::ranges::any_of(places, [&](const auto& place) { return place.step == best; });
  int64_t room = keep - 1 - (has_best ? 1 : 0), kept = -1;
  for (const auto& [step, path] : places) {
    if (step >= saved || step == best || step == kept) continue;
    if (room > 0) {
      --room;
      kept = step;
    } else {
      remove_checkpoint(path);
    }
  }
}

}  // namespace

CheckpointSaver::CheckpointSaver(CheckpointSaverParts parts)
    : parts_(std::move(parts)),
      world_(parts_.parameters.groups().world),
      contents_(parts_.spec, parts_.parameters.trained_type(), parts_.optimizer_options),
      writers_(writers_of(parts_)),
      snapshot_(contents_, values(), world_, writers_, parts_.block_bytes),
      leads_(parts_.stores.leads(world_->rank()) && parts_.stores.all[parts_.stores.mine].obstacle.empty()),
      part_(part_of(parts_)),
      bytes_(contents_.files().size()) {
  attempt_ = broadcast_string(*world_, world_->rank() == 0 ? random_digits() : "", 0);
  if (leads_) claim_directory(parts_.directory, attempt_);
  for (const auto& block : snapshot_.blocks_of_all()) {
    if (!std::ranges::binary_search(parts_.stores.all[parts_.stores.mine].ranks, block.writer)) continue;
    if (block.writer == world_->rank()) begins_.push_back(bytes_[block.file]);
    bytes_[block.file] += block.length;
  }
}

// The parts that this rank holds; every rank holds all buffers.
std::vector<HeldPart> CheckpointSaver::values() {
  std::vector<HeldPart> parts = held_parts(contents_, parts_.parameters, parts_.optimizer);
  for (const auto& buffer : parts_.spec.buffers) {
    const size_t number = contents_.number(buffer.name);
    at::Tensor& memory = buffers_[buffer.name];
    memory = at::empty({contents_.tensors()[number].elements()}, buffer.dtype);
    parts.push_back({number, {}, memory});
  }
  return parts;
}

int64_t CheckpointSaver::memory_bytes() const {
  int64_t bytes = snapshot_.memory_bytes();
  for (const auto& [name, memory] : buffers_) bytes += memory.nbytes();
  return bytes;
}

// "!" and an error of this rank, in the form that first_failure expects.
std::string CheckpointSaver::error_text(const std::string& error) const {
  const auto& stores = parts_.stores;
  return cat("!", stores.all.size() > 1 ? cat("host ", stores.all[stores.mine].host, ": ") : "", error);
}

// Leaders call this.
void CheckpointSaver::make_files() const {
  std::error_code error;
  fs::remove_all(started_->unfinished, error);
  fs::create_directories(started_->unfinished, error);
  if (error) throw file_error(started_->unfinished, "cannot be created", error.value());
  for (size_t file = 0; file < bytes_.size(); ++file)
    if (bytes_[file] > 0)
      DiskFile::create(file_in(started_->unfinished, stored_name(contents_.files()[file]->name, !!part_)))
          .reserve(bytes_[file]);
}

std::vector<BlockToWrite> CheckpointSaver::blocks_to_write() const {
  std::vector<BlockToWrite> blocks;
  for (size_t i = 0; i < snapshot_.blocks().size(); ++i) {
    const Block& block = snapshot_.blocks()[i];
    std::vector<int64_t> borders;
    for (const auto& range : ranges_of(contents_, block)) borders.push_back(range.byte_in_block);
    auto ends = piece_ends(block.length, parts_.block_bytes, borders);
    for (auto& end : ends) end += begins_[i];
    blocks.push_back({file_in(started_->unfinished, stored_name(contents_.files()[block.file]->name, !!part_)),
                      begins_[i], snapshot_.bytes(i), std::move(ends)});
  }
  return blocks;
}

void CheckpointSaver::start(int64_t step, std::map<std::string, std::string> files, int64_t best) {
  finish();
  if (!buffers_.empty())
    for (const auto& [name, value] : parts_.buffers(step))
      if (const auto memory = buffers_.find(name); memory != buffers_.end())
        memory->second.view(value.sizes()).copy_(value);
  const std::string checkpoint = file_in(parts_.directory, checkpoint_name(step));
  const std::string path = part_ ? part_path(checkpoint, part_->part) : checkpoint;
  started_ = {.step = step, .best = best, .unfinished = cat(path, ".", attempt_, kUnfinishedSuffix), .path = path};
  phase_ = Phase::writing;
  const std::string obstacle = leads_ ? failure_of([&] { make_files(); }) : "";
  const std::string failure = first_failure(gather_strings(*world_, obstacle.empty() ? "=" : error_text(obstacle)));
  if (!failure.empty()) return give_up(failure);
  Files all = parts_.files;
  files.merge(all);
  if (parts_.stores.all.size() > 1) broadcast_files(files, *world_);
  for (auto& [name, text] : contents_.indexes()) files[name] = text;
  if (leads_) started_->small_files = std::make_shared<const Files>(std::move(files));
  work_ =
      std::make_unique<BackgroundWriter>(blocks_to_write(), snapshot_.memory(),
                                         [started = *started_, in_part = !!part_, sync_records = parts_.sync_records] {
                                           if (sync_records) *started.unsynced = failure_of(sync_records);
                                           if (!started.small_files) return;
                                           for (const auto& [name, text] : *started.small_files)
                                             write_file(file_in(started.unfinished, stored_name(name, in_part)), text);
                                         });
  started_->copy_failure = snapshot_.take([this](size_t block) { work_->ready(block); });
}

// Returns this rank's report about the stage that it has finished.
std::string CheckpointSaver::report() const {
  if (started_ && !started_->copy_failure.empty())
    return error_text(cat("rank ", world_->rank(), " could not copy its values: ", started_->copy_failure));
  if (work_ && !work_->error().empty()) return error_text(work_->error());
  if (phase_ == Phase::publishing && !started_->unsynced_here->empty())
    return "=" + error_text(*started_->unsynced_here).substr(1);
  std::vector<PieceRow> rows;
  for (size_t i = 0; phase_ == Phase::writing && i < snapshot_.blocks().size(); ++i) {
    const Block& of_file = snapshot_.blocks()[i];
    const BlockToWrite& written = work_->blocks()[i];
    for (size_t piece = 0; piece < written.piece_ends.size(); ++piece)
      rows.push_back({static_cast<int64_t>(of_file.file), of_file.begin + written.piece_ends[piece] - written.begin,
                      written.checksums[piece]});
  }
  return "=" + std::string(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(PieceRow));
}

// Returns the manifest for this rank's store.
Manifest CheckpointSaver::make_manifest(const std::vector<std::string>& reports) const {
  const auto& mine = parts_.stores.all[parts_.stores.mine].ranks;
  Manifest manifest{.step = started_->step, .part = part_};
  std::set<std::pair<std::string, int64_t>> here;  // ends of pieces
  for (const auto& group : writers_) {
    const auto ranks = group.ranks();
    if (!std::ranges::binary_search(ranks, mine.front())) continue;
    for (const int rank : ranks)
      for (const auto& row : rows_of(reports[rank])) {
        const std::string& name = contents_.files()[row.file]->name;
        manifest.files[name].push_back({row.end, row.checksum});
        if (std::ranges::binary_search(mine, rank)) here.emplace(name, row.end);
      }
  }
  for (auto& [name, pieces] : manifest.files)
    std::ranges::sort(pieces, [](const auto& a, const auto& b) { return a.end < b.end; });
  for (const auto& [name, text] : *started_->small_files) {
    manifest.files[name] = pieces_of(text);
    here.emplace(name, text.size());
  }
  if (part_)
    for (const auto& [name, pieces] : manifest.files)
      for (size_t i = 0; i < pieces.size(); ++i)
        if (here.contains({name, pieces[i].end})) add_piece(*manifest.part, name, i);
  return manifest;
}

void CheckpointSaver::proceed() {
  if (work_) work_->wait();
  const auto reports = gather_strings(*world_, report());
  const bool done_here = work_ && work_->error().empty();
  const std::string failure = first_failure(reports);
  work_.reset();
  switch (phase_) {
    case Phase::idle:
      return;
    case Phase::writing:
      if (!failure.empty()) return give_up(failure);
      phase_ = Phase::publishing;
      if (leads_)
        lead(
            [manifest = make_manifest(reports), started = *started_, directory = parts_.directory, attempt = attempt_] {
              write_file(file_in(started.unfinished, kManifestFile), manifest_text(manifest));
              sync_directory(started.unfinished);
              require_claim(directory, attempt);
              *started.unsynced_here = publish_checkpoint(started.unfinished, started.path);
            });
      return;
    case Phase::publishing:
      if (!failure.empty()) return give_up(failure, /*is_published=*/done_here);
      phase_ = Phase::tidying;
      last_saved_ = started_->step;
      for (const auto& report : reports)
        if (started_->unsynced_name.empty()) started_->unsynced_name = report.substr(1);
      if (leads_)
        lead([started = *started_, directory = parts_.directory, attempt = attempt_, keep = parts_.keep] {
          require_claim(directory, attempt);           // a later attempt may need what this one would remove
          if (!started.unsynced_name.empty()) return;  // the older ones are still needed
          std::error_code ignored;
          fs::remove_all(started.unfinished, ignored);  // a checkpoint that this one replaces
          const std::string unnamed = failure_of([&] { name_newest(directory, started.step); });
          remove_old(directory, keep, started.step, started.best);  // removing them may be what makes room
          if (!unnamed.empty()) throw RunError(unnamed);
        });
      return;
    case Phase::tidying:
      for (const auto& reason : {failure, started_->unsynced_name, *started_->unsynced})
        if (!reason.empty()) {
          fail(cat("was saved, but: ", reason));
          break;
        }
      phase_ = Phase::idle;
      started_.reset();
  }
}

void CheckpointSaver::lead(std::function<void()> work) {
  work_ = std::make_unique<BackgroundWriter>(std::vector<BlockToWrite>{}, nullptr, std::move(work));
}

void CheckpointSaver::finish(const LongWork::Show& show) {
  while (is_pending()) {
    if (phase_ == Phase::writing) {
      LongWork work(*world_, "writing a checkpoint", show);
      work_->wait([&](int64_t written) { work.report(written, snapshot_.total_bytes()); });
      work.finish();
    }
    proceed();
  }
}

// A checkpoint that some stores lack is removed from the others, and the one that it replaced gets its name back.
// is_published: whether this store already has the new one.
void CheckpointSaver::give_up(const std::string& reason, bool is_published) {
  fail("was not saved: " + reason);
  if (leads_) {
    try {
      if (is_published) {
        require_claim(parts_.directory, attempt_);
        take_back_checkpoint(started_->unfinished, started_->path);
      }
      fs::remove_all(started_->unfinished);
    } catch (const std::exception&) {  // there is already a failure to report
    }
  }
  phase_ = Phase::idle;
  started_.reset();
}

void CheckpointSaver::fail(const std::string& what) {
  if (world_->rank() == 0) failure_ = cat(checkpoint_name(started_->step), " ", what);
}

std::string CheckpointSaver::take_failure() {
  return std::exchange(failure_, "");
}

}  // namespace shardline
