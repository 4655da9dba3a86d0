// Unicode's normalization form C, with the places that correspond in both texts.
#pragma once
#include <unicode/edits.h>

#include <optional>
#include <string>
#include <string_view>

namespace shardline {

class NfcText {
 public:
  // DataError for texts of 2 GiB and more. `text` must outlive this.
  explicit NfcText(std::string_view text);
  NfcText(const NfcText&) = delete;
  NfcText& operator=(const NfcText&) = delete;

  std::string_view text() const { return changed_ ? std::string_view(normalized_) : source_; }
  // The place in the source for one of text(), where both may be cut: the forms of the parts are the parts of the form.
  // Nothing when the source cannot be cut there. Fast for ascending places.
  std::optional<size_t> cut_in_source(size_t offset);

 private:
  std::string_view source_;
  bool changed_ = false;
  std::string normalized_;
  icu::Edits edits_;
  std::optional<icu::Edits::Iterator> place_;
};

// The last place where `text` may be cut whatever follows it; 0 when there is none.
size_t last_nfc_cut(std::string_view text);

std::string nfc(std::string_view text);

}  // namespace shardline
