// Decoders of tokenizer.json: how tokens become text again.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace shardline {

class JsonValue;

using Decoder = std::function<std::string(std::vector<std::string> tokens)>;

// Without a decoder, spaces are put between tokens.
Decoder plain_decoder();
Decoder byte_level_decoder();
Decoder word_piece_decoder(const std::string& prefix);
Decoder metaspace_decoder(char32_t replacement, bool prepended);
// The decoder of SentencePiece's BPE: spaces, bytes, and the removal of a prepended space.
Decoder byte_fallback_decoder(bool prepended);

// A decoded text without the spaces before punctuation and English contractions: clean_up_tokenization of transformers.
std::string without_spaces_of_tokens(std::string text);

// Reads a component of a tokenizer.json. Throws a DataError that names what is not supported.
Decoder read_decoder(const JsonValue& component);

}  // namespace shardline
