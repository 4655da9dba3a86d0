// Saves checkpoints of a training run: directories checkpoint-<step> that transformers opens as models, with the
// optimizer's state in the same coordinates (contents.h), trainer_state.json, the resolved config and a manifest.
//
// A checkpoint appears complete or not at all. It is written into checkpoint-<step>.<attempt>.incomplete, brought onto
// the disk, gets its manifest and then its name, unless a later attempt has claimed the directory. All ranks call the
// same functions in the same order:
//
//   start()    copies the present values; training may go on while the ranks write their blocks in the background
//   publish()  once is_writing() is false on every rank
//   finish()   before the end of the run
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/comm/long_work.h"
#include "engine/checkpoint/background_writer.h"
#include "engine/checkpoint/contents.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/snapshot.h"

namespace shardline {

struct CheckpointSaverParts {
  std::string directory;  // where the checkpoints are made
  const ModelSpec& spec;
  StageParameters& parameters;
  Optimizer* optimizer = nullptr;  // null: checkpoints without its state
  std::optional<OptimizerOptions> optimizer_options;
  std::map<std::string, std::string> files;  // on rank 0: contents by name of the files that all checkpoints have
  // On rank 0: brings onto the disk what a checkpoint relies on beside it. Called from another thread before the
  // checkpoint appears, which does not depend on its success.
  std::function<void()> sync_records = {};
  int64_t keep = 0;               // most checkpoints that stay; 0: all
  int64_t block_bytes = 4 << 20;  // see block_plan.h; a multiple of 4096
};

class CheckpointSaver {
 public:
  // Collective over the world, as are start(), publish() and finish(). The memory of the values must stay where it is.
  explicit CheckpointSaver(CheckpointSaverParts parts);
  // What is not complete stays under its unfinished name; see BackgroundWriter about work that is under way.
  ~CheckpointSaver() = default;
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Of this rank, in host memory, from the first start() on.
  int64_t memory_bytes() const { return snapshot_.memory_bytes(); }

  // trainer_state, files: on rank 0, in addition to those of all checkpoints. best: the step of the checkpoint that is
  // never removed; -1: there is none. Finishes an earlier checkpoint first. A checkpoint that cannot be made is given
  // up; see take_failure.
  void start(int64_t step, std::map<std::string, std::string> files, int64_t best = -1);
  bool is_pending() const { return writer_ != nullptr; }  // started and not yet published; the same on all ranks
  bool is_writing() const { return writer_ && !writer_->is_done(); }  // on this rank
  // Call it when no rank is writing.
  void publish();
  // Waits for everything that was started, with a time limit that is renewed while bytes arrive on the disk. `show`
  // receives the bytes of all ranks.
  void finish(const LongWork::Show& show = {});

  // On rank 0: why checkpoints could not be saved since the last call; empty if all were.
  std::string take_failure();
  // On rank 0: the step of the last checkpoint that is complete on the disk; -1: none.
  int64_t last_saved() const { return last_saved_; }

 private:
  using Files = std::map<std::string, std::string>;  // contents by name
  struct Started {
    int64_t step = 0, best = -1;
    std::string unfinished, path;              // directories
    std::shared_ptr<const Files> small_files;  // on rank 0
  };
  struct Publishing {
    explicit Publishing(Started checkpoint) : started(std::move(checkpoint)) {}
    const Started started;
    std::atomic<bool> published = false;  // the directory has its name
  };
  std::string make_files() const;
  std::vector<BlockToWrite> blocks_to_write() const;
  void wait_for_publisher();
  void give_up(const Started& started, const std::string& reason);

  CheckpointSaverParts parts_;
  CommunicatorPtr world_;
  CheckpointContents contents_;
  Snapshot snapshot_;
  std::string attempt_;
  std::optional<Started> started_;
  std::unique_ptr<BackgroundWriter> writer_;     // of this rank's blocks, and on rank 0 of the small files
  std::unique_ptr<BackgroundWriter> publisher_;  // on rank 0
  std::shared_ptr<Publishing> publishing_;       // by the publisher
  int64_t last_saved_ = -1;
  std::string failure_;
};

}  // namespace shardline
