// Saves checkpoints of a training run: directories checkpoint-<step> that transformers opens as models, with the
// optimizer's state in the same coordinates (contents.h), trainer_state.json, the resolved config and a manifest.
//
// A checkpoint appears complete or not at all. It is written into checkpoint-<step>.<attempt>.incomplete and synced to
// the disk. Then it receives its manifest and its name, unless a later attempt has claimed the directory. Older
// checkpoints are removed when the new one has its name in all stores. If there are several stores, each receives the
// part of the checkpoint that its ranks write, or all of it. All ranks call the same functions in the same order:
//
//   start()    copies the current values; training may continue while the ranks write their blocks in the background
//   proceed()  whenever is_pending() and is_writing() is false on every rank: begins the next stage
//   finish()   before the end of the run
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>

#include "core/comm/long_work.h"
#include "engine/checkpoint/background_writer.h"
#include "engine/checkpoint/contents.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/snapshot.h"
#include "engine/checkpoint/stores.h"

namespace shardline {

struct CheckpointSaverParts {
  std::string directory;       // where the checkpoints are made
  Stores stores;               // which ranks share the directory
  bool on_each_store = false;  // every store receives all of a checkpoint
  const ModelSpec& spec;
  StageParameters& parameters;
  Optimizer* optimizer = nullptr;  // null: checkpoints have no optimizer state
  std::optional<OptimizerOptions> optimizer_options;
  // The values of the spec's buffers after `steps` steps, on every rank; may be null if there are no buffers.
  std::function<std::map<std::string, at::Tensor>(int64_t steps)> buffers = {};
  std::map<std::string, std::string> files;  // on rank 0: contents by name of the files that all checkpoints have
  // On rank 0: syncs other files that a checkpoint refers to. It is called from another thread before the checkpoint
  // appears; the checkpoint is published even if it fails.
  std::function<void()> sync_records = {};
  int64_t keep = 0;                   // maximum number of checkpoints to keep; 0: all
  int64_t block_bytes = kBlockBytes;  // a multiple of 4096
};

class CheckpointSaver {
 public:
  // Collective over the world, as are start(), proceed() and finish(). The memory of the values must stay where it is.
  // Throws RunError if no store can be written to.
  explicit CheckpointSaver(CheckpointSaverParts parts);
  // Does not wait; an incomplete checkpoint keeps its unfinished name. See ~BackgroundWriter.
  ~CheckpointSaver() = default;
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Host memory that this rank needs for its copy of a checkpoint.
  int64_t memory_bytes() const;
  // Disk space that the tensors of a checkpoint need in this rank's store.
  int64_t store_bytes() const { return std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0}); }
  // Whether this rank makes and removes the files in its store.
  bool leads() const { return leads_; }

  // files: on rank 0, in addition to the files that all checkpoints have. best: the step of the checkpoint that is
  // never removed; -1: there is none. Finishes an earlier checkpoint first. If a checkpoint cannot be saved, it is
  // abandoned; see take_failure.
  void start(int64_t step, std::map<std::string, std::string> files, int64_t best = -1);
  bool is_pending() const { return phase_ != Phase::idle; }       // the same on all ranks
  bool is_writing() const { return work_ && !work_->is_done(); }  // on this rank
  void proceed();
  // Waits for everything that was started, with a time limit that is renewed while bytes arrive on the disk. `show`
  // receives the bytes of all ranks.
  void finish(const LongWork::Show& show = {});

  // On rank 0: why checkpoints could not be saved since the last call; empty if all were.
  std::string take_failure();
  // The step of the last checkpoint that is complete in all stores; -1: none.
  int64_t last_saved() const { return last_saved_; }

 private:
  // writing: all ranks write blocks, and leaders the small files. publishing: leaders write the manifest and set the
  // name. tidying: leaders do what must wait until all stores have published.
  enum class Phase { idle, writing, publishing, tidying };
  using Files = std::map<std::string, std::string>;  // contents by name
  struct Started {
    int64_t step = 0, best = -1;
    std::string unfinished, path;              // directories
    std::shared_ptr<const Files> small_files;  // on leaders
    std::string copy_failure = {};             // this rank's failure; see Snapshot::take
    // On rank 0: the error of sync_records, if any.
    std::shared_ptr<std::string> unsynced = std::make_shared<std::string>();
    // Why the checkpoint's name may be missing on the disk after a crash. unsynced_here: in the leader's own store (see
    // publish_checkpoint); unsynced_name: in the first store with this problem, known to all ranks.
    std::shared_ptr<std::string> unsynced_here = std::make_shared<std::string>();
    std::string unsynced_name = {};
  };
  void make_files() const;
  std::vector<BlockToWrite> blocks_to_write() const;
  std::string error_text(const std::string& error) const;
  std::string report() const;
  std::vector<HeldPart> values();
  Manifest make_manifest(const std::vector<std::string>& reports) const;
  void lead(std::function<void()> work);
  void give_up(const std::string& reason, bool is_published = false);
  void fail(const std::string& what);

  CheckpointSaverParts parts_;
  CommunicatorPtr world_;
  CheckpointContents contents_;
  std::vector<WriterGroup> writers_;
  std::map<std::string, at::Tensor> buffers_;  // flat, by name: the memory that the snapshot reads
  Snapshot snapshot_;
  bool leads_;                        // whether this rank leads its store, which can be written to
  std::optional<ManifestPart> part_;  // what this rank's store receives; unset: all of a checkpoint
  std::vector<int64_t> begins_;       // where the snapshot's blocks begin in the store's files
  std::vector<int64_t> bytes_;        // sizes of the store's files
  std::string attempt_;
  Phase phase_ = Phase::idle;
  std::optional<Started> started_;
  std::unique_ptr<BackgroundWriter> work_;  // this rank's writer for the stage; null: nothing to write
  int64_t last_saved_ = -1;
  std::string failure_;
};

}  // namespace shardline
