#include "core/cuda/twin/fibers.h"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace shardline::twin {
namespace {

constexpr size_t kStackBytes = 512 * 1024;

// Pushes the registers that a function must preserve, stores the stack pointer in *mine, and continues where the
// fiber of `other` called it. (swapcontext makes system calls, and AddressSanitizer clears the whole stack's shadow
// in it.)
extern "C" void shardline_switch_stacks(void** mine, void* other);
#if defined(__x86_64__)
asm(R"(
.text
.globl shardline_switch_stacks
.type shardline_switch_stacks, @function
shardline_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size shardline_switch_stacks, . - shardline_switch_stacks
)");
constexpr size_t kPushed = 6, kReturn = 6;  // words on a waiting stack, and the index of the return address
#elif defined(__aarch64__)
asm(R"(
.text
.globl shardline_switch_stacks
.type shardline_switch_stacks, %function
shardline_switch_stacks:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size shardline_switch_stacks, . - shardline_switch_stacks
)");
constexpr size_t kPushed = 20, kReturn = 11;
#else
#error "fibers can switch stacks only on x86-64 and 64-bit Arm"
#endif

Fibers* running = nullptr;  // for enter(), which has no argument

}  // namespace

struct Fibers::Fiber {
  enum class State { idle, running, returned };

  void* pointer = nullptr;  // the stack pointer while another fiber runs
  void* stack = nullptr;    // null for the scheduler, which uses the thread's own
  size_t stack_bytes = 0;
  bool maps_stack = false;
  void* sanitizer_stack = nullptr;
  State state = State::idle;
  const uint64_t* watched = nullptr;  // the counter that must differ from `seen` before the fiber continues
  uint64_t seen = 0;

  ~Fiber() {
    if (!maps_stack) return;
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack, stack_bytes);  // an abandoned fiber leaves frames behind
#endif
    munmap(stack, stack_bytes);
  }

  // Tells AddressSanitizer which stack is in use.
  void switch_to(Fiber& other) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&sanitizer_stack, other.stack, other.stack_bytes);
#endif
    shardline_switch_stacks(&pointer, other.pointer);
    arrived();
  }
  void arrived() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(sanitizer_stack, nullptr, nullptr);
#endif
  }
};

Fibers::Fibers() : scheduler_(std::make_unique<Fiber>()) {}
Fibers::~Fibers() = default;

void Fibers::enter() {
  Fibers* all = running;
#if defined(__SANITIZE_ADDRESS__)
  const void* stack = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
  if (all->scheduler_->stack_bytes == 0) {
    all->scheduler_->stack = const_cast<void*>(stack);
    all->scheduler_->stack_bytes = bytes;
  }
#endif
  all->serve(*all->fibers_[all->current_]);
}

void Fibers::serve(Fiber& fiber) {
  for (;;) {
    try {
      (*body_)(current_);
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
    fiber.state = Fiber::State::returned;
    ++returned_;
    fiber.switch_to(*scheduler_);
  }
}

bool Fibers::resume(int index) {
  Fiber& fiber = *fibers_[index];
  if (fiber.state == Fiber::State::returned) return false;
  if (fiber.watched != nullptr && *fiber.watched == fiber.seen) return false;
  fiber.watched = nullptr;
  fiber.state = Fiber::State::running;
  current_ = index;
  scheduler_->switch_to(fiber);
  current_ = -1;
  return true;
}

void Fibers::wait_for_change(const uint64_t& counter) {
  Fiber& fiber = *fibers_[current_];
  fiber.watched = &counter;
  fiber.seen = counter;
  fiber.switch_to(*scheduler_);
}

void Fibers::run(int count, bool last_first, const std::function<void(int)>& body) {
  while (std::ssize(fibers_) < count) {
    auto fiber = std::make_unique<Fiber>();
    void* stack =
        mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap of a fiber's stack");
    fiber->stack = stack;
    fiber->maps_stack = true;
    fiber->stack_bytes = kStackBytes;
    // Prepares the stack as if the fiber had switched away at the start of enter(). The stack pointer is then one word
    // past a multiple of 16 bytes on x86-64, as after a call, and at such a multiple on Arm.
    auto* words = static_cast<uint64_t*>(stack) + kStackBytes / sizeof(uint64_t) - kPushed - 4;
    words[kReturn] = reinterpret_cast<uint64_t>(&Fibers::enter);
    fiber->pointer = words;
    fibers_.push_back(std::move(fiber));
  }
  running = this;
  body_ = &body;
  failure_ = nullptr;
  returned_ = 0;
  for (int i = 0; i < count; ++i) {
    fibers_[i]->state = Fiber::State::idle;
    fibers_[i]->watched = nullptr;
  }
  while (returned_ < count && !failure_) {
    bool moved = false;
    for (int i = 0; i < count && !failure_; ++i) moved |= resume(last_first ? count - 1 - i : i);
    if (!moved) failure_ = std::make_exception_ptr(Deadlock("threads wait for others that never arrive"));
  }
  if (failure_) {
    fibers_.clear();  // some fibers are still inside a body
    std::rethrow_exception(failure_);
  }
}

}  // namespace shardline::twin
