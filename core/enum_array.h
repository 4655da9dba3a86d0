// An array with one element for each value of an enum.
#pragma once
#include <cstddef>

namespace shardline {

// The enum's values must be 0, 1, 2, ...
template <class Enum, class T, size_t kCount>
struct EnumArray {
  T elements[kCount];

  static constexpr size_t place(Enum value) { return static_cast<size_t>(value); }
  constexpr T& operator[](Enum value) { return elements[place(value)]; }
  constexpr const T& operator[](Enum value) const { return elements[place(value)]; }
};

}  // namespace shardline
