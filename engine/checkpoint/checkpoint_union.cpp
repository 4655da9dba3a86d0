#include "engine/checkpoint/checkpoint_union.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/files/disk_file.h"
#include "core/plain_text.h"
#include "engine/checkpoint/checkpoint_directory.h"
#include "engine/checkpoint/contents.h"
#include "engine/checkpoint/state_files.h"
#include "models/files/hf_layout.h"

namespace shardline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The state of a piece in a store: absent, damaged in its sources, intact in one of them, or intact at `path`.
constexpr char kNowhere = '-', kDamaged = 'x', kInSource = 's', kAtPath = 'p';
constexpr size_t kMostGaps = 8;  // pieces of a file that are described

bool is_intact(char presence) {
  return presence == kInSource || presence == kAtPath;
}

int64_t bytes_of(const CheckpointPiece& piece) {
  return piece.end - piece.begin;
}

int64_t bytes_of(const std::vector<CheckpointPiece>& pieces) {
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += bytes_of(piece);
  return bytes;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

// Lines of all ranks, each once.
std::vector<std::string> gather_lines(Communicator& world, const std::string& mine) {
  std::vector<std::string> lines;
  std::set<std::string> known;
  for (const auto& text : gather_strings(world, mine))
    for (auto& line : lines_of(text))
      if (known.insert(line).second) lines.push_back(std::move(line));
  return lines;
}

// The same for lines that quote files of a checkpoint, which may come from an untrusted source.
std::vector<std::string> gather_gaps(Communicator& world, const std::string& mine) {
  auto lines = gather_lines(world, mine);
  for (auto& line : lines) line = plain_text(line);
  return lines;
}

void throw_lines(Communicator& world, const std::string& what, const std::string& mine) {
  std::string text;
  for (const auto& line : gather_lines(world, mine)) text += "\n  " + line;
  if (!text.empty()) throw AllRanks<RunError>(what + text);
}

std::string unfinished(const std::string& path) {
  return path + kUnfinishedSuffix;
}

}  // namespace

struct CheckpointUnion::Listed {
  int leader;
  uint64_t digest;
  std::optional<PartNumber> part;
  std::vector<std::string> hosts;  // the hosts of the parts
};

CheckpointUnion::CheckpointUnion(std::string path, const std::vector<std::string>& sources, const Stores& stores,
                                 Communicator& world, const LongWork::Show& show)
    : path_(std::move(path)), stores_(stores), world_(world) {
  std::string newer;
  gaps_ = gather_gaps(world_, open(sources, newer));
  // Continuing without it would roll the run back.
  if (const auto lines = gather_gaps(world_, newer); !lines.empty()) throw AllRanks<ConfigError>(lines.front());
  const auto listed = list_sources();
  if (listed.empty() && gaps_.empty()) gaps_.push_back(cat(path_, ": no checkpoint or part of one was found"));
  std::vector<uint64_t> tried;
  for (const auto& one : listed) {
    if (std::ranges::find(tried, one.digest) != tried.end()) continue;
    tried.push_back(one.digest);
    choose(one);
    const auto damage = gather_gaps(world_, verify(show));
    const auto missing = missing_pieces();
    if (missing.empty()) {
      gaps_.clear();
      return;
    }
    gaps_.insert(gaps_.end(), damage.begin(), damage.end());
    for (auto& line : gather_gaps(world_, describe_absent(missing, listed, one.digest)))
      gaps_.push_back(std::move(line));
  }
}

// "host beta: out/checkpoint-5.part-2-of-2: ", without the host or the path if there is only one.
std::string CheckpointUnion::prefix_of(const std::string& source) const {
  return cat(stores_.all.size() > 1 ? cat("host ", stores_.all[stores_.mine].host, ": ") : "",
             source == path_ ? "" : source + ": ");
}

// Returns lines about sources without a manifest that can be read; `newer`: lines about manifests of a newer version.
std::string CheckpointUnion::open(const std::vector<std::string>& paths, std::string& newer) {
  std::string lines;
  for (const auto& path : paths) {
    try {
      Manifest manifest = read_manifest(path);
      const uint64_t digest = checksum(manifest_text(whole_manifest(manifest)));
      sources_.push_back({path, std::move(manifest), digest});
    } catch (const NewerManifest& error) {
      newer += cat(error.what(), "\n");
    } catch (const std::exception& error) {
      lines +=
          cat(stores_.all.size() > 1 ? cat("host ", stores_.all[stores_.mine].host, ": ") : "", error.what(), "\n");
    }
  }
  return lines;
}

std::vector<CheckpointUnion::Listed> CheckpointUnion::list_sources() const {
  json mine = json::array();
  for (const auto& source : sources_) {
    const auto& part = source.manifest.part;
    mine.push_back({{"digest", source.digest},
                    {"number", part ? part->part.number : 0},
                    {"count", part ? part->part.count : 0},
                    {"hosts", part ? part->hosts : std::vector<std::string>()}});
  }
  std::vector<Listed> listed;
  const auto texts = gather_strings(world_, stores_.leads(world_.rank()) ? mine.dump() : "[]");
  for (size_t rank = 0; rank < texts.size(); ++rank)
    for (const auto& source : json::parse(texts[rank])) {
      const PartNumber part{source["number"].get<int>(), source["count"].get<int>()};
      listed.push_back({static_cast<int>(rank), source["digest"].get<uint64_t>(),
                        part.count > 0 ? std::optional(part) : std::nullopt,
                        source["hosts"].get<std::vector<std::string>>()});
    }
  return listed;
}

void CheckpointUnion::choose(const Listed& one) {
  std::string text;
  for (const auto& source : sources_)
    if (source.digest == one.digest) text = manifest_text(whole_manifest(source.manifest));
  whole_ = parse_manifest(broadcast_string(world_, text, one.leader), file_in(path_, kManifestFile));
  pieces_ = all_pieces(whole_);
  intact_.assign(pieces_.size(), nullptr);
  files_.clear();
  for (const auto& source : sources_)
    if (source.digest == one.digest) files_.emplace_back(&source, nullptr);
}

// The rank of a store that verifies, sends or receives a piece.
int CheckpointUnion::rank_for(size_t store, size_t piece) const {
  const auto& ranks = stores_.all[store].ranks;
  return ranks[piece % ranks.size()];
}

// Returns lines about what is damaged.
std::string CheckpointUnion::verify(const LongWork::Show& show) {
  std::string lines;
  for (auto& [source, files] : files_) {
    try {
      files = std::make_unique<PieceFiles>(source->path, source->manifest);
      for (const auto& line : files->wrong_files()) lines += cat(prefix_of(source->path), line, "\n");
    } catch (const RunError& error) {
      lines += cat(prefix_of(source->path), error.what(), "\n");
    }
  }
  LongWork work(world_, "verifying a checkpoint", show);
  const int64_t total = bytes_of(pieces_) / std::ssize(stores_.all[stores_.mine].ranks);
  int64_t done = 0;
  std::string mine;  // where this rank found the pieces that it verifies
  for (size_t piece = 0; piece < pieces_.size(); ++piece) {
    if (rank_for(stores_.mine, piece) != world_.rank()) continue;
    char presence = kNowhere;
    for (const auto& [source, files] : files_) {
      if (is_intact(presence)) break;
      if (!files || !files->lists(piece)) continue;
      presence = kDamaged;
      if (!files->has(piece)) continue;
      const std::string damage = files->damage_of(piece);
      if (damage.empty()) {
        presence = source->path == path_ ? kAtPath : kInSource;
        intact_[piece] = files.get();
      } else {
        lines += cat(prefix_of(source->path), damage, "\n");
      }
    }
    mine += presence;
    if (bytes_of(pieces_[piece]) > 0) work.report(done += bytes_of(pieces_[piece]), std::max(total, done));
  }
  work.finish();
  const auto texts = gather_strings(world_, mine);
  presence_.assign(stores_.all.size(), std::string(pieces_.size(), kNowhere));
  std::vector<size_t> next(texts.size());
  for (size_t store = 0; store < stores_.all.size(); ++store)
    for (size_t piece = 0; piece < pieces_.size(); ++piece) {
      const int rank = rank_for(store, piece);
      presence_[store][piece] = texts[rank].at(next[rank]++);
    }
  return lines;
}

bool CheckpointUnion::has_everything(size_t store) const {
  return presence_[store].find_first_not_of(kAtPath) == std::string::npos;
}

// Returns the pieces that no store has intact.
std::vector<size_t> CheckpointUnion::missing_pieces() const {
  std::vector<size_t> missing;
  for (size_t piece = 0; piece < pieces_.size(); ++piece)
    if (std::ranges::none_of(presence_, [&](const auto& of_store) { return is_intact(of_store[piece]); }))
      missing.push_back(piece);
  return missing;
}

// Returns lines about parts of the checkpoint that no host has.
std::string CheckpointUnion::absent_parts(const std::vector<Listed>& listed, uint64_t digest) const {
  std::map<PartNumber, std::string> absent;  // the hosts of absent parts
  for (const auto& one : listed)
    if (one.digest == digest && one.part)
      for (int number = 1; number <= one.part->count; ++number)
        absent[{number, one.part->count}] = one.hosts[number - 1];
  for (const auto& one : listed)
    if (one.digest == digest && one.part) absent.erase(*one.part);
  std::string lines;
  for (const auto& [part, host] : absent)
    lines += cat("part ", part.number, " of ", part.count, ", which host ", host, " wrote, is missing\n");
  return lines;
}

// This rank's lines about missing pieces, other than those that are known to be damaged. A rank that has the head of a
// file, with the names of its tensors, describes the pieces of this file.
std::string CheckpointUnion::describe_absent(const std::vector<size_t>& missing, const std::vector<Listed>& listed,
                                             uint64_t digest) const {
  std::string lines = world_.rank() == 0 ? absent_parts(listed, digest) : "";
  std::map<std::string, size_t> described;  // pieces by file
  size_t head = 0, seen = 0;                // the first piece of the file that piece `seen` belongs to
  for (const size_t piece : missing) {
    for (; seen <= piece; ++seen)
      if (pieces_[seen].file != pieces_[head].file) head = seen;
    if (std::ranges::any_of(presence_, [&](const auto& of_store) { return of_store[piece] == kDamaged; })) continue;
    int speaker = 0;
    for (size_t store = stores_.all.size(); store-- > 0;)
      if (is_intact(presence_[store][head])) speaker = rank_for(store, head);
    if (world_.rank() != speaker) continue;
    const auto& [file, begin, end, checksum] = pieces_[piece];
    if (++described[file] <= kMostGaps)
      lines += cat(intact_[head] ? intact_[head]->describe(piece) : cat(file, ": bytes ", begin, " to ", end),
                   " have no intact copy\n");
  }
  for (const auto& [file, count] : described)
    if (count > kMostGaps) lines += cat(file, ": and ", count - kMostGaps, " more pieces\n");
  return lines;
}

// The leader of a store that needs the checkpoint calls this. Returns lines about problems there.
std::string CheckpointUnion::prepare() const {
  const Store& store = stores_.all[stores_.mine];
  if (!store.obstacle.empty()) return cat("host ", store.host, ": ", store.obstacle, "\n");
  try {
    std::error_code error;
    const std::string folder = unfinished(path_);
    fs::remove_all(folder, error);
    fs::create_directories(folder, error);
    if (error) throw RunError(cat(folder, ": cannot be created: ", error.message()));
    const int64_t needed = bytes_of(pieces_);
    const auto space = fs::space(folder, error);
    if (!error && space.available < static_cast<uint64_t>(needed))
      throw RunError(cat(path_, " needs ", needed, " bytes, but ", fs::path(path_).parent_path().string(), " has ",
                         space.available, " left; free some space there"));
    for (const auto& [name, pieces] : whole_.files) DiskFile::create(file_in(folder, name)).reserve(pieces.back().end);
    return "";
  } catch (const std::exception& error) {
    return cat("host ", store.host, ": ", error.what(), "\n");
  }
}

void CheckpointUnion::send_pieces(const std::vector<size_t>& targets, const LongWork::Show& show) {
  const auto messages = world_.split(0, "checkpoint");
  LongWork work(world_, "completing a checkpoint", show);
  const int rank = world_.rank();
  std::map<std::string, DiskFile> written;
  int64_t done = 0, total = 0;
  const auto write = [&](const CheckpointPiece& piece, std::string_view bytes) {
    if (checksum(bytes) != piece.checksum)
      throw DataError(cat("host ", stores_.all[stores_.mine].host, ": ", path_, ": ", piece.file, ": bytes ",
                          piece.begin, " to ", piece.end, " do not match their checksum after they were received"));
    auto file = written.find(piece.file);
    if (file == written.end())
      file = written.emplace(piece.file, DiskFile::open(file_in(unfinished(path_), piece.file))).first;
    file->second.write_at(piece.begin, bytes);
    work.report(done += bytes.size(), total);
  };
  for (size_t piece = 0; piece < pieces_.size(); ++piece)
    for (const size_t target : targets)
      if (rank_for(target, piece) == rank) total += bytes_of(pieces_[piece]);
  // All ranks go through the pieces in the same order, so that no two of them wait for each other.
  for (size_t piece = 0; piece < pieces_.size(); ++piece) {
    if (bytes_of(pieces_[piece]) == 0) continue;
    std::vector<size_t> owners;
    for (size_t store = 0; store < stores_.all.size(); ++store)
      if (is_intact(presence_[store][piece])) owners.push_back(store);
    for (const size_t target : targets) {
      const int receiver = rank_for(target, piece);
      if (is_intact(presence_[target][piece])) {
        if (receiver == rank) write(pieces_[piece], intact_[piece]->read(piece));
        continue;
      }
      const int sender = rank_for(owners[(piece + target) % owners.size()], piece);
      if (sender == rank) {
        std::string bytes = intact_[piece]->read(piece);
        const auto tensor = at::from_blob(bytes.data(), {std::ssize(bytes)}, at::kByte);
        work.await(*messages->send(tensor, receiver, {.what = "a piece of a checkpoint"}));
      } else if (receiver == rank) {
        const auto tensor = at::empty({bytes_of(pieces_[piece])}, at::kByte);
        work.await(*messages->recv(tensor, sender, {.what = "a piece of a checkpoint"}));
        write(pieces_[piece], {static_cast<const char*>(tensor.const_data_ptr()), static_cast<size_t>(tensor.numel())});
      }
    }
  }
  for (auto& [name, file] : written) file.sync();
  work.finish();
}

// The leader of a store that received the checkpoint calls this. Returns lines about problems there.
std::string CheckpointUnion::publish() const {
  try {
    write_file(file_in(unfinished(path_), kManifestFile), manifest_text(whole_));
    sync_directory(unfinished(path_));
    const std::string unsynced = publish_checkpoint(unfinished(path_), path_);
    if (!unsynced.empty()) throw RunError(unsynced);
    std::error_code ignored;
    fs::remove_all(unfinished(path_), ignored);
    return "";
  } catch (const std::exception& error) {
    return cat("host ", stores_.all[stores_.mine].host, ": ", error.what(), "\n");
  }
}

void CheckpointUnion::complete(const LongWork::Show& show) {
  SL_ASSERT(gaps_.empty(), "a checkpoint with gaps cannot be completed");
  std::vector<size_t> targets;
  for (size_t store = 0; store < stores_.all.size(); ++store)
    if (!has_everything(store)) targets.push_back(store);
  if (targets.empty()) return;
  const bool leads = stores_.leads(world_.rank()) && !has_everything(stores_.mine);
  const std::string what = path_ + " cannot be completed on all hosts:";
  throw_lines(world_, what, leads ? prepare() : "");
  send_pieces(targets, show);
  throw_lines(world_, what, leads ? publish() : "");
}

std::vector<std::string> complete_checkpoint(const std::string& path, const Stores& stores, Communicator& world,
                                             const LongWork::Show& show) {
  const auto sources = places_of(path);
  CheckpointUnion checkpoint(path, sources, stores, world, show);
  if (!checkpoint.gaps().empty()) return checkpoint.gaps();
  checkpoint.complete(show);
  std::string failure;
  try {
    if (stores.leads(world.rank()))
      for (const auto& source : sources)
        if (checkpoint_of_part(source)) remove_checkpoint(source);
  } catch (const RunError& error) {
    failure = cat(error.what(), "\n");
  }
  throw_lines(world, "parts of a checkpoint cannot be removed:", failure);
  return {};
}

namespace {

// The checkpoints in all stores: by step, the names of complete ones and of parts.
using NamesOfSteps = std::map<int64_t, std::vector<std::string>, std::greater<>>;

NamesOfSteps gather_names(const std::string& directory, const Stores& stores, Communicator& world) {
  std::string mine;
  if (stores.leads(world.rank()))
    for (const auto& place : checkpoints_in(directory)) mine += place.path.filename().string() + "\n";
  NamesOfSteps names;
  for (const auto& name : gather_lines(world, mine))
    names[*step_of_checkpoint(checkpoint_of_part(name).value_or(name))].push_back(name);
  return names;
}

// The newest checkpoint that was complete in all stores, according to any store's record of it; -1: none.
int64_t gather_newest(const std::string& directory, const Stores& stores, Communicator& world) {
  std::string mine;
  if (const auto path = file_in(directory, kNewestFile); stores.leads(world.rank()) && fs::exists(path)) {
    std::ifstream file(path);
    std::getline(file, mine);
    mine += "\n";  // even if it cannot be read
  }
  int64_t newest = -1;
  for (const auto& name : gather_lines(world, mine))  // a damaged file may have named any of them
    newest = std::max(newest, step_of_checkpoint(name).value_or(std::numeric_limits<int64_t>::max()));
  return newest;
}

// Whether these are some of the parts of a checkpoint, but not all.
bool lacks_parts(const std::vector<std::string>& names) {
  std::map<int, int> there;  // parts by their count
  for (const auto& name : names) {
    const auto part = part_in(name);
    if (!part) return false;
    ++there[part->count];
  }
  return std::ranges::none_of(there, [](const auto& parts) { return parts.first == parts.second; });
}

// Lines about directories of this store that have the name of a checkpoint but no manifest.
std::string strangers_text(const std::string& directory, const Stores& stores) {
  std::string lines;
  const std::string host = stores.all.size() > 1 ? cat("host ", stores.all[stores.mine].host, ": ") : "";
  for (const auto& path : strangers_in(directory))
    lines += cat(host, path.string(), " is skipped: it has no ", kManifestFile,
                 ", so it was not saved by shardline or is damaged\n");
  return lines;
}

}  // namespace

NewestCheckpoint complete_newest_checkpoint(const std::string& directory, const Stores& stores, Communicator& world,
                                            bool needs_states, const LongWork::Show& show) {
  const NamesOfSteps names = gather_names(directory, stores, world);
  const int64_t newest = gather_newest(directory, stores, world);
  NewestCheckpoint found{.path = {}, .skipped = {}, .has_some = !names.empty()};
  found.first_was_cut_off = found.has_some && newest < 0 &&
                            std::ranges::all_of(names, [](const auto& of_step) { return lacks_parts(of_step.second); });
  const std::string strangers = stores.leads(world.rank()) ? strangers_text(directory, stores) : "";
  for (const auto& [step, of_step] : names) {
    const std::string path = file_in(directory, checkpoint_name(step));
    const auto gaps = complete_checkpoint(path, stores, world, show);
    if (gaps.empty() && needs_states && !has_states(read_manifest(path))) {
      found.skipped.push_back(path + " is skipped: without the optimizer's state, no run can continue from it");
      continue;
    }
    if (gaps.empty()) {
      found.path = path;
      break;
    }
    const char* problem = " is damaged and skipped: ";
    if (lacks_parts(of_step))
      problem = step > newest ? " is skipped, because the job ended before all hosts had it: "
                              : " is incomplete and skipped: ";
    found.skipped.push_back(
        cat(path, problem, gaps.front(), gaps.size() > 1 ? cat(" (and ", gaps.size() - 1, " more)") : ""));
  }
  for (auto& line : gather_lines(world, strangers)) found.skipped.push_back(std::move(line));
  return found;
}

}  // namespace shardline
