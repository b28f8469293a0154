#include "executor/arena.h"

#include <sys/mman.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace roofline {

Arena::Arena(int64_t size_bytes) : size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  void* memory = mmap(nullptr, static_cast<size_t>(size_bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("the system refused an arena of " + std::to_string(size_bytes) + " bytes");
#ifdef MADV_HUGEPAGE
  madvise(memory, static_cast<size_t>(size_bytes), MADV_HUGEPAGE);   // advice: a kernel without huge pages goes on with small ones
#endif
  data_ = static_cast<uint8_t*>(memory);
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_bytes_));
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

}  // namespace roofline
