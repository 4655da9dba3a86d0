// Seconds of what layers state (core/model/layer_work.h) on a device and its links. No constants but those of the
// cluster. Links that were measured cost what was measured.
#pragma once
#include "core/model/layer_work.h"
#include "core/model/mesh.h"
#include "partitioner/layout/cluster.h"
#include "partitioner/layout/layout.h"
#include "partitioner/layout/profile.h"

namespace shardline {

// A group of ranks on the nodes: how many it has, and how many of them are on one node.
struct GroupSpan {
  int size = 1;
  int per_node = 1;          // where the nodes hold different numbers: their mean, rounded up
  Group group = Group::rdp;  // whose measured times are its own
  int nodes() const { return (size + per_node - 1) / per_node; }
};

class Pricing {
 public:
  // gradient_bytes: of an element that weight gradients are added to; separate_addition: by a sweep of its own rather
  // than by the product. profile: may be null. Throws ConfigError when the device lacks the precision.
  Pricing(const Cluster& cluster, Precision precision, int gradient_bytes, bool separate_addition,
          const Profile* profile = nullptr);

  // The library chooses the tile with which the product ends first. A multiprocessor makes one tile at a time, so the
  // last wave may leave some idle; small tiles load their factors more often; a tile's result is written while nothing
  // is multiplied. And no product is faster than its factors and its result pass through memory.
  double product(const Product& product) const;
  double sweep(double bytes, int kernels = 1) const;
  // Rings: every rank passes 1 - 1/n of the bytes on, twice in an all-reduce. Between nodes each rank of a node brings
  // its own adapter.
  double collective(Collective::Kind kind, double bytes, const GroupSpan& group) const;
  // An all-gather of values. Over several nodes messages bring a part from another node to each rank there by itself,
  // two steps bring it once; without equally many ranks on each node two steps are messages, too.
  double gathering(double bytes, const GroupSpan& group, GatherWay way) const;
  // The share of a collective's seconds that simultaneous computation hides; 1 if it was not measured.
  double hidden_share(Collective::Kind kind, const GroupSpan& group) const;
  double message(double bytes, bool same_node) const;
  double to_host(double bytes) const;
  double host_sweep(double bytes) const;  // through the host's memory, while the other devices do so, too

  const Profile* profile() const { return profile_; }  // null: nothing was measured

 private:
  double tiles(const Product& product) const;
  double rings(int rounds, double bytes, const GroupSpan& group) const;
  const LinkMeasurement* measured(Collective::Kind kind, const GroupSpan& group) const;

  const Cluster& cluster_;
  const Profile* profile_;
  int value_bytes_, gradient_bytes_;
  bool separate_addition_;
  double flops_, memory_;  // per second, of all multiprocessors
};

}  // namespace shardline
