// Unicode's normalization forms of aligned text, with the same places as in the reference library, which knows Unicode
// 9.
#pragma once
#include "engine/data/text/aligned_text.h"

namespace shardline {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

void normalize(AlignedText& text, NormalForm form);

}  // namespace shardline
