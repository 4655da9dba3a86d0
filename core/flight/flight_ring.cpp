#include "core/flight/flight_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "core/error.h"
#include "core/flight/flight_layout.h"

namespace shardline {
namespace {

// A rank is in about a dozen groups, most of which cover part of the world; there is room for all groups of a process.
constexpr uint32_t kGroupsPerRank = 64, kStreamsPerRank = 256;

int64_t now_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

flight::Header header_of(const FlightRing::Options& options) {
  flight::Header header{};
  std::memcpy(header.magic, flight::kMagic, sizeof header.magic);
  header.record_bytes = sizeof(FlightRecord);
  header.capacity = options.capacity * options.ranks;
  header.first_rank = options.first_rank;
  header.ranks = options.ranks;
  header.world_size = options.world_size;
  header.groups = kGroupsPerRank * options.ranks;
  header.members = header.groups + flight::kMembersPerRank * options.world_size;
  header.streams = std::bit_ceil(kStreamsPerRank * options.ranks + 4u * options.world_size);
  header.next = 1;
  header.opened_ns = now_ns();
  ::gethostname(header.host, sizeof header.host - 1);
  fill_text(header.job, options.job);
  return header;
}

FlightStream stream_of(std::string_view op) {
  return op == "send" ? FlightStream::send : op == "recv" ? FlightStream::recv : FlightStream::collective;
}

// The beginning of a text that is too long, with a mark that it was shortened.
std::string shortened(const std::string& text, size_t most) {
  const std::string mark = " ...";
  return text.substr(0, most - mark.size()) + mark;
}

thread_local FlightPlace place_of_thread;

}  // namespace

// The parts of the mapped memory.
struct FlightRing::Tables {
  Tables(char* memory, const flight::Offsets& at)
      : header(*reinterpret_cast<flight::Header*>(memory)),
        ranks(reinterpret_cast<flight::Rank*>(memory + at.ranks)),
        groups(reinterpret_cast<flight::Group*>(memory + at.groups)),
        members(reinterpret_cast<int32_t*>(memory + at.members)),
        streams(reinterpret_cast<flight::Stream*>(memory + at.streams)),
        records(reinterpret_cast<FlightRecord*>(memory + at.records)) {}

  // A slot's ticket is written last, so a partly written record appears as absent.
  FlightRecord& slot(uint64_t ticket) const { return records[ticket % header.capacity]; }
  flight::Rank* rank(int world_rank) const {
    const int64_t place = int64_t{world_rank} - header.first_rank;
    return place >= 0 && place < int64_t{header.ranks} ? ranks + place : nullptr;
  }

  flight::Header& header;
  flight::Rank* ranks;
  flight::Group* groups;
  int32_t* members;
  flight::Stream* streams;
  FlightRecord* records;
};

int64_t FlightRing::bytes_of(const Options& options) {
  return flight::Offsets(header_of(options)).end;
}

FlightRing::FlightRing(const Options& options) : path_(options.path), job_(options.job) {
  SL_ASSERT(options.capacity > 0 && options.ranks > 0 && options.world_size > 0, "flight ring of ", options.capacity,
            " records for ", options.ranks, " of ", options.world_size, " ranks");
  const flight::Header header = header_of(options);
  const flight::Offsets offsets(header);
  bytes_ = offsets.end;
  int descriptor = -1;
  if (!path_.empty()) {
    descriptor = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    // Allocates all blocks now: on a full disk, writing to a hole of a mapped file would kill the process.
    const int error = descriptor < 0 ? errno : ::posix_fallocate(descriptor, 0, bytes_);
    if (error != 0) {
      const std::string reason = std::strerror(error);
      if (descriptor >= 0) ::close(descriptor);
      throw RunError(cat("the flight ring file ", path_, " cannot be created: ", reason,
                         error == ENOSPC ? "; free some space there, or choose another output_dir" : ""));
    }
  }
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, descriptor, 0);
  if (descriptor >= 0) ::close(descriptor);
  if (memory == MAP_FAILED) throw RunError(cat("the flight ring ", path_, " cannot be mapped: ", std::strerror(errno)));
  memory_ = static_cast<char*>(memory);
  std::memcpy(memory_, &header, sizeof header);
  tables_ = std::make_unique<Tables>(memory_, offsets);
}

FlightRing::~FlightRing() {
  ::munmap(memory_, bytes_);
}

uint64_t FlightRing::begin(const FlightRecord& record, const FlightGroup& group) {
  const uint64_t ticket = std::atomic_ref(tables_->header.next).fetch_add(1, std::memory_order_relaxed);
  FlightRecord& slot = tables_->slot(ticket);
  std::atomic_ref<uint64_t> published(slot.ticket);
  published.store(0, std::memory_order_release);
  FlightRecord filled = record;
  filled.ticket = 0;
  filled.group_id = group.id;
  filled.start_ns = now_ns();
  filled.wait_ns = filled.end_ns = 0;
  filled.state = FlightState::running;
  filled.place = place_of_thread;
  fill_text(filled.group, group.name);
  slot = filled;
  published.store(ticket, std::memory_order_release);
  if (knows(group)) {
    const FlightStream stream = stream_of(record.op);
    const int peer = stream == FlightStream::collective ? -1 : record.peer;
    count(flight::stream_key(group.id, record.rank, stream, peer), record.sequence + 1);
  }
  return ticket;
}

void FlightRing::wait(uint64_t ticket) {
  FlightRecord& slot = tables_->slot(ticket);
  if (std::atomic_ref<uint64_t>(slot.ticket).load(std::memory_order_acquire) == ticket && slot.wait_ns == 0)
    slot.wait_ns = now_ns();
}

void FlightRing::begin_wait(const FlightRecord& record, const FlightGroup& group) {
  wait(record.ticket);
  flight::Rank* const entry = tables_->rank(record.rank);
  if (entry == nullptr) return;
  FlightRecord filled = record;
  filled.ticket = 0;
  filled.group_id = group.id;
  filled.wait_ns = now_ns();
  filled.end_ns = 0;
  filled.state = FlightState::running;
  filled.place = place_of_thread;
  fill_text(filled.group, group.name);
  const std::lock_guard lock(mutex_);
  std::atomic_ref<uint64_t> published(entry->waits_for.ticket);
  published.store(0, std::memory_order_release);
  entry->waits_for = filled;
  published.store(record.ticket, std::memory_order_release);
}

void FlightRing::end_wait(int rank, uint64_t ticket, bool failed) {
  flight::Rank* const entry = tables_->rank(rank);
  if (entry == nullptr) return;
  const std::lock_guard lock(mutex_);
  FlightRecord& waits_for = entry->waits_for;
  if (waits_for.ticket != ticket) return;  // another thread of the rank has begun to wait
  if (failed) {
    waits_for.end_ns = now_ns();
    waits_for.state = FlightState::failed;
  } else {
    std::atomic_ref<uint64_t>(waits_for.ticket).store(0, std::memory_order_release);
  }
}

void FlightRing::end(uint64_t ticket, FlightState state) {
  FlightRecord& slot = tables_->slot(ticket);
  if (std::atomic_ref<uint64_t>(slot.ticket).load(std::memory_order_acquire) != ticket) return;
  const int64_t now = now_ns();
  end_gap(now);
  slot.end_ns = now;
  slot.state = state;
}

// Adds the group to the table unless the table has it already. Returns false if the table is full.
bool FlightRing::knows(const FlightGroup& group) {
  flight::Header& header = tables_->header;
  const auto is_there = [&](uint32_t begin, uint32_t end) {
    return std::any_of(tables_->groups + begin, tables_->groups + end,
                       [&](const flight::Group& other) { return other.id == group.id; });
  };
  const uint32_t seen = std::atomic_ref(header.groups_used).load(std::memory_order_acquire);
  if (is_there(0, seen)) return true;
  const std::lock_guard lock(mutex_);
  const uint32_t used = header.groups_used;
  if (is_there(seen, used)) return true;
  const uint32_t first = used == 0 ? 0 : tables_->groups[used - 1].first_member + tables_->groups[used - 1].size;
  if (used == header.groups || first + group.members.size() > header.members) {
    std::atomic_ref(header.flags) |= flight::kFull;
    return false;
  }
  flight::Group& entry = tables_->groups[used];
  entry.id = group.id;
  fill_text(entry.name, group.name);
  entry.first_member = first;
  entry.size = group.members.size();
  std::copy(group.members.begin(), group.members.end(), tables_->members + first);
  std::atomic_ref(header.groups_used).store(used + 1, std::memory_order_release);
  return true;
}

// Each stream belongs to one thread, so only new entries need the lock.
void FlightRing::count(uint64_t key, uint64_t begun) {
  const uint32_t size = tables_->header.streams;
  std::unique_lock lock(mutex_, std::defer_lock);
  for (uint32_t probe = 0; probe < size; ++probe) {
    flight::Stream& entry = tables_->streams[(key + probe) % size];
    const std::atomic_ref owner(entry.key);
    uint64_t found = owner.load(std::memory_order_acquire);
    if (found == 0) {
      if (!lock.owns_lock()) lock.lock();
      found = owner.load(std::memory_order_relaxed);
    }
    if (found != 0 && found != key) continue;
    std::atomic_ref(entry.begun).store(begun, std::memory_order_relaxed);
    if (found == 0) owner.store(key, std::memory_order_release);
    return;
  }
  std::atomic_ref(tables_->header.flags) |= flight::kFull;
}

uint64_t FlightRing::next_ticket() const {
  return std::atomic_ref(tables_->header.next).load(std::memory_order_relaxed);
}

std::vector<FlightRecord> FlightRing::records() const {
  std::vector<FlightRecord> found;
  for (uint32_t i = 0; i < tables_->header.capacity; ++i)
    if (tables_->records[i].ticket != 0) found.push_back(tables_->records[i]);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.ticket < b.ticket; });
  return found;
}

void FlightRing::set_place(int rank, const FlightPlace& place) {
  flight::Rank* const entry = tables_->rank(rank);
  if (entry == nullptr) return;
  end_gap(place.since_ns);
  entry->place = place;
}

void FlightRing::end_rank(int rank, FlightEnd end, const std::string& reason) {
  flight::Rank* const entry = tables_->rank(rank);
  if (entry == nullptr || entry->end != FlightEnd::none) return;
  entry->end_ns = now_ns();
  fill_text(entry->reason, reason.size() < sizeof entry->reason ? reason : shortened(reason, sizeof entry->reason - 1));
  std::atomic_ref(entry->end).store(end, std::memory_order_release);
}

void FlightRing::end_ranks(FlightEnd end, const std::string& reason) {
  const flight::Header& header = tables_->header;
  for (int place = 0; std::cmp_less(place, header.ranks); ++place) end_rank(header.first_rank + place, end, reason);
}

void FlightRing::beat() {
  const int64_t now = now_ns();
  end_gap(now);
  std::atomic_ref(tables_->header.beat_ns).store(now, std::memory_order_relaxed);
}

// The first thread that notices a gap records it before it continues.
void FlightRing::end_gap(int64_t now) {
  flight::Header& header = tables_->header;
  const std::atomic_ref beat(header.beat_ns);
  const auto is_gap = [&](int64_t last) { return last != 0 && now - last > kFlightGapMilliseconds * int64_t{1000000}; };
  if (!is_gap(beat.load(std::memory_order_relaxed))) return;
  const std::lock_guard lock(mutex_);
  if (!is_gap(beat.load(std::memory_order_relaxed))) return;
  header.gap_begin_ns = beat.load(std::memory_order_relaxed);
  header.gap_end_ns = now;
  for (uint32_t i = 0; i < header.ranks; ++i) tables_->ranks[i].before_gap = tables_->ranks[i].place;
  beat.store(now, std::memory_order_relaxed);
}

namespace {
// Replaced rings are kept: operations in progress still complete their records in them.
std::atomic<FlightRing*> ring_of_process{nullptr};
}  // namespace

FlightRing& flight_ring() {
  static FlightRing in_memory{FlightRing::Options{}};
  FlightRing* opened = ring_of_process.load(std::memory_order_acquire);
  return opened != nullptr ? *opened : in_memory;
}

void open_flight_ring(const FlightRing::Options& options) {
  static std::vector<std::unique_ptr<FlightRing>> rings;
  rings.push_back(std::make_unique<FlightRing>(options));
  ring_of_process.store(rings.back().get(), std::memory_order_release);
}

namespace {
void publish_place() {
  place_of_thread.since_ns = now_ns();
  flight_ring().set_place(current_rank(), place_of_thread);
}
}  // namespace

void set_flight_step(int64_t step) {
  place_of_thread.step = step;
  publish_place();
}

void set_flight_instruction(const std::string& text) {
  ++place_of_thread.serial;
  fill_text(place_of_thread.instruction, text);
  fill_text(place_of_thread.layer, "");
  publish_place();
}

void set_flight_layer(const std::string& name) {
  fill_text(place_of_thread.layer, name);
  publish_place();
}

}  // namespace shardline
