// Encodes texts for compare_with_tokenizers.py: reads from standard input, for every text, its length (u32) and bytes;
// writes, for every text, the number of ids (u32) and the ids (i32), then the length and bytes of their decoding.
// Usage: encode_texts TOKENIZER
#include <cstdio>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/data/tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const auto tokenizer = shardline::load_tokenizer(argv[1]);
    uint32_t size = 0;
    while (std::fread(&size, sizeof size, 1, stdin) == 1) {
      std::string text(size, '\0');
      if (std::fread(text.data(), 1, size, stdin) != size) return 1;
      const std::vector<int32_t> ids = tokenizer->encode(text);
      const std::string back = tokenizer->decode(ids);
      const auto count = static_cast<uint32_t>(ids.size());
      const auto length = static_cast<uint32_t>(back.size());
      std::fwrite(&count, sizeof count, 1, stdout);
      std::fwrite(ids.data(), sizeof(int32_t), count, stdout);
      std::fwrite(&length, sizeof length, 1, stdout);
      std::fwrite(back.data(), 1, length, stdout);
    }
  } catch (const shardline::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
