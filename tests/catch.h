// Catch2 among torch's headers. Torch's logging defines CHECK, too: its header comes first, so that CHECK is Catch's
// from here on, whatever else a translation unit includes. It also declares an operator<< for all vectors, which
// Catch would choose even for vectors whose elements cannot be printed. Programs without torch's headers need neither.
// It has an include guard because #pragma once identifies files by their time, and would mistake this file for another
// one in a precompiled header from ccache.
#ifndef SHARDLINE_TESTS_CATCH_H
#define SHARDLINE_TESTS_CATCH_H
#if __has_include(<c10/util/Logging.h>)
#include <c10/util/Logging.h>
#undef CHECK
#include <catch2/catch.hpp>

namespace Catch {

template <typename T, typename Allocator>
struct StringMaker<std::vector<T, Allocator>> {
  static std::string convert(const std::vector<T, Allocator>& values) { return rangeToString(values); }
};

}  // namespace Catch
#else
#include <catch2/catch.hpp>
#endif
#endif
