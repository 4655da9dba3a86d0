// How documents become the samples of a causal language model.
#pragma once

namespace shardline {

enum class Packing {
  wrapped,        // the stream of all documents is cut into samples; tokens attend to all earlier ones of the sample
  wrapped_reset,  // the same samples, but attention stays within a document, and its positions begin at 0
  bfd,            // best-fit decreasing: whole documents fill samples; attention stays within a document
  none            // each document is a sample
};

}  // namespace shardline
