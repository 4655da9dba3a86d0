// How documents become the samples of a causal language model.
#pragma once

namespace shardline {

enum class Packing {
  wrapped,        // the stream of all documents is cut into samples, which see what came before in the sample
  wrapped_reset,  // the same samples, in which each document sees itself alone, from position 0 on
  bfd,            // best-fit decreasing: whole documents fill samples; each sees itself alone
  none            // each document is a sample
};

}  // namespace shardline
