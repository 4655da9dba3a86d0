// Exit codes of the program and of its ranks.
#pragma once

namespace shardline {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitConfig = 2;   // a mistake in the config or on the command line
inline constexpr int kExitStopped = 3;  // asked to stop, and can continue; see StoppedAfterSaving
// Only from ranks to their launcher, which itself exits with kExitFailed: a file of the user is broken, so a restart
// would fail in the same way.
inline constexpr int kExitBadData = 4;

}  // namespace shardline
