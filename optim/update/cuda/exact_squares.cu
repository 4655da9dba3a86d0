#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/alignment.h"
#include "core/cuda/launch.h"
#include "core/numbers/exact_sum.h"
#include "core/numbers/norm_leaf.h"
#include "optim/update/cuda/update_launches.h"

namespace shardline::cuda {
namespace {

constexpr int kThreads = 256, kBits = 32, kPlaces = 32;
constexpr int kWords = ExactSum::kWords, kInfinities = ExactSum::kInfinities, kNans = ExactSum::kNans;
constexpr int64_t kMostBlocks = 1024;  // any number of blocks gives the same sum

using Word = unsigned long long;

// Each lane has its own words, so that the lanes of a warp never add to the same word at the same time.
SHARDLINE_DEVICE void add_to_words(const SharedArray<Word>& words, double value) {
  const uint64_t bits = double_to_bits(value);
  const int exponent = bits >> 52 & 0x7ff, lane = lane_index();
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff) {
    add_atomically(words[(mantissa != 0 ? kNans : kInfinities) * kPlaces + lane], Word{1});
    return;
  }
  if (exponent > 0) mantissa |= uint64_t{1} << 52;
  const int place = exponent > 0 ? exponent - 1 : 0, word = place / kBits, shift = place % kBits;
  // 53 bits shifted by up to 31 occupy three words.
  const Word low = (mantissa & 0xffffffffu) << shift, high = (mantissa >> 32) << shift;
  const Word middle = (low >> 32) + (high & 0xffffffffu);
  add_atomically(words[word * kPlaces + lane], low & 0xffffffffu);
  add_atomically(words[(word + 1) * kPlaces + lane], middle);
  add_atomically(words[(word + 2) * kPlaces + lane], high >> 32);
}

SHARDLINE_KERNEL(kThreads, add_squares, const float* gradient, int64_t leaves, Word* total) {
  SharedRoom room;
  const auto words = room.take<Word>(kWords * kPlaces), sums = room.take<Word>(kWords);
  for (int i = thread_index(); i < kWords * kPlaces; i += kThreads) words[i] = 0;
  sync_block();
  for (int64_t i = block_x() * kThreads + thread_index(); i < leaves; i += blocks_x() * kThreads) {
    Pack<float, 4> numbers[kNormLeaf / 4];
    SHARDLINE_UNROLLED
    for (int j = 0; j < kNormLeaf / 4; ++j) numbers[j] = load<4>(gradient + i * kNormLeaf + 4 * j);
    add_to_words(words, norm_leaf(numbers[0].value));
  }
  sync_block();
  if (thread_index() < kWords) {
    Word sum = 0;
    for (int place = 0; place < kPlaces; ++place) sum += words[thread_index() * kPlaces + place];
    sums[thread_index()] = sum;
  }
  sync_block();
  if (thread_index() == 0)
    for (int word = 0; word + 1 < kInfinities; ++word) {
      const Word sum = sums[word];
      sums[word + 1] = sums[word + 1] + (sum >> kBits);
      sums[word] = sum & 0xffffffffu;
    }
  sync_block();
  if (thread_index() < kWords) add_atomically_to_global(total + thread_index(), sums[thread_index()]);
}

// Runs on one thread, because the words depend on each other.
SHARDLINE_KERNEL(kWarp, find_factor, ClipFactor a) {
  if (thread_index() > 0) return;
  int64_t carried = 0;
  double sum = 0, unit = 0x1p-1074;  // `unit` is the weight of a word; the lowest word is added first, so only what is
                                     // below sum's last bits is lost
  for (int word = 0; word < kInfinities; ++word, unit *= 0x1p32) {
    carried += a.words[word];
    const int64_t own = carried & 0xffffffff;
    carried >>= kBits;
    if (own != 0) sum += own * unit;
  }
  if (a.words[kInfinities] > 0) sum = INFINITY;
  if (a.words[kNans] > 0) sum = NAN;
  const double clip = a.most > 0 ? a.most / (sqrt(sum) / a.scale + 1e-6) : 1.0;
  *a.factor = (clip < 1.0 ? clip : 1.0) / a.scale;
}

}  // namespace

void clip_factor(const ClipFactor& a, Stream stream) {
  launch({.kernel = "clip_factor", .blocks_x = 1, .threads = kWarp, .bytes_read = kWords * 8, .bytes_written = 4},
         stream, find_factor, a);
}

void add_exact_squares(const float* gradient, int64_t count, int64_t* words, Stream stream) {
  if (count % kNormLeaf != 0 || !is_aligned(gradient, 16))
    throw std::invalid_argument("gradients must be whole leaves, aligned to 16 bytes");
  const int64_t leaves = count / kNormLeaf;
  launch({.kernel = "add_exact_squares",
          .blocks_x = std::min(kMostBlocks, (leaves + kThreads - 1) / kThreads),
          .threads = kThreads,
          .shared_bytes = (kWords * kPlaces + kWords) * sizeof(Word),
          .bytes_read = 4 * count,
          .bytes_written = kWords * 8},
         stream, add_squares, gradient, leaves, reinterpret_cast<Word*>(words));
}

}  // namespace shardline::cuda
