// The words of an answer that SQuAD's evaluation compares.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

// The parts of `text` between white space, in lower case, without ASCII punctuation; equal to those that SQuAD's script
// makes in Python. An article (a, an, the) between characters that are neither letters nor numbers is left out, and
// divides a part. Ill-formed UTF-8 is kept, as if it were a symbol. Throws DataError for 2 GiB or more.
std::vector<std::string> answer_tokens(std::string_view text);

}  // namespace shardline
