// A checkpoint that all stores together have: complete in one of them, or in parts that together are complete. It is
// completed in every store before anything else reads it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/long_work.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/piece_files.h"
#include "engine/checkpoint/stores.h"

namespace shardline {

class CheckpointUnion {
 public:
  // Collective over `world`, as is complete(). path: where the complete checkpoint belongs, even if there is none yet.
  // sources: directories of this rank's store with pieces of it. Compares every byte of them with its checksum; the
  // ranks of a store divide them. `show` receives the bytes of all ranks. Sources of a checkpoint other than the one
  // that is complete are ignored. Throws AllRanks<ConfigError> if one has a NewerManifest.
  CheckpointUnion(std::string path, const std::vector<std::string>& sources, const Stores& stores, Communicator& world,
                  const LongWork::Show& show = {});

  // Why it cannot be read, by host, file and tensor; equal on all ranks. Empty: every piece is intact in some store.
  const std::vector<std::string>& gaps() const { return gaps_; }

  // Call it if there are no gaps. Copies what stores lack from those that have it, so that the checkpoint is complete
  // at `path` in every store. Each rank holds one piece at a time. Throws RunError if a store has no room for it or
  // cannot be written to.
  void complete(const LongWork::Show& show = {});

 private:
  struct Source {
    std::string path;
    Manifest manifest;
    uint64_t digest;  // identifies the complete checkpoint's manifest
  };
  // A source, as its leader reports it.
  struct Listed;

  std::string open(const std::vector<std::string>& paths, std::string& newer);
  std::vector<Listed> list_sources() const;
  void choose(const Listed& one);
  std::string verify(const LongWork::Show& show);
  std::vector<size_t> missing_pieces() const;
  std::string absent_parts(const std::vector<Listed>& listed, uint64_t digest) const;
  std::string describe_absent(const std::vector<size_t>& missing, const std::vector<Listed>& listed,
                              uint64_t digest) const;
  int rank_for(size_t store, size_t piece) const;
  bool has_everything(size_t store) const;
  std::string prepare() const;
  std::string publish() const;
  void send_pieces(const std::vector<size_t>& targets, const LongWork::Show& show);
  std::string prefix_of(const std::string& source) const;

  std::string path_;
  const Stores& stores_;
  Communicator& world_;
  std::vector<Source> sources_;
  // The checkpoint that was chosen, and this store's sources of it.
  Manifest whole_;
  std::vector<CheckpointPiece> pieces_;
  std::vector<std::pair<const Source*, std::unique_ptr<PieceFiles>>> files_;
  std::vector<const PieceFiles*> intact_;  // by piece that this rank has verified: where it is intact
  std::vector<std::string> presence_;      // by store: a character for each piece, see checkpoint_union.cpp
  std::vector<std::string> gaps_;
};

// Collective over `world`: makes a CheckpointUnion of the checkpoint at `path` and the parts next to it, on all stores.
// If there are no gaps, completes the checkpoint in every store and removes its parts. Returns the gaps.
std::vector<std::string> complete_checkpoint(const std::string& path, const Stores& stores, Communicator& world,
                                             const LongWork::Show& show = {});

struct NewestCheckpoint {
  std::optional<std::string> path;   // unset: the stores have no complete checkpoint
  std::vector<std::string> skipped;  // a line for each checkpoint with gaps, the newest first, then for each one
                                     // without a manifest
  bool has_some = false;             // checkpoints or parts, with gaps or without
  // The first save there was cut off before all stores had published their parts: no store has named a newest
  // checkpoint yet, and of each checkpoint only some parts exist.
  bool first_was_cut_off = false;
};
// Collective over `world`: finds the newest checkpoint of which the stores have every piece; it becomes complete in
// every store. directory: in the rank's own store. needs_states: skips checkpoints without an optimizer's state. The
// result is the same on all ranks.
NewestCheckpoint complete_newest_checkpoint(const std::string& directory, const Stores& stores, Communicator& world,
                                            bool needs_states = false, const LongWork::Show& show = {});

}  // namespace shardline
