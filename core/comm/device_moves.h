// What the threads communicator does with tensors of an accelerator that its ranks share: everything is queued on the
// stream of the rank that comes last, after what the others have queued on theirs.
#pragma once
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

#include "core/comm/communicator_base.h"

namespace shardline {

// The current stream of this thread.
c10::Stream stream_of(at::Device device);
// An event after what was queued there so far.
c10::Event queued_so_far(at::Device device);

// Both on the current stream, which must come after the events of all ranks. Tensors of other ranks may be freed once
// this was called.
void move_on_device(const std::vector<std::optional<CommRequest>>& ranks);  // the data of a collective
void copy_on_device(const at::Tensor& to, const at::Tensor& from);          // of a message

}  // namespace shardline
