#include "engine/checkpoint/block_plan.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <tuple>

#include "core/error.h"

namespace shardline {
namespace {

// A part in the text that ranks exchange.
struct Row {
  int64_t tensor, t, t_degree, offset, length;
};

std::string text_of(const std::vector<HeldPart>& parts) {
  std::vector<Row> rows;
  for (const auto& part : parts) {
    const bool split = part.slice.spec && part.slice.spec->split_dim >= 0;  // else the slices of all T ranks are equal
    rows.push_back({static_cast<int64_t>(part.tensor), split ? part.slice.t : 0, split ? part.slice.t_degree : 1,
                    part.slice.offset, part.slice.length});
  }
  return {reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(Row)};
}

std::vector<std::vector<Holding>> gather_holdings(const CheckpointContents& contents,
                                                  const std::vector<HeldPart>& parts, Communicator& world) {
  const auto texts = gather_strings(world, text_of(parts));
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>, std::vector<int>> ranks_of;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::vector<Row> rows(texts[rank].size() / sizeof(Row));
    std::memcpy(rows.data(), texts[rank].data(), rows.size() * sizeof(Row));
    for (const auto& row : rows) {
      auto& ranks = ranks_of[{row.tensor, row.t, row.t_degree, row.offset, row.length}];
      if (ranks.empty() || ranks.back() != static_cast<int>(rank)) ranks.push_back(rank);
    }
  }
  std::vector<std::vector<Holding>> holdings(contents.tensors().size());
  for (auto& [row, ranks] : ranks_of) {
    const auto [tensor, t, t_degree, offset, length] = row;
    const ParamSpec* spec = contents.tensors()[tensor].spec;
    holdings[tensor].push_back({static_cast<size_t>(tensor),
                                {spec, static_cast<int>(t), static_cast<int>(t_degree), offset, length},
                                std::move(ranks)});
  }
  return holdings;
}

int64_t volume(const FileBox& box) {
  return c10::multiply_integers(box.length);
}

// Elements of blocks and files by the ranks that hold them.
class BlockShares {
 public:
  BlockShares(const CheckpointContents& contents, const std::vector<std::vector<Holding>>& holdings)
      : contents_(contents), holdings_(holdings), boxes_(holdings.size()) {
    for (size_t i = 0; i < holdings.size(); ++i)
      for (const auto& holding : holdings[i]) boxes_[i].push_back(boxes_of(contents.tensors()[i], holding.slice, {}));
  }

  // The ranks that hold most of the block: at least half of what any rank holds.
  std::vector<int> main_holders(const Block& block) const {
    std::map<int, int64_t> elements_of;
    for (const auto& range : ranges_of(contents_, block)) {
      int64_t held = 0;
      const auto wanted = range_boxes(contents_.tensors()[range.tensor].sizes, range.begin, range.length, {});
      for (size_t h = 0; h < boxes_[range.tensor].size(); ++h) {
        const int64_t elements = common_elements(wanted, boxes_[range.tensor][h]);
        held += elements;
        for (const int rank : holdings_[range.tensor][h].ranks) elements_of[rank] += elements;
      }
      SL_ASSERT(held == range.length, "ranks hold ", held, " of the ", range.length, " elements that begin at ",
                range.begin, " in tensor ", range.tensor, " of a checkpoint");
    }
    int64_t most = 0;
    for (const auto& [rank, elements] : elements_of) most = std::max(most, elements);
    std::vector<int> holders;
    for (const auto& [rank, elements] : elements_of)
      if (2 * elements >= most) holders.push_back(rank);
    return holders.empty() ? std::vector<int>{0} : holders;  // a file without elements
  }

  // How many bytes of a file one of these ranks holds.
  int64_t held_bytes(size_t file, const std::vector<int>& ranks) const {
    int64_t bytes = 0;
    for (size_t i = 0; i < boxes_.size(); ++i) {
      const CheckpointTensor& tensor = contents_.tensors()[i];
      if (tensor.file != file) continue;
      for (size_t h = 0; h < boxes_[i].size(); ++h)
        if (std::ranges::any_of(holdings_[i][h].ranks,
                                [&](int rank) { return std::ranges::binary_search(ranks, rank); }))
          for (const auto& box : boxes_[i][h]) bytes += volume(box) * c10::elementSize(tensor.dtype);
    }
    return bytes;
  }

 private:
  static int64_t common_elements(const std::vector<FileBox>& boxes, const std::vector<FileBox>& others) {
    int64_t elements = 0;
    for (const auto& box : boxes)
      for (const auto& other : others) elements += volume(intersection(box, other));
    return elements;
  }

  const CheckpointContents& contents_;
  const std::vector<std::vector<Holding>>& holdings_;
  std::vector<std::vector<std::vector<FileBox>>> boxes_;  // by tensor and holding
};

// Chooses the set of ranks that writes a file in a directory: the one that has written and received the fewest bytes.
class FileWriters {
 public:
  FileWriters(const BlockShares& shares, const WriterGroup& group) : shares_(shares), group_(group) {
    for (const auto& sets : group.directories) load_.emplace_back(sets.size());
  }

  // Returns ranks of all directories in ascending order. Call it for the files in the order of the checkpoint.
  std::vector<int> of(size_t file, int64_t bytes) {
    std::vector<int> ranks;
    for (size_t directory = 0; directory < load_.size(); ++directory) {
      const auto& sets = group_.directories[directory];
      const auto& chosen = sets[sets.size() > 1 ? choose(sets, load_[directory], file, bytes) : 0];
      ranks.insert(ranks.end(), chosen.begin(), chosen.end());
    }
    std::ranges::sort(ranks);
    return ranks;
  }

 private:
  size_t choose(const std::vector<std::vector<int>>& sets, std::vector<int64_t>& load, size_t file,
                int64_t bytes) const {
    auto with_file = load;  // what is written, and what others must send for it
    for (size_t set = 0; set < sets.size(); ++set) with_file[set] += 2 * bytes - shares_.held_bytes(file, sets[set]);
    const size_t chosen = std::ranges::min_element(with_file) - with_file.begin();
    load[chosen] = with_file[chosen];
    return chosen;
  }

  const BlockShares& shares_;
  const WriterGroup& group_;
  std::vector<std::vector<int64_t>> load_;  // bytes, by directory and set
};

// Gives each of the holders a contiguous part of a run of blocks.
void divide(std::vector<Block>& blocks, size_t begin, size_t end, const std::vector<int>& holders) {
  const int count = holders.size();
  for (int i = 0; i < count; ++i) {
    const Range part = split_range(end - begin, count, i);
    for (int64_t block = part.begin; block < part.end(); ++block) blocks[begin + block].writer = holders[i];
  }
}

}  // namespace

std::vector<int> WriterGroup::ranks() const {
  std::vector<int> all;
  for (const auto& sets : directories)
    for (const auto& set : sets) all.insert(all.end(), set.begin(), set.end());
  std::ranges::sort(all);
  return all;
}

std::vector<BlockRange> ranges_of(const CheckpointContents& contents, const Block& block) {
  std::vector<BlockRange> ranges;
  const auto& tensors = contents.tensors();
  const auto place = std::pair(block.file, block.begin);
  // The first tensor that ends after the block's begin.
  auto tensor = std::partition_point(tensors.begin(), tensors.end(), [&](const CheckpointTensor& candidate) {
    const int64_t end = candidate.begin + candidate.elements() * c10::elementSize(candidate.dtype);
    return std::pair(candidate.file, end) <= place;
  });
  for (; tensor != tensors.end() && tensor->file == block.file && tensor->begin < block.begin + block.length;
       ++tensor) {
    const int64_t size = c10::elementSize(tensor->dtype), bytes = tensor->elements() * size;
    const int64_t from = std::max(block.begin, tensor->begin);
    const int64_t to = std::min(block.begin + block.length, tensor->begin + bytes);
    if (from >= to) continue;
    SL_ASSERT((from - tensor->begin) % size == 0 && (to - tensor->begin) % size == 0, "a block cuts an element");
    ranges.push_back({static_cast<size_t>(tensor - tensors.begin()), (from - tensor->begin) / size, (to - from) / size,
                      from - block.begin});
  }
  return ranges;
}

int sender_to(int writer, const Holding& holding) {
  if (std::ranges::binary_search(holding.ranks, writer)) return writer;
  return holding.ranks[writer % holding.ranks.size()];
}

BlockPlan make_block_plan(const CheckpointContents& contents, const std::vector<HeldPart>& parts, Communicator& world,
                          const std::vector<WriterGroup>& writers, int64_t block_bytes) {
  BlockPlan plan;
  plan.holdings = gather_holdings(contents, parts, world);
  const BlockShares shares(contents, plan.holdings);
  for (const auto& group : writers) {
    std::vector<int> holders;  // the ranks that hold the run of blocks that begins at `begin`
    size_t begin = plan.blocks.size();
    FileWriters file_writers(shares, group);
    for (size_t file = 0; file < contents.files().size(); ++file) {
      const int64_t bytes = contents.files()[file]->bytes;
      const std::vector<int> ranks = file_writers.of(file, bytes);
      for (int64_t from = 0; from < bytes; from += block_bytes) {
        const Block block{file, from, std::min(block_bytes, bytes - from), 0};
        std::vector<int> of_block;
        std::ranges::set_intersection(shares.main_holders(block), ranks, std::back_inserter(of_block));
        if (of_block.empty()) of_block = ranks;
        if (of_block != holders) {
          divide(plan.blocks, begin, plan.blocks.size(), holders);
          begin = plan.blocks.size();
          holders = std::move(of_block);
        }
        plan.blocks.push_back(block);
      }
    }
    divide(plan.blocks, begin, plan.blocks.size(), holders);
  }
  return plan;
}

}  // namespace shardline
