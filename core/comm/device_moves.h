// Transfers between ranks of the threads communicator that share an accelerator. Everything is queued on the stream of
// the rank that arrives last, after the work that the others have queued on theirs.
#pragma once
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

#include "core/comm/communicator_base.h"

namespace shardline {

// This thread's current stream.
c10::Stream stream_of(at::Device device);
// An event recorded after all work queued so far on the current stream.
c10::Event queued_so_far(at::Device device);

// Both functions queue work on the current stream, which must already wait for the events of all ranks. The tensors of
// other ranks may be freed after the call.
void move_on_device(const std::vector<std::optional<CommRequest>>& ranks);  // moves the data of a collective
void copy_on_device(const at::Tensor& to, const at::Tensor& from);          // moves a message

}  // namespace shardline
