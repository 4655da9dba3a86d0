// Computes the time that work (core/model/layer_work.h) takes on a device and its links, from the cluster's numbers and
// the tile sizes of GPU libraries. For links that were measured, it uses the measured times.
#pragma once
#include "core/model/layer_work.h"
#include "core/model/mesh.h"
#include "partitioner/layout/cluster.h"
#include "partitioner/layout/layout.h"
#include "partitioner/layout/profile.h"

namespace shardline {

// The number of ranks in a group, and how many of them are on one node.
struct GroupSpan {
  int size = 1;
  int per_node = 1;          // if it differs between nodes: the mean, rounded up
  Group group = Group::rdp;  // the kind of group, for looking up measured times
  int nodes() const { return (size + per_node - 1) / per_node; }
  bool operator==(const GroupSpan&) const = default;
};

class Pricing {
 public:
  // gradient_bytes: size of an element that weight gradients are added to. separate_addition: gradients are added by a
  // separate sweep, not by the product. profile: may be null. Throws ConfigError if the device does not support the
  // precision.
  Pricing(const Cluster& cluster, Precision precision, int gradient_bytes, bool separate_addition,
          const Profile* profile = nullptr);

  // The library chooses the tile with which the product finishes first. A multiprocessor computes one tile at a time,
  // so some may be idle in the last wave; small tiles load their factors more often; nothing is multiplied while the
  // result of a tile is written. A product takes at least the time to move its factors and its result through memory.
  double product(const Product& product) const;
  double sweep(double bytes, int kernels = 1) const;
  // A ring: every rank passes on 1 - 1/n of the bytes, twice in an all-reduce. Between nodes, each rank of a node adds
  // its own adapter's bandwidth.
  double collective(Collective::Kind kind, double bytes, const GroupSpan& group) const;
  // An all-gather of values over several nodes. With messages, each rank of a node receives the parts of other nodes
  // itself; with two steps, a node receives them once. Two steps require equal numbers of ranks on all nodes; otherwise
  // messages are used.
  double gathering(double bytes, const GroupSpan& group, GatherWay way) const;
  // The fraction of a collective's time that overlapping computation hides; 1 if it was not measured.
  double hidden_share(Collective::Kind kind, const GroupSpan& group) const;
  double message(double bytes, bool same_node) const;
  double to_host(double bytes) const;
  double host_sweep(double bytes) const;  // through the host's memory, while all other devices do likewise

  const Profile* profile() const { return profile_; }  // null if nothing was measured

 private:
  double tiles(const Product& product) const;
  double rings(int rounds, double bytes, const GroupSpan& group) const;
  const LinkMeasurement* measured(Collective::Kind kind, const GroupSpan& group) const;

  const Cluster& cluster_;
  const Profile* profile_;
  int value_bytes_, gradient_bytes_;
  bool separate_addition_;
  double flops_, memory_;  // per second, for all multiprocessors together
};

}  // namespace shardline
