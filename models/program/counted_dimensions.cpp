#include "models/program/counted_dimensions.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "models/program/operators.h"

namespace shardline {
namespace {

// Each place of a result depends on the same place of the arguments. Other operators have a tag that says so.
constexpr std::string_view kByPlace =
    " add_ addcdiv_ addcmul_ clamp_ copy_ div_ exp_ fill_ gelu_ hardsigmoid hardswish hardtanh leaky_relu masked_fill_ "
    "mish mul_ neg_ pow_ relu6 relu_ selu sigmoid_ silu_ sub_ tanh_ __and__ __or__ __xor__ ";
// Results have the dimensions of the first argument in their order, of which some may be longer or shorter.
constexpr std::string_view kInOrder =
    " _log_softmax _softmax _to_copy adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d alias alpha_dropout "
    "argsort avg_pool1d avg_pool2d avg_pool3d batch_norm chunk constant_pad_nd contiguous cummax cumprod cumsum detach "
    "dropout feature_dropout flip group_norm instance_norm layer_norm lift_fresh_copy log_softmax logcumsumexp "
    "max_pool1d "
    "max_pool2d max_pool3d narrow native_group_norm native_layer_norm pad prelu renorm rms_norm roll slice softmax "
    "sort split split_with_sizes tensor_split to topk tril triu type_as upsample_bilinear2d upsample_linear1d "
    "upsample_nearest1d upsample_nearest2d ";
// Those of them whose result is constant along a dimension if their argument is.
constexpr std::string_view kSteady =
    " _log_softmax _softmax _to_copy alias chunk contiguous detach layer_norm lift_fresh_copy log_softmax narrow "
    "rms_norm slice softmax split split_with_sizes tensor_split to type_as ";
constexpr std::string_view kConvolutions =
    " conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution ";
constexpr std::string_view kRecurrent = " gru lstm rnn_relu rnn_tanh ";
constexpr std::string_view kViews = " _unsafe_view flatten reshape unflatten view view_as reshape_as ";
constexpr std::string_view kExpansions = " broadcast_to expand expand_as ";
constexpr std::string_view kConstants = " empty full new_empty new_full new_ones new_zeros ones zeros ";

bool has_word(std::string_view words, const std::string& word) {
  return words.find(cat(' ', word, ' ')) != std::string_view::npos;
}

class DimensionCounter {
 public:
  DimensionCounter(const Graph& graph, const GraphFlow& flow, const std::map<int, std::vector<Counts>>& arguments)
      : graph_(graph), flow_(flow), shapes_(graph.values.size()) {
    for (const auto& input : graph.inputs) {
      const auto known = arguments.find(input.value);
      for (size_t i = 0; i < sizes_of(input.value).size(); ++i)
        shapes_[input.value].push_back(
            whole(known == arguments.end() ? Counts::other : known->second.at(i), sizes_of(input.value)[i]));
    }
  }

  CountedDimensions count() {
    for (const auto& node : graph_.nodes) {
      node_ = &node;
      if (has_tensor_result()) apply();
      for (const auto& result : node.results) finish(result.value);
    }
    CountedDimensions counted(shapes_.size());
    for (size_t value = 0; value < shapes_.size(); ++value)
      for (const auto& pieces : shapes_[value]) counted[value].push_back(label_of(pieces));
    return counted;
  }

 private:
  // Part of a dimension. Samples and tokens that a view divides can be put together again: `before` and `after` are the
  // numbers of their parts outside and inside of this one.
  struct Piece {
    Counts counts = Counts::other;
    GraphSize size;
    int64_t before = 1, after = 1;

    bool is_counted() const { return counts <= Counts::target; }
    bool is_whole() const { return before == 1 && after == 1; }
    bool operator==(const Piece&) const = default;
  };
  using Pieces = std::vector<Piece>;  // the pieces of a dimension, outermost first; none if its size is 1
  using Shape = std::vector<Pieces>;

  static bool is_one(const GraphSize& size) { return size.expression.empty() && size.number == 1; }
  static Pieces whole(Counts counts, const GraphSize& size) {
    return is_one(size) ? Pieces() : Pieces{{.counts = counts, .size = size}};
  }
  static bool is_counted(const Pieces& pieces) { return std::ranges::any_of(pieces, &Piece::is_counted); }
  static bool has_any(const Pieces& pieces, Counts counts) {
    return std::ranges::any_of(pieces, [&](const Piece& piece) { return piece.counts == counts; });
  }

  static Counts label_of(const Pieces& pieces) {
    if (pieces.size() == 1 && pieces[0].is_whole()) return pieces[0].counts;
    if (is_counted(pieces)) return Counts::other;
    if (has_any(pieces, Counts::unknown)) return Counts::unknown;
    return has_any(pieces, Counts::other) ? Counts::other : Counts::repeated;
  }

  // ---- the current node

  const std::vector<GraphSize>& sizes_of(int value) const { return graph_.values[value].sizes; }
  bool is_tensor(int value) const { return value >= 0 && graph_.values[value].dtype.has_value(); }
  bool has_tensor_result() const {
    return node_->is_operator &&
           std::ranges::any_of(node_->results, [&](const auto& result) { return is_tensor(result.value); });
  }
  const GraphArgument* argument(const char* name) const {
    const auto place = find_operator(node_->name, node_->overload)->schema().argumentIndexWithName(name);
    return place ? &node_->arguments[*place] : nullptr;
  }
  // The dimensions of an argument that is a tensor; null for others.
  const Shape* shape(const GraphArgument* given) const {
    return given && is_tensor(given->value) ? &shapes_[given->value] : nullptr;
  }
  const Shape* shape(const char* name) const { return shape(argument(name)); }
  const Shape* first() const { return node_->arguments.empty() ? nullptr : shape(&node_->arguments[0]); }
  // The dimension that a constant argument numbers, of a tensor with `of` dimensions; -1 if there is none.
  int64_t dimension(const char* name, int64_t of) const {
    const GraphArgument* given = argument(name);
    if (!given || given->value >= 0 || !given->constant.isInt()) return -1;
    const int64_t number = given->constant.toInt();
    return number < 0 ? number + of : number < of ? number : -1;  // a number below -of remains negative
  }
  std::vector<int64_t> integers(const char* name) const {
    const GraphArgument* given = argument(name);
    if (given && given->constant.isInt()) return {given->constant.toInt()};
    return given && given->constant.isIntList() ? given->constant.toIntVector() : std::vector<int64_t>();
  }

  // Each result gets the dimensions that fit its sizes.
  void make(const Shape& made) {
    for (const auto& result : node_->results)
      if (is_tensor(result.value)) shapes_[result.value] = made;
  }

  // A tensor that a call changes in place no longer has the same value at each place. If a rule did not make the right
  // number of dimensions for a result, they are unknown.
  void finish(int value) {
    if (!is_tensor(value)) return;
    Shape& made = shapes_[value];
    const auto& sizes = sizes_of(value);
    if (made.size() != sizes.size()) {
      made.clear();
      for (const auto& size : sizes) made.push_back(whole(Counts::unknown, size));
    }
    if (flow_.changes.contains(flow_.storage[value])) forget_repeated(made);
  }

  static void forget_repeated(Shape& shape) {
    for (auto& pieces : shape)
      for (auto& piece : pieces)
        if (piece.counts == Counts::repeated) piece.counts = Counts::unknown;
  }

  void apply() {
    const auto op = find_operator(node_->name, node_->overload);
    const size_t colon = node_->name.find("::");
    const std::string name = node_->name.substr(colon == std::string::npos ? 0 : colon + 2);
    if (name.ends_with("_like")) return keep(true);
    if (op->hasTag(at::Tag::pointwise) || has_word(kByPlace, name)) return by_place();
    if (has_word(kInOrder, name)) return keep(has_word(kSteady, name));
    if (has_word(kViews, name)) return view();
    if (has_word(kExpansions, name)) return expand();
    if (has_word(kConstants, name)) return constant();
    if (has_word(kConvolutions, name)) return convolution();
    if (has_word(kRecurrent, name)) return recurrent();
    if (name == "linear") return linear();
    if (name == "matmul" || name == "mm" || name == "bmm") return multiply(node_->arguments[0], node_->arguments[1]);
    if (name == "addmm" || name == "baddbmm") return multiply(node_->arguments[1], node_->arguments[2]);
    if (name == "scaled_dot_product_attention") return attention();
    if (name == "embedding") return look_up();
    if (name == "index" || name == "index_select") return pick();
    if (name == "transpose" || name == "swapaxes" || name == "swapdims") return transpose();
    if (name == "t" || name == "numpy_T" || name == "mT") return reverse();
    if (name == "permute") return permute();
    if (name == "movedim" || name == "moveaxis") return move();
    if (name == "unsqueeze") return unsqueeze();
    if (name == "squeeze") return squeeze();
    if (name == "select" || name == "unbind") return drop();
    if (name == "cat" || name == "concat" || name == "stack") return join(name == "stack");
    if (argument("dim") && argument("keepdim")) return reduce();
    guess();
  }

  // ---- the rules

  // What a dimension counts in a call that joins both place by place.
  static Pieces united(const Pieces& a, const Pieces& b) {
    if (b.empty() || (a.size() == 1 && b.size() == 1 && a[0].counts == b[0].counts)) return a;
    if (a.empty() || a == b) return b;
    const bool counts_a = is_counted(a), counts_b = is_counted(b);
    if (counts_a && counts_b) return {{.counts = Counts::unknown, .size = a.size() == 1 ? a[0].size : GraphSize{}}};
    if (counts_a || counts_b) return counts_a ? a : b;
    // If one of the two may count tokens, so may the result.
    for (const Counts counts : {Counts::unknown, Counts::other})
      if (has_any(a, counts) != has_any(b, counts)) return has_any(a, counts) ? a : b;
    return a;
  }

  // A dimension after a call that has changed its size.
  static Pieces resized(const Pieces& pieces, const GraphSize& size) {
    if (pieces.size() == 1 && (pieces[0].is_whole() || !pieces[0].is_counted())) return whole(pieces[0].counts, size);
    return whole(is_counted(pieces) ? Counts::unknown : label_of(pieces), size);
  }

  void by_place() {
    for (const auto& result : node_->results) {
      if (!is_tensor(result.value)) continue;
      Shape made(sizes_of(result.value).size());
      const auto add = [&](int value) {
        if (!is_tensor(value) || shapes_[value].size() > made.size()) return;
        const size_t offset = made.size() - shapes_[value].size();
        for (size_t i = 0; i < shapes_[value].size(); ++i)
          made[offset + i] = united(made[offset + i], shapes_[value][i]);
      };
      for (const auto& given : node_->arguments) visit_values(given, add);
      shapes_[result.value] = made;
    }
  }

  void keep(bool is_steady) {
    if (!first()) return;
    const Shape self = *first();
    const auto self_sizes = sizes_of(node_->arguments[0].value);
    for (const auto& result : node_->results) {
      if (!is_tensor(result.value)) continue;
      const auto& sizes = sizes_of(result.value);
      if (sizes.size() != self.size()) continue;
      Shape made;
      for (size_t i = 0; i < sizes.size(); ++i)
        made.push_back(sizes[i] == self_sizes[i] ? self[i] : resized(self[i], sizes[i]));
      if (!is_steady) forget_repeated(made);
      shapes_[result.value] = made;
    }
  }

  // New tensors with the sizes of another one get its dimensions, because they may be filled with values like it.
  void constant() {
    const bool is_like = first() && sizes_of(node_->arguments[0].value) == sizes_of(node_->results[0].value);
    if (is_like) return make(*first());
    Shape made;
    for (const auto& size : sizes_of(node_->results[0].value)) made.push_back(whole(Counts::repeated, size));
    make(made);
  }

  void view() {
    if (!first()) return;
    const Shape self = *first();
    const auto from = sizes_of(node_->arguments[0].value), to = sizes_of(node_->results[0].value);
    Shape made(to.size());
    // Outermost and innermost dimensions of equal sizes are the same ones.
    size_t begin = 0, from_end = from.size(), to_end = to.size();
    for (; begin < std::min(from_end, to_end) && from[begin] == to[begin]; ++begin) made[begin] = self[begin];
    for (; from_end > begin && to_end > begin && from[from_end - 1] == to[to_end - 1]; --from_end, --to_end)
      made[to_end - 1] = self[from_end - 1];
    Pieces rest;
    for (size_t i = begin; i < from_end; ++i) rest.insert(rest.end(), self[i].begin(), self[i].end());
    // Those in between are cut from both ends until a size is not known to be that of some pieces; it gets the rest.
    while (begin < to_end && take(rest, to[begin], /*from_front=*/true, made[begin])) ++begin;
    while (to_end > begin && take(rest, to[to_end - 1], /*from_front=*/false, made[to_end - 1])) --to_end;
    if (to_end == begin + 1 && !rest.empty()) {
      made[begin] = joined(rest);
    } else {
      for (size_t i = begin; i < to_end; ++i) made[i] = whole(Counts::unknown, to[i]);
    }
    make(made);
  }

  // Moves pieces of this size from an end of `all`; false if that is impossible or not known.
  static bool take(Pieces& all, const GraphSize& size, bool from_front, Pieces& taken) {
    Pieces rest = all, made;
    const auto move = [&](const Piece& piece) {
      rest.erase(from_front ? rest.begin() : rest.end() - 1);
      made.insert(from_front ? made.end() : made.begin(), piece);
    };
    const bool is_number = size.expression.empty();
    for (int64_t open = size.number; is_number ? open > 1 : made.empty();) {
      if (rest.empty()) return false;
      const Piece next = from_front ? rest.front() : rest.back();
      const int64_t has = next.size.number;
      if (!is_number || !next.size.expression.empty()) {
        if (is_number || next.size != size) return false;
        move(next);
      } else if (has > open && has % open == 0) {
        const auto [outer, inner] = divided(next, from_front ? open : has / open);
        move(from_front ? outer : inner);
        rest.insert(from_front ? rest.begin() : rest.end(), from_front ? inner : outer);
        open = 1;
      } else if (has > 0 && open % has == 0) {
        move(next);
        open /= has;
      } else {
        return false;
      }
    }
    all = rest;
    taken = joined(made);
    return true;
  }

  static std::pair<Piece, Piece> divided(const Piece& piece, int64_t outer_size) {
    Piece outer = piece, inner = piece;
    outer.size = {.number = outer_size, .expression = ""};
    inner.size = {.number = piece.size.number / outer_size, .expression = ""};
    if (piece.is_counted()) {
      outer.after *= inner.size.number;
      inner.before *= outer_size;
    }
    return {outer, inner};
  }

  // Puts parts of one dimension together again.
  static Pieces joined(const Pieces& pieces) {
    Pieces made;
    for (const Piece& piece : pieces) {
      Piece* last = made.empty() ? nullptr : &made.back();
      const bool follows = last && piece.is_counted() && last->counts == piece.counts &&
                           last->size.expression.empty() && piece.size.expression.empty() &&
                           last->after == piece.after * piece.size.number &&
                           piece.before == last->before * last->size.number;
      if (follows) {
        last->size.number *= piece.size.number;
        last->after = piece.after;
      } else {
        made.push_back(piece);
      }
    }
    return made;
  }

  void expand() {
    if (!first()) return;
    const Shape self = *first();
    Shape made;
    const auto& sizes = sizes_of(node_->results[0].value);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const bool is_own = i + self.size() >= sizes.size() && !self[i + self.size() - sizes.size()].empty();
      made.push_back(is_own ? self[i + self.size() - sizes.size()] : whole(Counts::repeated, sizes[i]));
    }
    make(made);
  }

  // input [batch, channels, ...] -> [batch, other channels, ...]
  void convolution() {
    const Shape *input = first(), *weight = shape("weight");
    if (!input || !weight || input->size() < 3 || input->size() != weight->size()) return guess();
    const Shape self = *input;
    keep(false);
    for (const auto& result : node_->results)
      if (shapes_[result.value].size() == self.size())
        shapes_[result.value][1] = whole(Counts::other, sizes_of(result.value)[1]);
  }

  // [batch, length, features] or [length, batch, features]
  void recurrent() {
    guess();
    const int made = node_->results[0].value;
    if (!first() || first()->size() != 3 || sizes_of(made).size() != 3) return;
    const Shape self = *first();
    shapes_[made] = {self[0], self[1], whole(Counts::other, sizes_of(made)[2])};
  }

  void linear() {
    if (!first() || first()->empty()) return guess();
    Shape made = *first();
    made.back() = whole(Counts::other, sizes_of(node_->results[0].value).back());
    make(made);
  }

  // [..., m, k] x [..., k, n]
  void multiply(const GraphArgument& left, const GraphArgument& right) {
    if (!shape(&left) || !shape(&right)) return guess();
    const Shape a = *shape(&left), b = *shape(&right);
    if (a.size() < 2 || b.size() < 2) return guess();
    Shape made(std::max(a.size(), b.size()));
    for (const auto* factor : {&a, &b})
      for (size_t i = 0; i + 2 < factor->size(); ++i) {
        Pieces& batch = made[made.size() - factor->size() + i];
        batch = united(batch, (*factor)[i]);
      }
    made[made.size() - 2] = a[a.size() - 2];
    made.back() = b.back();
    make(made);
  }

  void attention() {
    const Shape *query = shape("query"), *value = shape("value");
    if (!query || !value || query->empty() || query->size() != value->size()) return guess();
    Shape made = *query;
    made.back() = value->back();
    make(made);
  }

  void look_up() {
    const Shape *table = shape("weight"), *indices = shape("indices");
    if (!table || !indices || table->size() != 2) return guess();
    Shape made = *indices;
    made.push_back(table->back());
    make(made);
  }

  // self[..., indices, ...] with indices of one dimension
  void pick() {
    if (!first()) return guess();
    const Shape self = *first();
    const bool selects = node_->name == "aten::index_select";
    const GraphArgument* indices = selects ? argument("index") : nullptr;
    int64_t along = selects ? dimension("dim", std::ssize(self)) : -1;
    if (!selects)
      for (const GraphArgument& item : argument("indices")->items) {
        if (item.value < 0) continue;
        if (indices) return guess();
        indices = &item;
        along = &item - argument("indices")->items.data();
      }
    const Shape* places = indices ? shape(indices) : nullptr;
    if (!places || along < 0 || along >= std::ssize(self)) return guess();
    if (graph_.values[indices->value].dtype == at::kBool) return guess();
    Shape made(self.begin(), self.begin() + along);
    // Tokens or samples in another order remain what they are.
    if (places->size() == 1 && !is_counted((*places)[0]) && is_counted(self[along]))
      made.push_back(resized(self[along], sizes_of(indices->value)[0]));
    else
      made.insert(made.end(), places->begin(), places->end());
    made.insert(made.end(), self.begin() + along + 1, self.end());
    make(made);
  }

  void transpose() {
    if (!first()) return guess();
    Shape made = *first();
    const bool has_axes = node_->name == "aten::swapaxes";
    const int64_t a = dimension(has_axes ? "axis0" : "dim0", std::ssize(made)),
                  b = dimension(has_axes ? "axis1" : "dim1", std::ssize(made));
    if (a < 0 || b < 0) return guess();
    std::swap(made[a], made[b]);
    make(made);
  }

  void reverse() {
    if (!first() || first()->size() < 2) return guess();
    Shape made = *first();
    std::reverse(made.begin() + (node_->name == "aten::mT" ? std::ssize(made) - 2 : 0), made.end());
    make(made);
  }

  void permute() {
    if (!first()) return guess();
    const Shape self = *first();
    Shape made;
    for (const int64_t number : integers("dims")) {
      const int64_t place = number < 0 ? number + std::ssize(self) : number;
      if (place < 0 || place >= std::ssize(self)) return guess();
      made.push_back(self[place]);
    }
    make(made);
  }

  void move() {
    if (!first()) return guess();
    Shape made = *first();
    const int64_t from = dimension("source", std::ssize(made)), to = dimension("destination", std::ssize(made));
    if (from < 0 || to < 0) return guess();
    const Pieces moved = made[from];
    made.erase(made.begin() + from);
    made.insert(made.begin() + to, moved);
    make(made);
  }

  void unsqueeze() {
    if (!first()) return guess();
    Shape made = *first();
    const int64_t place = dimension("dim", std::ssize(made) + 1);
    if (place < 0) return guess();
    made.insert(made.begin() + place, Pieces());
    make(made);
  }

  void squeeze() {
    if (!first()) return guess();
    const Shape self = *first();
    const auto sizes = sizes_of(node_->arguments[0].value);
    std::set<int64_t> named;
    for (const int64_t place : integers("dim")) named.insert(place < 0 ? place + std::ssize(self) : place);
    Shape made;
    for (int64_t i = 0; i < std::ssize(self); ++i)
      if (!is_one(sizes[i]) || (!named.empty() && !named.contains(i))) made.push_back(self[i]);
    make(made);
  }

  void drop() {
    if (!first()) return guess();
    Shape made = *first();
    const int64_t place = dimension("dim", std::ssize(made));
    if (place < 0) return guess();
    made.erase(made.begin() + place);
    make(made);
  }

  void join(bool stacks) {
    const GraphArgument* tensors = argument("tensors");
    const auto& sizes = sizes_of(node_->results[0].value);
    const int64_t along = dimension("dim", std::ssize(sizes));
    if (!tensors || along < 0) return guess();
    Shape made(sizes.size());
    for (const auto& item : tensors->items) {
      if (!shape(&item)) return guess();
      Shape part = *shape(&item);
      if (stacks) part.insert(part.begin() + std::min<int64_t>(along, std::ssize(part)), Pieces());
      if (part.size() != made.size()) return guess();
      for (size_t i = 0; i < made.size(); ++i) made[i] = united(made[i], part[i]);
    }
    const bool has_tokens = !stacks && is_counted(made[along]);
    const bool is_open = !stacks && has_any(made[along], Counts::unknown);
    made[along] = has_tokens ? resized(made[along], sizes[along])
                             : whole(is_open ? Counts::unknown : Counts::other, sizes[along]);
    make(made);
  }

  void reduce() {
    if (!first()) return guess();
    const Shape self = *first();
    const GraphArgument *dim = argument("dim"), *keep_them = argument("keepdim");
    if (dim->value >= 0 || !keep_them->constant.isBool()) return guess();
    std::set<int64_t> reduced;
    for (const int64_t place : integers("dim")) reduced.insert(place < 0 ? place + std::ssize(self) : place);
    Shape made;
    for (int64_t i = 0; i < std::ssize(self); ++i) {
      const bool is_reduced = reduced.empty() || reduced.contains(i);
      if (!is_reduced) made.push_back(self[i]);
      if (is_reduced && keep_them->constant.toBool()) made.push_back({});
    }
    make(made);
  }

  // For calls without a rule: a dimension of the result counts what those of the arguments with its size count, if they
  // agree and the size has no other origin.
  void guess() {
    std::vector<int> tensors;
    std::set<int64_t> numbers;
    const auto add_number = [&](const c10::IValue& constant) {
      if (constant.isInt()) numbers.insert(constant.toInt());
      if (constant.isIntList())
        for (const int64_t number : constant.toIntVector()) numbers.insert(number);
    };
    for (const auto& given : node_->arguments) {
      add_number(given.constant);
      for (const auto& item : given.items) add_number(item.constant);
      visit_values(given, [&](int value) {
        if (is_tensor(value)) tensors.push_back(value);
      });
    }
    for (const auto& result : node_->results) {
      if (!is_tensor(result.value)) continue;
      Shape made;
      for (const auto& size : sizes_of(result.value)) made.push_back(guessed(size, result.value, tensors, numbers));
      shapes_[result.value] = made;
    }
  }

  Pieces guessed(const GraphSize& size, int made, const std::vector<int>& tensors,
                 const std::set<int64_t>& numbers) const {
    if (size.expression.empty() && numbers.contains(size.number)) return whole(Counts::unknown, size);
    std::optional<Pieces> found;
    int64_t most = 0;
    for (const int value : tensors) {
      const auto& sizes = sizes_of(value);
      most = std::max<int64_t>(most, std::ranges::count(sizes, size));
      for (size_t i = 0; i < sizes.size(); ++i) {
        if (sizes[i] != size || (!is_counted(shapes_[value][i]) && !has_any(shapes_[value][i], Counts::other)))
          continue;
        if (found.value_or(shapes_[value][i]) != shapes_[value][i]) return whole(Counts::unknown, size);
        found = shapes_[value][i];
      }
    }
    const bool is_known = found && std::ranges::count(sizes_of(made), size) <= most;
    return is_known ? *found : whole(Counts::unknown, size);
  }

  const Graph& graph_;
  const GraphFlow& flow_;
  std::vector<Shape> shapes_;  // by value
  const GraphNode* node_ = nullptr;
};

}  // namespace

CountedDimensions counted_dimensions(const Graph& graph, const GraphFlow& flow,
                                     const std::map<int, std::vector<Counts>>& arguments) {
  return DimensionCounter(graph, flow, arguments).count();
}

}  // namespace shardline
