// The world that all MPI tests of one program share.
#pragma once
#include "core/comm/mpi_communicator.h"

namespace shardline::testing {

MpiWorld& mpi_test_world();

}  // namespace shardline::testing
