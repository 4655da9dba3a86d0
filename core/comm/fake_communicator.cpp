#include "core/comm/fake_communicator.h"

#include "core/comm/communicator_base.h"
#include "core/flight/flight_ring.h"

namespace shardline {
namespace {

class FakeCommunicator : public CommunicatorBase {
 public:
  FakeCommunicator(CommIdentity identity, FakeColors colors)
      : CommunicatorBase(std::move(identity)), colors_(std::move(colors)) {}

  std::shared_ptr<Communicator> split(int color, const std::string& group_name) override {
    if (!colors_)
      throw ConfigError(cat("a dry run cannot split group ", group_name, " off ", name(),
                            " without knowing the colors of all ranks; give them to make_fake_world"));
    std::vector<int> ranks;
    for (int other = 0; other < size(); ++other) {
      const int member = identity()->members[other];
      const int its_color = colors_(group_name, member);
      SL_ASSERT(other != rank() || its_color == color, "rank ", member, " splits ", group_name, " with color ", color,
                ", but the dry run was given ", its_color);
      if (its_color == color) ranks.push_back(other);
    }
    return std::make_shared<FakeCommunicator>(identity_of_part(ranks, group_name), colors_);
  }

  void abort(const std::string& reason) override { aborted_ = reason; }

 protected:
  WorkPtr start(CommRequest request) override {
    if (!aborted_.empty()) throw identity()->error(request, aborted_);
    flight_ring().end(request.ticket, FlightState::done);
    return finished_work();
  }

 private:
  FakeColors colors_;
  std::string aborted_;
};

}  // namespace

CommunicatorPtr make_fake_world(int rank, int size, FakeColors colors) {
  SL_ASSERT(size > 0 && rank >= 0 && rank < size, "rank ", rank, " of ", size);
  return std::make_shared<FakeCommunicator>(CommIdentity::of_world(rank, size), std::move(colors));
}

}  // namespace shardline
