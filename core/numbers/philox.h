// Counter-based random numbers (Philox4x32-10; Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011). A number is a pure function of (seed, stream, step, sample, element), so any rank can generate any
// slice of a mask or of a weight, in any order, and recomputation needs no saved state.
#pragma once
#include <array>
#include <cstdint>

namespace shardline {

// Four independent 32-bit words.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Identifies a sequence of numbers: the random op of the model, the optimizer step, and the sample of the global
// batch.
struct RandomStream {
  uint64_t seed = 0;
  uint32_t op = 0;  // < 65536: layer * 8 + site in the layer; parameters' initial values use their own range
  uint32_t step = 0;
  uint32_t sample = 0;
};

// Word `element` of the stream (element < 2^50).
uint32_t random_word(const RandomStream& stream, uint64_t element);

// keep[i] = word(first + i) < keep_probability * 2^32, for count consecutive elements.
void random_keep(const RandomStream& stream, uint64_t first, int64_t count, double keep_probability, uint8_t* keep);

// Standard normal numbers by Box-Muller, four per block of words: elements first to first + count - 1.
void random_normals(const RandomStream& stream, uint64_t first, int64_t count, double* normals);

}  // namespace shardline
