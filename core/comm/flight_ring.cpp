#include "core/comm/flight_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <memory>
#include <new>
#include <ostream>

#include "core/error.h"

namespace shardline {
namespace {

constexpr char kMagic[8] = {'S', 'L', 'F', 'L', 'Y', '0', '0', '1'};

int64_t now_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

// A file may contain anything: terminates each text inside its field.
void terminate_texts(FlightRecord& record) {
  const auto terminate = [](auto& field) { field[sizeof field - 1] = '\0'; };
  terminate(record.op);
  terminate(record.group);
  terminate(record.dtype);
  terminate(record.shape);
  terminate(record.what);
  terminate(record.instruction);
}

thread_local char instruction_of_thread[sizeof(FlightRecord::instruction)] = {};

}  // namespace

// What is mapped: a header, then the slots. A slot's ticket is written last, so a torn record shows as absent.
struct FlightRing::File {
  char magic[8];
  uint32_t record_bytes;
  uint32_t capacity;
  std::atomic<uint64_t> next;

  FlightRecord* slots() { return reinterpret_cast<FlightRecord*>(this + 1); }
  FlightRecord& slot(uint64_t ticket) { return slots()[ticket % capacity]; }
};

FlightRing::FlightRing(int capacity, const std::string& path) {
  SL_ASSERT(capacity > 0, "flight ring of ", capacity, " records");
  bytes_ = sizeof(File) + sizeof(FlightRecord) * capacity;
  int descriptor = -1;
  if (!path.empty()) {
    descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    // Allocates all blocks now: on a full disk, writing into a mapped hole would kill the process.
    const int error = descriptor < 0 ? errno : ::posix_fallocate(descriptor, 0, bytes_);
    if (error != 0) {
      const std::string reason = std::strerror(error);
      if (descriptor >= 0) ::close(descriptor);
      throw RunError(cat("the flight ring file ", path, " cannot be made: ", reason,
                         error == ENOSPC ? "; make room there, or choose another output_dir" : ""));
    }
  }
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, descriptor, 0);
  if (descriptor >= 0) ::close(descriptor);
  if (memory == MAP_FAILED) throw RunError(cat("the flight ring ", path, " cannot be mapped: ", std::strerror(errno)));
  const uint32_t slots = capacity;
  file_ = new (memory) File{{}, sizeof(FlightRecord), slots, {1}};
  std::memcpy(file_->magic, kMagic, sizeof kMagic);
}

FlightRing::~FlightRing() {
  ::munmap(file_, bytes_);
}

uint64_t FlightRing::begin(const FlightRecord& record) {
  const uint64_t ticket = file_->next.fetch_add(1, std::memory_order_relaxed);
  FlightRecord& slot = file_->slot(ticket);
  std::atomic_ref<uint64_t> published(slot.ticket);
  published.store(0, std::memory_order_release);
  FlightRecord filled = record;
  filled.ticket = 0;
  filled.start_ns = now_ns();
  filled.end_ns = 0;
  filled.state = FlightState::running;
  std::memcpy(filled.instruction, instruction_of_thread, sizeof filled.instruction);
  slot = filled;
  published.store(ticket, std::memory_order_release);
  return ticket;
}

void FlightRing::end(uint64_t ticket, FlightState state) {
  FlightRecord& slot = file_->slot(ticket);
  if (std::atomic_ref<uint64_t>(slot.ticket).load(std::memory_order_acquire) != ticket) return;
  slot.end_ns = now_ns();
  slot.state = state;
}

uint64_t FlightRing::next_ticket() const {
  return file_->next.load(std::memory_order_relaxed);
}

std::vector<FlightRecord> FlightRing::records() const {
  std::vector<FlightRecord> found;
  for (uint32_t i = 0; i < file_->capacity; ++i)
    if (file_->slots()[i].ticket != 0) found.push_back(file_->slots()[i]);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.ticket < b.ticket; });
  return found;
}

namespace {
// A replaced ring is kept: operations in progress still complete their records in it.
std::atomic<FlightRing*> ring_of_process{nullptr};
}  // namespace

FlightRing& flight_ring() {
  static FlightRing in_memory;
  FlightRing* opened = ring_of_process.load(std::memory_order_acquire);
  return opened != nullptr ? *opened : in_memory;
}

void open_flight_ring(const std::string& path, int capacity) {
  static std::vector<std::unique_ptr<FlightRing>> rings;
  rings.push_back(std::make_unique<FlightRing>(capacity, path));
  ring_of_process.store(rings.back().get(), std::memory_order_release);
}

void set_flight_instruction(const std::string& text) {
  const size_t length = std::min(text.size(), sizeof instruction_of_thread - 1);
  std::memcpy(instruction_of_thread, text.data(), length);
  std::memset(instruction_of_thread + length, 0, sizeof instruction_of_thread - length);
}

std::string flight_instruction() {
  return instruction_of_thread;
}

std::vector<FlightRecord> read_flight_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw DataError(cat("the flight ring file ", path, " cannot be opened"));
  char magic[8] = {};
  uint32_t record_bytes = 0, capacity = 0;
  uint64_t next = 0;
  const auto read = [&in](auto& field) { return in.read(reinterpret_cast<char*>(&field), sizeof field).good(); };
  if (!read(magic) || !read(record_bytes) || !read(capacity) || !read(next) ||
      std::memcmp(magic, kMagic, sizeof kMagic) != 0 || record_bytes != sizeof(FlightRecord))
    throw DataError(cat(path, " is not a flight ring of this version of shardline"));
  std::vector<FlightRecord> found;
  FlightRecord record;
  for (uint32_t i = 0; i < capacity; ++i) {
    if (!read(record)) throw DataError(cat(path, " ends after ", i, " of ", capacity, " records"));
    terminate_texts(record);
    if (record.ticket != 0) found.push_back(record);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.ticket < b.ticket; });
  return found;
}

namespace {
// The state may come from a damaged file.
const char* text_of(FlightState state) {
  switch (state) {
    case FlightState::running:
      return "RUNNING";
    case FlightState::done:
      return "done   ";
    case FlightState::failed:
      return "FAILED ";
  }
  return "?      ";
}
}  // namespace

void print_flight(std::ostream& out, const std::vector<FlightRecord>& records) {
  for (const FlightRecord& record : records) {
    out << text_of(record.state) << " rank " << record.rank << ' ' << record.op << ' ' << record.group << " #"
        << record.sequence;
    if (record.peer >= 0) out << " peer " << record.peer;
    if (record.dtype[0] != '\0') out << ' ' << record.dtype << ' ' << record.shape;
    if (record.what[0] != '\0') out << " for " << record.what;
    if (record.instruction[0] != '\0') out << " in " << record.instruction;
    if (record.end_ns != 0)
      out << ' ' << std::fixed << std::setprecision(3) << 1e-6 * (record.end_ns - record.start_ns) << " ms";
    out << '\n';
  }
}

}  // namespace shardline
