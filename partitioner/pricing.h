// Seconds of what layers state (core/layer_work.h) on a device and its links. No constants but those of the cluster.
#pragma once
#include "core/layer_work.h"
#include "partitioner/cluster.h"

namespace shardline {

// A group of ranks on the nodes: how many it has, and how many of them stand on one node.
struct GroupSpan {
  int size = 1;
  int per_node = 1;  // where the nodes hold different numbers: their mean, rounded up
  int nodes() const { return (size + per_node - 1) / per_node; }
};

class Pricing {
 public:
  // gradient_bytes: of an element that weight gradients are added to; separate_addition: by a sweep of its own rather
  // than by the product. Throws ConfigError when the device lacks the precision.
  Pricing(const Cluster& cluster, Precision precision, int gradient_bytes, bool separate_addition);

  // The library chooses the tile with which the product ends first. A multiprocessor makes one tile at a time, so the
  // last wave may leave some idle; small tiles load their factors more often; a tile's result is written while nothing
  // is multiplied. And no product is faster than its factors and its result pass through memory.
  double product(const Product& product) const;
  double sweep(double bytes, int kernels = 1) const;
  // Rings: every rank passes 1 - 1/n of the bytes on, twice in an all-reduce. Between nodes each rank of a node brings
  // its own adapter.
  double collective(Collective::Kind kind, double bytes, const GroupSpan& group) const;
  double message(double bytes, bool same_node) const;
  double to_host(double bytes) const;

 private:
  double tiles(const Product& product) const;

  const Cluster& cluster_;
  int value_bytes_, gradient_bytes_;
  bool separate_addition_;
  double flops_, memory_;  // per second, of all multiprocessors
};

}  // namespace shardline
