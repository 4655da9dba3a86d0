#include "engine/data/tokenizer/steps/decoder.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.h"
#include "engine/data/text/byte_level.h"
#include "engine/data/text/utf8.h"
#include "engine/data/tokenizer/steps/byte_tokens.h"
#include "engine/data/tokenizer/steps/components.h"
#include "engine/data/tokenizer/steps/pre_tokenizer.h"
#include "engine/data/tokenizer/steps/text_pattern.h"

namespace shardline {
namespace {

using Tokens = std::vector<std::string>;
using DecoderStep = std::function<void(Tokens&)>;

constexpr size_t kMostDecoded = 64;

size_t bytes_in(const Tokens& tokens) {
  size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size() + 1;
  return bytes;
}

void replace_each(std::string& text, std::string_view old, std::string_view with) {
  for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + with.size()))
    text.replace(at, old.size(), with);
}

// Removes the spaces before punctuation and English contractions. contracts: also changes "do not" to "don't", as the
// tokenizers library does.
void clean_up(std::string& text, bool contracts) {
  static constexpr std::pair<const char*, const char*> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [old, with] : kRules) {
    if (contracts || old != std::string_view(" do not")) replace_each(text, old, with);
  }
}

DecoderStep join_word_pieces(const std::string& prefix, bool cleans_up) {
  return [=](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].starts_with(prefix)) {
        tokens[i].erase(0, prefix.size());
      } else if (i > 0) {
        tokens[i].insert(0, " ");
      }
      if (cleans_up) clean_up(tokens[i], true);
    }
  };
}

void join_bytes(Tokens& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += bytes_of_byte_level(token).value_or(token);
  tokens = {replace_invalid_utf8(bytes)};
}

// Runs of byte tokens become their text, or a U+FFFD for each byte.
void join_byte_tokens(Tokens& tokens) {
  Tokens out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    std::string text;
    if (is_valid_utf8(bytes)) {
      text = bytes;
    } else {
      for (size_t i = 0; i < bytes.size(); ++i) append_utf8(text, 0xFFFD);
    }
    out.push_back(std::move(text));
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_of_token(token)) {
      bytes += *byte;
      continue;
    }
    flush();
    out.push_back(std::move(token));
  }
  flush();
  tokens = std::move(out);
}

void fuse(Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  tokens = {std::move(text)};
}

DecoderStep spaces_for(char32_t replacement, bool prepended) {
  std::string mark;
  append_utf8(mark, replacement);
  return [=](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) replace_each(tokens[i], mark, i == 0 && prepended ? "" : " ");
  };
}

// Removes `content` from the beginning and the end of each token, at most `start` and `stop` times.
DecoderStep strip_tokens(const std::string& content, int start, int stop) {
  return [=](Tokens& tokens) {
    for (std::string& token : tokens) {
      std::string_view kept = token;
      for (int n = start; n > 0 && kept.starts_with(content); --n) kept.remove_prefix(content.size());
      for (int n = stop; n > 0 && kept.ends_with(content); --n) kept.remove_suffix(content.size());
      token = std::string(kept);
    }
  };
}

DecoderStep read_token_strip(const JsonValue& component) {
  const JsonValue content = component.at("content");
  one_character(content);
  return strip_tokens(content.text(), component.at("start").integer(0), component.at("stop").integer(0));
}

DecoderStep read_token_replace(const JsonValue& component) {
  const auto pattern = std::make_shared<TextPattern>(component.at("pattern"));
  if (pattern->may_be_empty()) component.at("pattern").fail("must not match the empty string");
  return [pattern, content = component.at("content").text()](Tokens& tokens) {
    for (std::string& token : tokens) {
      std::string text;
      for (const auto& [begin, end, match] : pattern->parts_of(token))
        text += match ? content : token.substr(begin, end - begin);
      token = std::move(text);
    }
  };
}

DecoderStep read_decoder_part(const JsonValue& component) {
  const std::string type = component.text("type", "none");
  if (type == "ByteLevel") return join_bytes;
  if (type == "WordPiece") return join_word_pieces(component.text("prefix", "##"), component.flag("cleanup", true));
  if (type == "Metaspace") {
    return spaces_for(one_character(component.at("replacement")),
                      read_prepend_scheme(component) != PrependScheme::never);
  }
  if (type == "ByteFallback") return join_byte_tokens;
  if (type == "Fuse") return fuse;
  if (type == "Strip") return read_token_strip(component);
  if (type == "Replace") return read_token_replace(component);
  refuse_type(component, type, "ByteLevel, WordPiece, Metaspace, ByteFallback, Fuse, Strip, Replace, Sequence");
}

Decoder chain(std::vector<DecoderStep> steps) {
  return [steps = std::move(steps)](Tokens tokens) {
    const size_t longest = kMostDecoded * (bytes_in(tokens) + 1);
    for (const DecoderStep& step : steps) {
      step(tokens);
      if (bytes_in(tokens) > longest) throw DataError("the tokenizer's decoder would make a text many times longer");
    }
    fuse(tokens);
    return replace_invalid_utf8(tokens[0]);
  };
}

}  // namespace

Decoder plain_decoder() {
  return chain({[](Tokens& tokens) {
    for (size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, " ");
  }});
}

Decoder byte_level_decoder() {
  return chain({join_bytes});
}

Decoder word_piece_decoder(const std::string& prefix) {
  return chain({join_word_pieces(prefix, true)});
}

Decoder metaspace_decoder(char32_t replacement, bool prepended) {
  return chain({spaces_for(replacement, prepended)});
}

Decoder byte_fallback_decoder(bool prepended) {
  return chain({spaces_for(0x2581, false), join_byte_tokens, fuse, strip_tokens(" ", prepended ? 1 : 0, 0)});
}

std::string without_spaces_of_tokens(std::string text) {
  clean_up(text, false);
  return text;
}

Decoder read_decoder(const JsonValue& component) {
  std::vector<DecoderStep> steps;
  for_each_component(component, "decoders", [&](const JsonValue& part) { steps.push_back(read_decoder_part(part)); });
  return chain(std::move(steps));
}

}  // namespace shardline
