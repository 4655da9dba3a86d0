// Classes of characters as in the reference library's tokenizers. Each class has the Unicode version of the library
// that the reference library uses for it, whatever the version of ICU here.
#pragma once
#include <string>

namespace shardline {

// What \w matches: alphabetic characters, marks, decimal digits, connectors, join controls (Unicode 16).
bool is_word_character(char32_t c);
// Decimal digits, letter numbers and other numbers (Unicode 17).
bool is_numeric(char32_t c);
// Punctuation (Unicode 8) and ASCII's $ + < = > ^ ` | ~.
bool is_punctuation(char32_t c);
// Marks of all kinds (Unicode 9): what StripAccents removes.
bool is_mark(char32_t c);
// Nonspacing marks (Unicode 8): what BERT's normalizer removes as accents.
bool is_accent_of_bert(char32_t c);
// What BERT's normalizer removes from a text: controls other than white space, formats, private use, NUL and U+FFFD.
bool is_removed_by_bert(char32_t c);
// CJK ideographs, which BERT's normalizer puts between spaces.
bool is_ideograph_of_bert(char32_t c);
// The lower case of one character without its context (Unicode 17): one character, but two for U+0130.
std::u32string lower_case(char32_t c);

}  // namespace shardline
