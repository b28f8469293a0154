// Anonymous zeroed memory with huge pages advised, and the layout that cuts it into cache-line aligned pieces. Weights, KV cache and
// buffers each live in one arena, so that a 2 MB page serves many tensors. Pages cost memory only once they are touched.
#pragma once

#include <cstdint>

namespace roofline {

inline constexpr int64_t kCacheLineBytes = 64;

inline constexpr int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

class Arena {
 public:
  Arena() = default;
  explicit Arena(int64_t size_bytes);     // throws std::runtime_error naming the size when the system refuses
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  uint8_t* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  uint8_t* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

// Offsets inside an arena that does not exist yet.
class Layout {
 public:
  int64_t take(int64_t size_bytes) {
    const int64_t offset = total_bytes_;
    total_bytes_ += round_up(size_bytes, kCacheLineBytes);
    return offset;
  }
  int64_t total_bytes() const { return total_bytes_; }

 private:
  int64_t total_bytes_ = 0;
};

}  // namespace roofline
