// Unicode's normalization form C, and the places that correspond in the text and its normal form.
#pragma once
#include <unicode/edits.h>

#include <optional>
#include <string>
#include <string_view>

namespace shardline {

class NfcText {
 public:
  // Throws DataError for texts of 2 GiB or more. `text` must outlive this object.
  explicit NfcText(std::string_view text);
  NfcText(const NfcText&) = delete;
  NfcText& operator=(const NfcText&) = delete;

  std::string_view text() const { return changed_ ? std::string_view(normalized_) : source_; }
  // Maps a place of text() to the source if both may be cut there, so that the normal forms of the parts are the parts
  // of the normal form; returns nothing if the source cannot be cut there. Fast for ascending places.
  std::optional<size_t> cut_in_source(size_t offset);

 private:
  std::string_view source_;
  bool changed_ = false;
  std::string normalized_;
  icu::Edits edits_;
  std::optional<icu::Edits::Iterator> place_;
};

// The last place where `text` may be cut whatever follows it; 0 if there is none.
size_t last_nfc_cut(std::string_view text);

std::string nfc(std::string_view text);

}  // namespace shardline
