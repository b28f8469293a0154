// The AMX instructions that the amx tier uses, as asm of our own: GCC 12's intrinsics tell the compiler about 8 of the 64 bytes of a
// configuration, and its tile loads and stores carry no memory clobber. EmulatedTiles does the same in plain C++, for machines
// without AMX. Internal linkage.
#pragma once

#include <cstdint>

namespace roofline {
namespace {

// Palette 1: rows and bytes a row of eight tiles.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int num_rows, int bytes) { rows[tile] = uint8_t(num_rows), row_bytes[tile] = uint16_t(bytes); }
};

// Loads the configuration for its lifetime; other threads and calls never see it.
class HardwareTiles {
 public:
  explicit HardwareTiles(const TileConfig& config) { asm volatile("ldtilecfg %0" ::"m"(config) : "memory"); }
  ~HardwareTiles() { asm volatile("tilerelease" ::: "memory"); }
  HardwareTiles(const HardwareTiles&) = delete;
  HardwareTiles& operator=(const HardwareTiles&) = delete;

  template <int t>
  void zero() { asm volatile("tilezero %%tmm%c0" ::"i"(t)); }
  template <int t>
  void load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(t), "r"(p), "r"(stride) : "memory");
  }
  template <int t>
  void store(void* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(t), "r"(p), "r"(stride) : "memory");
  }
  // c[m][n] += sum over k, i of signed a[m][4k + i] * unsigned b[k][4n + i].
  template <int c, int a, int b>
  void multiply_signed_unsigned() { asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b)); }
};

class EmulatedTiles {
 public:
  explicit EmulatedTiles(const TileConfig& config) : config_(config) {}

  template <int t>
  void zero() { __builtin_memset(bytes_[t], 0, sizeof bytes_[t]); }
  template <int t>
  void load(const void* p, int64_t stride) {
    zero<t>();
    for (int row = 0; row < config_.rows[t]; ++row) {
      __builtin_memcpy(bytes_[t][row], static_cast<const uint8_t*>(p) + row * stride, config_.row_bytes[t]);
    }
  }
  template <int t>
  void store(void* p, int64_t stride) {
    for (int row = 0; row < config_.rows[t]; ++row) {
      __builtin_memcpy(static_cast<uint8_t*>(p) + row * stride, bytes_[t][row], config_.row_bytes[t]);
    }
  }
  template <int c, int a, int b>
  void multiply_signed_unsigned() {
    for (int m = 0; m < config_.rows[c]; ++m) {
      for (int n = 0; n < config_.row_bytes[c] / 4; ++n) add_dot(bytes_[c][m] + 4 * n, bytes_[a][m], bytes_[b], n, config_.row_bytes[a]);
    }
  }

 private:
  static void add_dot(uint8_t* sum, const uint8_t* a, const uint8_t (*b)[64], int n, int num_bytes) {
    int32_t total;
    __builtin_memcpy(&total, sum, 4);
    for (int i = 0; i < num_bytes; ++i) total += int32_t(int8_t(a[i])) * int32_t(b[i / 4][4 * n + i % 4]);
    __builtin_memcpy(sum, &total, 4);
  }

  TileConfig config_;
  uint8_t bytes_[8][16][64];
};

}  // namespace
}  // namespace roofline
