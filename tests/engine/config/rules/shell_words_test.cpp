#include "engine/config/rules/shell_words.h"

#include <random>

#include "core/error.h"

#include "tests/catch.h"

namespace shardline::shell_words_test {

using Words = std::vector<std::string>;

TEST_CASE("Texts are cut into words as by a shell", "[shell_words]") {
  CHECK(shell_words("").empty());
  CHECK(shell_words(" \t\n ").empty());
  CHECK(shell_words("-x A=1  --mca\tbtl ^openib\n") == Words{"-x", "A=1", "--mca", "btl", "^openib"});
  CHECK(shell_words(R"(-x 'A=1 2' -x B="3 4"5)") == Words{"-x", "A=1 2", "-x", "B=3 45"});
  CHECK(shell_words(R"('a"\b' "c'd" e\ f \"g)") == Words{R"(a"\b)", "c'd", "e f", "\"g"});
  CHECK(shell_words(R"("a\"b\\c\$d\`e\f")") == Words{R"(a"b\c$d`e\f)"});
  CHECK(shell_words(R"('' a"" "")") == Words{"", "a", ""});
  CHECK(shell_words("$HOME *.c ~ `x` a;b") == Words{"$HOME", "*.c", "~", "`x`", "a;b"});  // nothing is expanded
}

TEST_CASE("An unterminated quote is an error that states where it begins", "[shell_words]") {
  CHECK_THROWS_WITH(shell_words("-x 'A=1"),
                    "has a ' at character 4 that is not closed; close it, or write \\' for the "
                    "character itself");
  CHECK_THROWS_AS(shell_words("it's"), ConfigError);
  CHECK_THROWS_AS(shell_words("a \"b 'c'"), ConfigError);
  CHECK_THROWS_AS(shell_words("a \"b\\\""), ConfigError);
  CHECK_THROWS_AS(shell_words("a\\"), ConfigError);
}

TEST_CASE("Quoted words are read back as they are", "[shell_words]") {
  CHECK(shell_quoted("--host") == "--host");
  CHECK(shell_quoted("a,b:4") == "a,b:4");
  CHECK(shell_quoted("") == "''");
  CHECK(shell_quoted("it's") == R"('it'\''s')");
  const std::string characters = "ab '\"\\$`*?[]{}()<>|&;#~!=\n\t";
  std::mt19937 random(1);
  const auto draw = [&](size_t bound) { return random() % bound; };
  for (int i = 0; i < 2000; ++i) {
    Words words(draw(4) + 1);
    std::string line;
    for (auto& word : words) {
      for (size_t length = draw(6); length > 0; --length) word += characters[draw(characters.size())];
      line += shell_quoted(word) + " ";
    }
    INFO(line);
    CHECK(shell_words(line) == words);
  }
}

}  // namespace shardline::shell_words_test
