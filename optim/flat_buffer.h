// Parameters of one layer (or one tied parameter) as views into one contiguous buffer, their gradients into another of
// at least fp32. The buffer is laid out in segments, so that "which ranks reduce this gradient", "does it decay" and
// "is it trained" are answered for contiguous ranges, not tensor by tensor.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/layer.h"

namespace shardline {

// How the T ranks stand to a gradient: each has its own slice; each has all of the same; each has a part of the sum.
enum class Sharing { split, complete, partial };
Sharing sharing_of(const ParamSpec& spec, int t_degree);

struct Segment {
  Sharing sharing;
  bool decays;
  bool trainable;
  int64_t begin = 0, length = 0;  // elements, padding included
};

struct NamedParam {
  std::string full_name;
  const ParamSpec* spec;
};

class FlatBuffer {
 public:
  // Allocates the values on rank t of T and nothing else; they are uninitialised, padding is zero.
  FlatBuffer(const std::vector<NamedParam>& params, int t, int t_degree, at::ScalarType dtype, at::Device device);

  const std::vector<Segment>& segments() const { return segments_; }  // trainable ones first
  const at::Tensor& values() const { return values_; }                // [elements]
  int64_t trainable_elements() const;

  // A zeroed gradient buffer for the trainable segments, [trainable_elements].
  at::Tensor make_gradients() const;
  // The parameters in the order given, as views; `gradients` from make_gradients, or undefined.
  std::vector<Parameter> views(const at::Tensor& gradients) const;

 private:
  struct Place {
    NamedParam param;
    int64_t begin;
    std::vector<int64_t> shape;
  };
  std::vector<Place> places_;
  std::vector<Segment> segments_;
  at::Tensor values_;
};

}  // namespace shardline
