// Encodes examples for compare_examples.py. Usage: encode_examples TOKENIZER
//
// Reads from standard input, for every example: add_special_tokens, truncation, windows, and for each of the two texts
// its form (u8 each; 0: no text, 1: a text, 2: words), max_length, stride (u32 each), then for each text the number of
// its parts (u32) and the length (u32) and bytes of each part. Writes, for every example, the number of encodings (u32)
// and, for each encoding, the number of tokens (u32) and ids, types, first bytes, last bytes, sequences and words (i32
// each); for an example that is refused, it writes 0xFFFFFFFF and the length and bytes of the message.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace {

using shardline::Encoding;
using shardline::TextOrWords;

template <class T>
bool read_number(T& value) {
  return std::fread(&value, sizeof value, 1, stdin) == 1;
}

template <class T>
T number() {
  T value{};
  if (!read_number(value)) std::exit(1);
  return value;
}

void write_number(uint32_t value) {
  std::fwrite(&value, sizeof value, 1, stdout);
}

void write_bytes(const std::string& bytes) {
  write_number(bytes.size());
  std::fwrite(bytes.data(), 1, bytes.size(), stdout);
}

std::vector<std::string> read_parts() {
  std::vector<std::string> parts(number<uint32_t>());
  for (std::string& part : parts) {
    part.resize(number<uint32_t>());
    if (std::fread(part.data(), 1, part.size(), stdin) != part.size()) std::exit(1);
  }
  return parts;
}

TextOrWords source_of(uint8_t form, const std::vector<std::string>& parts) {
  if (form == 2) return std::span<const std::string>(parts);
  return std::string_view(parts[0]);
}

void write(const std::vector<Encoding>& encodings) {
  write_number(encodings.size());
  for (const Encoding& encoding : encodings) {
    write_number(encoding.size());
    for (const int32_t id : encoding.ids) write_number(id);
    for (const int32_t type : encoding.types) write_number(type);
    for (const auto& span : encoding.offsets) write_number(span.begin);
    for (const auto& span : encoding.offsets) write_number(span.end);
    for (const int32_t sequence : encoding.sequences) write_number(sequence);
    for (const int32_t word : encoding.words) write_number(word);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const auto tokenizer = shardline::load_tokenizer(argv[1]);
    uint8_t add_special_tokens = 0;
    while (read_number(add_special_tokens)) {
      shardline::ExampleOptions options;
      options.add_special_tokens = add_special_tokens != 0;
      options.truncation = shardline::Truncation(number<uint8_t>());
      options.windows = number<uint8_t>() != 0;
      const auto first_form = number<uint8_t>();
      const auto second_form = number<uint8_t>();
      options.max_length = number<uint32_t>();
      options.stride = number<uint32_t>();
      const std::vector<std::string> first = read_parts();
      const std::vector<std::string> second = read_parts();
      const TextOrWords one = source_of(first_form, first);
      try {
        if (second_form == 0) {
          write(tokenizer->encode_example(one, nullptr, options));
        } else {
          const TextOrWords other = source_of(second_form, second);
          write(tokenizer->encode_example(one, &other, options));
        }
      } catch (const shardline::Error& error) {
        write_number(0xFFFFFFFF);
        write_bytes(error.what());
      }
    }
  } catch (const shardline::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
